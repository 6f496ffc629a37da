"""A Ray cluster of two nodes on this machine, with docs/deploy/ray/nereid_serve.py, under load: prints a line of JSON for each step.

    cluster.py DIRECTORY COMMAND PYTHON

`COMMAND` starts a server, as a list in JSON; `PYTHON` runs models in Python.
"""

import asyncio
import json
import os
import pathlib
import signal
import socket
import sys
import time

import aiohttp
import grpc
import numpy as np
import ray
from ray import serve
from ray.cluster_utils import Cluster

ROOT = pathlib.Path(__file__).parents[3]
HERE, COMMAND, PYTHON = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
sys.path.insert(0, str(ROOT / "docs/deploy/ray"))
CLIENTS = 8
WAIT_S = 90

IO = """
backend: "python"
max_batch_size: 0
input [ { name: "ID" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "PID" data_type: TYPE_INT64 dims: [ 1 ] } ]
"""
COUNTS = f'''
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Notes each request that it begins, and says which server it belongs to."""

    def execute(self, requests):
        answers = []
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "ID").as_numpy()[0]
            file = os.open("{HERE}/begun", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.write(file, f"{{number}} {{os.getppid()}}\\n".encode())
            os.close(file)
            time.sleep(0.05)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("PID", np.array([os.getppid()], np.int64))]))
        return answers
'''
PIECES = '''
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers five times, with 200 ms in between."""

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(5):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("PID", np.array([i], np.int64))]))
                time.sleep(0.2)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
'''


def write_models():
    for name, code, more in (("counts", COUNTS, "instance_group [ { kind: KIND_CPU count: 2 } ]"), ("pieces", PIECES, "model_transaction_policy { decoupled: true }")):
        version = HERE / "models" / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version / "model.py").write_text(code)
        (version.parent / "config.pbtxt").write_text(IO + more + "\n")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def tell(**row):
    print(json.dumps(row), flush=True)


def body_of(number):
    return {"inputs": [{"name": "ID", "datatype": "INT64", "shape": [1], "data": [number]}]}


def raylet_of(pid):
    """The process of Ray's node that a process belongs to."""
    variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((value for value in variables if value.startswith(b"RAY_RAYLET_PID=")), None)


class Load:
    """Clients that ask as soon as they are answered, each with a number of its own, and that never ask again."""

    next_number = 0

    def __init__(self, http, clients=CLIENTS):
        self.http, self.answered, self.failed, self.open, self.is_over = http, {}, {}, set(), False
        self.count = clients

    async def _ask(self):
        while not self.is_over:
            Load.next_number += 1
            number = Load.next_number
            self.open.add(number)
            try:
                async with self.http.post("/v2/models/counts/infer", json=body_of(number)) as answer:
                    told = await answer.text()
                if answer.status == 200:
                    self.answered[number] = json.loads(told)["outputs"][0]["data"][0]
                else:
                    self.failed[number] = f"{answer.status} {told}"
            except (aiohttp.ClientError, OSError) as error:
                self.failed[number] = repr(error)
            self.open.discard(number)

    async def __aenter__(self):
        self.clients = [asyncio.create_task(self._ask()) for _ in range(self.count)]
        return self

    async def __aexit__(self, *_):
        self.is_over = True
        await asyncio.wait_for(asyncio.gather(*self.clients), WAIT_S)

    async def sees(self, what, good):
        """Waits until the servers that gave the last answers are as wanted: `good` gets the set of them."""
        end = time.monotonic() + WAIT_S
        while True:
            last = set(list(self.answered.values())[-40:])
            if len(self.answered) > 40 and good(last):
                return last
            assert time.monotonic() < end, f"{what}: answers come from {last}, failed {list(self.failed.items())[:3]}"
            await asyncio.sleep(0.05)


def begun():
    """number → the servers that began it."""
    found = {}
    for line in (HERE / "begun").read_text().splitlines():
        number, pid = map(int, line.split())
        found.setdefault(number, []).append(pid)
    return found


