"""JAX's programs as they are read here; what their equations say has other words from version to version, of which each has its case here alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, cast

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.extend.core import jaxpr_as_fun as jaxpr_as_fun
from jax.interpreters import partial_eval
from jax.typing import ArrayLike
from jaxtyping import Array

# What an equation says beside its operands: other things for each primitive.
Params = Mapping[str, Any]

# Equations whose program stands in their place, and the parameter that holds it.
_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",  # from 0.12 on
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
}
# Of these, what comes with derivatives of its own.
_CUSTOM = frozenset({"custom_jvp_call", "custom_vjp_call", "call_hi_primitive"})
NO_MESH = jax.sharding.AbstractMesh((), ())


def pruned(program: ClosedJaxpr) -> ClosedJaxpr:
    """A program without what its results do not need, of the same arguments.

    It is made to be read, not to be differentiated.
    """
    inner, _ = partial_eval.dce_jaxpr(program.jaxpr, [True] * len(program.out_avals), instantiate=True)
    return ClosedJaxpr(inner, program.consts)


def arguments_used(program: ClosedJaxpr) -> list[bool]:
    """Which arguments a program's results need."""
    return partial_eval.dce_jaxpr(program.jaxpr, [True] * len(program.out_avals))[1]


def opened(program: ClosedJaxpr | Jaxpr) -> tuple[Jaxpr, Sequence[ArrayLike]]:
    """The equations of a program, closed or without constants, and the numbers of its constants."""
    return (program.jaxpr, program.consts) if isinstance(program, ClosedJaxpr) else (program, ())


def body(equation: JaxprEqn) -> ClosedJaxpr | Jaxpr | None:
    """The program that stands in an equation's place; None if there is none."""
    name, params = equation.primitive.name, equation.params
    if name == "call_hi_primitive":  # from 0.11.2 on: an operation that is written in JAX, as a search in a table
        return traced(lambda *xs: equation.primitive.to_lojax(*xs, **params), *(v.aval for v in equation.invars))
    return params[_CALLS[name]] if name in _CALLS else None


def traced(fn: Callable[..., Any], *arguments: Any) -> ClosedJaxpr:
    """The program of a function of arrays of these shapes, without the mesh of the call that comes first: all later ones share it."""
    with jax.sharding.use_abstract_mesh(NO_MESH):
        return jax.make_jaxpr(fn)(*arguments)


def equations(program: ClosedJaxpr | Jaxpr) -> Iterator[JaxprEqn]:
    """All equations of a program, and of those that they hold."""
    for equation in opened(program)[0].eqns:
        yield equation
        params = [x for value in equation.params.values() for x in (value if isinstance(value, tuple) else (value,))]
        programs = [x for x in params if isinstance(x, (ClosedJaxpr, Jaxpr))]
        for inner in programs or [body(equation)]:
            if inner is not None:
                yield from equations(inner)


def contains(program: ClosedJaxpr | Jaxpr, *names: str) -> bool:
    """Whether there is an equation of one of these names in a program, or in one that an equation of it holds."""
    return any(equation.primitive.name in names for equation in equations(program))


def with_body(equation: JaxprEqn, program: ClosedJaxpr) -> JaxprEqn:
    """A call of another program."""
    return equation.replace(params=equation.params | {_CALLS[equation.primitive.name]: program})


def equation_as_fun(equation: JaxprEqn) -> Callable[..., Sequence[Array]]:
    """What an equation does to its operands."""
    primitive = equation.primitive

    def fn(*operands: Array) -> Sequence[Array]:
        bound = primitive.get_bind_params(equation.params)
        # Functions apart from the rest: so in older versions.
        functions, params = bound if isinstance(bound, tuple) else ((), bound)
        out = primitive.bind(*functions, *operands, **params)
        return out if primitive.multiple_results else [out]

    return fn


def has_own_derivative(equation: JaxprEqn) -> bool:
    """Whether an equation is differentiated by other means than those in its body."""
    return equation.primitive.name in _CUSTOM


def scan_counts(params: Params) -> tuple[int, int]:
    """Of a `scan`: how many of its operands are the same in every turn, and how many are handed on from turn to turn."""
    if "ft_in" in params:  # from 0.11 on
        constants, carry, _ = params["ft_in"].unpack()
        return len(constants), len(carry)
    return params["num_consts"], params["num_carry"]


def is_literal(x: Var | Literal) -> TypeGuard[Literal]:
    """Whether what an equation is given is a number that stands in it."""
    return isinstance(x, Literal)


def shaped(x: Var | Literal) -> jax.ShapeDtypeStruct:
    """Shape and type of an operand or a result of an equation."""
    aval = cast(ShapedArray, x.aval)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
