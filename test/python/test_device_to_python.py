"""Memory of a device that the server has, handed to models in Python where it lies: behind models on a device, in ensembles and in calls of models by models.

Over a libcuda.so.1 without a GPU in server and runner, and a library in front of it that counts what is copied. Rows B-PY-07, B-PY-13, B-PYR-14; memory.md §3.5.
"""
import mmap
import os
import struct
import subprocess

import numpy as np
import pytest

from clients import connect
from device_server import caller, server  # noqa: F401 - fixtures
from interpreter import AS_CONFIGURED, python_server
from server import waits_for
from test_cuda_python import CONFIG, HEAD, NO, parameter

HERE = os.path.dirname(os.path.abspath(__file__))
COUNT = 1 << 19
MODELS = {
    # Adds 1 to what is on a device, and nothing to what does not.
    "where": (NO, """
    def one(self, t):
        if t.is_cpu():
            return answer(pb.Tensor("OUT", t.as_numpy()))
        from arrays import Array
        return answer(pb.Tensor("OUT", Array.from_dlpack(t).get() + 1))
"""),
    "forced": ("", """
    def one(self, t):
        return answer(pb.Tensor("OUT", t.as_numpy() * 3))
"""),
    # Looks at nothing.
    "size": (NO, """
    def one(self, t):
        return answer(pb.Tensor("OUT", np.array([np.prod(t.shape()), 0 if t.is_cpu() else 1], np.float32)))
"""),
    # The memory that came, as its own tensor.
    "same": (NO, """
    def one(self, t):
        return answer(pb.Tensor.from_dlpack("OUT", t))
"""),
    # Keeps what came until it gets a tensor of one element.
    "keeps": (NO, """
    def initialize(self, args):
        self.kept = []

    def one(self, t):
        from arrays import Array
        if t.shape()[0] == 2:
            import os
            return answer(pb.Tensor("OUT", np.array([os.getpid()], np.float32)))
        self.kept.append(t)
        found = [Array.from_dlpack(k).get()[0] for k in self.kept if not k.is_cpu()]
        if t.shape()[0] == 1:
            self.kept.clear()
        return answer(pb.Tensor("OUT", np.array(found, np.float32)))
"""),
    "calls": (NO, """
    def execute(self, requests):
        import json
        answers = []
        for r in requests:
            t, told = r.inputs()[0], json.loads(r.parameters())
            more = {"preferred_memory": pb.PreferredMemory(getattr(pb, told["memory"]), 0)} if "memory" in told else {}
            made = pb.InferenceRequest(model_name="gpu", requested_output_names=["OUTPUT0"], inputs=[pb.Tensor("INPUT0", t.as_numpy())], **more).exec()
            assert not made.has_error(), made.error().message()
            [out] = made.output_tensors()
            if out.is_cpu():
                answers.append(answer(pb.Tensor("OUT", out.as_numpy()), where="cpu"))
            else:
                from arrays import Array
                answers.append(answer(pb.Tensor("OUT", Array.from_dlpack(out).get()), where="gpu"))
        return answers
"""),
    "calls_host": ("", """
    def one(self, t):
        made = pb.InferenceRequest(model_name="gpu", requested_output_names=["OUTPUT0"], inputs=[pb.Tensor("INPUT0", t.as_numpy())]).exec()
        [out] = made.output_tensors()
        return answer(pb.Tensor("OUT", out.as_numpy()), where="cpu" if out.is_cpu() else "gpu")
"""),
}
ON_GPU = 'backend: "device_identity"\ninput [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]\ninstance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]\n'


def ensemble(*models):
    steps = []
    for n, model in enumerate(models):
        names = ("INPUT0", "OUTPUT0") if model == "gpu" else ("IN", "OUT")
        source, target = "IN" if n == 0 else f"t{n}", "OUT" if n == len(models) - 1 else f"t{n + 1}"
        steps.append(f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "{names[0]}" value: "{source}" }} output_map {{ key: "{names[1]}" value: "{target}" }} }}')
    tensors = 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
    return f'platform: "ensemble"\n{tensors}ensemble_scheduling {{ step [ {", ".join(steps)} ] }}\n'


ENSEMBLES = {f"gpu_{name}": ("gpu", name) for name in ("where", "forced", "size", "keeps")} | {"gpu_same_gpu_where": ("gpu", "same", "gpu", "where")}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    texts = {name: CONFIG.format(type="TYPE_FP32", more=more) for name, (more, _) in MODELS.items()}
    texts |= {"gpu": ON_GPU} | {name: ensemble(*steps) for name, steps in ENSEMBLES.items()}
    for name, text in texts.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(text)
        if name in MODELS:
            (root / name / "1/model.py").write_text(HEAD + MODELS[name][1])
    return root


class Counter:
    """Calls and bytes of copies from, to and on devices, of the server and of its runners."""

    def __init__(self, directory, library):
        self.library, self.file = str(directory / "libcount.so"), directory / "counted"
        source = os.path.join(HERE, "../gpu/count.c")
        where = os.path.dirname(library)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.library, source, "-Wl,--no-as-needed", f"-L{where}", "-l:libcuda.so.1", f"-Wl,-rpath,{where}", "-ldl"], check=True)
        self.file.write_bytes(bytes(16))

    def bytes(self, work):
        before = self._now()
        work()
        return self._now() - before

    def _now(self):
        with open(self.file, "rb") as file, mmap.mmap(file.fileno(), 16, access=mmap.ACCESS_READ) as memory:
            return struct.unpack("<QQ", memory[:])[1]


