"""Writes the models of test_openvino.py, and what plain OpenVINO makes of an input: `python openvino_models.py DIRECTORY`. Files only, no configurations."""
import os
import sys

import numpy as np
import openvino as ov
from openvino import opset13 as ops

#: Element types in the order of the model `types`.
KINDS = ["boolean", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"]


def named(node, name):
    node.output(0).get_tensor().set_names({name})
    return node


def parameter(shape, name, kind="f32"):
    return named(ops.parameter(shape, getattr(ov.Type, kind), name=name), name)


def pair(shape=(-1, -1), names=("A", "B", "SUM", "DIFFERENCE")):
    a, b = parameter(list(shape), names[0]), parameter(list(shape), names[1])
    return ov.Model([named(ops.add(a, b), names[2]), named(ops.subtract(a, b), names[3])], [a, b], "pair")


def double(shape, kind="f32", layout=None):
    x = parameter(shape, "X", kind)
    made = ov.Model([named(ops.multiply(x, ops.constant(2, getattr(ov.Type, kind))), "Y")], [x], "double")
    if layout is not None:
        for one in (*made.get_parameters(), *made.get_results()):
            one.set_layout(ov.Layout(layout))
    return made


def types():
    inputs = [parameter([-1, 2], f"IN{at}", kind) for at, kind in enumerate(KINDS)]
    one = lambda x, kind: ops.logical_not(x) if kind == "boolean" else ops.add(x, ops.constant(1, getattr(ov.Type, kind)))  # noqa: E731
    return ov.Model([named(one(x, kind), f"OUT{at}") for at, (x, kind) in enumerate(zip(inputs, KINDS))], inputs, "types")


def network():
    """An image of 8 × 8 to the logits of five classes."""
    chance = np.random.default_rng(7)
    weights = lambda *shape: ops.constant(chance.standard_normal(shape).astype(np.float32))  # noqa: E731
    x = parameter([1, 3, 8, 8], "image")
    made = ops.relu(ops.convolution(x, weights(8, 3, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1]))
    made = ops.reduce_mean(made, ops.constant([2, 3]), keep_dims=False)
    return ov.Model([named(ops.matmul(made, weights(8, 5), False, False), "logits")], [x], "network")


def remembers():
    """Adds what it gets to a variable of its own."""
    x = parameter([1, 1], "X")
    before = ops.read_value(ops.constant(np.zeros((1, 1), np.float32)), "sum")
    after = named(ops.add(x, before), "SUM")
    return ov.Model([ops.result(after)], [ops.assign(after, "sum")], [x], "remembers")


def flattens():
    """One row, whatever the batch is."""
    x = parameter([-1, 3], "X")
    return ov.Model([named(ops.reshape(x, ops.constant([1, -1]), False), "Y")], [x], "flattens")


def main(directory):
    def save(name, model):
        ov.save_model(model, os.path.join(directory, f"{name}.xml"), compress_to_fp16=False)
        return model

    save("pair", pair())
    save("double", double([-1, -1]))
    save("fixed", double([1, 3]))
    save("bounded", double(ov.PartialShape([ov.Dimension(1, 4), ov.Dimension(2, 6)])))
    save("pairs", double(ov.PartialShape([ov.Dimension(2, 8), ov.Dimension(3)])))
    save("half", double([-1, 3], "f16"))
    save("layout", double([-1, 3, -1], layout="NCW"))
    save("types", types())
    save("remembers", remembers())
    save("flattens", flattens())
    images = np.random.default_rng(8).standard_normal((6, 3, 8, 8)).astype(np.float32)
    compiled = ov.Core().compile_model(save("network", network()), "CPU")
    np.save(os.path.join(directory, "images.npy"), images)
    np.save(os.path.join(directory, "logits.npy"), np.concatenate([compiled(images[at : at + 1])[0] for at in range(len(images))]))


if __name__ == "__main__":
    main(sys.argv[1])
