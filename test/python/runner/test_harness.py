"""`nereid_runner.harness`: a model.py in a test, without a server (B-PY-33)."""
import os
import re

import numpy as np
import pytest
import triton_python_backend_utils as pb
from nereid_runner.harness import InferenceError, Model
from runner_host import ROOT
from test_execute import HEAD, IDENTITY


@pytest.fixture
def model(tmp_path):
    made = []

    def make(text, files=None, **options):
        directory = tmp_path / f"m{len(made)}" / "1"
        directory.mkdir(parents=True)
        for name, content in {"model.py": text, **(files or {})}.items():
            (directory / name).write_text(content)
        made.append(Model(directory / "model.py", **options))
        return made[-1]

    yield make
    for one in reversed(made):
        one.close()


def test_b_py_33_a_model_answers(model):
    one = model(IDENTITY)
    assert one.infer(IN=np.arange(3.0))["OUT"].tolist() == [0, 1, 2]
    assert one.infer(IN=np.array(["a", "\u00e9"]))["OUT"].tolist() == [b"a", "\u00e9".encode()]
    answers = one.infer_batch([one.request({"IN": np.array([i])}) for i in range(3)])
    assert [a[0].output_tensors()[0].as_numpy().tolist() for a in answers] == [[0], [1], [2]]


def test_b_py_33_helpers_arguments_and_directories(model):
    text = "import helper\nfrom . import helper as same\n" + HEAD + '''
    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        made = [helper.WHAT, same.WHAT, self.args["model_name"], pb.get_model_dir(), json.loads(self.args["model_config"])["max_batch_size"]]
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([json.dumps(made)], dtype=object))])]
'''
    one = model(text, {"helper.py": "WHAT = 'it'"}, config={"max_batch_size": 4})
    import json

    assert json.loads(one.infer()["OUT"][0]) == ["it", "it", "m0", one.model_directory, 4]


def test_b_py_33_failures_have_the_servers_texts(model):
    one = model(HEAD + "    def execute(self, requests):\n        raise ValueError('bad')\n")
    with pytest.raises(InferenceError, match=r"^Failed to process the request\(s\) for model 'm0_0', message: ValueError: bad\n\nAt:\n"):
        one.infer(X=np.zeros(1))
    one = model(HEAD + "    def execute(self, requests):\n        return [pb.InferenceResponse(error=pb.TritonError('no', pb.TritonError.NOT_FOUND))]\n")
    with pytest.raises(InferenceError) as caught:
        one.infer()
    assert caught.value.code == pb.TritonError.NOT_FOUND
    one = model(HEAD + "    def execute(self, requests):\n        return None\n")
    with pytest.raises(InferenceError, match="the request has no final response"):
        one.infer()


def test_b_py_33_decoupled_models_and_cancellation(model):
    text = HEAD + '''
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(5):
                if sender.is_cancelled():
                    break
                sender.send(pb.InferenceResponse([pb.Tensor("I", np.array([i]))]))
            threading.Thread(target=sender.send, kwargs={"flags": 1}).start()
'''
    one = model(text, decoupled=True)
    assert len(one.infer_all()) == 5
    request = one.request({})
    one.cancel(request)
    assert one.infer_batch([request]) == [[]]


def test_b_py_33_other_models_are_functions(model):
    text = HEAD + '''
    def execute(self, requests):
        ask = lambda name: pb.InferenceRequest(model_name=name, requested_output_names=["Y"], inputs=[pb.Tensor("X", np.arange(3.0))])
        many = [t.as_numpy().tolist() for r in ask("many").exec(decoupled=True) for t in r.output_tensors()]
        made = [ask("twice").exec().output_tensors()[0].as_numpy().tolist(), many, ask("none").exec().error().message(), pb.is_model_ready("twice"), pb.is_model_ready("none")]
        pb.Logger.log_info("called")
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([json.dumps(made)], dtype=object))])]
'''
    import json

    one = model(text, models={"twice": lambda inputs: {"Y": inputs["X"] * 2}, "many": lambda inputs: [{"Y": inputs["X"] + i} for i in range(2)]})
    unknown = "Model none - Error when running inference: Request for unknown model: 'none' is not found"
    assert json.loads(one.infer()["OUT"][0]) == [[0, 2, 4], [[0, 1, 2], [1, 2, 3]], unknown, True, False]
    assert [(level, text) for level, _, _, text in one.log_lines] == [("INFO", "called")]


def test_b_py_33_rescheduled_requests_run_again(model):
    text = HEAD + '''
    rounds = 0

    def execute(self, requests):
        self.rounds += 1
        if self.rounds < 3:
            requests[0].set_release_flags(pb.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return [None]
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([self.rounds]))])]
'''
    assert model(text).infer()["OUT"].tolist() == [3]


def test_b_py_33_async_models_readiness_and_the_end(model, tmp_path):
    text = HEAD + f'''
    async def execute(self, requests):
        await asyncio.sleep(0)
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([1]))]) for _ in requests]

    async def is_ready(self):
        return False

    def finalize(self):
        open({str(tmp_path / "ended")!r}, "w")
'''
    one = model(text)
    assert one.infer()["OUT"].tolist() == [1] and not one.is_ready()
    one.close()
    assert (tmp_path / "ended").exists()


def test_b_py_33_what_initialize_raises_reaches_the_test(model):
    with pytest.raises(KeyError):
        model(HEAD + "    def initialize(self, args):\n        args['nope']\n")


def test_b_py_33_the_page_prints_a_test_that_passes(tmp_path, monkeypatch):
    with open(os.path.join(ROOT, "docs/python.md"), encoding="utf-8") as f:
        (text,) = [b for b in re.findall(r"```python\n(.*?)```", f.read(), re.S) if "nereid_runner.harness" in b]
    monkeypatch.chdir(ROOT)
    names = {}
    exec(compile(text, "docs/python.md", "exec"), names)
    (test,) = [v for k, v in names.items() if k.startswith("test_")]
    test()
