"""Stand-in for PyTorch over numpy, for tests of the arguments of `torch.compile`: what the backend `pytorch` uses to
serve a class of a model.py on the CPU. It compiles nothing.

`torch.compile` writes its arguments as JSON to the file that STAND_IN_COMPILED names, and the compiled module adds 100
to its result. Without the variable torch has no `compile`, as before version 2.0.
"""
import contextlib
import json
import os
import types

import numpy as np

__version__ = "1.13.1+stand.in"

float32 = np.dtype(np.float32)
inference_mode = no_grad = contextlib.nullcontext
cuda = types.SimpleNamespace(is_available=lambda: False)
version = types.SimpleNamespace(cuda=None)
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(enabled=True))


def set_num_threads(number):
    pass


def set_num_interop_threads(number):
    pass


def get_num_threads():
    return 1


def get_num_interop_threads():
    return 1


class device:
    def __init__(self, name):
        self.type, self.index = name, None


class Tensor(np.ndarray):
    requires_grad = False
    is_cpu = True

    def dim(self):
        return self.ndim

    def to(self, device):
        return self

    def detach(self):
        return self

    def contiguous(self):
        return np.ascontiguousarray(self).view(Tensor)

    def numpy(self):
        return self.view(np.ndarray)


def from_numpy(array):
    return array.view(Tensor)


def cat(parts):
    return np.concatenate(parts).view(Tensor)


class Module:
    def __call__(self, *inputs, **named):
        return self.forward(*inputs, **named)

    def to(self, device):
        return self

    def eval(self):
        return self

    def parameters(self):
        return iter(())


nn = types.SimpleNamespace(Module=Module)


def _compile(module, **arguments):
    with open(os.environ["STAND_IN_COMPILED"], "w") as file:
        json.dump(arguments, file)
    return lambda *inputs, **named: module(*inputs, **named) + np.float32(100)


if "STAND_IN_COMPILED" in os.environ:
    compile = _compile
