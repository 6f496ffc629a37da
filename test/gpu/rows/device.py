"""Devices as the server and its commands tell of them. Rows of observability.md §1.5 and of the commands."""
import os
import re
import shutil
import subprocess
import time

import place
from context import NotRun

from . import row
from .memory import add_and_subtract, counted

FAMILIES = ("nv_gpu_utilization", "nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes", "nv_gpu_power_usage", "nv_gpu_power_limit", "nv_energy_consumption")


def smi(*fields):
    """Rows of nvidia-smi, each with these fields."""
    if shutil.which("nvidia-smi") is None:
        raise NotRun("there is no nvidia-smi to compare with")
    done = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True)
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.strip().splitlines()]


def uuids(server, family="nv_gpu_memory_total_bytes"):
    """Value of a family by uuid."""
    found = {}
    for name, value in server.metrics().items():
        match = re.fullmatch(rf'{family}\{{gpu_uuid="([^"]+)"\}}', name)
        if match:
            found[match.group(1)] = value
    return found


def shown(server, wanted, family="nv_gpu_memory_total_bytes"):
    """The same, once these devices are there: each is asked by a thread of its own, which a scrape does not wait for."""
    end = time.monotonic() + 30
    while list(uuids(server, family)) != list(wanted) and time.monotonic() < end:
        time.sleep(0.1)
    return uuids(server, family)


@row("device-fails")
def device_fails(t):
    """The driver's own functions say that the device is lost, once a file is there; nothing is done to the device."""
    import numpy as np
    from clients import failure

    switch = os.path.join(t.directory, "lost")
    server, _ = counted(t, "simple_cpu", "device_one", NEREID_FAIL=switch)
    client = add_and_subtract(t, "http", server, "simple_cpu")
    assert server.request("GET", "/v2/health/ready")[0] == 200
    open(switch, "w").close()
    values = np.arange(1000, dtype=np.float32)
    said = failure(lambda: client.infer("device_one", {"INPUT0": values}))[0]
    assert "ILLEGAL_ADDRESS" in said, said
    end = time.monotonic() + 30
    while server.request("GET", "/v2/health/ready")[0] == 200 and time.monotonic() < end:
        time.sleep(0.05)
    assert server.request("GET", "/v2/health/ready")[0] == 400 and server.request("GET", "/v2/health/live")[0] == 200
    assert server.request("GET", "/v2/models/device_one/ready")[0] == 400 and server.request("GET", "/v2/models/simple_cpu/ready")[0] == 200
    again = failure(lambda: client.infer("device_one", {"INPUT0": values}))[0]
    ones = np.ones((1, 16), dtype=np.int32)
    assert np.array_equal(client.infer("simple_cpu", {"INPUT0": ones, "INPUT1": ones}).as_numpy("OUTPUT0"), 2 * ones)
    return again


@row("metrics")
def metrics(t):
    server = t.server("simple_cpu")
    rows = smi("uuid", "memory.total")
    for family in FAMILIES:
        found = shown(server, [uuid for uuid, _ in rows], family)
        assert found.keys() == {uuid for uuid, _ in rows}, f"{family} has {sorted(found)}"
    totals = uuids(server)
    for uuid, mib in rows:
        # nvidia-smi rounds to MiB, and some drivers reserve part.
        assert abs(totals[uuid] / (1 << 20) - float(mib)) <= 0.02 * float(mib), (uuid, totals[uuid], mib)
    assert all(0 <= value <= 1 for value in uuids(server, "nv_gpu_utilization").values())
    return f"{len(rows)} device(s)"


@row("visible")
def visible(t):
    everything = [uuid for uuid, in smi("uuid")]
    last = everything[-1]
    for value in (str(len(everything) - 1), last):
        server = t.server("simple_cpu", env={"CUDA_VISIBLE_DEVICES": value})
        found = list(shown(server, [last]))
        assert found == [last], f"with CUDA_VISIBLE_DEVICES={value} there are {found}"
        server.stop()
    server = t.server("simple_cpu", env={"CUDA_VISIBLE_DEVICES": ""})
    assert uuids(server) == {}, uuids(server)


@row("command")
def command(t):
    done = subprocess.run([place.node(), place.MAIN, "gpu"], capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert "driver" in said.lower(), said
    if shutil.which("nvidia-smi"):
        for name, in smi("name"):
            assert name in said, f"{name} is not named: {said}"
    return re.sub(r" +", " ", said.splitlines()[0])


@row("peers")
def peers(t):
    server = t.server("simple_gpu")
    add_and_subtract(t, "http", server, "simple_gpu", device=1)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None
