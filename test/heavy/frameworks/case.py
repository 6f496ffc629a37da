"""
A model that a framework's script writes, with questions and the answers of that framework in the same plain script. Nothing of the server is imported here.

A script defines `KINDS`, functions of `(seed, directory)` that write the files of a version and return a `Case`, and ends with `main(KINDS)`.
Called as `script DIRECTORY COUNT [ONLY]` it writes `models/NAME`, a repository, `questions/NAME.npz`, and `cases.json`.
"""
import dataclasses
import json
import os
import sys
import traceback

import numpy as np

#: What two floats of one number may differ by, of their size or of the largest of their tensor. Batches of other sizes are summed in another order.
TOLERANCE = {"FP16": 1e-2, "BF16": 4e-2, "FP32": 2e-4, "FP64": 1e-9}
NAMES = {"bool": "BOOL", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}


@dataclasses.dataclass
class Case:
    #: The tensors of one question → of its answer. With a batch each is one row, whose first dimension is 1.
    questions: list
    #: Lines of config.pbtxt, or None for a model without one.
    config: str | None
    #: The greatest batch; 0 for a model that does not batch.
    batch: int = 8
    #: Classes and other answers that many rows have in common: rows that came back to another request would not always be seen.
    coarse: bool = False
    #: Of floats, in the place of `TOLERANCE`.
    tolerance: float | None = None
    #: A tensor of one dimension is what clients see, not one of `[ 1 ]` that the configuration reshapes.
    flat: bool = False


@dataclasses.dataclass
class Bf16:
    """BF16 as numpy without ml_dtypes has it: the bits of each."""

    bits: np.ndarray

    @property
    def shape(self):
        return self.bits.shape

    def floats(self):
        return (self.bits.astype(np.uint32) << 16).view(np.float32)


def datatype(array):
    if isinstance(array, Bf16):
        return "BF16"
    return "BYTES" if array.dtype.kind in "SUO" else NAMES.get(array.dtype.name, array.dtype.name.upper())


def tensors(field, rows):
    """`input [ … ]` of rows of name, type and dims. One number for each row, without dims, is `[ 1 ]` to clients (see `save`)."""
    of = lambda dims: f"[ {', '.join(map(str, dims))} ]" if dims else "[ 1 ] reshape { shape: [ ] }"  # noqa: E731
    lines = ",\n".join(f'  {{ name: "{name}" data_type: TYPE_{kind.replace("BYTES", "STRING")} dims: {of(dims)} }}' for name, kind, dims in rows)
    return f"{field} [\n{lines}\n]\n"


def parameters(**values):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in values.items())


def config(backend, batch, inputs, outputs, *more, line=None):
    """`more`: further lines. Models that batch wait for other requests, so that there are batches."""
    waits = "dynamic_batching { max_queue_delay_microseconds: 2000 }\n" if batch else ""
    first = line or f'backend: "{backend}"'
    return f'{first}\nmax_batch_size: {batch}\n{tensors("input", inputs)}{tensors("output", outputs)}{waits}{"".join(more)}'


def described(backend, questions, batch, *more, line=None):
    """`config` of what was asked and answered. Dims are -1 where questions differ."""

    def dims(arrays):
        return [sizes[0] if len(set(sizes)) == 1 else -1 for sizes in zip(*(a.shape[1 if batch else 0 :] for a in arrays))]

    rows = [[(name, datatype(sides[0][name]), dims([side[name] for side in sides])) for name in sides[0]] for sides in zip(*questions)]
    return config(backend, batch, *rows, *more, line=line)


def differ(one, other, tolerance):
    """Whether two answers are told apart by what the test compares, by far."""
    for name, a in one.items():
        b = other[name]
        if a.shape != b.shape:
            return True
        kind = datatype(a)
        a, b = (x.floats() if isinstance(x, Bf16) else x for x in (a, b))
        if kind in TOLERANCE:
            a, b = a.astype(np.float64), b.astype(np.float64)
            limit = (tolerance or TOLERANCE[kind]) * max(1e-30, np.nanmax(np.abs(a), initial=0))
            if np.nanmax(np.abs(a - b), initial=0) > 3 * limit:
                return True
        elif not np.array_equal(a, b):
            return True
    return False


def check(case):
    """@raises ValueError for a case that would pass with the rows of another request."""
    shapes = lambda tensors: {name: a.shape for name, a in tensors.items()}  # noqa: E731
    for _, answer in case.questions:
        for name, a in answer.items():
            if not isinstance(a, Bf16) and a.dtype.kind == "f" and not np.isfinite(a).all():
                raise ValueError(f"{name} is not finite")
    if case.coarse or not case.batch:
        return
    for i, (asked, answer) in enumerate(case.questions):
        for j, (others, other) in enumerate(case.questions[:i]):
            if shapes(asked) == shapes(others) and not differ(answer, other, case.tolerance):
                raise ValueError(f"the answers to questions {j} and {i} are too near to be told apart")


def save(root, name, case):
    check(case)
    if case.config is not None:
        with open(os.path.join(root, "models", name, "config.pbtxt"), "w") as to:
            to.write(case.config)
    arrays = {}
    for i, (asked, answer) in enumerate(case.questions):
        for side, tensors in (("i", asked), ("o", answer)):
            for tensor, a in tensors.items():
                bits = a.bits if isinstance(a, Bf16) else a
                arrays[f"{side}|{i}|{tensor}|{datatype(a)}"] = bits.reshape(-1, 1) if case.batch and bits.ndim == 1 and not case.flat else bits
    np.savez(os.path.join(root, "questions", f"{name}.npz"), **arrays)


def main(kinds, version):
    root, count = sys.argv[1], int(sys.argv[2])
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    os.makedirs(os.path.join(root, "questions"), exist_ok=True)
    cases = []
    for seed in range(count):
        # Once through all kinds, then again with other numbers.
        kind = kinds[seed % len(kinds)]
        name = f"{kind.__name__}_{seed}"
        if only not in name:
            continue
        directory = os.path.join(root, "models", name, "1")
        os.makedirs(directory, exist_ok=True)
        row = {"name": name, "kind": kind.__name__}
        try:
            case = kind(seed, directory)
            save(root, name, case)
            row |= {"batch": case.batch, "coarse": case.coarse, "tolerance": case.tolerance}
        except Exception as error:  # One that cannot be made is a failure of that model alone.
            traceback.print_exc()
            row["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
        cases.append(row)
    with open(os.path.join(root, "cases.json"), "w") as to:
        json.dump({"version": version, "cases": cases}, to)
