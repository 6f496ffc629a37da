"""System shared memory: in, out, offsets, every refusal, and a region that its owner cuts short."""
import json
import mmap
import os
import threading
import uuid

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import serialize_byte_tensor

from clients import SIXTEEN, check_failure, connect, failure

BYTES = SIXTEEN.nbytes
PAGE = mmap.PAGESIZE


@pytest.fixture
def segment():
    """Makes segments in /dev/shm: `segment(byte_size) -> (name, handle)`. All are gone afterwards, however the test ends."""
    made = []

    def make(byte_size):
        name = f"nereid_test_{uuid.uuid4().hex[:12]}"
        made.append(shm.create_shared_memory_region(name, f"/{name}", byte_size, create_only=True))
        return name, made[-1]

    yield make
    for handle in made:
        shm.destroy_shared_memory_region(handle)


@pytest.fixture
def region(transport, segment):
    """The same, registered with the server."""

    def make(byte_size):
        name, handle = segment(byte_size)
        transport.call("register_system_shared_memory", name, f"/{name}", byte_size)
        return name, handle

    yield make
    transport.call("unregister_system_shared_memory")


def shm_input(client, name, shape, datatype, region, size, offset=0):
    one = client.types.InferInput(name, shape, datatype)
    one.set_shared_memory(region, size, offset)
    return one


def shm_output(client, name, region, size, offset=0):
    one = client.types.InferRequestedOutput(name)
    one.set_shared_memory(region, size, offset)
    return one


def pair(client, name, size=BYTES, offset0=0, offset1=BYTES):
    return [
        shm_input(client, "INPUT0", [1, 16], "INT32", name, size, offset0),
        shm_input(client, "INPUT1", [1, 16], "INT32", name, size, offset1),
    ]


def test_inputs_and_outputs_are_used_in_place_at_their_offsets(transport, region):
    """P-085 P-095 P-143 P-203 P-210 M-31"""
    source, ins = region(2 * BYTES)
    target, outs = region(3 * BYTES)
    shm.set_shared_memory_region(ins, [SIXTEEN, SIXTEEN * 10])
    shm.set_shared_memory_region(outs, [np.full((1, 48), -1, np.int32)])
    wanted = [shm_output(transport, "OUTPUT0", target, BYTES, 0), shm_output(transport, "OUTPUT1", target, BYTES, 2 * BYTES)]
    result = transport.call("infer", "simple", pair(transport, source), outputs=wanted)
    got = shm.get_contents_as_numpy(outs, np.int32, [1, 48])[0]
    assert got[:16].tolist() == (SIXTEEN[0] * 11).tolist()
    assert got[16:32].tolist() == [-1] * 16, "nothing between the two outputs may be touched"
    assert got[32:].tolist() == (SIXTEEN[0] * -9).tolist()
    for output in transport.response(result)["outputs"]:
        assert "data" not in output and "parameters" not in output, "the response itself carries no data"


def test_one_input_in_a_region_one_in_the_body(transport, region):
    """M-10"""
    source, ins = region(BYTES)
    shm.set_shared_memory_region(ins, [SIXTEEN])
    inputs = [shm_input(transport, "INPUT0", [1, 16], "INT32", source, BYTES), transport.input("INPUT1", SIXTEEN)]
    assert transport.call("infer", "simple", inputs).as_numpy("OUTPUT0").tolist() == (SIXTEEN * 2).tolist()


def test_strings_in_and_out_of_regions(transport, region):
    want = np.array([[b"one", b"", "zwei \u00fc".encode()]], object)
    packed = serialize_byte_tensor(want)
    size = len(packed.item())
    source, ins = region(size)
    target, outs = region(PAGE)
    shm.set_shared_memory_region(ins, [packed])
    transport.call(
        "infer",
        "id_string",
        [shm_input(transport, "INPUT0", [1, 3], "BYTES", source, size)],
        outputs=[shm_output(transport, "OUTPUT0", target, PAGE)],
    )
    assert shm.get_contents_as_numpy(outs, np.object_, [1, 3]).tolist() == want.tolist()


def test_status_lists_what_was_registered(transport, region):
    """P-058 P-129 M-15"""
    name, _ = region(2 * PAGE)
    got = transport.ask("get_system_shared_memory_status", name)
    if transport.is_http:
        assert got == [{"name": name, "key": f"/{name}", "offset": 0, "byte_size": 2 * PAGE}]
    else:
        assert got["regions"][name]["byte_size"] == str(2 * PAGE)


def test_unregistering_is_forgiving(transport, region):
    """M-11 P-062"""
    name, _ = region(PAGE)
    transport.call("unregister_system_shared_memory", name)
    transport.call("unregister_system_shared_memory", name)
    transport.call("unregister_system_shared_memory", "never_there")
    status = transport.ask("get_system_shared_memory_status")
    assert status == [] or status == {}


def test_registration_refusals(transport, region):
    """P-060 P-065 M-4 M-6 M-16 M-19"""
    name, _ = region(PAGE)
    put = lambda *args, **more: (lambda: transport.call("register_system_shared_memory", *args, **more))
    check_failure(
        transport, put(name, f"/{name}", PAGE), f"shared memory region '{name}' already in manager", 400, "ALREADY_EXISTS"
    )
    check_failure(
        transport, put("r", "/no_such_key", 64), "Unable to open shared memory region: '/no_such_key'", 500, "INTERNAL"
    )
    check_failure(
        transport, put("r", f"/{name}", 2 * PAGE),
        "failed to register shared memory region 'r': invalid args", 400, "INVALID_ARGUMENT",
    )
    prefix = "triton_python_backend_shm_region_"
    message, _ = failure(put("r", f"/{prefix}1", 64))
    assert "reserved prefix" in message
    for key in ("/../etc/passwd", "/sem.x", "/a/b"):
        failure(put("r", key, 64))


