"""
Asks a server over gRPC with tritonclient, one line of JSON in and one out:

    {"target": "127.0.0.1:8001", "metadata": {…}, "tls": {"root": …, "cert": …, "key": …} | null, "verbs": […], "key": "/name of shared memory", "file": "/a/path"}

answers {"verb": ["OK", "message"], …}; a target that no connection comes to be with answers "no connection" for every verb.
"""

import json
import sys
import threading

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

CONNECT_SECONDS = 4
SECONDS = 20


def pair():
    """Inputs of `simple`."""
    inputs = [triton.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one in inputs:
        one.set_data_from_numpy(np.full((1, 16), 3, np.int32))
    return inputs


def other():
    """The input of `identity_fp32`."""
    one = triton.InferInput("INPUT0", [2], "FP32")
    one.set_data_from_numpy(np.ones(2, np.float32))
    return [one]


def stream(client, headers, model, inputs):
    answers, over = [], threading.Event()

    def take(result, error):
        answers.append(error)
        over.set()

    client.start_stream(take, headers=headers)
    try:
        client.async_stream_infer(model, inputs)
    except InferenceServerException:
        # The stream was refused before there was a request; the callback is told why.
        pass
    over.wait(SECONDS)
    client.stop_stream(cancel_requests=True)
    if not answers:
        raise TimeoutError("the stream did not answer")
    if answers[0] is not None:
        raise answers[0]


def message(number, text):
    """A protobuf message with one text."""
    return bytes([number * 8 + 2, len(text)]) + text


def raw(channel, metadata, path, body, streams=False):
    """A call that tritonclient does not make; the first answer of a stream is all that is wanted."""
    kind = channel.unary_stream if streams else channel.unary_unary
    call = kind(path, request_serializer=bytes, response_deserializer=bytes)(body, metadata=metadata, timeout=SECONDS)
    if streams:
        next(call)
        call.cancel()


def reflection(channel, metadata):
    call = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", bytes, bytes)
    answers = call(iter([message(7, b"")]), metadata=metadata, timeout=SECONDS)
    next(answers)
    answers.cancel()


def settings(stub, model="", **values):
    request = service_pb2.TraceSettingRequest(model_name=model)
    for name, value in values.items():
        request.settings[name].value.append(value)
    return lambda metadata: stub.TraceSetting(request, metadata=metadata, timeout=SECONDS)


def log_settings(stub, **values):
    request = service_pb2.LogSettingsRequest()
    for name, value in values.items():
        request.settings[name].string_param = value
    return lambda metadata: stub.LogSettings(request, metadata=metadata, timeout=SECONDS)


def calls(client, channel, ask):
    """Verb → what asks for it."""
    headers, metadata = ask["metadata"], list(ask["metadata"].items())
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    health = "/grpc.health.v1.Health/"
    return {
        "live": lambda: client.is_server_live(headers=headers),
        "ready": lambda: client.is_server_ready(headers=headers),
        "health": lambda: raw(channel, metadata, health + "Check", b""),
        "load_reports": lambda: raw(channel, metadata, "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics", b"", streams=True),
        "watch": lambda: raw(channel, metadata, health + "Watch", b"", streams=True),
        "reflection": lambda: reflection(channel, metadata),
        # As the call comes, with its trailers, which tritonclient does not show.
        "metadata_call": lambda: stub.ServerMetadata(service_pb2.ServerMetadataRequest(), metadata=metadata, timeout=SECONDS),
        "metadata": lambda: client.get_server_metadata(headers=headers),
        "model": lambda: client.get_model_metadata("simple", headers=headers),
        "other_model": lambda: client.get_model_metadata("identity_fp32", headers=headers),
        "other_infer": lambda: client.infer("identity_fp32", other(), headers=headers),
        "model_ready": lambda: client.is_model_ready("simple", headers=headers),
        "config": lambda: client.get_model_config("simple", headers=headers),
        "statistics": lambda: client.get_inference_statistics("simple", headers=headers),
        "infer": lambda: client.infer("simple", pair(), headers=headers),
        "stream_infer": lambda: stream(client, headers, "simple", pair()),
        "other_stream": lambda: stream(client, headers, "identity_fp32", other()),
        "index": lambda: client.get_model_repository_index(headers=headers),
        "load": lambda: client.load_model("spare", headers=headers),
        "unload": lambda: client.unload_model("spare", headers=headers),
        "log": lambda: client.get_log_settings(headers=headers),
        "set_log": lambda: client.update_log_settings({"log_format": "ISO8601"}, headers=headers),
        "set_log_file": lambda: log_settings(stub, log_file=ask["file"])(metadata),
        "trace": lambda: client.get_trace_settings(headers=headers),
        "set_trace": lambda: client.update_trace_settings(settings={"trace_rate": "77"}, headers=headers),
        "set_trace_file": lambda: settings(stub, trace_file=ask["file"])(metadata),
        "model_trace": lambda: client.get_trace_settings("simple", headers=headers),
        "set_model_trace": lambda: client.update_trace_settings("simple", {"trace_rate": "78"}, headers=headers),
        "register": lambda: client.register_system_shared_memory("grpc", ask["key"], 64, headers=headers),
        "regions": lambda: client.get_system_shared_memory_status(headers=headers),
        "unregister": lambda: client.unregister_system_shared_memory("grpc", headers=headers),
        "cuda_register": lambda: client.register_cuda_shared_memory("grpc", b"A" * 88, 0, 64, headers=headers),
        "cuda_regions": lambda: client.get_cuda_shared_memory_status(headers=headers),
        "cuda_unregister": lambda: client.unregister_cuda_shared_memory("grpc", headers=headers),
    }


def answer(call):
    try:
        call()
        return "OK", ""
    except InferenceServerException as error:
        status = (error.status() or "").removeprefix("StatusCode.")
        # An error of one request of a stream has a text and no status.
        return (status or "error in the stream"), error.message()
    except grpc.RpcError as error:
        pushback = dict(error.trailing_metadata() or ()).get("grpc-retry-pushback-ms")
        return error.code().name, error.details() if pushback is None else f"{error.details()} (retry after {pushback} ms)"


def read(path):
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def ask_all(ask):
    tls = ask["tls"]
    options = {}
    if tls is None:
        channel = grpc.insecure_channel(ask["target"])
    else:
        parts = [read(tls["root"]), read(tls.get("key")), read(tls.get("cert"))]
        channel = grpc.secure_channel(ask["target"], grpc.ssl_channel_credentials(*parts))
        options = {"ssl": True, "root_certificates": tls["root"], "private_key": tls.get("key"), "certificate_chain": tls.get("cert")}
    with channel:
        try:
            grpc.channel_ready_future(channel).result(CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            return {verb: ["no connection", ""] for verb in ask["verbs"]}
        with triton.InferenceServerClient(ask["target"], **options) as client:
            known = calls(client, channel, ask)
            return {verb: answer(known[verb]) for verb in ask["verbs"]}


for line in sys.stdin:
    print(json.dumps(ask_all(json.loads(line))), flush=True)
