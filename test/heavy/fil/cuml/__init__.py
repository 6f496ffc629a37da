"""Stands for cuml, which needs a GPU, in scripts of the FIL backend's QA: what they use of it, by scikit-learn."""
import contextlib

import pandas
import sklearn.datasets

_output = "numpy"


@contextlib.contextmanager
def using_output_type(kind):
    global _output
    before, _output = _output, kind
    try:
        yield
    finally:
        _output = before


class _Frame(pandas.DataFrame):
    def to_pandas(self):
        return pandas.DataFrame(self)


class _Series(pandas.Series):
    def to_pandas(self):
        return pandas.Series(self)


class datasets:
    @staticmethod
    def make_classification(**options):
        data, labels = sklearn.datasets.make_classification(**options)
        return (_Frame(data), _Series(labels)) if _output == "cudf" else (data, labels)

    make_regression = staticmethod(sklearn.datasets.make_regression)
