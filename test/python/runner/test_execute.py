"""Batches in the runtime: tensors, responses, failures. Rows: B-PY-04, B-PY-05, B-PY-14, B-PY-23, B-PY-24."""
import numpy as np
import pytest
from runner_host import In, P, until

HEAD = "import sys, gc, json, time, asyncio, threading\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\npb = pb_utils\n\n\nclass TritonPythonModel:\n"
IDENTITY = HEAD + '''
    def execute(self, requests):
        made = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "IN")
            made.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor.as_numpy())]))
        return made
'''
#: What code of a test is given.
HELPERS = '''

def out(value, **k):
    return pb.InferenceResponse([pb.Tensor("OUT", np.array([json.dumps(value)], dtype=object))], **k)

def attempt(f, *a, **k):
    try:
        return f(*a, **k)
    except BaseException as e:
        return type(e).__name__ + ": " + str(e).split("\\n")[0]
'''
#: The text in input CODE is the body of a function; what it returns is what execute returns.
SNIPPET = HEAD + '''
    def initialize(self, args):
        self.kept = {}

    def execute(self, requests):
        text = requests[0].inputs()[0].as_numpy().reshape(-1)[0].decode()
        names = {"self": self, "requests": requests, "request": requests[0]}
        body = "def snippet(self, requests, request):\\n" + "\\n".join("    " + line for line in text.split("\\n"))
        exec(compile(body, "<snippet>", "exec"), globals(), names)
        return names["snippet"](self, requests, requests[0])
''' + HELPERS


def code(text):
    return [In("CODE", [text])]


def in_batch(text):
    return f"Failed to process the request(s) for model 'm_0', message: {text}"


