"""What the rows of rows.json do. A function that is marked with the id of a row runs it: it raises when the row fails, and returns its figure, or words, or None."""
ROWS = {}


def row(name):
    def mark(function):
        assert name not in ROWS, name
        ROWS[name] = function
        return function

    return mark


def load():
    """All of them."""
    from . import device, memory, onnx, python, pytorch  # noqa: F401

    return ROWS
