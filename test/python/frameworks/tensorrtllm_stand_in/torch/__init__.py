"""Stand-in for PyTorch, for imports and `isinstance` only: these models get tensors in CPU memory."""


class Tensor:
    pass
