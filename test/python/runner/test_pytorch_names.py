"""Names of inputs and outputs of models of PyTorch, and what their files are: what needs no torch (B-PYB-04, B-PYB-05)."""
import os
import sys
import zipfile

import pytest

sys.path.append(os.path.join(os.path.dirname(__file__), "../../../crates/backend-python/backends/pytorch"))
import nereid_pytorch_files as files  # noqa: E402
import nereid_pytorch_names as naming  # noqa: E402


@pytest.mark.parametrize(
    "names, known, arguments, warns",
    [
        (["b", "a"], ["a", "b"], {"b": "b", "a": "a"}, False),
        (["IN__1", "x__0"], ["a", "b"], {"IN__1": 1, "x__0": 0}, False),
        (["a", "IN__1"], ["a", "b"], {"a": 0, "IN__1": 1}, True),
        (["a__b", "c__1"], None, {"a__b": 0, "c__1": 1}, True),
        (["X"], ["a"], {"X": 0}, False),
        (["ARGS[0]", "KWARGS[mask]"], None, {"ARGS[0]": 0, "KWARGS[mask]": "mask"}, False),
    ],
)
def test_b_pyb_04_inputs_are_arguments(names, known, arguments, warns):
    made, warning = naming.arguments_of(names, known, "m")
    assert (made, warning is not None) == (arguments, warns)


@pytest.mark.parametrize(
    "names, values",
    [
        (["OUT__1", "OUT__0"], {"OUT__1": [1], "OUT__0": [0]}),
        (["OUT__1", "second"], {"OUT__1": [0], "second": [1]}),
        (["RESULT[1][total]", 'RESULT[0]["a"]'], {"RESULT[1][total]": [1, "total"], 'RESULT[0]["a"]': [0, "a"]}),
    ],
)
def test_b_pyb_04_outputs_are_values(names, values):
    assert naming.values_of(names, "m")[0] == values


def test_b_pyb_04_inputs_that_are_no_arguments_of_a_call_are_told():
    def check(arguments, known, text):
        required = [] if known is None else list(enumerate(known))
        assert naming.mistake_in(arguments, required, known, "m") == text

    check({"a": "a", "b": "b"}, ["a", "b"], None)
    check({"a": 0, "b": 0}, ["a", "b"], "inputs 'a' and 'b' of model 'm' are both argument 0 of forward")
    check({"a": 0}, ["a", "b"], "unable to load model 'm', configuration expects 1 inputs, model provides 2: a, b")
    check({"a": 0, "c": 2}, ["a", "b"], "input 'c' of model 'm' is argument 2 of forward, which has 2")
    check({"a": 0, "c": 2}, None, "no input of model 'm' is argument 1 of forward, and one is a later argument")
    assert naming.mistake_in({"x": 0}, [(0, "x")], ["x", "scale"], "m") is None


def test_b_pyb_05_a_file_is_told_by_its_entries(tmp_path):
    def check(names, kind, pickle=b"\x80\x02}"):
        path = tmp_path / "model.pt"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, pickle)
        assert files.kind_of(path) == kind, names

    check(["m/data.pkl", "m/code/__torch__.py", "m/constants.pkl"], files.TORCHSCRIPT)
    check(["m/data.pkl", "m/data/0"], files.WEIGHTS)
    check(["m/data.pkl"], files.WEIGHTS, b"\x80\x02ccollections\nOrderedDict\n")
    check(["m/data.pkl"], files.MODULE, b"\x80\x02c__main__\nNet\n")
    check(["package/data/aotinductor/model/a.wrapper.so", "package/archive_format"], files.PACKAGE)
    check(["program/models/model.json", "program/archive_format"], files.PROGRAM)
    check(["serialized_exported_program.json", "version"], files.PROGRAM)
    with pytest.raises(files.NotAModel, match="is a zip archive without a model of PyTorch"):
        check(["a.txt"], None)