@pytest.fixture(scope="module")
def counter(mock, tmp_path_factory):
    return Counter(tmp_path_factory.mktemp("counter"), mock[0]["NEREID_LIBCUDA"])


@pytest.fixture(scope="module")
def driver(mock, counter):
    return {**mock[0], "NEREID_LIBCUDA": counter.library, "NEREID_COUNT": str(counter.file)}


def used(server):
    """Bytes of the device's pool that somebody has."""
    return server.metrics()['nereid_device_pool_bytes{device="0"}']


def values(count=COUNT, first=0):
    return np.arange(first, first + count, dtype=np.float32)


@pytest.mark.parametrize("count", [16, COUNT])
def test_b_py_07_a_step_behind_a_model_on_a_device_gets_its_tensor_where_it_lies(server, caller, count):
    for n in range(3):
        assert np.array_equal(caller.infer("gpu_where", {"IN": values(count, n)}).as_numpy("OUT"), values(count, n) + 1)
    assert np.array_equal(caller.infer("gpu_forced", {"IN": values(count)}).as_numpy("OUT"), values(count) * 3)
    waits_for(lambda: server.gauge("nereid_runner_leases", "where") == 0 and used(server) == 0, "what was lent is given back")


def test_m_30_nothing_is_copied_between_a_model_on_a_device_and_one_in_python(server, caller, counter):
    caller.infer("gpu_size", {"IN": values()})
    found = []
    copied = counter.bytes(lambda: found.append(caller.infer("gpu_size", {"IN": values()}).as_numpy("OUT")))
    assert found[0].tolist() == [COUNT, 1] and copied == COUNT * 4, "the body reaches the device, and that is all"


def test_b_py_07_memory_that_was_lent_goes_on_as_an_output(server, caller):
    for n in range(3):
        assert np.array_equal(caller.infer("gpu_same_gpu_where", {"IN": values(first=n)}).as_numpy("OUT"), values(first=n) + 1)
    waits_for(lambda: used(server) == 0, "all of it comes back")


def test_b_pyr_14_what_a_model_keeps_stays_until_it_lets_go(server, caller):
    for n in range(4):
        assert caller.infer("gpu_keeps", {"IN": values(1000, n)}).as_numpy("OUT").tolist() == list(range(n + 1))
    assert server.gauge("nereid_runner_leases", "keeps") == 4 and used(server) >= 4 * 4000
    # Others get other memory meanwhile.
    assert np.array_equal(caller.infer("gpu_where", {"IN": values()}).as_numpy("OUT"), values() + 1)
    assert caller.infer("gpu_keeps", {"IN": values(1, 9)}).as_numpy("OUT").tolist() == [0, 1, 2, 3, 9]
    waits_for(lambda: server.gauge("nereid_runner_leases", "keeps") == 0 and used(server) == 0, "it let go")


def test_b_py_13_outputs_of_a_called_model_stay_unless_the_caller_needs_the_host(server, caller):
    for memory, where in ((None, "gpu"), ("TRITONSERVER_MEMORY_GPU", "gpu"), ("TRITONSERVER_MEMORY_CPU", "cpu")):
        answer = caller.infer("calls", {"IN": values()}, parameters={} if memory is None else {"memory": memory})
        assert (parameter(answer, "where"), np.array_equal(answer.as_numpy("OUT"), values())) == (where, True), memory
    answer = caller.infer("calls_host", {"IN": values()})
    assert parameter(answer, "where") == "cpu" and np.array_equal(answer.as_numpy("OUT"), values()), "a model that gets no inputs there"
    waits_for(lambda: used(server) == 0, "all of it comes back")


def test_b_pyr_14_without_handles_tensors_go_by_way_of_the_host(mock, repository, tmp_path):
    one = python_server(repository, AS_CONFIGURED, log=tmp_path / "server.log", env={**mock[0], "NEREID_MOCK_CUDA_FAIL": "cuIpcGetMemHandle:0:801"})
    try:
        caller = connect("grpc", one)
        for _ in range(2):
            assert np.array_equal(caller.infer("gpu_where", {"IN": values()}).as_numpy("OUT"), values())
            assert parameter(caller.infer("calls", {"IN": values()}), "where") == "cpu"
        assert one.output().count("reach other processes by way of the host") == 1
        caller.close()
    finally:
        assert one.stop() == 0, one.tail()


def test_b_pyr_14_a_process_that_ends_gives_back_what_it_was_lent(server, caller):
    caller.infer("gpu_keeps", {"IN": values(1000)})
    assert used(server) >= 4000
    [pid] = caller.infer("keeps", {"IN": values(2)}).as_numpy("OUT").astype(int)
    os.kill(pid, 9)
    waits_for(lambda: used(server) == 0, "its memory is back")
