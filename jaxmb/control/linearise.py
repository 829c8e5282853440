"""First-order dynamics about a state, exact and in independent coordinates."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation, CoordinatePartition, formulation_at
from ..foundations import (
    RESULTS,
    Check,
    FunctionOfMotion,
    NoNaN,
    announce,
    as_function,
    contract,
    default_float,
    enforce,
    is_concrete,
    listing,
    program,
    shape_of,
    strong,
)
from ..kinematics import Rows, choose_rows, consistency
from ..linalg import row_norms
from ..system import State, System, Terms, apply_mode, evaluate_at, rows_at
from .linearisation import Linearisation
from .names import input_names
from .readings import Own, Readings, bracket, deviation, named_readings, rate_rows, rates
from .tangent import tangent_of


@contract
def linearise(
    system: System,
    state: State,
    *,
    u: NoNaN | None = None,
    independent: Sequence[str] | Sequence[Sequence[str]] | None = None,
    outputs: FunctionOfMotion | None = None,
    formulation: AbstractFormulation | None = None,
    throw: bool = True,
) -> Linearisation:
    """δẋ = A δx + B δu about a state, at rest or moving, x being independent coordinates and velocities.

    With δq = N δr the deviations that the constraints allow are

        C_h δr = 0,   C δv = −∂(C v + b)/∂q N δr,

    C_h the holonomic rows; with independent s they are δr = T_q δs and δv = S δs + T_v δṡ, and

        δs' = δṡ,   δṡ' = ∂v̇/∂q N T_q δs + ∂v̇/∂v (S δs + T_v δṡ) + ∂v̇/∂u δu.

    v̇ is differentiated along these directions only, so that it does not matter how a formulation continues it off the
    constraints: the result is that of the equations in minimal coordinates, with redundant, moving and nonholonomic rows
    (Neimark and Fufaev 1972; Negrut and Ortiz 2006). About a motion it is that of the deviations from it at this instant.

    Args:
        system: the system.
        state: one consistent state of it; use `jax.vmap` for several, with `independent` given.
        u: inputs (nu,); zero by default.
        independent: names of independent velocities, or of joint coordinates of a mechanism; as many as there are degrees of
            freedom. With velocity constraints, a pair of those of positions and of velocities: more positions are free then.
            Chosen by `CoordinatePartition` where None, which needs known numbers. The deviation of a position along a velocity
            that is no derivative of a coordinate is δr.
        outputs: `outputs(t, q, v, params)` returns y (ny,), for δy = C δx; none by default.
        formulation: how accelerations are found; `GaussProjection()` by default.
        throw: whether to raise where there is no linearisation; `result` says it in any case.

    Returns:
        A `Linearisation`.

    Raises:
        ValueError: for names and shapes that do not fit, a state that violates its constraints, and one at which the rank of the
            constraints is another than nearby.
        RuntimeError: with known numbers, where numbers are not finite.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.0 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> hanging = jm.linearise(system, jm.assemble(system, [0.0, -1.0]))
        >>> hanging.names, [[round(float(x), 6) + 0.0 for x in row] for row in hanging.A]
        (('x', "x'"), [[0.0, 1.0], [-9.0, 0.0]])
    """
    whole, state = strong(system), strong(state)
    system, bare = apply_mode(whole, state)
    formulation = formulation_at(formulation, system, bare)
    readings = _readings(system, bare, independent, formulation.rank_tol)
    outputs = as_function(outputs, "outputs")
    if outputs is not None:
        shape_of("outputs", outputs, (bare.t, bare.q, bare.v, system.params), ("ny",))
    found, checks = _linearise(whole, state, _inputs(system, u), readings, outputs, formulation)
    if throw:
        found = enforce(found, checks)
        announce(found.result)
    return found


def _inputs(system: System, u: Any) -> Float[Array, " nu"]:
    given = jnp.zeros(system.nu) if u is None else jnp.asarray(u, default_float())
    if given.shape != (system.nu,):
        raise ValueError(f"Argument `u` must have shape ({system.nu},), but has shape {given.shape}.")
    return given


def _readings(system: System, state: State, independent: Any, rank_tol: float) -> Readings:
    """The independent coordinates as named, the rest as chosen."""
    holonomic = system.holonomic is None
    positions = velocities = None
    if independent is not None:
        both = isinstance(independent, Sequence) and independent and not isinstance(independent[0], str)
        if both and len(independent) != 2:
            raise ValueError(
                "Argument `independent` must hold names, or two sequences of names, of positions and of velocities, but holds "
                f"{len(independent)} sequences."
            )
        if both:
            positions, velocities = (named_readings(names, system, "independent") for names in independent)
        else:
            velocities = named_readings(independent, system, "independent")
            positions = velocities if holonomic else None
    if positions is not None and velocities is not None:
        return Readings(positions, velocities)
    chosen, further = _choose(system, state, velocities, rank_tol)
    if not is_concrete(chosen, further):
        what = "two sequences of names, of positions and of velocities," if not holonomic else "names"
        raise ValueError(
            f"Argument `independent` must hold {what} where values are traced, but is {independent!r}: the number of states must "
            "be known."
        )
    own = lambda mask: tuple(Own(system.velocities[i], int(i)) for i in np.flatnonzero(mask))
    if velocities is None:
        velocities = own(chosen)
    return Readings(velocities if holonomic else (*velocities, *own(further)), velocities)


@program
def _choose(
    system: System, state: State, velocities: tuple[Any, ...] | None, rank_tol: float
) -> tuple[Bool[Array, " nv"], Bool[Array, " nv"]]:
    """The independent velocities by the projective criterion, and what is to be added to them for positions."""
    system, state = lax.stop_gradient((system, state))
    partition = CoordinatePartition(rank_tol=rank_tol)
    terms = rows_at(system, state.t, state.q, state.scale.row)
    chosen = partition.choose(terms)
    if system.holonomic is None:
        return chosen, jnp.zeros_like(chosen)
    units = jnp.diag(chosen.astype(state.q.dtype))
    rows = units if velocities is None else rate_rows(velocities, system, state.t, state.q)
    metric = partition.metric(terms)
    sizes = row_norms(metric, rows)
    jacobian = jnp.concatenate([jnp.where(system.holonomic[:, None], terms.jacobian, 0), rows])
    none = jnp.zeros(jacobian.shape[0], state.q.dtype)
    scale = jnp.concatenate([terms.scale, jnp.where(sizes > 0, sizes, 1)])
    return chosen, partition.choose(Terms(terms.mass, terms.force, jacobian, none, none, scale))


@program
def _linearise(
    whole: System, state: State, u: Array, readings: Readings, outputs: Any, formulation: AbstractFormulation
) -> tuple[Linearisation, tuple[Check, ...]]:
    given = state
    system, state = apply_mode(whole, state)
    t, q, v = state.t, state.q, state.v
    rows = choose_rows(system, formulation, state)
    formulation = formulation.with_choice(rows.choice)
    in_use = rows.in_use & ~rows.lost

    def motion(q: Array, v: Array, u: Array) -> tuple[Array, Array, Array]:
        applied = system.applied_force(t, q, v, u if system.nu else None)
        terms = evaluate_at(system, t, q, v, state.scale.row, applied)
        vdot = formulation.motion(terms, formulation.factorise(terms, in_use, 0.0))[0]
        speeds = lambda t, q, v: rates(readings.velocities, system, t, q, v)
        faster = jax.jvp(speeds, (t, q, v), (jnp.ones_like(t), system.qdot(q, v), vdot))[1]
        seen = jnp.zeros(0, q.dtype) if outputs is None else jnp.ravel(outputs(t, q, v, system.params))
        return rates(readings.positions, system, t, q, v), faster, seen

    tangent, metric, fits = tangent_of(system, state, readings, formulation.rank_tol)
    own = np.array([r.index if isinstance(r, Own) else -1 for r in readings.positions], int)

    def along(displaced: Array, faster: Array, pushed: Array) -> tuple[Any, Any]:
        here, (position, velocity, seen) = jax.jvp(motion, (q, v, u), (system.qdot(q, displaced), faster, pushed))
        turn = jnp.append(bracket(system, q, v, displaced), 0)[own]
        return jnp.concatenate(here[:2]), (jnp.concatenate([position + turn, velocity]), seen)

    n, beside = readings.size, lambda x: jnp.concatenate([x, jnp.zeros((x.shape[0], u.shape[0]), x.dtype)], axis=1)
    pushes = jnp.eye(u.shape[0], n + u.shape[0], n, dtype=q.dtype)
    residual, (rate, seen) = jax.vmap(along, in_axes=1, out_axes=(None, 1))(
        beside(tangent.r), beside(tangent.v), pushes
    )
    successful: Any = RESULTS.successful
    found = Linearisation(
        A=rate[:, :n],
        B=rate[:, n:],
        C=None if outputs is None else seen[:, :n],
        residual=residual,
        tangent=tangent,
        state=given,
        u=u,
        metric=metric,
        weights=jnp.diagonal(system.mass(t, q)),
        deviation=deviation(readings, system, t, q, v),
        result=successful,
        names=readings.names(system),
        inputs=input_names(system),
        velocities=system.velocities,
        coordinates=system.coordinates,
    )
    checks = _checks(system, state, readings, rows, fits)
    return dataclasses.replace(found, result=_result(found, rows, fits)), checks


def _checks(
    system: System, state: State, readings: Readings, rows: Rows, fits: tuple[Bool[Array, "..."], ...]
) -> tuple[Check, ...]:
    """That the state is consistent and regular, and that the names are those of independent coordinates."""
    checks = [*consistency(system, state, "is violated by the state")]
    names = tuple(system.rows)
    text = (
        "Constraint '{name}' must have the same rank nearby, but rows of it are dependent at this pose only: there the motions "
        "are no smooth family, and there is no linearisation. Linearise beside the pose."
    )
    checks.append(Check(system.largest((rows.lost | rows.open).astype(float)), 0.0, text, names))
    text = "Constraint '{name}' must not contradict others, but no acceleration satisfies it."
    contradicted = jnp.where(rows.contradictory, rows.contradiction, 0) > 0
    checks.append(Check(system.largest(contradicted.astype(float)), 0.0, text, names))
    for what, read, fit in zip(
        ("positions", "velocities"), (readings.positions, readings.velocities), fits, strict=True
    ):
        text = f"Argument `independent` must name independent {what}, but '{{name}}' follows from those before it."
        checks.append(Check((~fit[:-1]).astype(float), 0.0, text, tuple(r.name for r in read)))
        named = listing(r.name for r in read)
        text = f"Argument `independent` must name as many {what} as are free, but names {named}: more are free."
        checks.append(Check((jnp.all(fit[:-1]) & ~fit[-1]).astype(float), 0.0, text))
    return tuple(checks)


def _result(found: Linearisation, rows: Rows, fits: tuple[Bool[Array, "..."], ...]) -> RESULTS:
    finite = jnp.all(jnp.isfinite(found.A)) & jnp.all(jnp.isfinite(found.B)) & jnp.all(jnp.isfinite(found.residual))
    verdicts: tuple[Any, ...] = (
        (~finite, RESULTS.nonfinite),
        (~(jnp.all(fits[0]) & jnp.all(fits[1])) | rows.unfit, RESULTS.unfit_choice),
        (jnp.any(rows.lost | rows.open), RESULTS.undetermined_motion),
        (rows.contradictory, RESULTS.contradictory_constraints),
    )
    result: Any = RESULTS.successful
    for happened, what in verdicts:
        result = RESULTS.where(happened, what, result)
    return result
