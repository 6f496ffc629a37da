"""Prints what a TorchScript file says about its inputs and outputs, as JSON: `python nereid_pytorch_look.py FILE`.

`nereid init` runs it, in the interpreter that will serve the model. The file has no datatypes and shapes of tensors.
The model is loaded and not called.
"""
import json
import sys

import nereid_pytorch_files as files


def look(path):
    """`{"inputs": [[name, is_strings]], "outputs": [[name, is_strings]]}`, with null for a list that the file does not
    determine; null for another kind of file."""
    if files.kind_of(path) != files.TORCHSCRIPT:
        return None
    import torch

    method = torch.jit.load(path, map_location="cpu")._c._get_method("forward")
    return {"inputs": _inputs(method), "outputs": _outputs(method)}


def _inputs(method):
    arguments = method.schema.arguments[1:]
    if len(arguments) == 1 and arguments[0].type.kind() == "DictType":
        if not _is_tensor(arguments[0].type.getValueType()):
            return None
        # Inputs are keys of the dictionary: those that the code reads.
        reads = method.graph.findAllNodes("aten::__getitem__")
        given = list(method.graph.inputs())[-1]
        keys = [_text(key) for of, key in (node.inputs() for node in reads) if of.debugName() == given.debugName()]
        return None if not keys or None in keys else [[key, False] for key in dict.fromkeys(keys)]
    # Numbers and flags cannot be inputs; they keep their defaults.
    given = [one for one in arguments if _is_value(one.type) or not one.has_default_value()]
    if not given or not all(_is_value(one.type) for one in given):
        return None
    return [[one.name, _is_strings(one.type)] for one in given]


def _outputs(method):
    of = method.schema.returns[0].type
    made = next(method.graph.outputs()).node()
    if of.kind() == "TupleType":
        return _by_position(of.elements())
    if of.kind() == "DictType":
        if not _is_tensor(of.getValueType()):
            return None
        keys = [_text(key) for key in list(made.inputs())[::2]] if made.kind() == "prim::DictConstruct" else []
        return None if not keys or None in keys else [[key, False] for key in keys]
    if of.kind() != "ListType" or _is_strings(of):
        return _by_position([of])
    # The type does not have the length, but the code that makes the list often does.
    count = len(list(made.inputs())) if made.kind() == "prim::ListConstruct" else 0
    return _by_position([of.getElementType()] * count)


def _by_position(types):
    """Outputs of these types; None if there are none, or if one is neither a tensor nor strings."""
    if not types or not all(_is_value(of) for of in types):
        return None
    return [[f"OUTPUT__{at}", _is_strings(of)] for at, of in enumerate(types)]


def _is_value(of):
    return _is_tensor(of) or _is_strings(of)


def _is_tensor(of):
    inner = of.getElementType() if of.kind() == "OptionalType" else of
    return inner.kind() == "TensorType"


def _is_strings(of):
    return of.kind() == "ListType" and of.getElementType().kind() == "StringType"


def _text(value):
    """The constant text of a value in the graph, or None."""
    node = value.node()
    is_text = node.kind() == "prim::Constant" and value.type().kind() == "StringType"
    return node.s("value") if is_text else None


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
