"""R-28: a Python model gets other instances while it serves. Processes of those that stay go on, and only new ones are started."""
import json
import os
import signal
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from crashes import Asker, descendants, is_running
from cuda_mock import two_devices
from interpreter import python_server
from server import until

# Files beside the repository: one in the model's directory would be a change of the model.
COMMON = '''import os, time
import numpy as np
import triton_python_backend_utils as pb_utils


class Common:
    def initialize(self, args):
        # On each device of a group they are named alike.
        device = "@" + args["model_instance_device_id"] if args["model_instance_kind"] == "GPU" else ""
        self.name = args["model_instance_name"] + device
        self.beside = os.path.join(args["model_repository"], "..", "..")
        if os.path.exists(os.path.join(self.beside, "fails")) and os.path.exists(os.path.join(self.beside, self.name)):
            raise pb_utils.TritonModelException("there is no room for " + self.name)
        self.note("initialize")
        self.sums = {}

    def note(self, what):
        with open(os.path.join(self.beside, "notes"), "a") as notes:
            notes.write(f"{what} {self.name} {os.getpid()}\\n")

    def wait(self, number):
        self.note("wait")
        while not os.path.exists(os.path.join(self.beside, f"go{number}")):
            time.sleep(0.005)

    def who(self, *more):
        texts = np.array([str(os.getpid()), self.name, *map(str, more)], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", texts)])

    def finalize(self):
        self.note("finalize")


'''
# It answers with its process and its instance; a number above 0 waits for a file of that number.
PLAIN = COMMON + '''class TritonPythonModel(Common):
    def execute(self, requests):
        answers = []
        for request in requests:
            number = int(request.inputs()[0].as_numpy().reshape(-1)[0])
            if number > 0:
                self.wait(number)
            answers.append(self.who())
        return answers
'''
STREAM = COMMON + '''class TritonPythonModel(Common):
    def execute(self, requests):
        import threading
        for request in requests:
            number = int(request.inputs()[0].as_numpy().reshape(-1)[0])
            sender = request.get_response_sender()
            sender.send(self.who())
            threading.Thread(target=self.rest, args=(sender, number)).start()

    def rest(self, sender, number):
        if number > 0:
            self.wait(number)
        sender.send(self.who("last"), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
'''
# The sum is in the process of the instance.
SUMS = COMMON + '''class TritonPythonModel(Common):
    def execute(self, requests):
        answers = []
        for request in requests:
            value, sequence = int(request.inputs()[0].as_numpy().reshape(-1)[0]), request.correlation_id()
            if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.sums[sequence] = 0
            self.sums[sequence] += value
            answers.append(self.who(self.sums[sequence]))
        return answers
'''
IO = 'input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]\noutput [ { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] } ]\n'
SEQUENCES = "max_batch_size: 1\nsequence_batching { max_sequence_idle_microseconds: 60000000 %s }\n"
WITHOUT_RELOAD = "updated instances without a reload: m:1"


