"""Writes the models of test_pytorch.py: `python pytorch_models.py DIRECTORY`, in an interpreter with torch. Files only, no configurations."""
import os
import sys
from typing import Dict, List, Tuple

import torch


class Named(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        return a + b, a - b


class One(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Default(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 3.0) -> torch.Tensor:
        return x * scale


class Listed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> List[torch.Tensor]:
        return [x + 1, x + 2]


class ByKey(torch.nn.Module):
    def forward(self, x: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
        return {"sum": x["a"] + x["b"], "difference": x["a"] - x["b"]}


class Strings(torch.nn.Module):
    def forward(self, texts: List[str]) -> Tuple[List[str], torch.Tensor]:
        louder: List[str] = []
        lengths: List[int] = []
        for text in texts:
            louder.append(text + "!")
            lengths.append(len(text))
        return louder, torch.tensor(lengths)


class OnlyStrings(torch.nn.Module):
    def forward(self, texts: List[str]) -> List[str]:
        return texts


class Types(torch.nn.Module):
    def forward(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, e: torch.Tensor,
        f: torch.Tensor, g: torch.Tensor, h: torch.Tensor, i: torch.Tensor, j: torch.Tensor,
    ):  # fmt: skip
        return a, b + 1, c + 1, d + 1, e + 1, f + 1, g + 1, h + 1, i + 1, ~j


class InPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


class Wrong(torch.nn.Module):
    """What it returns is wrong in the way that the first element says."""

    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        which = int(x[0, 0])
        if which == 1:
            return x.sum(), x
        if which == 2:
            return x.to(torch.float64), x
        if which == 3:
            return torch.cat([x, x]), x
        if which == 4:
            raise ValueError("four is too many")
        return x, x


class Dropout(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = torch.nn.Dropout(0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(x)


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


def main(directory):
    def script(name, module, evaluates=True):
        torch.jit.script(module.eval() if evaluates else module.train()).save(os.path.join(directory, name + ".pt"))

    for module in (Named(), One(), Default(), Listed(), ByKey(), Strings(), OnlyStrings(), Types(), InPlace(), Wrong()):
        script(type(module).__name__, module)
    script("Dropout", Dropout(), evaluates=False)
    torch.manual_seed(7)
    linear = Linear().eval()
    traced = torch.jit.trace(linear, torch.zeros(1, 4))
    traced.save(os.path.join(directory, "Linear.pt"))
    torch.save(linear.state_dict(), os.path.join(directory, "weights.pt"))
    torch.save(linear, os.path.join(directory, "module.pt"))
    # What torch itself makes of it, for the test to compare.
    print(linear(torch.arange(12, dtype=torch.float32).reshape(3, 4)).tolist())


if __name__ == "__main__":
    main(sys.argv[1])
