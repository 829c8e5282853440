"""Values and tangents of a program, as a part of another one."""

import functools
from collections.abc import Sequence

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr
from jaxtyping import Array

from .code import Code
from .errors import NotScalarError
from .forward import tangents
from .graph import OperationGraph
from .jaxpr import pruned, traced
from .program import WRITING, Program, is_number
from .reverse import DifferentiatingReader
from .scalarise import LARGEST_DERIVATIVE, Reader, Value
from .uncompiled import of_some


def jvp(
    program: Program, operands: Sequence[Array], moving: tuple[int, ...], dots: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """The results of a program, and the tangents of those that are numbers, by the tangents of the `moving` operands.

    Within a program they are found operation by operation, which takes a fraction of the time that JAX takes to trace them; by JAX where an operation has no
    rule.
    """
    out = JVPProgram(program, moving)(*operands, *dots)
    return out[: len(program.results)], out[len(program.results) :]


class JVPProgram(Program):
    """(operands, tangents of those that move) ↦ results of a program, tangents of those that are numbers."""

    def __init__(self, program: Program, moving: tuple[int, ...]):
        self.of_values, self.moving, self.dtype = program, moving, program.dtype
        self.numbers = [k for k, s in enumerate(program.results) if is_number(s)]
        self.operands = (*program.operands, *(program.operands[k] for k in moving))
        self.results = (*program.results, *(program.results[k] for k in self.numbers))

    @functools.cached_property
    def code(self) -> Code:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of a call that stands in no program."""

        def write(graph: OperationGraph, nodes: list[np.ndarray]) -> list[np.ndarray]:
            reader = Reader(graph, LARGEST_DERIVATIVE)
            return list(map(reader.nodes, self.inlined(reader, nodes)))

        return self.code_of(write)

    @functools.cached_property
    def jaxpr(self) -> ClosedJaxpr:  # pyright: ignore[reportIncompatibleVariableOverride]
        """By JAX."""
        count, program = len(self.of_values.operands), self.of_values

        def both(*operands: Array) -> list[Array]:
            own, dots = operands[:count], operands[count:]
            move = of_some(program.fn, dict(enumerate(own)), self.moving)
            values, changes = jax.jvp(move, tuple(own[k] for k in self.moving), tuple(dots))
            return [*values, *(changes[k] for k in self.numbers)]

        with WRITING:
            return traced(both, *self.operands)

    def inlined(self, reader: Reader, operands: Sequence[Value]) -> list[Value]:
        """The results, operation by operation if that can be done."""
        nodes, count = [reader.nodes(x) for x in operands], len(self.of_values.operands)
        # What this hides behind opaque nodes, one who differentiates the whole would not find.
        if isinstance(reader, DifferentiatingReader):
            return super().inlined(reader, operands)
        dots = dict(zip(self.moving, nodes[count:], strict=True))
        try:
            values, changes = tangents(reader.graph, pruned(self.of_values.jaxpr), nodes[:count], dots, reader.largest)
        except NotScalarError:
            return super().inlined(reader, operands)
        return [*values, *(changes[k] for k in self.numbers)]