class Model:
    """A server with one model, `m`."""

    def __init__(self, directory, code, more, groups, *flags, **options):
        self.directory, self.more = directory, more
        version = directory / "models" / "m" / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(code)
        self.configure(groups)
        flags = flags or ("--model-control-mode=explicit", "--load-model=m")
        self.server = python_server(directory / "models", *flags, log=directory / "server.log", **options)
        assert until(lambda: self.asker.ask("GET", "/v2/health/ready")[0] == 200), self.server.tail()

    @property
    def asker(self):
        return Asker(self.server)

    def configure(self, groups):
        (self.directory / "models" / "m" / "config.pbtxt").write_text(f'backend: "python"\n{IO}{self.more}{groups}')

    def load(self, groups):
        self.configure(groups)
        return self.asker.ask("POST", "/v2/repository/models/m/load", {})

    def ask(self, number=0, **parameters):
        """Process and instance that answered, and what else they say."""
        shape = [1, 1] if "max_batch_size" in self.more else [1]
        body = {"inputs": [{"name": "IN", "shape": shape, "datatype": "INT32", "data": [number]}], "parameters": parameters}
        status, text = self.asker.ask("POST", "/v2/models/m/infer", body)
        assert status == 200, text
        return json.loads(text)["outputs"][0]["data"]

    def notes(self, what):
        """Instance and process of each that did this, in that order."""
        notes = self.directory / "notes"
        lines = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
        return [(name, pid) for did, name, pid in lines if did == what]

    def running(self):
        """The instances whose processes are there, with these."""
        return {name: pid for name, pid in self.notes("initialize") if is_running(int(pid))}

    def busy(self, *numbers):
        """Threads that ask, each of an instance of its own; what they are answered comes into the lists."""
        before = len(self.notes("wait"))
        answers = []
        threads = [threading.Thread(target=lambda number=number: answers.append(self.ask(number))) for number in numbers]
        for thread in threads:
            thread.start()
        assert until(lambda: len(self.notes("wait")) == before + len(numbers)), self.server.tail()
        return threads, answers

    def go(self, number):
        (self.directory / f"go{number}").touch()


@pytest.fixture
def serve(tmp_path):
    running = []

    def go(code=PLAIN, more="", groups="", flags=(), **options):
        running.append(Model(tmp_path, code, more, groups, *flags, **options))
        return running[-1]

    yield go
    for one in running:
        one.server.stop()


def count(n, more=""):
    return f"instance_group [ {{ count: {n} kind: KIND_CPU {more} }} ]\n"


def successes(model):
    return model.server.gauge("nv_inference_request_success", "m")


def test_r28_more_instances_are_started_beside_those_that_serve(serve):
    model = serve(groups=count(1))
    [(name, pid)] = model.notes("initialize")
    assert name == "m_0_0" and model.ask() == [pid, name]
    assert model.load(count(3)) == (200, "")
    started = model.notes("initialize")
    assert started[0] == (name, pid) and sorted(name for name, _ in started) == ["m_0_0", "m_0_1", "m_0_2"]
    assert model.running() == dict(started), "all of them are there, and none was started anew"
    threads, answers = model.busy(1, 1, 1)
    model.go(1)
    for thread in threads:
        thread.join()
    assert sorted(answers) == sorted([pid, name] for name, pid in started), "each of them serves"
    assert successes(model) == 4, "statistics go on"
    assert model.server.json("/v2/models/m/config")["instance_group"][0]["count"] == 3
    assert WITHOUT_RELOAD in model.server.output() and model.notes("finalize") == []


def test_r28_instances_that_leave_answer_what_they_have_and_finalize(serve):
    model = serve(groups=count(3))
    started = dict(model.notes("initialize"))
    threads, answers = model.busy(1, 2, 3)
    at = {number: pair for number, pair in zip((1, 2, 3), model.notes("wait"))}
    assert len(at) == 3
    assert model.load(count(1)) == (200, "")
    assert model.running() == started and model.notes("finalize") == [], "all of them have a request"
    for number in (1, 2, 3):
        model.go(number)
    for thread in threads:
        thread.join()
    assert sorted(answers) == sorted([pid, name] for name, pid in started.items())
    assert until(lambda: model.running() == {"m_0_0": started["m_0_0"]}), model.server.tail()
    assert sorted(model.notes("finalize")) == sorted((name, pid) for name, pid in started.items() if name != "m_0_0")
    for _ in range(4):
        assert model.ask() == [started["m_0_0"], "m_0_0"]
    assert successes(model) == 7
    # Idle ones end at once, and names are given again.
    assert model.load(count(2)) == (200, "")
    assert model.notes("initialize")[-1][0] == "m_0_1"
    assert model.load(count(1)) == (200, "")
    assert until(lambda: list(model.running()) == ["m_0_0"]), model.server.tail()


