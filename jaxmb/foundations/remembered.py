"""What follows from an object that does not change, found once."""

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from .arrays import default_float
from .check import is_concrete

T = TypeVar("T")


def remembered(fn: Callable[[Any], T]) -> Callable[[Any], T]:
    """`fn(x)`, found once for each object x, by its identity, and each precision, for as long as x is there.

    The result must not hold x. One that is traced belongs to its program and is not remembered.
    """
    results: dict[tuple[int, Any], T] = {}

    @functools.wraps(fn)
    def call(x: Any) -> T:
        key = id(x), default_float()
        if key in results:
            return results[key]
        result = fn(x)
        if is_concrete(result):
            results[key] = result
            weakref.finalize(x, results.pop, key, None).atexit = False
        return result

    return call
