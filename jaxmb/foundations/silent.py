"""Functions without the run-time errors that they may raise, which call the host."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
from jax.extend.core import ClosedJaxpr
from jaxtyping import PyTree

from ..lanes.jaxpr import body, is_literal, jaxpr_as_fun, with_body

# Calls that an error is wrapped in.
_WRAPPERS = ("jit", "custom_jvp_call")


def silent(fn: Callable[[], PyTree]) -> PyTree:
    """`fn()` without Equinox's run-time errors, of which each takes a call of the host into the compiled program.

    An accelerator would wait at such a call, and a program with one cannot be exported. For functions whose errors cannot
    occur, or are reported otherwise. Errors inside of loops stay, and so does what else calls the host, as progress meters do.
    """
    closed, shape, static = eqx.filter_make_jaxpr(fn)()
    results = jaxpr_as_fun(_silenced(closed))()
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(shape), results), static)


def _silenced(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, in which what returns its argument or else raises is that argument.

    An error is a `cond` of which one branch calls the host and another does nothing, in functions with derivatives of their own.
    """
    program, aliases, equations = closed.jaxpr, {}, []
    resolve = lambda x: x if is_literal(x) else aliases.get(x, x)
    for equation in program.eqns:
        equation = equation.replace(invars=[resolve(x) for x in equation.invars])
        idle, inputs = None, equation.invars
        if equation.primitive.name == "cond":
            idle, inputs = _idle(equation.params["branches"]), inputs[1:]
        if equation.primitive.name in _WRAPPERS:
            own = body(equation)
            assert isinstance(own, ClosedJaxpr)
            inner = _silenced(own)
            equation = with_body(equation, inner)
            idle = None if inner.jaxpr.eqns or inner.consts else inner
        if idle is None:
            equations.append(equation)
        else:
            passed = dict(zip(idle.jaxpr.invars, inputs, strict=True))
            outputs = [x if is_literal(x) else passed[x] for x in idle.jaxpr.outvars]
            aliases.update(zip(equation.outvars, outputs, strict=True))
    return closed.replace(jaxpr=program.replace(eqns=equations, outvars=[resolve(x) for x in program.outvars]))


def _idle(branches: Sequence[ClosedJaxpr]) -> ClosedJaxpr | None:
    """The branch that does nothing, where another one calls the host."""
    calls = any(e.primitive.name == "pure_callback" for branch in branches for e in branch.jaxpr.eqns)
    return next((branch for branch in branches if calls and not branch.jaxpr.eqns), None)
