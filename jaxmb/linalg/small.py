"""Functions of small matrices as compiled code, one text in all programs."""

import functools
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array

from ..lanes import WRITING, Program, Shaped, unavailable

Function = Callable[..., Sequence[Array]]

# These functions take more operations than are allowed where the square of the rows times the columns is more than this, and need not be tried.
MOST = 24**3


def small(fn: Function) -> Function:
    """A function of arrays without derivative, by compiled code where that can be had and the arrays are small.

    XLA compiles a loop over rows anew for each place in a program where it stands; this is one call in all of them.

    Args:
        fn: (arrays, quick) ↦ arrays, `quick` as in `is_unrolled`.
    """

    @functools.wraps(fn)
    def call(*arrays: Array, quick: bool = False) -> Sequence[Array]:
        shapes = tuple(Shaped(jnp.shape(x), jnp.result_type(x)) for x in arrays)
        if WRITING or unavailable() is not None or not all(all(s.shape) for s in shapes):
            return fn(*arrays, quick=quick)
        program = _compiled(fn, shapes)
        return fn(*arrays, quick=quick) if program is None else program(*arrays)

    return call


@functools.lru_cache(maxsize=256)
def _compiled(fn: Function, shapes: tuple[Shaped, ...]) -> Program | None:
    if max(s.shape[0] * s.size for s in shapes if s.shape) > MOST:
        return None
    return Program.callee(functools.partial(fn, quick=True), *shapes)
