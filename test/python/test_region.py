"""The Python client helper of shm/: one region for all tensors of a request, against a real server and tritonclient's four clients."""
import gc
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from clients import SIXTEEN
from server import ROOT

sys.path.insert(0, os.path.join(ROOT, "shm/python"))
from nereid_shm import Layout, Region, RegionError  # noqa: E402

with open(os.path.join(ROOT, "shm/vectors/layouts.json"), encoding="utf-8") as f:
    VECTORS = json.load(f)

named = lambda kind: pytest.mark.parametrize("row", VECTORS[kind], ids=lambda row: row["name"])
SIMPLE = {"INPUT0": SIXTEEN, "INPUT1": SIXTEEN * 10, "OUTPUT0": ("INT32", [1, 16]), "OUTPUT1": ("INT32", [1, 16])}


def path_of(region):
    return f"/dev/shm{region.key}"


def run(code):
    """A process of its own that uses the helper."""
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "shm/python")}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)


@named("layouts")
def test_layouts(row):
    layout = Layout(row["tensors"])
    assert [[space.offset, space.capacity] for space in layout.spaces.values()] == row["spaces"]
    assert layout.byte_size == row["byte_size"]


@named("refused")
def test_layouts_that_are_refused(row):
    with pytest.raises(RegionError) as caught:
        Layout(row["tensors"])
    assert str(caught.value) == row["error"]


