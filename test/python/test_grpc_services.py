"""gRPC beyond tritonclient: health, reflection, typed contents, RPCs that are not offered."""
import threading

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import service_pb2, service_pb2_grpc

from clients import SIXTEEN


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.grpc) as one:
        yield one


@pytest.fixture
def stub(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def varint_field(number, value):
    return bytes([number << 3, value])


def test_health_check_says_serving(channel):
    """P-133. Written by hand: SERVING is field 1 = 1."""
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"") == varint_field(1, 1)
    assert check(b"\x0a\x03any") == varint_field(1, 1)


def test_health_watch_sends_the_state_at_once(channel):
    """COMPAT: offered here."""
    call = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
    assert next(iter(call)) == varint_field(1, 1)
    call.cancel()


def test_reflection_describes_the_service(channel):
    """P-134"""
    database = ProtoReflectionDescriptorDatabase(channel)
    assert "inference.GRPCInferenceService" in database.get_services()
    service = DescriptorPool(database).FindServiceByName("inference.GRPCInferenceService")
    assert {"ModelInfer", "ModelStreamInfer", "ServerLive"} <= {m.name for m in service.methods}


def request(model, datatype, shape, **contents):
    one = service_pb2.ModelInferRequest(model_name=model)
    tensor = one.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(tensor.contents, field).extend(values)
    return one


@pytest.mark.parametrize(
    "model,datatype,field,values,want",
    [
        ("id_bool", "BOOL", "bool_contents", [True, False], np.array([True, False])),
        ("id_int8", "INT8", "int_contents", [-1, 5], np.array([-1, 5], np.int8)),
        ("id_int16", "INT16", "int_contents", [-1, 300], np.array([-1, 300], np.int16)),
        ("id_int32", "INT32", "int_contents", [-1, 7], np.array([-1, 7], np.int32)),
        ("id_int64", "INT64", "int64_contents", [-(2**63), 7], np.array([-(2**63), 7], np.int64)),
        ("id_uint8", "UINT8", "uint_contents", [0, 255], np.array([0, 255], np.uint8)),
        ("id_uint16", "UINT16", "uint_contents", [0, 65535], np.array([0, 65535], np.uint16)),
        ("id_uint32", "UINT32", "uint_contents", [0, 2**32 - 1], np.array([0, 2**32 - 1], np.uint32)),
        ("id_uint64", "UINT64", "uint64_contents", [0, 2**64 - 1], np.array([0, 2**64 - 1], np.uint64)),
        ("id_fp32", "FP32", "fp32_contents", [0.5, -1], np.array([0.5, -1], np.float32)),
        ("id_fp64", "FP64", "fp64_contents", [0.1, -1], np.array([0.1, -1], np.float64)),
    ],
)
def test_typed_contents_of_every_datatype(stub, model, datatype, field, values, want):
    """P-137 P-138"""
    got = stub.ModelInfer(request(model, datatype, [1, 2], **{field: values}))
    assert list(got.raw_output_contents) == [want.tobytes()]


def test_typed_strings(stub):
    got = stub.ModelInfer(request("id_string", "BYTES", [1, 2], bytes_contents=[b"", b"ab"]))
    assert list(got.raw_output_contents) == [b"\0\0\0\0\2\0\0\0ab"]


def test_the_wrong_list_is_refused(stub):
    with pytest.raises(grpc.RpcError) as raised:
        stub.ModelInfer(request("id_int32", "INT32", [1, 1], fp32_contents=[1]))
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_requests_may_interleave_on_one_channel(stub):
    """Flow control: a 32 MiB request must not hold up small ones for long."""
    big = service_pb2.ModelInferRequest(model_name="echo", raw_input_contents=[bytes(32 << 20)])
    big.inputs.add(name="INPUT0", datatype="FP32", shape=[8 << 20])
    options = stub.ModelInfer.future(big)
    small = service_pb2.ModelInferRequest(model_name="simple", raw_input_contents=[SIXTEEN.tobytes()] * 2)
    for name in ("INPUT0", "INPUT1"):
        small.inputs.add(name=name, datatype="INT32", shape=[1, 16])
    for _ in range(20):
        assert stub.ModelInfer(small, timeout=10).raw_output_contents[1] == bytes(64)
    try:
        assert len(options.result(timeout=30).raw_output_contents[0]) == 32 << 20
    except grpc.RpcError as e:
        # The default limit of this client for what it receives, not ours.
        assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_method_that_does_not_exist_is_unimplemented(channel):
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary("/inference.GRPCInferenceService/Nope")(b"", timeout=5)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_garbage_is_an_error_and_not_the_end(channel, server):
    with pytest.raises(grpc.RpcError):
        channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\xff" * 50, timeout=5)
    assert server.request("GET", "/v2/health/ready")[0] == 200


def test_many_threads_share_one_channel(stub):
    wrong = []

    def work(value):
        array = np.full((1, 16), value, np.int32)
        one = service_pb2.ModelInferRequest(model_name="simple", raw_input_contents=[array.tobytes()] * 2)
        for name in ("INPUT0", "INPUT1"):
            one.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        for _ in range(50):
            if stub.ModelInfer(one).raw_output_contents[0] != (array * 2).tobytes():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
