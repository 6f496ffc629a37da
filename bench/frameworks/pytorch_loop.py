"""Writes models of PyTorch, and runs one in a bare loop with one thread: `python pytorch_loop.py REPOSITORY`."""
import sys

import torch

from loops import ROWS, inputs, layers, place, serve


class Identity(torch.nn.Module):
    def forward(self, INPUT0: torch.Tensor) -> torch.Tensor:
        return INPUT0


class Network(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        parts = []
        for weights, bias in layers(name):
            linear = torch.nn.Linear(*weights.shape)
            linear.weight.data, linear.bias.data = torch.from_numpy(weights.T.copy()), torch.from_numpy(bias)
            parts += [linear, torch.nn.Tanh()]
        self.layers = torch.nn.Sequential(*parts)

    def forward(self, INPUT0: torch.Tensor) -> torch.Tensor:
        return self.layers(INPUT0)


def main(repository):
    torch.set_num_threads(1)
    networks = {"deep": Network("deep"), "mlp": Network("mlp"), "mlp_plain": Network("mlp"), "identity": Identity()}
    for name, network in networks.items():
        torch.jit.script(network.eval()).save(place(repository, f"pytorch_{name}", "model.pt"))
    # As the server opens it.
    deep = torch.jit.load(place(repository, "pytorch_deep", "model.pt"))
    values = [torch.from_numpy(array) for array in inputs("deep", ROWS)]
    with torch.inference_mode():
        serve({"torch": torch.__version__}, {"deep": lambda i: deep(values[i % len(values)])})


main(sys.argv[1])
