"""Checks of values at a state, which shapes alone do not allow."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..foundations import Check, listing, positive_or_one, program
from .conserved import check_conserved
from .constraint import Pfaffian
from .inertia import LagrangianInertia
from .measure import Values
from .state import State
from .system import System
from .terms import residuals

Scalar = Float[Array, ""]


def check_values(system: System, state: State, values: Values) -> tuple[Check, ...]:
    """Finite numbers, symmetric and positive definite mass, and functions of v of the degree that they must have."""
    system, state = jax.lax.stop_gradient((system, state))
    t, q, v, mass = state.t, state.q, state.v, values.mass
    eps = float(jnp.finfo(q.dtype).eps)
    infinite = {
        "t": t,
        "q": q,
        "v": v,
        "mass": mass,
        "force": values.applied,
        "potential": values.intrinsic,
    }
    checks = [
        Check(_count_infinite(value), 0.0, f"Argument `{name}` must give finite numbers at this state, but does not.")
        for name, value in infinite.items()
    ]
    nonfinite = system.largest((~jnp.isfinite(values.position + values.velocity)).astype(float))
    text = "Argument `constraint '{name}'` must give finite numbers at this state, but does not."
    checks.append(Check(nonfinite, 0.0, text, tuple(system.rows)))
    largest = jnp.max(jnp.abs(mass))
    checks.append(
        Check(
            jnp.max(jnp.abs(mass - mass.T)) / positive_or_one(largest),
            # Sums of products in another order on both sides of the diagonal differ by some eps, mistakes by much more.
            1e3 * eps,
            "Argument `mass` must return a symmetric matrix, but its asymmetry relative to its largest entry is {}.",
        )
    )
    checks.append(
        Check(
            _count_infinite(values.root),
            0.0,
            "Argument `mass` must be positive definite on the null space of the constraints, but is not.",
        )
    )
    return (*checks, *_degrees(system, state, values.root), *check_conserved(system, q))


def _count_infinite(values: object) -> Array:
    return sum((jnp.sum(~jnp.isfinite(x)).astype(float) for x in jax.tree_util.tree_leaves(values)), jnp.zeros(()))


def undefined(
    system: System, ts: Float[Array, " T"], q: Float[Array, " nq"], v: Float[Array, " nv"]
) -> tuple[int, str]:
    """The first time at which constraints give no finite numbers, by its index, and a sentence that names these; empty if there is none."""
    missing = np.asarray(_missing(system, ts, q, v))
    if not missing.any():
        return 0, ""
    index = int(missing.any(axis=1).argmax())
    names = [name for name, is_missing in zip(system.rows, missing[index], strict=True) if is_missing]
    text = f"Constraint {listing(names)} must give finite numbers, but does not at t = {float(ts[index]):g}."
    drivers = {} if system.joints is None else system.joints.drivers(system.params)
    hint = " The function of a driver must be defined there, that of a distance positive."
    return index, text + (hint if any(name in drivers for name in names) else "")


@program
def _missing(system: System, ts: Array, q: Array, v: Array) -> Array:
    """At which times (T, constraints) which constraints give no finite numbers."""
    finite = lambda t: jnp.isfinite(sum(residuals(system, t, q, v)))
    return jax.vmap(lambda t: system.largest((~finite(t)).astype(q.dtype)))(ts) > 0


def check_rows(system: System, never: Bool[Array, " m"]) -> tuple[Check, ...]:
    """No row that is zero everywhere, except in mechanisms: a joint that closes a loop may have rows that say nothing there."""
    if system.joints is not None:
        return ()
    text = "Constraint '{name}' must restrict the motion, but a row of it depends on no velocity at all."
    return (Check(system.largest(never.astype(float)), 0.0, text, tuple(system.rows)),)


# Sizes of the probes in `_degrees`: a function may bend at any speed, in any units, so that many are tried.
SIZES = tuple(10.0**k for k in range(-12, 13, 2))


def _degrees(system: System, state: State, root: Float[Array, "nv nv"]) -> list[Check]:
    """Velocity constraints are affine in v, a Lagrangian is quadratic in q̇ and `rate` is linear in v, in any units.

    Probes are velocities in two directions without zeros, of equal length in the metric of M = (RᵀR)⁻¹, R being `root`.
    """
    t, q, params = state.t, state.q, system.params
    tol = 1e3 * float(jnp.finfo(q.dtype).eps)
    # Sines of whole numbers: no component is zero, at any nv.
    directions = jnp.sin(jnp.arange(1.0, 2 * system.nv + 1).reshape(2, -1)).astype(q.dtype) @ root
    directions = jnp.where(jnp.isfinite(directions), directions, 1)
    probes = (jnp.array(SIZES, q.dtype)[:, None, None] * directions).reshape(-1, system.nv)
    checks = []
    if any(isinstance(c, Pfaffian) for c in system.constraints):
        parts = [
            _excess(lambda v, fn=c.fn: fn(t, q, v, params), 1, probes) if isinstance(c, Pfaffian) else jnp.zeros(count)
            for c, count in zip(system.constraints, system.row_counts, strict=True)
        ]
        text = "Constraint '{name}' must be affine in v, but its second derivative in v, relative to its first, is {}."
        checks.append(Check(system.largest(jnp.concatenate(parts)), tol, text, tuple(system.rows)))
    if isinstance(system.inertia, LagrangianInertia):
        energy = lambda v: system.inertia.lagrangian(t, q, v, params, system.rate)
        text = "Argument `lagrangian` must be quadratic in qdot, but its third derivative in it, relative to its second, is {}."
        checks.append(Check(_excess(energy, 2, probes)[0], tol, text))
    if system.rate is not None:
        rate = system.rate
        text = "Argument `rate` must be linear in v, but is not (by {})."
        checks.append(Check(jnp.max(_excess(lambda v: rate(q, v), 1, probes, homogeneous=True)), tol, text))
    return checks


def _excess(
    fn: Callable[[Array], Array], degree: int, probes: Float[Array, "k nv"], homogeneous: bool = False
) -> Float[Array, " rows"]:
    """How far the rows of a function of v are from that degree, at the worst probe; exactly zero where no operation bends it.

    With g(x) = fn(x v) that is |g⁽ᵈ⁺¹⁾(1) / g⁽ᵈ⁾(1)|, or, if it must be homogeneous, with |g(0)| added above. Probes that overflow do
    not count.
    """

    def at(probe: Array) -> Array:
        derivatives = [lambda x: jnp.ravel(fn(x * probe))]
        for _ in range(degree + 1):
            derivatives.append(lambda x, g=derivatives[-1]: jax.jvp(g, (x,), (jnp.ones_like(x),))[1])
        one = jnp.ones((), probe.dtype)
        # Derivatives along the ray of the probe: exact zeros where no operation bends the function, which differences would not give.
        leading, excess = (jnp.abs(g(one)) for g in derivatives[-2:])
        if homogeneous:
            excess = excess + jnp.abs(derivatives[0](0 * one))
        # 0/0 where the function vanishes altogether: it has no degree to violate.
        return jnp.where(excess == 0, 0, excess / leading)

    return jnp.nanmax(jax.vmap(at)(probes), axis=0)