@pytest.mark.parametrize("dtype", ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("rows", [0, 1, 3, 5000])
def test_b_py_04_every_type_comes_back_from_either_place(shared, dtype, rows):
    one = shared(IDENTITY)
    value = (np.arange(rows * 3) % 2).astype(dtype).reshape(rows, 3)
    (answer,) = one.run([In("IN", value)])
    assert answer.kind == P.ANSWER_RESPONSE and answer["OUT"] == value.tolist()
    assert answer.outputs[0].shape == (rows, 3)
    assert (answer.outputs[0].place == P.PLACE_INLINE) == (value.nbytes <= P.INLINE_BYTES_MAX)


def test_b_py_04_a_scalar_has_no_dims(host):
    (answer,) = host(IDENTITY).run([In("IN", np.array(5, "i4"))])
    assert answer.outputs[0].shape == () and answer["OUT"] == 5


@pytest.mark.parametrize("segments", [(1 << 20, 1 << 20), None], ids=["segments", "inline"])
@pytest.mark.parametrize(
    "items",
    [[], [b""], [b"a", b"bc"], ["gr\u00fc\u00df"] * 40, [b"\0\0\0\0", b"\0", b""] * 30, [b"x" * n for n in range(300)], [b"same"] * 2000, [b"x" * 70000]],
    ids=["none", "empty", "two", "equal", "nul", "lengths", "many", "long"],
)
def test_b_py_05_strings_come_back_as_they_were(shared, items, segments):
    one = shared(IDENTITY, segments=segments)
    (answer,) = one.run([In("IN", items, shape=(len(items),))])
    assert answer["OUT"] == [i.encode() if isinstance(i, str) else i for i in items]


@pytest.mark.parametrize("count", [30, 3000])
@pytest.mark.parametrize(
    "change, at, to",
    [("pass", None, None), ("a[3] = b'new'", 3, b"new"), ("a[4] = 'text 4'", 4, b"text 4"), ("a[5] = np.zeros(1)", 5, b"[0.]"), ("a[:] = a[::-1].copy()", ..., None)],
    ids=["none", "bytes", "str", "array", "order"],
)
def test_b_py_05_strings_that_are_handed_on_are_those_of_the_array(shared, count, change, at, to):
    one = shared(SNIPPET)
    items = [b"text %d" % i for i in range(count)]
    text = f"a = requests[0].inputs()[1].as_numpy()\n{change}\nreturn [pb.InferenceResponse([pb.Tensor('OUT', a)])]"
    (answer,) = one.run([*code(text), In("S", items, shape=(count,))])
    want = items[::-1] if at is ... else list(items)
    if to is not None:
        want[at] = to
    assert answer["OUT"] == want


@pytest.mark.parametrize("rows", [3, 5000])
def test_b_py_06_bf16_comes_and_goes_by_dlpack(shared, rows):
    one = shared(SNIPPET)
    raw = np.arange(rows, dtype="u2").tobytes()
    text = (
        "t = requests[0].inputs()[1]\n"
        "told = attempt(t.as_numpy)\n"
        "made = [pb.Tensor.from_dlpack('OUT', s) for s in (t, t.to_dlpack(), type('P', (), {'__dlpack__': t.__dlpack__, '__dlpack_device__': t.__dlpack_device__})())]\n"
        "return [pb.InferenceResponse([*made, pb.Tensor('TOLD', np.array([told, str(t.shape()), attempt(made[1].as_numpy)], dtype=object))])]"
    )
    (answer,) = one.run([*code(text), In("B", raw, 14, (rows,))])
    assert [(o.code, o.shape, o.raw) for o in answer.outputs[:3]] == [(14, (rows,), raw)] * 3
    refused = b"TritonModelException: Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."
    assert answer["TOLD"] == [refused, b"[%d]" % rows, refused]


def test_b_py_05_strings_of_a_model_may_be_any_objects(host):
    one = host(SNIPPET)
    texts = "np.array(['a', b'\\xff', 5, None, 2.5, True], dtype=object)"
    (answer,) = one.run(code(f"return [pb.InferenceResponse([pb.Tensor('OUT', {texts})])]"))
    assert answer["OUT"] == [b"a", b"\xff", b"5", b"None", b"2.5", b"True"]
    (answer,) = one.run(code("return [pb.InferenceResponse([pb.Tensor('OUT', np.array([[b'ab', b'c']]))])]"))
    assert answer["OUT"] == [b"ab", b"c"] and answer.outputs[0].shape == (1, 2)


def test_b_pyr_02_what_lies_in_the_memory_of_a_request_is_not_copied(host):
    one = host(IDENTITY)
    (answer,) = one.run([In("IN", np.arange(5000.0))])
    assert answer.outputs[0].place == P.PLACE_REQUEST
    assert answer["OUT"] == np.arange(5000.0).tolist()


def test_b_pyr_02_a_view_of_a_request_is_sent_from_where_it_begins(host):
    one = host(IDENTITY.replace("tensor.as_numpy()", "tensor.as_numpy()[100:4000]"))
    (answer,) = one.run([In("IN", np.arange(5000.0))])
    assert answer.outputs[0].place == P.PLACE_REQUEST
    assert answer["OUT"] == np.arange(100.0, 4000.0).tolist()


def test_b_pyr_02_more_memory_is_asked_for_once_it_is_needed_and_used_again(host):
    one = host(IDENTITY.replace("tensor.as_numpy()", "tensor.as_numpy() + 1"), segments=(1 << 20, 1 << 16))
    for _ in range(20):
        (answer,) = one.run([In("IN", np.zeros(100_000, "f4"))])
        assert answer["OUT"] == [1.0] * 100_000
    assert len(one.response) == 2


def test_b_pyr_02_without_memory_the_request_fails_and_the_next_is_served(host):
    one = host(IDENTITY.replace("tensor.as_numpy()", "tensor.as_numpy() + 1"), segments=(1 << 24, 1 << 16), segment_max=1 << 20)
    (answer,) = one.run([In("IN", np.zeros(1 << 20, "f4"))])
    assert (answer.kind, answer.code) == (P.ANSWER_ERROR, P.CODE_UNAVAILABLE)
    assert answer.error == (
        f"Failed to allocate memory for the response of model 'm': {4 << 20} bytes are more than "
        "shm-max-byte-size or --memory-limit leaves"
    )
    (answer,) = one.run([In("IN", np.zeros(2000, "f4"))])
    assert answer["OUT"] == [1.0] * 2000


def test_b_pyr_03_a_kept_input_stays_as_it_is_and_others_are_given_back(host):
    one = host(HEAD + '''
    kept = []

    def execute(self, requests):
        for request in requests:
            array = request.inputs()[0].as_numpy()
            if len(self.kept) < 3:
                self.kept.append(array[10:])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([a.min() for a in self.kept] + [a.max() for a in self.kept]))]) for r in requests]
''')
    for i in range(200):
        (answer,) = one.run([In("IN", np.full(20_000, i, "f4"))])
    assert answer["OUT"] == [0.0, 1.0, 2.0] * 2
    assert len(one.used) <= 5


def test_b_pyr_03_blocks_are_reported_at_once_when_a_quarter_waits(host):
    one = host(HEAD + '''
    def execute(self, requests):
        kept = [r.inputs()[0].as_numpy() for r in requests]
        del requests[:]
        kept.clear()
        gc.collect()
        return [pb_utils.InferenceResponse([])] * 3
''', segments=(1 << 20, 1 << 20))
    one.run(*[[In("IN", np.zeros(40_000, "f4"))] for _ in range(3)])
    # They end behind the result. Two are more than a quarter; the third may have come too late to go with them.
    until(lambda: one.releases == 1 and len(one.used) <= 1, "reporting at once")
    one.run(*[[In("IN", np.zeros(2, "f4"))] for _ in range(3)])
    assert one.used == {}


def test_b_pyr_03_ten_thousand_requests_leave_memory_and_descriptors_as_they_were(host):
    one = host(IDENTITY)

    def facts():
        with open(f"/proc/{one.pid}/statm") as f:
            pages = int(f.read().split()[1])
        import os

        return pages * 4096, len(os.listdir(f"/proc/{one.pid}/fd"))

    small, large, texts = [In("IN", np.zeros(8, "f4"))], [In("IN", np.zeros(3000, "f4"))], [In("IN", ["a", "b"])]
    for _ in range(500):
        one.run(small)
        one.run(large)
    before, files = facts()
    for _ in range(3300):
        one.run(small)
        one.run(large)
        one.run(texts)
    after, files_after = facts()
    assert files_after == files
    assert after - before < 1 << 20, (before, after)
    assert len(one.used) <= 1 and len(one.request) == 1 and len(one.response) == 1


def test_b_py_14_only_wanted_outputs_are_sent(host):
    one = host(SNIPPET, outputs=["OUT", "Y"])
    two = "return [pb.InferenceResponse([pb.Tensor('OUT', np.zeros(1)), pb.Tensor('Y', np.ones(1))])]"
    (answer,) = one.run((code(two), {"names": ["Y"]}))
    assert [o.name for o in answer.outputs] == ["Y"]
    (answer,) = one.run((code(two), {"names": []}))
    assert answer.outputs == []
    (answer,) = one.run(code(two))
    assert [o.name for o in answer.outputs] == ["OUT", "Y"]


def test_b_py_14_errors_keep_code_and_text(host):
    one = host(SNIPPET)
    for number, name in enumerate(("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED", "RESOURCE_EXHAUSTED")):
        (answer,) = one.run(code(f"return [pb.InferenceResponse(error=pb.TritonError('a {name}', pb.TritonError.{name}))]"))
        assert (answer.kind, answer.code, answer.error) == (P.ANSWER_ERROR, number, f"a {name}")
    (answer,) = one.run(code("return [pb.InferenceResponse(error=pb.TritonError('cut\\0here'))]"))
    assert answer.error == "cut"


def test_b_py_14_parameters_are_sent_as_json(host):
    one = host(SNIPPET)
    (answer,) = one.run(code("return [out(1, parameters={'a': 1, 'b': 'x', 'c': True, 'n': 'x\\0y'})]"))
    assert answer.parameters == {"a": 1, "b": "x", "c": True, "n": "x"}
    (answer,) = one.run(code("return [out(1)]"))
    assert answer.parameters is None


@pytest.mark.parametrize(
    "returned, text",
    [
        ("[]", "Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"),
        ("5", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("(out(1),)", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ("out(1)", "Expected a list in the execute return, found type '<class 'c_python_backend_utils.InferenceResponse'>'."),
        ("[5]", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'int'>'."),
        ("[pb.TritonError('x')]", "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'c_python_backend_utils.TritonError'>'."),
    ],
    ids=["none", "int", "tuple", "single", "element", "error"],
)  # fmt: skip
def test_b_py_23_a_wrong_return_value_fails_the_batch(shared, returned, text):
    one = shared(SNIPPET)
    assert one.run(code(f"return {returned}")) == in_batch(text)
    assert one.run(code("return [out(1)]"))[0]["OUT"] == [b"1"]


AT = "\n\nAt:\n  <snippet>(2): snippet\n  {file}(17): execute\n"


@pytest.mark.parametrize(
    "raised, text",
    [
        ("raise ValueError('bad')", "ValueError: bad" + AT),
        ("raise RuntimeError()", "RuntimeError: <EMPTY MESSAGE>" + AT),
        ("raise pb.TritonModelException('says')", "TritonModelException: says" + AT),
        ("pb.Tensor('', np.zeros(1))", "TritonModelException: Tensor name cannot be an empty string." + AT),
        ("sys.exit(3)", "SystemExit: 3" + AT),
        ("raise KeyboardInterrupt()", "KeyboardInterrupt: <EMPTY MESSAGE>" + AT),
        ("raise GeneratorExit()", "GeneratorExit: <EMPTY MESSAGE>" + AT),
        ("raise ValueError('a\\0b')", "ValueError: a"),
        ("raise ValueError('\\udc80')", "ValueError: \\udc80" + AT),
        ("raise ValueError('gr\u00fc\u00df')", "ValueError: gr\u00fc\u00df" + AT),
    ],
    ids=["value", "empty", "model", "ours", "exit", "interrupt", "generator", "nul", "surrogate", "unicode"],
)
def test_b_py_24_an_exception_fails_the_batch_with_its_frames(shared, raised, text):
    one = shared(SNIPPET)
    assert one.run(code(raised)) == in_batch(text.replace("{file}", one.load_json["file"]))
    assert one.run(code("return [out(1)]"))[0]["OUT"] == [b"1"]
    told = in_batch(text.split("\n")[0])
    until(lambda: any(level == P.LOG_LEVEL_ERROR and line.startswith(told) for level, _, _, line in one.logs), "a line of the log")


def test_b_py_24_a_failing_str_and_notes_are_told(host):
    one = host(SNIPPET)
    got = one.run(code("class Mine(Exception):\n    def __str__(self):\n        raise ValueError('in str')\nraise Mine()"))
    assert got.startswith(in_batch("Mine: <MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>\n\nAt:\n"))
    assert "\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: ValueError: in str" in got
    got = one.run(code("e = ValueError('noted')\ne.__notes__ = ['a note']\nraise e"))
    assert got.startswith(in_batch("ValueError: noted\n__notes__ (len=1):\na note\n\nAt:\n"))


def test_b_py_24_arguments_that_execute_does_not_take_have_no_frames(host):
    one = host(HEAD + "    def execute(self):\n        return []\n")
    got = one.run([In("IN", np.zeros(1))])
    assert got.startswith(in_batch("TypeError: ")) and got.endswith("takes 1 positional argument but 2 were given")


def test_b_py_24_a_missing_execute_is_told_at_the_first_request(host):
    one = host(HEAD + "    def initialize(self, args):\n        pass\n")
    assert not one.failed
    file = one.load_json["file"]
    assert one.run([In("IN", np.zeros(1))]) == in_batch(f"Python model {file} does not implement `execute` method.")


def test_b_py_25_async_execute_runs_in_a_daemon_thread(host):
    one = host(HEAD + '''
    async def execute(self, requests):
        await asyncio.sleep(0.01)
        thread = threading.current_thread()
        return [pb.InferenceResponse([pb.Tensor("OUT", np.array([thread is threading.main_thread(), thread.daemon]))]) for r in requests]
''')
    assert one.run([In("IN", np.zeros(1))])[0]["OUT"] == [False, True]


@pytest.mark.parametrize("error", ["ValueError('later')", "SystemExit('later')", "asyncio.CancelledError('later')"])
def test_b_py_25_what_async_execute_raises_fails_the_batch(host, error):
    one = host(HEAD + f'''
    async def execute(self, requests):
        await asyncio.sleep(0)
        raise {error}
''')
    for _ in range(2):
        kind = error.split("(")[0].split(".")[-1]
        assert one.run([In("IN", np.zeros(1))]) == in_batch(f"{kind}: later\n\nAt:\n  {one.load_json['file']}(11): execute\n")