def test_use_refusals(transport, region):
    """P-061 M-7 M-13 M-14"""
    name, ins = region(2 * BYTES)
    shm.set_shared_memory_region(ins, [SIXTEEN, SIXTEEN])
    go = lambda inputs, outputs=None: (lambda: transport.call("infer", "simple", inputs, outputs=outputs))
    check_failure(
        transport, go(pair(transport, "nowhere")), "Unable to find shared memory region: 'nowhere'", 404, "NOT_FOUND"
    )
    check_failure(
        transport, go(pair(transport, name, offset1=2 * BYTES)),
        f"Invalid offset for shared memory region: '{name}'", 400, "INVALID_ARGUMENT",
    )
    check_failure(
        transport, go(pair(transport, name, offset1=BYTES + 4)),
        f"Invalid offset + byte size for shared memory region: '{name}'", 400, "INVALID_ARGUMENT",
    )
    small = [shm_output(transport, "OUTPUT0", name, 60)]
    check_failure(
        transport, go(pair(transport, name), small),
        "shared memory size specified with the request for output 'OUTPUT0' (60 bytes) should be at least 64 bytes to "
        "hold the results", 500, "INTERNAL",
    )


def test_a_region_cut_short_by_its_owner_fails_the_request_not_the_server(transport, region, server):
    """M-17"""
    count = 1 << 20
    name, handle = region(4 * count)
    shm.set_shared_memory_region(handle, [np.ones(count, np.float32)])
    inputs = [shm_input(transport, "INPUT0", [count], "FP32", name, 4 * count)]
    assert transport.call("infer", "echo", inputs).as_numpy("OUTPUT0").sum() == count
    os.truncate(f"/dev/shm/{name}", PAGE)
    failure(lambda: transport.call("infer", "echo", inputs))
    assert server.process.poll() is None
    assert transport.call("is_server_live")


def test_truncation_during_requests_never_ends_the_server(server, segment):
    """M-17 M-18: the owner keeps cutting and growing the file while requests read it and write to it."""
    client = connect("grpc", server)
    count = 1 << 18
    name, _ = segment(8 * count)
    client.call("register_system_shared_memory", name, f"/{name}", 8 * count)
    done = threading.Event()

    def saw():
        while not done.is_set():
            os.truncate(f"/dev/shm/{name}", PAGE)
            os.truncate(f"/dev/shm/{name}", 8 * count)

    thread = threading.Thread(target=saw)
    thread.start()
    answered = failed = 0
    try:
        for _ in range(200):
            inputs = [shm_input(client, "INPUT0", [count], "FP32", name, 4 * count)]
            outputs = [shm_output(client, "OUTPUT0", name, 4 * count, 4 * count)]
            try:
                client.call("infer", "echo", inputs, outputs=outputs)
                answered += 1
            except Exception:  # noqa: BLE001 - a refusal is a right answer here
                failed += 1
    finally:
        done.set()
        thread.join()
        client.call("unregister_system_shared_memory", name)
        client.close()
    assert answered + failed == 200
    assert server.process.poll() is None
    assert server.request("GET", "/v2/health/ready")[0] == 200


def test_a_region_in_use_stays_until_the_request_is_done(server, segment):
    """P-063 M-12"""
    client, other = connect("grpc", server), connect("http", server)
    name, handle = segment(PAGE)
    shm.set_shared_memory_region(handle, [np.array([1, 2, 3, 4], np.int32)])
    client.call("register_system_shared_memory", name, f"/{name}", PAGE)
    got = []

    def slow():
        inputs = [shm_input(client, "INPUT0", [4], "INT32", name, 16)]
        got.append(client.call("infer", "slow", inputs).as_numpy("OUTPUT0").tolist())

    thread = threading.Thread(target=slow)
    thread.start()
    threading.Event().wait(0.1)
    other.call("unregister_system_shared_memory", name)
    thread.join()
    assert got == [[1, 2, 3, 4]]
    assert other.call("get_system_shared_memory_status") == []
    client.close()
    other.close()


def test_registration_is_off_unless_the_operator_allows_it(repositories, start):
    """P-064 M-1"""
    server = start(repositories / "small")
    text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    for kind in ("http", "grpc"):
        client = connect(kind, server)
        run = lambda: client.call("register_system_shared_memory", "r", "/r", 64)
        check_failure(client, run, text, 501, "UNIMPLEMENTED")
        check_failure(client, lambda: client.call("unregister_system_shared_memory"), text, 501, "UNIMPLEMENTED")
        status = client.ask("get_system_shared_memory_status")
        assert status in ([], {})
        client.close()


def test_cuda_registration_says_there_is_no_gpu(server):
    """M-20 M-21"""
    body = json.dumps({"raw_handle": {"b64": "A" * 84 + "AA=="}, "device_id": 0, "byte_size": 64}).encode()
    status, _, text = server.request("POST", "/v2/cudasharedmemory/region/c/register", body)
    assert status in (400, 501) and "error" in json.loads(text)
