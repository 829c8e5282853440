"""The mechanism at an instant as a control law sees it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..formulation import AbstractFormulation, RestoredRows, formulation_at
from ..foundations import contract, program, strong
from ..linalg import ConstrainedFactor
from ..system import Nearby, State, System, Terms, apply_mode, evaluate, evaluate_at
from .instant import AbstractInstant


class Plant(AbstractInstant):
    """The mechanism at an instant: acceleration and reaction are affine in the inputs, v̇ = v̇₀ + T u.

    Control laws are pure functions of it. Nothing is evaluated before a law asks for it. `at` makes a plant from a state.

    Attributes:
        system, t, q, v: the mechanism, the time and its state, see `AbstractInstant`.
        terms: M, F, C, b and Γ at u = 0.
        actuation: B (nv, nu).
        formulation: how accelerations are found.
        factor: the factors of the rows in use.
        restored: the rows that replace those degenerate at a singular pose; None in a run, whose stages do not lie at such poses.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.diag(jnp.array([2.0, 1.0])),
        ...                    constraints=[jm.Holonomic("equal", lambda t, q, p: q[0] - q[1])],
        ...                    actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]))
        >>> plant = jm.control.Plant.at(system, jm.assemble(system, [0.0, 0.0]))
        >>> [round(float(x), 6) for x in plant.respond(jnp.array([6.0])).vdot]
        [2.0, 2.0]
    """

    terms: Terms
    actuation: Float[Array, "nv nu"]
    formulation: AbstractFormulation
    factor: ConstrainedFactor
    restored: RestoredRows | None = None

    @classmethod
    @contract
    def at(cls, system: System, state: State, formulation: AbstractFormulation | None = None) -> "Plant":
        """The mechanism at a single state; valid at singular poses, too.

        Args:
            system: the system.
            state: one assembled state.
            formulation: how accelerations are found; `GaussProjection()` by default.
        """
        system, state = apply_mode(strong(system), strong(state))
        return _plant(system, state, formulation_at(formulation, system, state), None)

    def of(self, model: System) -> "Plant":
        """The same instant, rows in use and mode for a model of the mechanism, with which a law computes.

        Args:
            model: a system with the same coordinates, constraints and inputs; parameters, masses and forces may be wrong.

        Raises:
            ValueError: if it has others.
        """
        model = model.in_mode_of(self.system)
        # At a singular pose the model has degenerate rows of its own, which depend on its masses; elsewhere the plant's
        # rows in use serve it.
        nearby = self.terms.nearby
        if nearby is not None:
            return _plant(model, nearby.state, self.formulation, self.in_use)
        return self._another(model, self.q, self.v)

    def with_motion(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> "Plant":
        """The same mechanism and rows in use at another state, such as one that is measured."""
        return self._another(self.system, q, v)

    def _another(self, system: System, q: Array, v: Array) -> "Plant":
        terms = evaluate_at(system, self.t, q, v, self.terms.scale, system.applied_force(self.t, q, v))
        return dataclasses.replace(
            self,
            system=system,
            q=q,
            v=v,
            terms=terms,
            actuation=system.actuation(self.t, q),
            factor=self.formulation.factorise(terms, self.factor.in_use, 0.0),
            restored=None,
        )

    @property
    def in_use(self) -> Bool[Array, " m"]:
        """The rows of C that are in use and independent at this pose."""
        if self.restored is None or self.restored.condition is None:
            return self.factor.in_use
        return self.factor.in_use & ~self.restored.condition.mask

    @property
    def freedoms(self) -> Int[Array, ""]:
        """The dimension k of the accelerations that the constraints allow."""
        return self.v.shape[0] - jnp.sum(self.factor.in_use)

    @property
    def rows(self) -> Terms:
        """The terms with the rows in use, of those degenerate at a singular pose the ones along which their reaction acts."""
        return self.terms if self.restored is None else self.restored.terms

    def input_force(self, u: Float[Array, " nu"]) -> Float[Array, " nv"]:
        """The contribution of an input to F: B u, and the change of forces that depend on it in another way."""
        force, resistance = self.actuation @ u, self.system.resistance_fn
        if resistance is None:
            return force
        # At u = None friction is that without inputs, which `terms.force` holds already.
        at = lambda u: resistance(self.t, self.q, self.v, self.system.params, u)
        return force + at(u) - at(None)

    @contract
    @program
    def respond(self, u: Float[Array, " nu"] | None = None) -> "Response":
        """The response of the mechanism to an input, with all forces that depend on it.

        Args:
            u: inputs (nu,); zero by default.
        """
        force = self.terms.force if u is None else self.terms.force + self.input_force(u)
        drift = jnp.zeros_like(self.terms.gamma)
        if self.restored is not None and self.restored.condition is not None:
            # Zᵀk: what the second derivative of degenerate rows demands along the motion, independent of forces.
            drift = self.restored.condition.drift
        vdot, independent = self._solve(force, self.terms.gamma, drift)
        return Response(vdot, self.terms.mass @ vdot - force, independent, self, u)

    @contract
    @program
    def respond_to_forces(self, forces: Float[Array, "nv k"]) -> "Response":
        """By how much each of several generalised forces changes v̇, the reaction and λ; these gain a last axis."""
        zero = jnp.zeros_like(self.terms.gamma)
        solve = lambda force: self._solve(force, zero, zero)
        # Differences of accelerations: Γ and the drift are zero, since they do not depend on forces.
        vdot, independent = jax.vmap(solve, in_axes=1, out_axes=1)(forces)
        return Response(vdot, self.terms.mass @ vdot - forces, independent, self)

    def share(self, independent: Float[Array, "m *k"]) -> Float[Array, "m *k"]:
        """The multipliers of all rows from those of the independent ones; NaN where undefined."""
        # λ of least norm of all rows, from those in use, see `formulation/base.py`.
        share = lambda x: self.formulation.shares(self.factor, self.rows.jacobian, x)[0]
        multipliers = (
            jax.vmap(share, in_axes=1, out_axes=1)(independent) if independent.ndim > 1 else share(independent)
        )
        if self.restored is None:
            return multipliers
        return jnp.where(self.restored.undefined.reshape((-1,) + (1,) * (multipliers.ndim - 1)), jnp.nan, multipliers)

    def _solve(self, force: Array, gamma: Array, drift: Array) -> tuple[Array, Array]:
        """v̇ and the multipliers of the independent rows for F, Γ, and Zᵀk of the degenerate rows."""
        if self.restored is None:
            terms = dataclasses.replace(self.terms, force=force, gamma=gamma)
        else:
            terms = self.restored.terms_for(self.formulation, self.factor, force, gamma, drift)
        return self.formulation.motion(terms, self.factor)


def with_dynamics(plant: AbstractInstant) -> Plant:
    """The plant of a law that reads its dynamics.

    Raises:
        TypeError: in a run that has none, since a controller around the law says by `uses_plant` that none is needed.
    """
    if not isinstance(plant, Plant):
        raise TypeError("Argument `control` must have `uses_plant` true, as the law in it reads terms of the plant.")
    return plant


class Response(eqx.Module):
    """The response of a mechanism to an input.

    Attributes:
        vdot: v̇ (nv,).
        reaction: M v̇ − F (nv,), F with the forces of the input.
        independent: multipliers (m,) of the independent rows.
        plant: the mechanism.
        u: inputs (nu,); None for zero, and for a response to forces.
    """

    vdot: Float[Array, "nv *k"]
    reaction: Float[Array, "nv *k"]
    independent: Float[Array, "m *k"]
    plant: Plant
    u: Float[Array, " nu"] | None = None

    @property
    def multipliers(self) -> Float[Array, "m *k"]:
        """λ of all rows, as in `jaxmb.formulation.Acceleration`."""
        return self.plant.share(self.independent)


@program
def _plant(system: System, state: State, formulation: AbstractFormulation, in_use: Bool[Array, " m"] | None) -> Plant:
    """The mechanism at a state, of a system in its mode."""
    terms = evaluate(system, state)
    formulation = formulation.with_choice(formulation.choose(terms))
    used, restored = formulation.without_excluded(terms), None
    if isinstance(terms.nearby, Nearby):
        restored = formulation.restore(used, formulation.decide(terms, terms.nearby, in_use=in_use), terms.nearby)
        used = restored.terms
    rows = jnp.zeros(0, bool) if restored is None else restored.in_use
    factor = formulation.factorise(used, rows, 0.0)
    return Plant(
        system=system,
        t=state.t,
        q=state.q,
        v=state.v,
        terms=terms,
        actuation=system.actuation(state.t, state.q),
        formulation=formulation,
        factor=factor,
        restored=restored,
    )
