"""What follows from an object that does not change, computed once."""

import functools
import weakref
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from .arrays import default_float
from .check import is_concrete

S = TypeVar("S")
T = TypeVar("T")


def remembered(fn: Callable[[S], T]) -> Callable[[S], T]:
    """`fn(x)`, computed once for each object x, by its identity, and each precision, for as long as x is there.

    The result must not hold x. One that is traced belongs to its program and is not remembered.
    """
    results: dict[tuple[int, np.dtype], T] = {}

    @functools.wraps(fn)
    def call(x: S) -> T:
        key = id(x), default_float()
        if key in results:
            return results[key]
        result = fn(x)
        if is_concrete(result):
            results[key] = result
            # Another object may get the identity of one that is gone.
            weakref.finalize(x, results.pop, key, None).atexit = False
        return result

    return call