def test_r28_no_request_is_lost_while_instances_come_and_go(serve):
    model = serve(groups=count(1))
    pid = dict(model.notes("initialize"))["m_0_0"]
    over, failures, answered = threading.Event(), [], []

    def ask():
        # Threads of a pool have their own connections.
        while not over.is_set():
            try:
                answered.append(tuple(model.ask()))
            except (AssertionError, OSError) as e:
                failures.append(e)
                return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for instances in (3, 1, 2, 4, 1):
        assert model.load(count(instances)) == (200, "")
        served = len(answered)
        assert until(lambda: len(answered) > served + 20 or failures), model.server.tail()
    over.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert until(lambda: model.running() == {"m_0_0": pid}), model.server.tail()
    assert successes(model) == len(answered)
    assert {name for _, name in answered} >= {"m_0_0", "m_0_1"}
    assert model.server.output().count(WITHOUT_RELOAD) == 5
    assert until(lambda: len(descendants(model.server.process.pid)) == 2), "the process, and the guardian"


def test_r28_an_instance_that_cannot_start_leaves_those_that_serve(serve):
    model = serve(groups=count(1))
    before = model.running()
    assert model.ask() == [before["m_0_0"], "m_0_0"]
    (model.directory / "fails").touch()
    (model.directory / "m_0_2").touch()
    status, text = model.load(count(3))
    assert status == 400 and "load failed for model 'm': version 1 is at UNAVAILABLE state: " in text, text
    assert "there is no room for m_0_2" in text, text
    assert until(lambda: model.running() == before), "m_0_1, which did start, ends"
    assert model.ask() == [before["m_0_0"], "m_0_0"] and successes(model) == 2
    assert model.server.json("/v2/models/m/config")["instance_group"][0]["count"] == 1
    status, rows = model.asker.ask("POST", "/v2/repository/index", {})
    assert '"state":"READY"' in str(rows).replace("'", '"').replace(": ", ":"), rows
    # The same files: what failed is tried again.
    (model.directory / "fails").unlink()
    assert model.load(count(3)) == (200, "")
    assert sorted(model.running()) == ["m_0_0", "m_0_1", "m_0_2"] and model.running()["m_0_0"] == before["m_0_0"]


def test_r28_more_processes_than_there_may_be_are_refused_and_change_nothing(serve):
    model = serve(groups=count(1))
    before = model.running()
    status, text = model.load(count(257))
    assert status == 400 and "at most 256 are started for a Python model" in text, text
    assert model.running() == before and model.ask()[0] == before["m_0_0"]


def test_r28_instances_stay_by_their_groups(serve):
    group = '{ name: "%s" count: %d kind: %s }'
    groups = lambda *all: "instance_group [ " + ", ".join(group % one for one in all) + " ]\n"
    model = serve(groups=groups(("a", 1, "KIND_CPU"), ("b", 2, "KIND_MODEL")))
    first = model.running()
    assert sorted(first) == ["a_0", "b_0", "b_1"]
    assert model.load(groups(("b", 2, "KIND_MODEL"))) == (200, "")
    assert until(lambda: model.running() == {name: pid for name, pid in first.items() if name != "a_0"}), model.server.tail()
    # A group of another kind is another instance; a group with another name is not.
    assert model.load(groups(("b", 1, "KIND_CPU"), ("c", 1, "KIND_MODEL"))) == (200, "")
    [(name, pid)] = model.notes("initialize")[3:]
    assert name == "b_0"
    assert until(lambda: not is_running(int(first["b_0"]))), model.server.tail()
    assert model.running() == {"b_0": pid, "b_1": first["b_1"]}
    assert model.server.output().count(WITHOUT_RELOAD) == 2


