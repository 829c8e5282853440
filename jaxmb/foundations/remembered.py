"""What follows from an object that does not change, found once."""

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from .arrays import default_float

T = TypeVar("T")


def remembered(fn: Callable[[Any], T]) -> Callable[[Any], T]:
    """`fn(x)`, found once for each object x, by its identity, and each precision, for as long as x is there; the result must not hold x."""
    results: dict[tuple[int, Any], T] = {}

    @functools.wraps(fn)
    def call(x: Any) -> T:
        key = id(x), default_float()
        if key not in results:
            results[key] = fn(x)
            weakref.finalize(x, results.pop, key, None).atexit = False
        return results[key]

    return call
