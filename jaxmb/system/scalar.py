"""Functions of a system as compiled code, one text in all programs."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax

from ..foundations import Blank, shapes_of
from ..kernels import NotScalarError, Program, Shaped, is_writing, unavailable

F = TypeVar("F", bound=Callable[..., Any])

# Functions of more operations are compiled by XLA, as parts of its programs.
LARGEST = 10_000


def scalar(fn: F) -> F:
    """A function of a system and of arrays, by compiled code where it can be had.

    XLA compiles such functions anew for each program in which they stand, and each time that they stand there; this is one call in all of them, and its
    derivatives likewise.
    """

    @functools.wraps(fn)
    def call(system: Any, *arguments: Any) -> Any:
        if is_writing() or system.layout is not None or unavailable() is not None:
            return fn(system, *arguments)
        blank, arrays = Blank.of((system, *arguments))
        made = _made(fn, blank, shapes_of(arrays)) if blank.known else None
        if made is None:
            return fn(system, *arguments)
        program, structure = made
        return jax.tree.unflatten(structure, program(*arrays))

    return cast(F, call)


@functools.lru_cache(maxsize=512)
def _made(fn: Callable[..., Any], blank: Blank, shapes: tuple[Shaped, ...]) -> tuple[Program, Any] | None:
    """The program and the structure of its results; None if the function cannot be one."""
    structures = []

    def whole(*arrays: Any) -> list[Any]:
        system, *arguments = blank.filled(arrays)
        leaves, structure = jax.tree.flatten(fn(system.told, *arguments))
        structures.append(structure)
        return leaves

    try:
        program = Program.of(whole, *shapes, largest=LARGEST, exact=True, brief=True)
    except NotScalarError:
        return None
    return program, structures[-1]