def test_r28_instances_stay_on_their_devices_and_those_of_another_device_are_started(serve, tmp_path):
    on = lambda count, *gpus: f"instance_group [ {{ count: {count} kind: KIND_GPU gpus: {list(gpus)} }} ]\n"
    (tmp_path / "mock").mkdir()
    with two_devices(tmp_path / "mock") as (environment, _, _):
        model = serve(groups=on(1, 0), env=environment)
        assert list(model.running()) == ["m_0_0@0"]
        first = model.running()
        assert model.load(on(2, 0, 1)) == (200, "")
        all_four = model.running()
        assert sorted(all_four) == ["m_0_0@0", "m_0_0@1", "m_0_1@0", "m_0_1@1"] and all_four["m_0_0@0"] == first["m_0_0@0"]
        threads, _ = model.busy(1, 1, 1, 1)
        model.go(1)
        for thread in threads:
            thread.join()
        assert model.load(on(1, 1)) == (200, "")
        assert until(lambda: model.running() == {"m_0_0@1": all_four["m_0_0@1"]}), model.server.tail()
        assert successes(model) == 4
        assert model.ask() == [all_four["m_0_0@1"], "m_0_0@1"]
        assert model.server.output().count(WITHOUT_RELOAD) == 2


def test_r28_a_change_of_anything_else_is_a_reload(serve):
    model = serve(groups=count(1))
    [(_, pid)] = model.notes("initialize")
    assert model.load(count(2) + 'parameters { key: "k" value { string_value: "v" } }\n') == (200, "")
    assert until(lambda: not is_running(int(pid))), model.server.tail()
    assert len(model.running()) == 2 and WITHOUT_RELOAD not in model.server.output()
    two = model.running()
    path = model.directory / "models" / "m" / "1" / "model.py"
    path.write_text(path.read_text() + "\n# changed\n")
    assert model.load(count(3) + 'parameters { key: "k" value { string_value: "v" } }\n') == (200, "")
    assert until(lambda: len(model.running()) == 3 and not any(is_running(int(pid)) for pid in two.values()))


def test_r28_an_instance_is_warmed_up_before_it_serves(serve):
    warmup = 'model_warmup [ { name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_INT32 dims: [ 1 ] input_data_file: "two" } } } ]\n'
    model = serve(groups=count(1))
    warm = model.directory / "models" / "m" / "warmup"
    warm.mkdir()
    (warm / "two").write_bytes(np.array([2], dtype=np.int32).tobytes())
    model.go(2)
    model.more = warmup
    assert model.load(count(1)) == (200, "")
    assert len(model.notes("wait")) == 1
    assert model.load(count(2)) == (200, "")
    waits = model.notes("wait")
    assert [name for name, _ in waits] == ["m_0_0", "m_0_1"], "only the new one"
    assert WITHOUT_RELOAD in model.server.output()


def test_r28_a_stream_of_an_instance_that_leaves_goes_on_to_its_end(serve):
    """An instance of a decoupled model is free while its streams go on: it is idle when it leaves, and its process still has work."""
    of_two_groups = 'instance_group [ { name: "a" count: 1 kind: KIND_CPU }, { name: "b" count: 1 kind: KIND_MODEL } ]\n'
    model = serve(STREAM, "model_transaction_policy { decoupled: true }\n", of_two_groups)
    started = model.running()
    answers, errors = [], []
    with grpcclient.InferenceServerClient(model.server.grpc) as client:
        client.start_stream(lambda result, error: (errors if error else answers).append(error or result))

        def ask(number):
            one = grpcclient.InferInput("IN", [1], "INT32")
            one.set_data_from_numpy(np.array([number], dtype=np.int32))
            client.async_stream_infer("m", [one])

        ask(1)
        assert until(lambda: len(answers) == 1 and len(model.notes("wait")) == 1)
        [(leaving, _)] = model.notes("wait")
        [staying] = {"a", "b"} - {leaving.removesuffix("_0")}
        assert model.load(f'instance_group [ {{ name: "{staying}" count: 1 kind: {"KIND_MODEL" if staying == "b" else "KIND_CPU"} }} ]\n') == (200, "")
        ask(0)
        assert until(lambda: len(answers) == 3)
        assert model.running() == started and model.notes("finalize") == []
        model.go(1)
        assert until(lambda: len(answers) == 4) and errors == []
        texts = [[text.decode() for text in answer.as_numpy("OUT")] for answer in answers]
        assert [texts[0], texts[3]] == [[started[leaving], leaving], [started[leaving], leaving, "last"]]
        client.stop_stream()
    assert until(lambda: model.running() == {f"{staying}_0": started[f"{staying}_0"]}), model.server.tail()
    assert [name for name, _ in model.notes("finalize")] == [leaving]