def count(load):
    """Each request was begun once at most, and each that was answered once."""
    starts = begun()
    twice = [number for number in [*load.answered, *load.failed] if len(starts.get(number, [])) > 1]
    assert not twice, f"begun twice: {twice}"
    unlike = [number for number, pid in load.answered.items() if starts.get(number) != [pid]]
    assert not unlike, f"answered by another than began them: {unlike}"
    return starts


async def two_nodes(http):
    async with Load(http) as load:
        servers = await load.sees("two replicas", lambda last: len(last) == 2)
    assert not load.failed, load.failed
    nodes = {raylet_of(pid) for pid in servers}
    assert len(nodes) == 2 and None not in nodes, nodes
    return f"{len(load.answered)} requests, {len(servers)} servers on {len(nodes)} nodes"


async def as_it_is(http):
    number = np.array([7], np.int64).tobytes()
    head = json.dumps({"id": "x", "inputs": [{"name": "ID", "datatype": "INT64", "shape": [1], "parameters": {"binary_data_size": 8}}], "outputs": [{"name": "PID", "parameters": {"binary_data": True}}]}).encode()
    async with http.post("/v2/models/counts/infer", data=head + number, headers={"Inference-Header-Content-Length": str(len(head))}) as answer:
        got = await answer.read()
        length = int(answer.headers["Inference-Header-Content-Length"])
        assert answer.status == 200 and len(got) == length + 8 and answer.headers["Content-Type"] == "application/octet-stream", (answer.headers, got)
    for path, status in (("/v2/models/none/ready", 400), ("/v2/models/none/infer", 404), ("/v2/models/counts/versions/1/ready", 200), ("/v2/health/ready", 200), ("/nowhere", 404)):
        async with http.request("POST" if path.endswith("infer") else "GET", path, json=body_of(1) if path.endswith("infer") else None) as answer:
            assert answer.status == status, (path, answer.status, await answer.text())
    # A setting is changed from the server's own machine only: a request through Serve does not count as such.
    async with http.post("/v2/logging", json={"log_verbose_level": 1}) as answer:
        assert answer.status >= 400, await answer.text()
        refused = answer.status
    return f"binary tensors, errors and health; log settings {refused}"


async def streams(http):
    from_, times, text = time.monotonic(), [], b""
    async with http.post("/v2/models/pieces/generate_stream", json={"ID": 1}) as answer:
        kind = answer.headers["Content-Type"]
        async for piece in answer.content.iter_any():
            times.append(time.monotonic() - from_)
            text += piece
    events = [json.loads(line[6:])["PID"] for line in text.decode().splitlines() if line.startswith("data: ")]
    assert kind.startswith("text/event-stream") and events == [0, 1, 2, 3, 4], (kind, text)
    assert len(times) >= 5 and times[-1] - times[0] > 0.6, times
    return f"{len(events)} events in {len(times)} pieces, {times[-1] - times[0]:.2f} s from the first to the last"


async def over_grpc(address):
    Load.next_number += 1
    client = await asyncio.create_subprocess_exec(PYTHON, str(ROOT / "test/heavy/ray/ask_grpc.py"), address, str(Load.next_number), stdout=-1, stderr=-1)
    told, errors = await asyncio.wait_for(client.communicate(), WAIT_S)
    assert client.returncode == 0, errors.decode()[-1500:]
    told = json.loads(told)
    assert told["ready"] and begun()[Load.next_number] == [told["pid"]], told
    assert told["error"].startswith("StatusCode.NOT_FOUND Request for unknown model"), told
    assert told["stream"] == [0, 1, 2, 3, 4] and told["seconds"] > 0.6, told
    return f"ModelInfer, an error, and a stream of {len(told['stream'])} answers, {told['seconds']:.2f} s from the first to the last"


