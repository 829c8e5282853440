"""Callables as fields of modules."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


class Function(eqx.Module):
    """A plain Python function as a static part of a pytree.

    Two of them are equal when they wrap the same function object; a program is compiled anew for a new function, not for
    new numbers.
    """

    fn: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, *args: Any) -> Any:
        """Calls the function."""
        return self.fn(*args)


def as_function(fn: Any, argument: str) -> Any:
    """Returns `fn` as a field of a module: a plain function becomes static, a callable pytree keeps its leaves."""
    if fn is None:
        return None
    if not callable(fn):
        raise TypeError(f"Argument `{argument}` must be a function, but is {fn!r}.")
    leaves = jax.tree_util.tree_leaves(fn)
    if len(leaves) == 1 and leaves[0] is fn:
        return Function(fn)
    return fn
