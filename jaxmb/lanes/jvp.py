"""Values and tangents of a program, as a part of another one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
from jax.core import ShapedArray
from jax.extend import core
from jax.extend.core import JaxprEqn
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike
from jaxtyping import Array

from .errors import NotScalarError
from .forward import tangents
from .jaxpr import Params, pruned, shaped
from .program import Program, is_number
from .reverse import DifferentiatingReader
from .scalarise import EQUATIONS
from .uncompiled import of_some

if TYPE_CHECKING:
    from .scalarise import Reader, Value


def jvp(
    program: Program, operands: Sequence[Array], moving: tuple[int, ...], dots: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """The results of a program, and the tangents of those that are numbers, by the tangents of the `moving` operands.

    Within a program they are found operation by operation, which takes a fraction of the time that JAX takes to trace them; by JAX where an operation has no
    rule, and outside of programs.
    """
    out = jvp_p.bind(*operands, *dots, program=program, moving=moving)
    return out[: len(program.results)], out[len(program.results) :]


jvp_p = core.Primitive("scalar_program_jvp")
jvp_p.multiple_results = True


def _by_jax(*operands: ArrayLike, program: Program, moving: tuple[int, ...]) -> list[Array]:
    count = len(program.operands)
    own, dots = operands[:count], operands[count:]
    move = of_some(program.fn, dict(enumerate(own)), moving)
    values, changes = jax.jvp(move, tuple(own[k] for k in moving), tuple(dots))
    return [*values, *(changes[k] for k in _numbers(program))]


def _numbers(program: Program) -> list[int]:
    """Which results are numbers."""
    return [k for k, s in enumerate(program.results) if is_number(s)]


def _by_operations(reader: "Reader", equation: JaxprEqn, p: Params, *ins: "Value") -> "Sequence[Value]":
    program, moving, count = p["program"], p["moving"], len(p["program"].operands)
    own = [reader.nodes(x) for x in ins[:count]]
    dots = dict(zip(moving, (reader.nodes(x) for x in ins[count:]), strict=True))
    try:
        # What this hides behind opaque nodes, one who differentiates the whole would not find.
        if isinstance(reader, DifferentiatingReader):
            raise NotScalarError("it is differentiated once more")
        values, changes = tangents(reader.graph, pruned(program.jaxpr), own, dots, reader.largest)
    except NotScalarError:
        by_jax = jax.make_jaxpr(lambda *xs: _by_jax(*xs, program=program, moving=moving))
        return reader.closed(by_jax(*map(shaped, equation.invars)), ins)
    return [*values, *(changes[k] for k in _numbers(program))]


EQUATIONS["scalar_program_jvp"] = _by_operations


@jvp_p.def_abstract_eval
def _shapes(*operands: ShapedArray, program: Program, moving: tuple[int, ...]) -> list[ShapedArray]:
    results = (*program.results, *(program.results[k] for k in _numbers(program)))
    return [ShapedArray(s.shape, s.dtype) for s in results]


def _batch(
    operands: Sequence[ArrayLike], axes: Sequence[int | None], *, program: Program, moving: tuple[int, ...]
) -> tuple[list[Array], list[int]]:
    out = jax.vmap(lambda *xs: _by_jax(*xs, program=program, moving=moving), in_axes=tuple(axes))(*operands)
    return out, [0] * len(out)


def _jvp(
    primals: Sequence[ArrayLike],
    directions: Sequence[ArrayLike | ad.Zero],
    *,
    program: Program,
    moving: tuple[int, ...],
) -> tuple[list[Array], list[Array]]:
    dots = tuple(ad.instantiate_zeros(x) for x in directions)
    return jax.jvp(lambda *xs: _by_jax(*xs, program=program, moving=moving), tuple(primals), dots)


jvp_p.def_impl(_by_jax)
mlir.register_lowering(jvp_p, mlir.lower_fun(_by_jax, multiple_results=True))
batching.primitive_batchers[jvp_p] = _batch
ad.primitive_jvps[jvp_p] = _jvp