async def sigterm(http):
    async with Load(http) as load:
        before = await load.sees("two servers", lambda last: len(last) == 2)
        ended = min(before)
        os.kill(ended, signal.SIGTERM)
        await load.sees("another server", lambda last: len(last) == 2 and ended not in last)
    count(load)
    assert not load.failed, list(load.failed.items())[:5]
    return f"{len(load.answered)} answered, 0 failed"


async def sigkill(http):
    async with Load(http) as load:
        before = await load.sees("two servers", lambda last: len(last) == 2)
        killed = min(before)
        os.kill(killed, signal.SIGKILL)
        open_then = set(load.open)
        await load.sees("another server", lambda last: len(last) == 2 and killed not in last)
    starts = count(load)
    elsewhere = {number: starts[number] for number in load.failed if starts.get(number, [killed]) != [killed]}
    assert load.failed and set(load.failed) <= open_then, (len(open_then), load.failed)
    assert not elsewhere, f"failed, though another server began them: {elsewhere}"
    assert all(told.startswith("502 ") for told in load.failed.values()), load.failed
    return f"{len(load.answered)} answered, {len(load.failed)} of {len(open_then)} in flight failed, 0 twice"


async def killed_stream(http):
    async with Load(http) as load:
        servers = await load.sees("two servers", lambda last: len(last) == 2)
    text = b""
    try:
        async with http.post("/v2/models/pieces/generate_stream", json={"ID": 1}) as answer:
            async for piece in answer.content.iter_any():
                if not text:
                    for pid in servers:
                        os.kill(pid, signal.SIGKILL)
                text += piece
    except aiohttp.ClientError as error:
        async with Load(http) as load:
            await load.sees("two servers again", lambda last: len(last) == 2 and not last & servers)
        return f"{text.count(b'data: ')} of 5 events, then {type(error).__name__}"
    raise AssertionError(f"it ended like one that is whole: {text}")


