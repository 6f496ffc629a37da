"""What the code of a row gets: servers, clients, memory of devices, the load generator. Everything is given back when the row is over, however it ends."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

import place

SECONDS_MAX = 240


class NotRun(Exception):
    """What a row finds missing when it looks closer."""


class Context:
    def __init__(self, provider=None, logs=None):
        """`logs` is where the logs of the row's servers stay, as the beginning of their paths."""
        self.provider = place.provider_directory(provider)
        self.directory = tempfile.mkdtemp(prefix="nereid-gpu-")
        self.stack = contextlib.ExitStack()
        self.stack.callback(shutil.rmtree, self.directory, True)
        if logs is not None:
            self.stack.callback(self._keep_logs, logs)
        self.servers = 0

    def _keep_logs(self, logs):
        for name in os.listdir(self.directory):
            if name.endswith(".log"):
                shutil.copy(os.path.join(self.directory, name), f"{logs}-{name}")

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return self.stack.__exit__(*raised)

    def models(self, *names):
        """Writes those of these models that are ours; they stay for the next row."""
        place.write_models(*names)
        return place.MODELS

    def server(self, *models, flags=(), env=None):
        """A server with these models alone, ended with the row; what it logged is part of a failure."""
        from server import Server

        self.servers += 1
        where = self.models(*models)
        chosen = ["--model-control-mode=explicit", *[f"--load-model={name}" for name in models]]
        provider = [f"--backend-config=onnxruntime,provider-directory={self.provider}"] if self.provider else []
        provider += [f"--backend-config=onnxruntime,provider-library={library}" for library in [os.environ.get("NEREID_TEST_PROVIDER_LIBRARY")] if library]
        log = os.path.join(self.directory, f"server-{self.servers}.log")
        one = Server(where, *chosen, "--allow-client-shm=true", *provider, *flags, log=log, env=env)
        self.stack.callback(one.stop)
        for name in models:
            if one.request("GET", f"/v2/models/{name}/ready")[0] != 200:
                raise AssertionError(f"{name} is not ready: {one.tail(8)}")
        return one

    def client(self, kind, server):
        from clients import connect

        one = connect(kind, server)
        one.server = server
        self.stack.callback(one.close)
        return one

    def region(self, client, name, byte_size, device=0):
        """Memory of a device, registered; both are undone when the row is over, in that order."""
        from tritonclient.utils import cuda_shared_memory as cuda

        handle = cuda.create_shared_memory_region(name, byte_size, device)
        self.stack.callback(cuda.destroy_shared_memory_region, handle)
        client.call("register_cuda_shared_memory", name, cuda.get_raw_handle(handle), device, byte_size)

        def unregister():
            # A row may have ended the server itself.
            if client.server.process.poll() is None:
                client.call("unregister_cuda_shared_memory", name)

        self.stack.callback(unregister)
        return handle

    def load(self, command, env=None, **arguments):
        """One run of the load generator: its figures."""
        words = [f"--{name.replace('_', '-')}={value}" for name, value in arguments.items()]
        done = subprocess.run([place.LOAD, command, *words], capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env={**os.environ, **(env or {})})
        if done.returncode != 0:
            raise AssertionError(f"nereid-bench {command} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-400:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def floor(self, answer):
        """The port of a bare epoll loop that answers each request of HTTP with these bytes."""
        child = subprocess.Popen([place.LOAD, "floor-epoll", f"--answer={self.file('answer', answer)}"], stdout=subprocess.PIPE, text=True)
        self.stack.callback(child.wait)
        self.stack.callback(child.kill)
        return int(child.stdout.readline().split()[1])

    def file(self, name, data):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as out:
            out.write(data)
        return path


def placed(client, kind, name, shape, datatype, region, size, offset=0):
    """An input or an output that lies in a region."""
    one = client.types.InferInput(name, shape, datatype) if kind == "in" else client.types.InferRequestedOutput(name)
    one.set_shared_memory(region, size, offset)
    return one


def region_body(model_inputs, model_outputs):
    """A request over HTTP of which every tensor lies in a region: inputs are `(name, datatype, shape, region, bytes)`, outputs `(name, region, bytes)`."""
    where = lambda region, size: {"shared_memory_region": region, "shared_memory_byte_size": size}  # noqa: E731
    inputs = [{"name": n, "datatype": d, "shape": list(s), "parameters": where(r, size)} for n, d, s, r, size in model_inputs]
    outputs = [{"name": n, "parameters": where(r, size)} for n, r, size in model_outputs]
    return json.dumps({"inputs": inputs, "outputs": outputs}).encode()
