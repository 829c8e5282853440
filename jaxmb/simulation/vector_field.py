"""The differential equation that Diffrax integrates."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from ..control import Instant, Plant, Response
from ..formulation import OFFSETS, WEIGHTS, AbstractFormulation, growth
from ..foundations import tree_where, where_needed
from ..kinematics import (
    CLOSE,
    NEAR,
    Correction,
    Rows,
    by_lengths,
    choose_rows,
    directions,
    distance_to_dependence,
    with_derivative,
)
from ..linalg import AbstractFactor, ConstrainedFactor, SparseFactor, cutoff
from ..system import (
    Scale,
    SparseTerms,
    State,
    System,
    Terms,
    evaluate_at,
    jacobian_rate,
    position_residual,
    rows_at,
    solve_by_factor,
    sparse_evaluate_at,
)
from .drift import AbstractDrift
from .feedback import FeedbackLoop
from .state_vector import StateVector

# A row is about to be dropped where its remainder is below so many times the cut-off.
DROP_MARGIN = 4
# The first samples of an interpolated stage are so many times as far along the motion as rows may be near: all of them lie clearly outside.
SPACING = 2.5
# Where the velocity that samples give differs by more than this part the motion turns off. It differed by up to 4e-5 where motions lead through a pose (slider-crank, particle), by
# 0.2 to 0.95 at most in runs of four-bars whose branches miss each other.
TURNED = 0.1


class Sample(eqx.Module):
    """The vector field at a state, with the terms and factors by which it was evaluated.

    Attributes:
        flow: the vector field.
        terms: the system there, without derivatives.
        factor: the factor of the rows in use, likewise without derivatives.
        near: whether rows in use are close to being dependent.
        tau: of `VectorField.evaluate_near_singular`, in s.
        turns: whether the motion turns off within the samples around it.
        end: the state after its correction, where rows are near to being dependent and a step ends; else the state itself.
    """

    flow: StateVector
    terms: Terms | SparseTerms
    factor: AbstractFactor
    near: Bool[Array, ""]
    tau: Float[Array, ""]
    turns: Bool[Array, ""]
    end: Correction


class RegularOnly(eqx.Module):
    """That all steps are regular: the first irregular step ends the run, which is made again by steps that can do everything.

    Attributes:
        in_use: the rows in use.
    """

    in_use: Bool[Array, " m"]


class VectorField(eqx.Module):
    """Everything that a step needs besides time and state: (q, v, work, z)' = (N v, v̇, power, ż).

    `consistent` is false for a start that must not be integrated: its first step then ends the run. `choice` is the first choice
    of the formulation, which may hold a later one. `step` makes steps far from singular configurations, if it can be had. `smooth`
    tells that all states are far from any singular pose; terms and factors are sparse then, if the system has a layout. `interrupted` tells that
    there are times at which it is not smooth (`breaks_of`), also where these are differentiated and not at hand. The motion ends at `until`, and by
    a `guard` sooner. `initial_remainders` holds the remainders of rows in use where a step by the system's layout has begun, for its stages.
    """

    system: System
    formulation: AbstractFormulation
    drift: AbstractDrift
    loop: FeedbackLoop | None
    scale: Scale
    consistent: Bool[Array, ""]
    choice: Bool[Array, " n"] | None
    step: PyTree = None
    smooth: bool = eqx.field(static=True, default=False)
    interrupted: bool = eqx.field(static=True, default=False)
    regular_only: RegularOnly | None = None
    until: Float[Array, ""] | None = None
    guard: PyTree = None
    initial_remainders: Float[Array, "k b"] | None = None

    @property
    def sparse(self) -> bool:
        """Whether terms and factors are sparse: far from singular poses, of a system with a layout."""
        return self.smooth and self.system.layout is not None

    @property
    def general(self) -> "VectorField":
        """The problem for the general program, whose steps decide about rows and pass singular poses."""
        return dataclasses.replace(self, regular_only=None)

    @property
    def dense(self) -> "VectorField":
        """The problem without the layout of M and C."""
        return dataclasses.replace(self, system=self.system.with_layout(None))

    def state(self, t: Array, y: StateVector) -> State:
        """The state with the sizes of the run."""
        return State(t, y.q, y.v, self.scale)

    def with_choice(self, choice: Bool[Array, " n"] | None) -> "VectorField":
        """The problem with a choice of its formulation."""
        return eqx.tree_at(lambda p: p.formulation, self, self.formulation.with_choice(choice))

    # Rows

    @eqx.filter_jit
    def prepare(self, t: Array, y: StateVector, present: Bool[Array, " n"] | None) -> Rows:
        """Decides at an accepted state which rows are in use, and what the formulation chooses."""
        # Never at a stage: off the constraints a paradoxical mechanism (Bricard's, IFToMM A04) has full rank with a tiny last singular value.
        # Decided at each stage, 345 of 906 steps were rejected at rtol 1e-4.
        return choose_rows(self.system, self.formulation, self.state(t, y), self.consistent, present)

    @eqx.filter_jit
    def independent(self, t: Array, y: StateVector) -> Bool[Array, " m"]:
        """The rows that are independent at a state near the constraints."""
        field, t, y = lax.stop_gradient((self, t, y))
        return field.formulation.prepare(rows_at(field.system, t, y.q, field.scale.row))

    # The vector field

    @eqx.filter_jit
    def derivative(self, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> StateVector:
        """The vector field, with the rows that were in use at the last accepted state."""
        return self.evaluate(t, y, in_use, jnp.array(False), jnp.asarray(NEAR, t.dtype)).flow

    def evaluate(
        self, t: Array, y: StateVector, in_use: Bool[Array, " m"], ends: Bool[Array, ""], limit: Array
    ) -> Sample:
        """The vector field, right closer to singular poses than `limit` too; there also the corrected state, if a step ends here."""
        flow, terms, factor = self.evaluate_regular(t, y, in_use, quick=True)
        zero = jnp.zeros((), t.dtype)
        uncorrected = Correction.none(y.q, y.v, in_use, directions(self.scale, factor))
        sample = Sample(
            flow=flow,
            terms=terms,
            factor=factor,
            near=self.is_near(factor, limit),
            tau=zero,
            turns=jnp.array(False),
            end=lax.stop_gradient(uncorrected),
        )
        # Known when the program is traced: what follows is no part of it then.
        if self.smooth or not self.system.m or not isinstance(factor, ConstrainedFactor):
            return sample
        arguments = (self, t, y, in_use, factor, ends, sample.end)
        flow, tau, turns, end = where_needed(
            sample.near, VectorField.evaluate_near_singular, arguments, (flow, zero, sample.turns, sample.end)
        )
        return dataclasses.replace(sample, flow=flow, tau=tau, turns=turns, end=end)

    def is_near(self, factor: AbstractFactor, limit: Array) -> Bool[Array, ""]:
        """Whether rows in use are closer to being dependent than `limit`.

        Of many bodies small remainders may be usual, such as that of the last stage of a high lift. There rows are close to it where one is
        less than half of what it was when the step began.
        """
        # In the metric of M or by lengths, whichever is larger: a light body brings rows together at any pose.
        if self.initial_remainders is None:
            return distance_to_dependence(self.scale, factor, quick=True) < limit
        assert isinstance(factor, SparseFactor)
        falling = (factor.remainders < NEAR) & (factor.remainders < 0.5 * self.initial_remainders)
        return jnp.any(falling) | (factor.gap < CLOSE)

    def loses_rows(self, factor: AbstractFactor) -> Bool[Array, ""]:
        """Whether a stage is about to drop a row, where the end of its step tells whether that came near to being dependent.

        Between two ends that are not near, a row either turns, which its basis tells, or slopes change so that the step is
        rejected. To ask for lengths at each stage would take a quarter more operations for six rows.
        """
        if not isinstance(factor, ConstrainedFactor):
            return factor.gap < NEAR
        return factor.gap < DROP_MARGIN * cutoff(self.formulation.rank_tol, factor.scale.dtype)

    @eqx.filter_jit
    def evaluate_regular(
        self, t: Array, y: StateVector, in_use: Bool[Array, " m"], quick: bool = False
    ) -> tuple[StateVector, Terms | SparseTerms, AbstractFactor]:
        """The vector field by the rows that are not degenerate at this very state; without derivatives the terms and factors.

        Power is that of applied forces and inputs, of moving constraints, −bᵀλ, and of explicit time dependence: the
        total energy minus the work stays constant.
        """
        flow, _, terms, factor = self.with_multipliers(t, y, in_use, quick)
        return flow, terms, factor

    def with_multipliers(
        self, t: Array, y: StateVector, in_use: Bool[Array, " m"], quick: bool = False
    ) -> tuple[StateVector, Float[Array, " m"], Terms | SparseTerms, AbstractFactor]:
        """`evaluate_regular`, with the multipliers λ (m,) of the rows in use; those of the others are zero."""
        system, q, v, loop = self.system, y.q, y.v, self.loop
        plant, control, u = None, None, None
        if loop is not None and not loop.needs_plant:
            plant = Instant(system, t, q, v)
            u = loop.inputs(plant, y)
        applied = system.applied_force(t, q, v, u)
        if self.sparse:
            assert system.layout is not None
            terms: PyTree = sparse_evaluate_at(system, system.layout, t, q, v, self.scale.row, applied)
        else:
            terms = evaluate_at(system, t, q, v, self.scale.row, applied)
        feedback = self.drift.feedback(system, self.state(t, y))
        if feedback is not None:
            # Into Γ, which all formulations read: none of them knows of drift.
            terms = eqx.tree_at(lambda x: x.gamma, terms, terms.gamma + feedback)
        if isinstance(terms, SparseTerms):
            factor: PyTree = SparseFactor(terms.mass, terms.jacobian, terms.scale, in_use)
        else:
            factor = self.formulation.factorise(terms, in_use, quick=quick)
        if loop is not None and loop.needs_plant:
            assert isinstance(terms, Terms)
            # Inputs change F only: M, C, Γ and the factor are the plant's, whatever the law puts out.
            plant = Plant(
                system=system,
                t=t,
                q=q,
                v=v,
                terms=terms,
                actuation=system.actuation(t, q),
                formulation=self.formulation,
                factor=factor,
                restored=None,
            )
            u = loop.inputs(plant, y)
            pushed = plant.input_force(u)
            applied, terms = applied + pushed, eqx.tree_at(lambda x: x.force, terms, terms.force + pushed)
        if isinstance(terms, SparseTerms):
            vdot, multipliers = solve_by_factor(system, t, q, terms.force, terms.gamma, factor)
        else:
            # Without rows an inertia may know a shorter way to M⁻¹F than by a factor of M; None where it knows none.
            free = None if system.m else system.inertia.solve(t, q, terms.force, system.params)
            vdot, multipliers = self.formulation.motion(terms, factor) if free is None else (free, terms.gamma)
        if loop is not None and u is not None:
            assert plant is not None
            response = None
            if isinstance(plant, Plant):
                response = Response(vdot, terms.mass @ vdot - terms.force, multipliers, plant, u)
            control = loop.rate(plant, y, u, response)
        power = jnp.dot(v, applied) - jnp.dot(terms.offset, multipliers) + system.explicit_power(t, q, v)
        flow = StateVector.of(system.qdot(q, v), vdot, power, control)
        return flow, multipliers, *lax.stop_gradient((terms, factor))

    def evaluate_near_singular(
        self,
        t: Array,
        y: StateVector,
        in_use: Bool[Array, " m"],
        factor: ConstrainedFactor,
        ends: Bool[Array, ""],
        end: Correction,
    ) -> tuple[StateVector, Array, Bool[Array, ""], Correction]:
        """The vector field where rows in use are close to being dependent, τ, and whether the motion turns off; the corrected state if a step `ends` here.

        A stage lies off the constraints by some e, and errors of the size of e divided by the gap enter the acceleration
        of a stage that is not corrected first. Where the gap is not large compared with e, the vector field is that at six
        corrected states along the motion, at ±τ, ±2τ and ±3τ, with τ such that the gap is large enough there, interpolated:
        Σ (15 f(±τ) − 6 f(±2τ) + f(±3τ))/20 = f(0) + O(τ⁶). It has the right derivatives too. Velocities interpolated likewise are that of the
        stage, unless branches of the motion miss each other here by so little that the samples are on both.
        """
        qdot = self.system.qdot(y.q, y.v)
        # To O(τ⁶) the result does not depend on τ, and neither does its derivative.
        tau = lax.stop_gradient(self._spacing(t, y, factor))
        interpolate = tau > 0
        # Before the samples one at the state itself, for where a step ends.
        offsets = tau * np.array((0.0, *OFFSETS))
        # Where nothing is interpolated τ is zero, and the first of the six is the corrected state itself, of weight one.
        weights = jnp.where(interpolate, np.array((0.0, *WEIGHTS)), np.eye(7)[1])

        def accumulate(
            carry: tuple[StateVector, Array, Correction], part: tuple[Array, ...]
        ) -> tuple[tuple[StateVector, Array, Correction], None]:
            active_samples, number, offset, weight = part

            def corrected_sample() -> tuple[StateVector, Array, Correction]:
                total, velocity, end = carry
                sample_state, correction_map = self.corrected(t + offset, y.with_qv(y.q + offset * qdot, y.v), in_use)
                end = tree_where(number == 0, correction_map, end)
                # At the end itself the vector field may not exist: it takes no part, not even with weight zero.
                sum_with_sample = lambda: total.plus(self.evaluate_regular(t + offset, sample_state, in_use)[0], weight)
                velocity = velocity + lax.stop_gradient(weight * sample_state.v)
                return lax.cond(number > 0, sum_with_sample, lambda: total), velocity, end

            return lax.cond(active_samples, corrected_sample, lambda: carry), None

        number = jnp.asarray(np.arange(7))
        # Predicates of the whole batch, so that a sample which no row needs is not evaluated.
        active_samples = (number == 1) | jnp.where(number == 0, eqxi.unvmap_any(ends), eqxi.unvmap_any(interpolate))
        start = (jax.tree.map(jnp.zeros_like, y), jnp.zeros_like(y.v), end)
        (flow, velocity, end), _ = lax.scan(accumulate, start, (active_samples, number, offsets, weights))
        square = lambda x: x @ factor.metric @ x
        turns = interpolate & (square(velocity - y.v) > TURNED**2 * square(y.v))
        return flow, tau, *lax.stop_gradient((turns, end))

    def _spacing(self, t: Array, y: StateVector, factor: ConstrainedFactor) -> Array:
        """τ in s; zero where the rows are far enough from being dependent, or do not get further by the motion.

        Far enough is a remainder that is not small beside the state's distance from the constraints.
        """
        off_manifold = jnp.max(jnp.abs(position_residual(self.system, t, y.q)) / self.scale.span, initial=0)
        # An error e of the state enters the acceleration by e/gap: a gap of 30 e leaves a thirtieth of it.
        least = jnp.clip(30 * off_manifold, CLOSE, NEAR / 3)
        # By both metrics, as of rows that are near at all: a light body brings rows together at any pose, and no state further on would part them.
        # All rows together by lengths, as corrections ask (`at_rest`): of two rows that vanish at one pose none is left behind.
        near = (factor.remainders < least) & (by_lengths(self.scale, factor, quick=True).gap < least)
        speeds, growing = growth(factor, jacobian_rate(self.system, t, y.q, y.v), near)
        return jnp.where(jnp.any(growing), SPACING * least / jnp.min(jnp.where(growing, speeds, jnp.inf)), 0)

    # The controller

    def inputs(self, t: Array, y: StateVector, in_use: Bool[Array, " m"] | None = None) -> Array | None:
        """The inputs u (nu,) at a state on the constraints; None without a controller.

        A law that needs the plant takes the rows `in_use`; by default those that are independent there.
        """
        loop = self.loop
        if loop is None:
            return None
        if not loop.needs_plant:
            return loop.inputs(Instant(self.system, t, y.q, y.v), y)
        # A law that needs the plant has one copy of the vector field besides, as reader: its last numbers are the inputs.
        return self._read(t, y, self.independent(t, y) if in_use is None else in_use)[-loop.nu :]

    @property
    def takes_samples(self) -> bool:
        """Whether its controller acts at samples."""
        return self.loop is not None and self.loop.clock is not None

    @property
    def begins_anew(self) -> bool:
        """Whether a step may begin with another vector field than the one before it has ended with: behind a sample, or a jump."""
        return self.takes_samples or self.interrupted

    def after_sample(self, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> StateVector:
        """The state after the sample of its controller that is due, if one is."""
        if self.loop is None or not self.takes_samples:
            return y
        return where_needed(self.loop.due(t, y.control), VectorField.sample, (self, t, y, in_use), y)

    @eqx.filter_jit
    def sample(self, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> StateVector:
        """The state after a sample of its controller."""
        assert self.loop is not None
        return y.with_control(self.loop.with_next_sample(t, self._read(t, y, in_use)))

    @eqx.filter_jit
    def _read(self, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> Array:
        """The outputs of the controller, which are right close to singular poses too."""
        assert self.loop is not None
        reader, wide = self.loop.reader(y)
        if not reader.needs_plant:
            plant = Instant(self.system, t, y.q, y.v)
            return reader.read(plant, wide, reader.inputs(plant, wide), None)
        field = dataclasses.replace(self, loop=reader, smooth=False)  # terms of a plant are dense
        if self.smooth or not self.system.m:
            return field.evaluate_regular(t, wide, in_use, quick=True)[0].control
        factor = self.formulation.factorise(rows_at(self.system, t, y.q, self.scale.row), in_use, quick=True)
        end = Correction.none(y.q, y.v, in_use, jnp.zeros((self.system.m, self.system.nv), y.packed.dtype))
        # Of the samples there is one where none of the rows is close to being degenerate: the program has one copy of the vector field.
        return field.evaluate_near_singular(t, wide, in_use, factor, jnp.array(False), end)[0].control

    # The drift

    def correct(self, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> StateVector:
        """The state with its drift corrected."""
        return self.corrected(t, y, in_use)[0]

    @eqx.filter_jit
    def corrected(self, t: Array, y: StateVector, in_use: Bool[Array, " m"]) -> tuple[StateVector, Correction]:
        """The state with its drift corrected, and the correction without derivatives."""
        field, state = lax.stop_gradient((self, self.state(t, y)))
        correction_map = lax.stop_gradient(field.drift.correct(field.system, field.formulation, state, in_use))
        return self.with_correction(t, y, correction_map), correction_map

    def correction_by(self, factor: AbstractFactor, terms: Terms | SparseTerms, t: Array, y: StateVector) -> Correction:
        """The correction of a state far from any singular pose by its factors at hand; without derivatives."""
        state = lax.stop_gradient(self.state(t, y))
        return lax.stop_gradient(self.drift.correct_by(factor, self.system, self.formulation, state, terms))

    def with_correction(self, t: Array, y: StateVector, correction_map: Correction) -> StateVector:
        """The state to which a correction has moved `y`, with its derivatives."""
        state = self.state(t, y)
        corrected = dataclasses.replace(lax.stop_gradient(state), q=correction_map.q, v=correction_map.v)
        differentiable = with_derivative(
            self.drift.linearise_correction,
            self.system,
            self.formulation,
            state,
            corrected,
            correction_map.in_use,
            self.sparse,
        )
        return y.with_qv(differentiable.q, differentiable.v)

    def relative_residuals(self, correction_map: Correction) -> Float[Array, " m"]:
        """The residuals that a correction has left, relative to the size of the mechanism, and of velocities to that times the rate.

        Where a coordinate passes its reach faster than the run began, that is the rate: velocities are rounded as they are then.
        """
        rate = jnp.maximum(self.scale.rate, self.scale.passing(correction_map.v))
        return jnp.maximum(jnp.abs(correction_map.position), jnp.abs(correction_map.velocity) / rate) / self.scale.span

    def closed(self, residual: Float[Array, " m"]) -> Bool[Array, ""]:
        """Whether relative residuals are within the tolerance of the drift."""
        return jnp.all(residual <= self.drift.tolerance(residual.dtype))

    def correction_map(
        self, t: Array, y: StateVector, corrected: StateVector, in_use: Bool[Array, " m"]
    ) -> Callable[["VectorField", StateVector], StateVector]:
        """A function of problem and state that has the derivative of `correct`, which has made `corrected` of `y`."""
        state, corrected_state = self.state(t, y), self.state(t, corrected)
        fn = self.drift.linearise_correction(self.system, self.formulation, state, corrected_state, in_use, self.sparse)

        def correct(field: VectorField, y: StateVector) -> StateVector:
            state = fn(field.system, field.state(t, y))
            return y.with_qv(state.q, state.v)

        return correct
