"""Writes `program.pt2` and the package that AOT-Inductor makes of it: `python pytorch_package.py DIRECTORY`. Needs torch 2.6 or later and a C++ compiler."""
import os
import sys

import torch


class Masked(torch.nn.Module):
    def forward(self, x, mask):
        return x * mask, {"total": x.sum(dim=1, keepdim=True)}


def main(directory):
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    program = torch.export.export(Masked().eval(), (torch.ones(2, 3), torch.ones(2, 3)), dynamic_shapes={"x": rows, "mask": rows})
    torch.export.save(program, os.path.join(directory, "program.pt2"))
    torch._inductor.aoti_compile_and_package(program, package_path=os.path.join(directory, "package.pt2"))


if __name__ == "__main__":
    main(sys.argv[1])