def replica_actors():
    """Ray's actors that are replicas of the deployment: their names, by process id."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    replicas = [actor for actor in actors if actor["name"].startswith("SERVE_REPLICA::") and "#Nereid#" in actor["name"]]
    return {pid_of(ray.get_actor(actor["name"], namespace=actor["namespace"])): actor for actor in replicas}


def pid_of(actor):
    return ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=WAIT_S)


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def runs(pid):
    return pathlib.Path(f"/proc/{pid}/exe").exists()


async def killed_replica(http):
    async with Load(http) as load:
        before = await load.sees("two servers", lambda last: len(last) == 2)
        server = min(before)
        # A server is a child of its replica.
        replica = parent_of(server)
        actor = (await asyncio.to_thread(replica_actors))[replica]
        ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]))
        in_flight, end = set(load.open), time.monotonic() + WAIT_S
        while runs(replica):
            assert time.monotonic() < end, f"the replica {replica} was not killed"
            in_flight |= load.open
            await asyncio.sleep(0.002)
        in_flight |= load.open
        await load.sees("another server", lambda last: len(last) == 2 and server not in last)
        while runs(server):
            assert time.monotonic() < end, f"the server {server} outlives its replica"
            await asyncio.sleep(0.05)
    starts = count(load)
    elsewhere = {number: starts[number] for number in load.failed if starts.get(number, [server]) != [server]}
    assert set(load.failed) <= in_flight, ("failed, and were not in flight", set(load.failed) - in_flight, load.failed)
    assert not elsewhere, f"failed, though another server began them: {elsewhere}"
    statuses = sorted({told.split(" ")[0] for told in load.failed.values()})
    return f"{len(load.answered)} answered, {len(load.failed)} of {len(in_flight)} in flight failed ({', '.join(statuses) or 'none'}), 0 twice"


async def autoscale(http, deploy):
    await asyncio.to_thread(
        deploy,
        autoscaling_config={
            "min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 2, "upscale_delay_s": 1, "downscale_delay_s": 2,
            "look_back_period_s": 2, "metrics_interval_s": 1,
        },
    )
    async with Load(http, 1) as few:
        await few.sees("one server", lambda last: len(last) == 1)
    async with Load(http) as many:
        await many.sees("three servers", lambda last: len(last) == 3)
    async with Load(http, 1) as fewer:
        await fewer.sees("one server again", lambda last: len(last) == 1)
    for load in (few, many, fewer):
        count(load)
        assert not load.failed, list(load.failed.items())[:5]
    answered = sum(len(load.answered) for load in (few, many, fewer))
    return f"1, 3, 1 replicas by the load: {answered} answered, 0 failed"


async def scale(http, deploy):
    async with Load(http) as load:
        await load.sees("two servers", lambda last: len(last) == 2)
        await asyncio.to_thread(deploy, 3)
        await load.sees("three servers", lambda last: len(last) == 3)
        await asyncio.to_thread(deploy, 1)
        await load.sees("one server", lambda last: len(last) == 1)
    count(load)
    assert not load.failed, list(load.failed.items())[:5]
    return f"2, 3, 1 replicas: {len(load.answered)} answered, 0 failed"


async def steps(http_port, grpc_port, deploy):
    timeout = aiohttp.ClientTimeout(total=WAIT_S)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{http_port}", timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        end = time.monotonic() + WAIT_S
        while True:
            async with http.get("/v2/health/ready") as answer:
                if answer.status == 200:
                    break
            assert time.monotonic() < end, "no 200"
            await asyncio.sleep(0.1)
        todo = {
            "two replicas on two nodes answer": lambda: two_nodes(http),
            "requests and answers pass as they are": lambda: as_it_is(http),
            "a stream passes piece by piece": lambda: streams(http),
            "gRPC passes, and its streams": lambda: over_grpc(f"127.0.0.1:{grpc_port}"),
            "SIGTERM of a server under load loses nothing": lambda: sigterm(http),
            "SIGKILL of a server under load loses what was in flight on it": lambda: sigkill(http),
            "a stream whose server is killed does not end like a whole one": lambda: killed_stream(http),
            "ray.kill of a replica under load loses what was in flight on it": lambda: killed_replica(http),
            "from 2 replicas to 3 and to 1 under load": lambda: scale(http, deploy),
            "autoscaling_config: from 1 replica to 3 and back by the load": lambda: autoscale(http, deploy),
        }
        for name, work in todo.items():
            if os.environ.get("ONLY", "") not in name:
                continue
            from_ = time.monotonic()
            try:
                tell(step=name, told=await work(), seconds=round(time.monotonic() - from_, 1))
            except Exception as error:
                tell(step=name, error=f"{type(error).__name__}: {error}"[:2000])


def main():
    write_models()
    (HERE / "begun").write_text("")
    # Proxies and replicas import the deployment from there.
    os.environ["PYTHONPATH"] = str(ROOT / "docs/deploy/ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # A proxy that is slow to start, on a busy machine, would be ended and started again.
    os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = os.environ["RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S"] = "60"
    # Otherwise the proxy of the first node asks the replica of its own node, as long as that has room.
    os.environ["RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING"] = "0"
    import nereid_serve

    http_port, grpc_port = free_ports(2)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, "object_store_memory": 100 * 2**20})
    try:
        cluster.add_node(num_cpus=2, object_store_memory=100 * 2**20)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="warning")
        serve.start(http_options={"host": "127.0.0.1", "port": http_port}, grpc_options={"port": grpc_port, "grpc_servicer_functions": ["nereid_serve.add_inference_service"]})
        config = {
            "command": COMMAND,
            "arguments": [f"--model-repository={HERE}/models", f"--backend-config=python,python-executable={PYTHON}"],
        }

        def deploy(replicas=None, **options):
            serve.run(nereid_serve.app({**config, "options": {**({} if replicas is None else {"num_replicas": replicas}), **options}}))

        deploy(2)
        tell(ray=ray.__version__, grpcio=grpc.__version__, nodes=len([node for node in ray.nodes() if node["Alive"]]))
        asyncio.run(steps(http_port, grpc_port, deploy))
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


main()