@pytest.mark.parametrize("strategy", ["direct {}", "oldest { max_candidate_sequences: 1 }"])
def test_r28_sequences_keep_their_instance_which_is_removed_when_they_end(serve, strategy):
    model = serve(SUMS, SEQUENCES % strategy, count(2))
    started = model.running()
    step = lambda sequence, value, start=False, end=False: model.ask(value, sequence_id=sequence, sequence_start=start, sequence_end=end)
    places = {sequence: step(sequence, sequence, start=True)[:2] for sequence in (1, 2)}
    assert sorted(name for _, name in places.values()) == ["m_0_0", "m_0_1"]
    assert model.load(count(1)) == (200, "")
    for _ in range(3):
        assert [step(sequence, 10)[:2] for sequence in (1, 2)] == [places[1], places[2]]
    assert model.running() == started
    staying, leaving = sorted((1, 2), key=lambda sequence: places[sequence][1])
    # A new one waits for a slot of the instance that stays.
    got = []
    waiting = threading.Thread(target=lambda: got.append(step(3, 3, start=True)))
    waiting.start()
    assert step(leaving, 100, end=True) == [*places[leaving], str(leaving + 130)]
    assert until(lambda: model.running() == {"m_0_0": started["m_0_0"]}), model.server.tail()
    assert model.notes("finalize") == [(places[leaving][1], places[leaving][0])] and got == []
    # Or for that of another instance.
    assert model.load(count(2)) == (200, "")
    waiting.join(30)
    assert got and got[0] == [model.running()["m_0_1"], "m_0_1", "3"]
    assert step(3, 4, end=True)[2] == "7"
    assert step(staying, 100, end=True) == [*places[staying], str(staying + 130)]
    assert model.server.output().count(WITHOUT_RELOAD) == 2


def test_r28_mode_poll_keeps_the_processes_as_well(serve):
    model = serve(groups=count(1), flags=("--model-control-mode=poll", "--repository-poll-secs=1"))
    [(_, pid)] = model.notes("initialize")
    # Files that change within one tick of the kernel's clock, up to 10 ms, cannot be told apart.
    time.sleep(0.03)
    model.configure(count(2))
    assert until(lambda: len(model.running()) == 2), model.server.tail()
    model.server.logged(WITHOUT_RELOAD)
    assert model.running()["m_0_0"] == pid


def test_r28_an_instance_that_was_added_is_started_again_when_its_process_dies(serve):
    model = serve(groups=count(1))
    first = model.running()
    assert model.load(count(2)) == (200, "")
    os.kill(int(model.running()["m_0_1"]), signal.SIGKILL)
    assert until(lambda: len(model.notes("initialize")) == 3), model.server.tail()
    assert until(lambda: model.asker.ask("GET", "/v2/models/m/ready")[0] == 200)
    threads, answers = model.busy(1, 1)
    model.go(1)
    for thread in threads:
        thread.join()
    assert sorted(name for _, name in answers) == ["m_0_0", "m_0_1"]
    # It leaves, and its place is another one's.
    assert model.load(count(1)) == (200, "")
    assert until(lambda: model.running() == first), model.server.tail()
    assert model.load(count(2)) == (200, "")
    assert sorted(model.running()) == ["m_0_0", "m_0_1"]
