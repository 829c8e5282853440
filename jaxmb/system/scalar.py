"""Functions of a system as compiled code, one text in all programs."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..foundations import Blank, shapes_of
from ..lanes import WRITING, Program, Shaped, length, unavailable

# A function of more velocities than these that has fewer equations treats equal elements side by side: XLA has compiled it before it is written out.
MANY, SHORT = 40, 1_500

F = TypeVar("F", bound=Callable[..., Any])


def scalar(fn: F, reads: Callable[[Any], Any] = lambda system: system) -> F:
    """A function of a system and of arrays, by compiled code where it can be had.

    XLA compiles such functions anew for each program in which they stand, and each time that they stand there; this is one call in all of them, and its
    derivatives likewise.

    Args:
        fn: the function.
        reads: the system without what the function does not read: systems that are alike then share the code.
    """

    @functools.wraps(fn)
    def call(system: PyTree, *arguments: PyTree) -> PyTree:
        if WRITING or system.layout is not None or unavailable() is not None:
            return fn(system, *arguments)
        while arguments and arguments[-1] is None:  # left out or written out: one code
            arguments = arguments[:-1]
        blank, arrays = Blank.of((reads(system), *arguments))
        compiled = _compiled(fn, blank, shapes_of(arrays)) if blank.hashable else None
        if compiled is None:
            return fn(system, *arguments)
        program, structure, constants = compiled
        # Results that depend on no input are constants of the caller too, so that XLA folds them.
        results = program(*arrays) if any(x is None for x in constants) else constants
        of_each = [x if k is None else jnp.asarray(k) for x, k in zip(results, constants, strict=True)]
        return jax.tree.unflatten(structure, of_each)

    return cast(F, call)


@functools.lru_cache(maxsize=256)
def _compiled(
    fn: Callable[..., Any], blank: Blank, shapes: tuple[Shaped, ...]
) -> tuple[Program, Any, list[np.ndarray | None]] | None:
    """The program, the structure of its results, and those that are known; None if the function cannot be one, or had better not."""
    structures = []

    def side_by_side(*arrays: PyTree) -> list[Array]:
        return jax.tree.leaves(fn(*blank.filled(arrays)))

    def leaves_of(*arrays: PyTree) -> list[Array]:
        system, *arguments = blank.filled(arrays)
        leaves, structure = jax.tree.flatten(fn(system.specialised.unrolled, *arguments))
        structures.append(structure)
        return leaves

    if blank.filled(shapes)[0].nv > MANY and length(side_by_side, *shapes) < SHORT:
        return None
    program = Program.callee(leaves_of, *shapes)
    return None if program is None else (program, structures[-1], program.constants)