@named("contents")
def test_contents(row):
    spec = (row["datatype"], row["shape"], 64)
    with Region.create({"before": ("UINT8", [1]), "T": spec}) as region:
        kinds = {"INT32": "<i4", "FP32": "<f4", "FP64": "<f8", "BOOL": "?", "BF16": "<u2", "UINT8": "u1", "BYTES": object}
        value = np.array(row["values"], kinds[row["datatype"]]).reshape(row["shape"])
        region.put("T", value)
        with open(path_of(region), "rb") as file:
            assert file.read()[64 : 64 + len(row["bytes"]) // 2].hex() == row["bytes"]
        want = {"shared_memory_region": region.name, "shared_memory_offset": 64, "shared_memory_byte_size": len(row["bytes"]) // 2}
        assert region.parameters("T") == want
        assert region.parameters("T", output=True) == {**want, "shared_memory_byte_size": 64}
        got = region.array("T")
        assert got.shape == tuple(row["shape"])
        read = [element.decode() if isinstance(element, bytes) else element for element in got.reshape(-1).tolist()]
        assert read == row["values"]


@named("damaged")
def test_strings_that_reach_past_their_end_are_refused(row):
    data = bytes.fromhex(row["bytes"])
    with Region.create({"T": ("BYTES", row["shape"], len(data)), "after": ("BYTES", [1], 64)}) as region:
        with open(path_of(region), "r+b") as file:
            file.write(data)
        if row["error"] is None:
            assert region.array("T").tolist() == [b"", b"a"]
        else:
            with pytest.raises(RegionError) as caught:
                region.array("T")
            assert str(caught.value) == row["error"]


def test_one_region_serves_a_request_in_place(client):
    """M-31 P-203"""
    with Region.create(SIMPLE) as region:

        def ask():
            inputs = region.infer_inputs(client.types, "INPUT0", "INPUT1")
            outputs = region.infer_outputs(client.types, "OUTPUT0", "OUTPUT1")
            client.call("infer", "simple", inputs, outputs=outputs)
            return region.array("OUTPUT0")[0].tolist(), region.array("OUTPUT1")[0].tolist()

        client.call("register_system_shared_memory", region.name, region.key, region.byte_size)
        try:
            # Nothing of it is left once the server has it.
            region.unlink()
            assert not os.path.exists(path_of(region))
            assert ask() == ((SIXTEEN[0] * 11).tolist(), (SIXTEEN[0] * -9).tolist())
            region.array("INPUT0")[...] = 7
            assert ask()[0] == (SIXTEEN[0] * 10 + 7).tolist(), "a view is the input itself"
        finally:
            client.call("unregister_system_shared_memory", region.name)


def test_a_registration_ends_with_its_block(client):
    with Region.create(SIMPLE) as region:
        names = lambda: str(client.ask("get_system_shared_memory_status"))
        if client.is_aio:

            async def block():
                async with region.registered(client.raw):
                    inside.append(str(await client.raw.get_system_shared_memory_status()))

            inside = []
            client.loop.run_until_complete(block())
            assert region.name in inside[0]
            with pytest.raises(TypeError, match="async with"), region.registered(client.raw):
                pass
        else:
            with region.registered(client.raw):
                assert region.name in names()
        assert region.name not in names()


def test_strings_of_any_length_and_shapes_of_the_answer(transport):
    want = np.array([["one", "", "zwei \u00fc"]], object)
    with Region.create({"INPUT0": ("BYTES", [1, -1], 4096), "OUTPUT0": ("BYTES", [1, -1], 4096)}) as region:
        with region.registered(transport.raw):
            for value in (want, want[:, :1], np.array([[b"\xff" * 4000]], object)):
                region.put("INPUT0", value)
                result = transport.call(
                    "infer", "id_string", region.infer_inputs(transport.types, "INPUT0"), outputs=region.infer_outputs(transport.types, "OUTPUT0")
                )
                shape = [int(dim) for dim in transport.response(result)["outputs"][0]["shape"]]
                got = region.array("OUTPUT0", shape)
                assert got.tolist() == [[e if isinstance(e, bytes) else e.encode() for e in value[0]]]
            with pytest.raises(RegionError, match=r"BYTES \[1,1\] takes 4097 bytes, its capacity is 4096"):
                region.put("INPUT0", np.array([[b"x" * 4093]], object))


def test_plain_json_needs_no_client_library(server):
    with Region.create(SIMPLE) as region:
        register = f"/v2/systemsharedmemory/region/{region.name}/register"
        assert server.request("POST", register, json.dumps(region.registration()).encode())[0] == 200
        body = {
            "inputs": [region.json_input("INPUT0"), region.json_input("INPUT1")],
            "outputs": [region.json_output("OUTPUT0"), region.json_output("OUTPUT1")],
        }
        status, _, said = server.request("POST", "/v2/models/simple/infer", json.dumps(body).encode())
        assert status == 200, said
        assert region.array("OUTPUT0")[0].tolist() == (SIXTEEN[0] * 11).tolist()
        assert server.request("POST", register.replace("/register", "/unregister"))[0] == 200


def test_views_outlive_their_region_and_the_file_does_not():
    region = Region.create({"A": SIXTEEN})
    view = region.array("A")
    region.close()
    region.close()
    assert not os.path.exists(path_of(region))
    gc.collect()
    view += 1
    assert view[0, 15] == 16
    with pytest.raises(RegionError, match="it is closed"):
        region.array("A")


def test_another_process_attaches_and_leaves_the_file_alone():
    with Region.create({"A": SIXTEEN}) as region:
        done = run(f"from nereid_shm import Region\nr = Region.attach({region.key!r}, {{'A': ('INT32', [1, 16])}})\nr.array('A')[0, 0] = 99")
        assert done.returncode == 0, done.stderr
        assert region.array("A")[0, 0] == 99
        assert os.path.exists(path_of(region))
        with pytest.raises(RegionError, match="the file has 64 bytes, the tensors take 128"):
            Region.attach(region.key, {"A": ("INT32", [1, 17])})
        with pytest.raises(FileExistsError):
            Region.create({"A": SIXTEEN}, key=region.key)
    with pytest.raises(FileNotFoundError):
        Region.attach(region.key, {"A": ("INT32", [1, 16])})


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0"])
def test_a_process_that_ends_by_itself_leaves_no_file(end):
    done = run(f"import numpy\nfrom nereid_shm import Region\nr = Region.create({{'A': numpy.zeros(4)}})\nprint(r.key, flush=True)\n{end}")
    key = done.stdout.strip()
    assert key.startswith("/nereid-"), done.stderr
    assert not os.path.exists(f"/dev/shm{key}")


def test_a_fork_that_ends_leaves_the_file_to_its_parent():
    code = "import numpy, os, sys\nfrom nereid_shm import Region\nr = Region.create({'A': numpy.zeros(4)})\nif os.fork() == 0: sys.exit(0)\nos.wait()\n"
    done = run(f"{code}print(os.path.exists('/dev/shm' + r.key))")
    assert done.stdout == "True\n", done.stderr


def test_a_killed_process_leaves_no_file_once_it_was_unlinked():
    code = "import numpy, os, signal\nfrom nereid_shm import Region\nr = Region.create({'A': numpy.zeros(4)})\nprint(r.key, flush=True)\nr.unlink()\nos.kill(os.getpid(), signal.SIGKILL)"
    done = run(code)
    assert done.returncode == -signal.SIGKILL
    assert not os.path.exists(f"/dev/shm{done.stdout.strip()}")


def test_a_shm_that_is_full_is_an_error_and_leaves_nothing():
    room = os.statvfs("/dev/shm")
    mine = lambda: [name for name in os.listdir("/dev/shm") if name.startswith(f"nereid-{os.getpid()}-")]
    with pytest.raises(OSError):
        Region.create({"A": ("UINT8", [(room.f_blocks + 1) * room.f_frsize])})
    assert mine() == []


@pytest.mark.parametrize("key", ["", "/", "/a/b", ".", "..", "a\0b", "x" * 256])
def test_keys_that_are_no_names_of_files(key):
    with pytest.raises(RegionError, match="a name of 1 to 255 bytes"):
        Region.create({"A": SIXTEEN}, key=key)


def test_what_does_not_fit_is_refused_with_both_sizes():
    with Region.create({"A": SIXTEEN, "V": ("FP32", [-1], 16), "S": ("BYTES", [1], 8)}) as region:
        for put, text in (
            (("A", np.zeros((1, 17), np.int32)), r"tensor 'A': INT32 \[1,17\] takes 68 bytes, its capacity is 64"),
            (("A", np.zeros((1, 16), np.float32)), "tensor 'A': an array of float32 is not INT32"),
            (("S", np.zeros(1, np.int8)), "tensor 'S': an array of int8 is not BYTES"),
            (("S", np.array([1], object)), "tensor 'S': element 0 is a int, not a str or bytes"),
            (("nope", SIXTEEN), "tensor 'nope': not in this region, which has A, V, S"),
        ):
            with pytest.raises(RegionError, match=text):
                region.put(*put)
        with pytest.raises(RegionError, match=r"tensor 'V': its shape \[-1\] is not known; give the shape of the response"):
            region.array("V")
        with pytest.raises(RegionError, match="put an array there first"):
            region.parameters("V")
        with pytest.raises(RegionError, match=r"FP32 \[5\] takes 20 bytes, its capacity is 16"):
            region.array("V", [5])
    with pytest.raises(RegionError, match="no datatype for an array of complex128"):
        Region.create({"A": np.zeros(1, complex)})
    # Bytes of the other order are values, not bytes.
    with Region.create({"A": np.array([1, 2], ">i4")}) as region:
        assert region.array("A").tolist() == [1, 2]
