"""What shapes cannot tell: the checks of values at a state."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import Check
from ..linalg import inverse_root, reference_sizes, regular_metric
from .constraint import Pfaffian
from .state import State
from .system import System
from .terms import constraint_jacobian, curvature, position_residual, velocity_residual

Scalar = Float[Array, ""]


def row_sizes(system: System, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
    """The reference sizes σ of the rows at a configuration, zero for a row that can never act."""
    system, t, q = jax.lax.stop_gradient((system, t, q))
    jacobian = constraint_jacobian(system, t, q)
    return reference_sizes(regular_metric(system.mass(t, q), jacobian), jacobian, curvature(system, t, q))


def check_values(system: System, state: State) -> tuple[Check, ...]:
    """Finite numbers, symmetric and positive definite mass, affine velocity constraints, linear rate."""
    system, state = jax.lax.stop_gradient((system, state))
    t, q, v = state.t, state.q, state.v
    mass, jacobian = system.mass(t, q), constraint_jacobian(system, t, q)
    eps = float(jnp.finfo(q.dtype).eps)
    infinite = {
        "t": t,
        "q": q,
        "v": v,
        "mass": mass,
        "force": system.applied_force(t, q, v),
        "potential": system.intrinsic_force(t, q, v),
    }
    checks = [
        Check(_count_infinite(value), 0.0, f"Argument `{name}` must give finite numbers at this state, but does not.")
        for name, value in infinite.items()
    ]
    position, velocity = position_residual(system, t, q), velocity_residual(system, t, q, v)
    wrong = system.largest((~jnp.isfinite(position + velocity)).astype(float))
    text = "Argument `constraint '{name}'` must give finite numbers at this state, but does not."
    checks.append(Check(wrong, 0.0, text, tuple(system.rows)))
    largest = jnp.max(jnp.abs(mass))
    checks.append(
        Check(
            jnp.max(jnp.abs(mass - mass.T)) / jnp.where(largest > 0, largest, 1),
            1e3 * eps,
            "Argument `mass` must return a symmetric matrix, but its asymmetry relative to its largest entry is {}.",
        )
    )
    checks.append(
        Check(
            _count_infinite(inverse_root(regular_metric(mass, jacobian))),
            0.0,
            "Argument `mass` must be positive definite on the null space of the constraints, but is not.",
        )
    )
    return (*checks, *_nonlinearity(system, state))


def _count_infinite(values: object) -> Array:
    return sum((jnp.sum(~jnp.isfinite(x)).astype(float) for x in jax.tree_util.tree_leaves(values)), jnp.zeros(()))


def check_rows(system: System, sizes: Float[Array, " m"]) -> tuple[Check, ...]:
    """No row of reference size zero, except in mechanisms: a joint that closes a loop may have rows that say nothing there."""
    if system.joints is not None:
        return ()
    text = "Constraint '{name}' must restrict the motion, but a row of it depends on no velocity at all."
    return (Check(system.largest((sizes <= 0).astype(float)), 0.0, text, tuple(system.rows)),)


def _nonlinearity(system: System, state: State) -> list[Check]:
    """Second derivatives in v, at two velocities, relative to the first; a cubic term may vanish at one of them."""
    t, q, v = state.t, state.q, state.v
    eps = float(jnp.finfo(q.dtype).eps)
    probes = jnp.stack([v, v + 1 + jnp.arange(v.shape[0], dtype=v.dtype)])

    def bend(fn) -> Array:
        first = jax.vmap(jax.jacfwd(fn))(probes)
        second = jax.vmap(jax.hessian(fn))(probes)
        return jnp.max(jnp.abs(second)) / jnp.maximum(jnp.max(jnp.abs(first)), 1)

    checks = [
        Check(
            bend(lambda v, fn=c.fn: jnp.ravel(fn(t, q, v, system.params))),
            1e3 * eps,
            f"Constraint '{c.name}' must be affine in v, but its second derivative in v, relative to its first, is {{}}.",
        )
        for c in system.constraints
        if isinstance(c, Pfaffian)
    ]
    if system.rate is not None:
        rate = system.rate
        text = "Argument `rate` must be linear in v, but is not (by {})."
        size = jnp.max(jnp.abs(rate(q, jnp.zeros_like(v)))) + bend(lambda v: rate(q, v))
        checks.append(Check(size, 1e3 * eps, text))
    return checks
