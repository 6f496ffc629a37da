"""Functions that test_functions.py serves: in processes of their own, which import this file, and in the test's."""
import asyncio
import os
import time
from typing import Annotated, AsyncIterator, Iterator, TypedDict

import nereid
import numpy as np
from numpy.typing import NDArray

Row = Annotated[NDArray[np.float32], (3,)]


class Sides(TypedDict):
    low: NDArray[np.float32]
    high: NDArray[np.float32]


@nereid.model(batch=32)
def double(x: Row) -> tuple[Row, list[int]]:
    """Twice the rows, and how many rows the call had: more wait while it sleeps."""
    time.sleep(0.01)
    return x * 2, [len(x)] * len(x)


@nereid.model(batch=4)
def plus(x: Row, more: Row = np.float32(1)) -> Row:
    return x + more


@nereid.model
def shout(text: str, times: int = 2, mark: bytes = b"!") -> str:
    return text.upper() * times + mark.decode()


@nereid.model(batch=8)
def lengths(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


@nereid.model
def sides(x: NDArray[np.float32]) -> Sides:
    return {"low": x[x < 0], "high": x[x >= 0]}


@nereid.model
def count(n: int) -> Iterator[int]:
    yield from range(n)


@nereid.model
async def sleep(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@nereid.model
async def words(text: str) -> AsyncIterator[str]:
    for word in text.split():
        await asyncio.sleep(0)
        yield word


@nereid.model(instances=1)
class Sum:
    def __init__(self) -> None:
        self.sum = 0

    def __call__(self, step: int) -> tuple[int, int]:
        self.sum += step
        return self.sum, os.getpid()


@nereid.model(batch=4)
def wrong(kind: list[str]) -> NDArray[np.float32]:
    results = {
        "rows": np.zeros((len(kind) + 1, 1), np.float32),
        "dtype": np.zeros((len(kind), 1)),
        "shape": np.zeros(len(kind), np.float32),
        "none": None,
    }
    if kind[0] == "raise":
        raise LookupError("no such kind")
    return results[kind[0]]


@nereid.model
def die(text: str) -> str:
    os._exit(7)


@nereid.model(name="explicit", inputs=[nereid.Tensor("A B", np.int32, (2, -1))], outputs=[nereid.Tensor("SUM", np.int32, (2,))])
def by_lists(**tensors):
    return tensors["A B"].sum(axis=1, dtype=np.int32)


@nereid.model
def hold(seconds: float) -> float:
    """Holds the interpreter's lock."""
    import ctypes

    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return time.monotonic()


EVERY = [double, plus, shout, lengths, sides, count, sleep, words, Sum, wrong, die, by_lists]
