"""Functions of the coordinates that q̇ = N(q) v conserves whatever v does, such as the length of a quaternion."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import Check, positive_or_one
from ..linalg import independent_rows
from .inertia import rate_matrix
from .system import System

# How often brackets are taken: columns of N and their repeated brackets span fewer than all directions where a function is conserved.
DEPTH = 3


def check_conserved(system: System, q: Float[Array, " nq"]) -> tuple[Check, ...]:
    """A system with fewer velocities than coordinates says how conditions that `rate` conserves are restored.

    Nothing is conserved where the columns of N with their Lie brackets span all directions (Chow): a wheel that rolls has fewer
    velocities than coordinates too. Linear functions, of a constant N, are kept by integration as they are.
    """
    rate = system.rate
    if rate is None or system.normalise_fn is not None or system.nq <= system.nv:
        return ()
    size = positive_or_one(jnp.linalg.norm(rate_matrix(rate, q, system.nv), axis=1))
    length = positive_or_one(jnp.linalg.norm(rate_matrix(rate, q, system.nv) / size[:, None], axis=0))
    # In units in which N has entries of about one.
    fields = lambda x: (rate_matrix(rate, x * size, system.nv) / size[:, None] / length).T
    x = q / size
    # A constant N has no brackets. Its conserved functions are linear, and Runge–Kutta methods keep those by themselves.
    bend = jnp.max(jnp.abs(jax.jacfwd(fields)(x)))
    spanning, level = [fields(x)], fields
    for k in range(1, min(system.nq - system.nv, DEPTH) + 1):
        level = _brackets(fields, level)
        # Each bracket multiplies by another derivative of N: divided by its size, brackets of any depth compare with N.
        spanning.append(level(x) / positive_or_one(bend) ** k)
    rows = jnp.concatenate(spanning)
    # N and its brackets are exact derivatives in units of about one, so that a cut-off of 1e-6 is far above rounding.
    rank = jnp.sum(independent_rows(jnp.eye(system.nq, dtype=q.dtype), rows, jnp.ones(rows.shape[0], q.dtype), 1e-6))
    text = (
        "Argument `normalise` must be given where `rate` conserves a function of the coordinates, such as the length of a "
        "quaternion, as it does here: a function that restores it, or `lambda q: q` if that is not needed."
    )
    return (Check(jnp.where(bend > 0, system.nq - rank, 0).astype(q.dtype), 0.0, text),)


Fields = Callable[[Array], Float[Array, "k n"]]


def _brackets(first: Fields, second: Fields) -> Fields:
    """The Lie brackets of each field of the first with each of the second."""

    def brackets(x: Array) -> Array:
        derivative = lambda fields, direction: jax.jvp(fields, (x,), (direction,))[1]
        one = jax.vmap(lambda direction: derivative(second, direction))(first(x))
        other = jax.vmap(lambda direction: derivative(first, direction), out_axes=1)(second(x))
        return (one - other).reshape(-1, x.shape[0])

    return brackets
