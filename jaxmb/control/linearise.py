"""First-order dynamics about a state, exact and in independent coordinates."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..formulation import AbstractFormulation, CoordinatePartition, formulation_at
from ..foundations import (
    RESULTS,
    SUCCESS,
    Check,
    FunctionOfMotion,
    NoNaN,
    announce,
    as_floats,
    as_function,
    contract,
    enforce,
    expect_shape,
    is_concrete,
    listing,
    positive_or_one,
    program,
    result_of,
    shape_of,
    strong,
)
from ..kinematics import Rows, choose_rows, consistency
from ..linalg import row_norms
from ..system import State, System, Terms, apply_mode, evaluate_at, rows_at
from .linearisation import Linearisation
from .names import input_names
from .readings import (
    AbstractReading,
    StateReadings,
    VelocityReading,
    bracket,
    deviation,
    named_readings,
    rate_rows,
    rates,
)
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
    """Linearises the motion about a state, at rest or moving: δẋ = A δx + B δu, where x are independent coordinates and velocities.

    With δq = N δr the deviations that the constraints allow are

        C_h δr = 0,   C δv = −∂(C v + b)/∂q N δr,

    C_h the holonomic rows; with independent s they are δr = T_q δs and δv = S δs + T_v δṡ, and

        δs' = δṡ,   δṡ' = ∂v̇/∂q N T_q δs + ∂v̇/∂v (S δs + T_v δṡ) + ∂v̇/∂u δu.

    v̇ is differentiated along these directions only, so that it does not matter how a formulation extends it off the
    constraints: the result is that of the equations in minimal coordinates, with redundant, moving and nonholonomic rows
    (Neimark and Fufaev 1972; Negrut and Ortiz 2006). About a motion it is that of the deviations from it at this instant.

    Args:
        system: the system.
        state: one consistent state of it; use `jax.vmap` for several, with `independent` given.
        u: inputs (nu,); zero by default.
        independent: names of independent velocities, or of joint coordinates of a mechanism; as many as there are degrees of
            freedom. With velocity constraints, a pair of tuples, for positions and for velocities, since more positions are free then. If
            None, `CoordinatePartition` chooses them, which needs known numbers. For a velocity that is not the derivative of a
            coordinate, the deviation of the position along it is δr.
        outputs: `outputs(t, q, v, params)` returns y (ny,), for δy = C δx; none by default.
        formulation: how accelerations are found; `GaussProjection()` by default.
        throw: whether to raise an error if there is no linearisation; `result` reports it in any case.

    Returns:
        A `Linearisation`.

    Raises:
        ValueError: for names and shapes that do not fit, a state that violates its constraints, and one at which the rank of the constraints
            differs from that nearby.
        RuntimeError: with known numbers, where numbers are not finite.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.0 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> hanging = jm.linearise(system, jm.assemble(system, [0.0, -1.0]))
        >>> hanging.names, [[round(float(x), 6) + 0.0 for x in row] for row in hanging.A]
        (('x', "x'"), [[0.0, 1.0], [-9.0, 0.0]])
    """
    full, state = strong(system), strong(state)
    system, bare = apply_mode(full, state)
    formulation = formulation_at(formulation, system, bare)
    readings = _readings(system, bare, independent, formulation.rank_tol)
    outputs = as_function(outputs, "outputs")
    if outputs is not None:
        # Shapes are checked by abstract evaluation: an error here names the argument, one within the jvp would not.
        shape_of("outputs", outputs, (bare.t, bare.q, bare.v, system.params), ("ny",))
    linearisation, checks = _linearise(full, state, _input_values(system, u), readings, outputs, formulation)
    if throw:
        linearisation = enforce(linearisation, checks)
        announce(linearisation.result)
    return linearisation


def _input_values(system: System, u: NoNaN | None) -> Float[Array, " nu"]:
    values = jnp.zeros(system.nu) if u is None else as_floats(u)
    expect_shape("`u`", values, (system.nu,))
    return values


def _readings(
    system: System, state: State, independent: Sequence[str] | Sequence[Sequence[str]] | None, rank_tol: float
) -> StateReadings:
    """The independent coordinates as named, the rest as chosen."""
    holonomic = system.holonomic is None
    positions, velocities = (None, None) if independent is None else _named_pair(system, independent)
    if positions is not None and velocities is not None:
        return StateReadings(positions, velocities)
    # Choices are numbers of states, that is shapes: they must be known while tracing.
    chosen, further = _choose(system, state, velocities, rank_tol)
    if not is_concrete(chosen, further):
        what = "two sequences of names, of positions and of velocities," if not holonomic else "names"
        raise ValueError(
            f"Argument `independent` must hold {what} where values are traced, but is {independent!r}: the number of states must "
            "be known."
        )
    own = lambda mask: tuple(VelocityReading(system.velocities[i], int(i)) for i in np.flatnonzero(mask))
    if velocities is None:
        velocities = own(chosen)
    return StateReadings(velocities if holonomic else (*velocities, *own(further)), velocities)


def _named_pair(
    system: System, independent: Sequence[str] | Sequence[Sequence[str]]
) -> tuple[tuple[AbstractReading, ...] | None, tuple[AbstractReading, ...]]:
    """The readings of positions and of velocities; None for positions that are still to be chosen.

    Without velocity constraints one list of names is enough: as many positions are free as velocities.
    """
    both = isinstance(independent, Sequence) and independent and not isinstance(independent[0], str)
    if not both:
        velocities = named_readings(independent, system)
        return (velocities if system.holonomic is None else None), velocities
    if len(independent) != 2:
        raise ValueError(
            "Argument `independent` must hold names, or two sequences of names, of positions and of velocities, but holds "
            f"{len(independent)} sequences."
        )
    positions, velocities = (named_readings(names, system) for names in independent)
    return positions, velocities


@program
def _choose(
    system: System, state: State, velocities: tuple[AbstractReading, ...] | None, rank_tol: float
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
    scale = jnp.concatenate([terms.scale, positive_or_one(sizes)])
    return chosen, partition.choose(
        Terms(mass=terms.mass, force=terms.force, jacobian=jacobian, offset=none, gamma=none, scale=scale)
    )


@program
def _linearise(
    full: System,
    state: State,
    u: Array,
    readings: StateReadings,
    outputs: Callable[..., Array] | None,
    formulation: AbstractFormulation,
) -> tuple[Linearisation, tuple[Check, ...]]:
    start = state
    system, state = apply_mode(full, state)
    t, q, v = state.t, state.q, state.v
    rows = choose_rows(system, formulation, state)
    formulation = formulation.with_choice(rows.choice)
    # Lost rows change rank beside the pose; they are refused by `_checks`, and would make v̇ no smooth function here.
    in_use = rows.in_use & ~rows.degenerate

    def motion(q: Array, v: Array, u: Array) -> tuple[Array, Array, Array]:
        applied = system.applied_force(t, q, v, u if system.nu else None)
        terms = evaluate_at(system, t, q, v, state.scale.row, applied)
        vdot = formulation.motion(terms, formulation.factorise(terms, in_use, 0.0))[0]
        speeds = lambda t, q, v: rates(readings.velocities, system, t, q, v)
        faster = jax.jvp(speeds, (t, q, v), (jnp.ones_like(t), system.qdot(q, v), vdot))[1]
        output = jnp.zeros(0, q.dtype) if outputs is None else jnp.ravel(outputs(t, q, v, system.params))
        return rates(readings.positions, system, t, q, v), faster, output

    tangent, metric, fits = tangent_of(system, state, readings, formulation.rank_tol)
    # A position along a velocity v_i is δr_i itself, of which δṙ = δv + bracket (Hamel's equations); other positions
    # are functions, whose derivative holds that term already. −1 reads the zero behind the last entry.
    own = np.array([r.index if isinstance(r, VelocityReading) else -1 for r in readings.positions], int)

    def derivative(displaced: Array, faster: Array, pushed: Array) -> tuple[Any, Any]:
        here, (position, velocity, output) = jax.jvp(motion, (q, v, u), (system.qdot(q, displaced), faster, pushed))
        turn = jnp.append(bracket(system, q, v, displaced), 0)[own]
        return jnp.concatenate(here[:2]), (jnp.concatenate([position + turn, velocity]), output)

    # One jvp for each state and each input, side by side: columns of A, then of B.
    n, beside = readings.size, lambda x: jnp.concatenate([x, jnp.zeros((x.shape[0], u.shape[0]), x.dtype)], axis=1)
    pushes = jnp.eye(u.shape[0], n + u.shape[0], n, dtype=q.dtype)
    residual, (rate, output) = jax.vmap(derivative, in_axes=1, out_axes=(None, 1))(
        beside(tangent.r), beside(tangent.v), pushes
    )
    linearisation = Linearisation(
        A=rate[:, :n],
        B=rate[:, n:],
        C=None if outputs is None else output[:, :n],
        residual=residual,
        tangent=tangent,
        state=start,
        u=u,
        metric=metric,
        weights=jnp.diagonal(system.mass(t, q)),
        deviation=deviation(readings, system, t, q, v),
        result=SUCCESS,
        names=readings.names(system),
        inputs=input_names(system),
        velocities=system.velocities,
        coordinates=system.coordinates,
    )
    checks = _checks(system, state, readings, rows, fits)
    return dataclasses.replace(linearisation, result=_result(linearisation, rows, fits)), checks


def _checks(
    system: System, state: State, readings: StateReadings, rows: Rows, fits: tuple[Bool[Array, "..."], ...]
) -> tuple[Check, ...]:
    """That the state is consistent and regular, and that the names are those of independent coordinates."""
    checks = [*consistency(system, state, "is violated by the state")]
    names = tuple(system.rows)
    text = (
        "Constraint '{name}' must have the same rank nearby, but rows of it are dependent at this pose only. The motions there "
        "do not form a smooth family, and have no linearisation. Linearise beside the pose."
    )
    checks.append(Check(system.largest((rows.degenerate | rows.indeterminate).astype(float)), 0.0, text, names))
    text = "Constraint '{name}' must not contradict others, but no acceleration satisfies it."
    contradicted = jnp.where(rows.contradictory, rows.contradiction, 0) > 0
    checks.append(Check(system.largest(contradicted.astype(float)), 0.0, text, names))
    for what, read, fit in zip(
        ("positions", "velocities"), (readings.positions, readings.velocities), fits, strict=True
    ):
        text = f"Argument `independent` must name independent {what}, but '{{name}}' follows from those before it."
        checks.append(Check((~fit[:-1]).astype(float), 0.0, text, tuple(r.name for r in read)))
        listed = listing(r.name for r in read)
        text = f"Argument `independent` must name as many {what} as are free, but names {listed}: more are free."
        checks.append(Check((jnp.all(fit[:-1]) & ~fit[-1]).astype(float), 0.0, text))
    return tuple(checks)


def _result(linearisation: Linearisation, rows: Rows, fits: tuple[Bool[Array, "..."], ...]) -> RESULTS:
    finite = (
        jnp.all(jnp.isfinite(linearisation.A))
        & jnp.all(jnp.isfinite(linearisation.B))
        & jnp.all(jnp.isfinite(linearisation.residual))
    )
    # A contradiction explains what else is wrong.
    return result_of(
        (~finite, RESULTS.nonfinite),
        (~(jnp.all(fits[0]) & jnp.all(fits[1])) | rows.unfit, RESULTS.unfit_choice),
        (jnp.any(rows.degenerate | rows.indeterminate), RESULTS.undetermined_motion),
        (rows.contradictory, RESULTS.contradictory_constraints),
    )
