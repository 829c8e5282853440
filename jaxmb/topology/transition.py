"""One transition by itself, with its impulses, momenta and loss of energy."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..formulation import AbstractFormulation, formulation_at
from ..foundations import (
    RESULTS,
    Check,
    Fraction,
    FunctionOfState,
    TextInNotebooks,
    Vector,
    Whole,
    all_hold,
    announce,
    as_floats,
    contract,
    enforce,
    expect_shape,
    is_concrete,
    program,
    strong,
)
from ..kinematics import diagnose
from ..linalg import null_space
from ..system import State, System, check_state, rows_at
from .activate import Activate
from .event import AbstractEvent
from .jump import energy_loss, impulse_terms, jump_result, minimal, projected
from .lock import Lock
from .plan import Plan
from .planning import plan_events
from .release import Release

Scalar = Float[Array, ""]


class Transition(TextInNotebooks, eqx.Module):
    """The effect of a change of constraints on velocities, momenta and energy.

    Attributes:
        before: the state before, with its mode.
        after: the state after, with its mode.
        impulses: Λ by constraint name (k,), zero where a constraint does not act; of least norm where rows are redundant. The
            methods "projected" and "minimal" do not give those of persistent constraints, which are NaN.
        momentum: M v (nv,) before and after.
        free_momentum: Nᵀ M v (nv,) before and after, N a basis of the directions that are free afterwards, zero beyond
            their number: equal, unless an impulse acts from outside or along such a direction, by restitution.
        loss: T⁻ − T⁺ in J.
        result: whether there is a velocity that satisfies all constraints, at a position that does.
        regular: whether ranks are the same at poses nearby, before and after, so that the change is regular; None if values are traced or
            `result` is not a success.
    """

    before: State
    after: State
    impulses: dict[str, Float[Array, " k"]]
    momentum: tuple[Float[Array, " nv"], Float[Array, " nv"]]
    free_momentum: tuple[Float[Array, " nv"], Float[Array, " nv"]]
    loss: Scalar
    result: RESULTS
    regular: bool | None = eqx.field(static=True)

    def __str__(self) -> str:
        kind = {True: "regular", False: "singular", None: "not judged"}[self.regular]
        lines = [f"Transition at t = {float(self.before.t):g} s: {kind}, energy lost {float(self.loss):.6g} J"]
        lines += [f"  v before  {np.array2string(np.asarray(self.before.v), precision=6)}"]
        lines += [f"  v after   {np.array2string(np.asarray(self.after.v), precision=6)}"]
        for name, value in self.impulses.items():
            lines.append(f"  impulse of '{name}'  {np.array2string(np.asarray(value), precision=6)}")
        return "\n".join(lines)


@contract
def transition(
    system: System,
    state: State,
    *,
    lock: Sequence[str | Whole | FunctionOfState | Lock] = (),
    activate: Sequence[str] = (),
    release: Sequence[str] = (),
    impulse: Vector | None = None,
    restitution: Fraction | None = None,
    method: Literal["full", "projected", "minimal"] = "full",
    formulation: AbstractFormulation | None = None,
    consistent: bool = True,
    assemble: bool = False,
    throw: bool = True,
) -> Transition:
    """The momentum-consistent jump when constraints begin and cease to act (Müller).

    M Δv = U + CᵀΛ and C v⁺ + b = 0 with the rows C that act afterwards; rows may be redundant, and may be velocity constraints.

    * "full": all impulses at once, his (22) and (24);
    * "projected": in redundant coordinates, persistent constraints being projected out, his (32) with N₁ᵀU on the right;
    * "minimal": in independent velocities of the persistent constraints, his (37) with F₁ᵀU.

    Args:
        system: the system.
        state: a state of it.
        lock: what is frozen, as in `Lock`; a function by a `Lock` that names it.
        activate: names of constraints, or of locks, that begin to act.
        release: names of those that cease to.
        impulse: U (nv,) applied at that instant; none by default.
        restitution: e of the constraints in `activate`, which then do not act afterwards.
        method: one of the three.
        formulation: how "full" finds Δv and Λ, and the cut-off of all methods; `GaussProjection()` by default, which needs M positive
            definite, while `KKT()` needs that on null(C) only.
        consistent: see `AbstractEvent`.
        assemble: whether positions that do not fit are moved to the constraints, or rejected with the amount.
        throw: whether to raise an error if positions do not fit or no velocity does; `result` reports it in any case.

    Raises:
        ValueError: if no change is given, for unknown names, rows that already act or rest as demanded, an unknown method, and positions that
            do not fit.
        RuntimeError: with concrete numbers, if no velocity satisfies all constraints or the solution fails.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.array([[2.0, 1.0], [1.0, 1.0]]))
        >>> jump = jm.transition(system, jm.assemble(system, v=[1.0, 1.0]), lock=["y"])
        >>> [round(float(x), 6) for x in jump.after.v], round(float(jump.loss), 6)
        ([1.5, 0.0], 0.25)
    """
    _check_purpose((lock, activate, release), impulse, restitution, assemble)
    check_state(system, state)
    system, state = strong(system), strong(state)
    events: list[Any] = [
        Lock(what, at=state.t, consistent=consistent) if not isinstance(what, Lock) else what for what in lock
    ]
    if activate:
        events.append(
            Activate(
                activate, at=state.t, restitution=restitution, assemble=assemble, consistent=consistent, name="activate"
            )
        )
    if release:
        events.append(Release(release, at=state.t, name="release"))
    _check_effect(system, state, events)
    before = state
    formulation = formulation_at(formulation, system, state)
    plan, state, _, _ = plan_events(system, formulation, events, state, state.t)
    impulse = jnp.zeros(system.nv) if impulse is None else as_floats(impulse)
    expect_shape("`impulse`", impulse, (system.nv,))
    change, check = _transition(plan, state, impulse, method)
    if throw:
        change = enforce(change, (check,))
        announce(change.result)
    # `regular` is static, and ranks nearby are judged by concrete numbers only.
    if not is_concrete(change) or bool(change.result != RESULTS.successful):
        return change
    counts = [diagnose(system, s, formulation=formulation) for s in (before, change.after)]
    return dataclasses.replace(change, regular=all(d.rank == d.rank_nearby for d in counts))


def _check_purpose(names: tuple[Sequence[object], ...], impulse: object, restitution: object, assemble: bool) -> None:
    """Refuses a change of nothing, and what is said of constraints that begin to act where none does.

    `names` are of what is locked, of what begins to act and of what ceases to.
    """
    if impulse is None and not any(names):
        raise ValueError(
            "One of the arguments `lock`, `activate`, `release` and `impulse` must say what happens, but none does."
        )
    for argument, without, given in (("restitution", "None", restitution is not None), ("assemble", "False", assemble)):
        if given and not names[1]:
            raise ValueError(f"Argument `{argument}` must be {without} where `activate` names nothing, but is not.")


def _check_effect(system: System, state: State, events: Sequence[AbstractEvent]) -> None:
    """Refuses a change without effect, where the mode is concrete: most often it is a mistake in a name."""
    mode = state.mode
    if not is_concrete(mode):
        return
    rows = system.in_mode(mode).rows
    acts = {name: mode is None or bool(jnp.all(mode.active[part])) for name, part in rows.items()}
    rests = {name: mode is not None and not bool(jnp.any(mode.active[part])) for name, part in rows.items()}
    for kind, argument, unchanged, words in (
        (Lock, "lock", acts, "is not locked, but '{}' is"),
        (Activate, "activate", acts, "does not act yet, but '{}' does"),
        (Release, "release", rests, "acts, but '{}' does not"),
    ):
        for name in (name for event in events if isinstance(event, kind) for name in event.acts_on):
            if unchanged.get(name, False):
                raise ValueError(f"Argument `{argument}` must name what {words.format(name)}.")


@program
def _transition(plan: Plan, state: State, impulse: Array, method: str) -> tuple[Transition, Check]:
    t, v, scale, mode, formulation = state.t, state.v, state.scale, state.mode, plan.formulation
    assert mode is not None
    here = plan.context(mode, dataclasses.replace(state, mode=None), None)
    change = plan.change(here, jnp.ones(len(plan.names), bool))
    q, off = plan.assembled_positions(change, here)
    acting, active, bare = plan.system.in_mode(change.acting), change.acting.active, State(t, q, v, scale)
    text = "Constraint '{name}' must fit the position where it is activated, but its residual, relative to the size of the mechanism, is {}; see `assemble`."
    # √eps, the same limit as of a run (`fitting`).
    check = Check(acting.largest(off), float(jnp.finfo(q.dtype).eps) ** 0.5, text, tuple(acting.rows))

    terms = impulse_terms(acting, bare, impulse + change.impulse, change.restitution, change.consistent)
    persistent, good = mode.active & active, RESULTS.successful
    if method == "full":
        solution = formulation.acceleration(terms)
        step, pulses, outcome = solution.vdot, solution.multipliers, solution.result
    else:
        # These methods take the persistent constraints out of the equations: their impulses are unknown, and zero would read as a value.
        step, pulses = {"projected": projected, "minimal": minimal}[method](terms, persistent, formulation.rank_tol)
        pulses, outcome = jnp.where(persistent, jnp.nan, pulses), good
    result: Any = jump_result(terms, v, step, outcome)  # pyright: ignore[reportArgumentType]
    after = v + step
    pulses = jnp.where(active, pulses, 0)
    mass = acting.mass(t, q)
    # The directions that are free afterwards: rows that are only hit are not among those of `change.mode`.
    rows = rows_at(plan.system.in_mode(change.mode), t, q, scale.row)
    basis = null_space(formulation.factorise(rows, formulation.prepare(rows)))
    return (
        Transition(
            before=state,
            after=dataclasses.replace(state, q=q, v=after, mode=change.mode),
            impulses={name: pulses[part] for name, part in acting.rows.items()},
            momentum=(mass @ v, mass @ after),
            free_momentum=(basis.T @ mass @ v, basis.T @ mass @ after),
            loss=energy_loss(mass, v, step, scale),
            result=RESULTS.where(all_hold([check]), result, RESULTS.position_mismatch),
            regular=None,
        ),
        check,
    )
