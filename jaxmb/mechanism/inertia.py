"""The inertia of a mechanism."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..system import AbstractInertia, Rate
from .joint_inertia import JointInertia
from .linkage import AbstractLinkage
from .structure import Numbers

Scalar = Float[Array, ""]


class LinkageInertia(AbstractInertia):
    """Inertia and potential of the bodies of a linkage; `params` are its `Numbers`."""

    linkage: AbstractLinkage

    def mass(self, t: Scalar, q: Array, params: Numbers, rate: Rate | None, nv: int) -> Float[Array, "nv nv"]:
        """M(q)."""
        mass, (own, others) = self.linkage.mass(t, q, params), self.joint_inertias(params)
        if own is not None:
            mass = mass + jnp.diag(own)
        if others:
            speeds, inertia = self._speeds(q, params, others)
            rows = jax.jacfwd(speeds)(jnp.zeros(nv, q.dtype))
            mass = mass + rows.T @ (inertia[:, None] * rows)
        return mass

    def products(
        self, t: Scalar, q: Array, directions: Float[Array, "k nv"], params: Numbers, rate: Rate | None
    ) -> Float[Array, "k nv"]:
        """The momenta of several velocities."""
        momenta, (own, others) = self.linkage.momenta(q, directions, params), self.joint_inertias(params)
        if own is not None:
            momenta = momenta + own * directions
        if others:
            speeds, inertia = self._speeds(q, params, others)
            momenta = momenta + jax.vmap(lambda v: jax.vjp(speeds, v)[1](inertia * speeds(v))[0])(directions)
        return momenta

    def force(self, t: Scalar, q: Array, v: Array, params: Numbers, rate: Rate | None) -> Float[Array, " nv"]:
        """Inertia forces and those of gravity and springs."""
        force, (_, others) = self.linkage.intrinsic_force(t, q, v, params), self.joint_inertias(params)
        if others:
            # −a Jᵀ J̇ v. Velocities that are the system's own have none: their J is constant.
            drift = jax.jvp(lambda q: self._speeds(q, params, others)[0](v), (q,), (self.linkage.tree_rate(q, v),))[1]
            speeds, inertia = self._speeds(q, params, others)
            force = force - jax.vjp(speeds, v)[1](inertia * drift)[0]
        return force

    def solve(self, t: Scalar, q: Array, force: Float[Array, " nv"], params: Numbers) -> Float[Array, " nv"] | None:
        """M⁻¹ f by articulated inertias, where bodies are evaluated recursively and are many; else None."""
        own, others = self.joint_inertias(params)
        return None if others else self.linkage.solved(q, force, params, own)

    def energy(self, t: Scalar, q: Array, v: Array, params: Numbers, rate: Rate | None) -> tuple[Scalar, Scalar]:
        """Kinetic energy; potential energy of gravity and springs."""
        motion = self.linkage.motion(t, q, v, params)
        # ½ tr(Ẋ J Ẋᵀ) of each body without the ground: J is the pseudo-inertia matrix, which does not move in the
        # body's frame.
        rates = motion.rates[1:]
        kinetic = 0.5 * jnp.sum(rates * (rates @ params.inertia))
        for element in _elements(params):
            kinetic = kinetic + 0.5 * element.inertia * jnp.sum(element.speeds(motion) ** 2)
        return kinetic, self.linkage.potential_energy(motion)

    def explicit_power(self, t: Scalar, q: Array, v: Array, params: Numbers, rate: Rate | None) -> Scalar:
        """Zero: no potential reads the time."""
        return jnp.zeros_like(t)

    def joint_inertias(self, params: Numbers) -> tuple[Float[Array, " nv"] | None, list[JointInertia]]:
        """The inertia that moves with each velocity of the system, None for none, and the elements that move with others."""
        own, others = [], []
        for element in _elements(params):
            joint, _, part = element.joint.partition(".")
            slot = self.linkage.slot(joint)
            if not slot.in_tree:
                others.append(element)
                continue
            v = [slot.v[self.linkage.index(element.joint, "velocities")[1]]] if part else list(slot.v)
            # A row of zeros and ones that is known while tracing: compiled code leaves the zeros out.
            own.append(element.inertia * jnp.asarray(np.isin(np.arange(self.linkage.nv), v), params.inertia.dtype))
        return (sum(own[1:], own[0]) if own else None), others

    def _speeds(
        self, q: Array, params: Numbers, elements: list[JointInertia]
    ) -> tuple[Callable[[Array], Array], Float[Array, " k"]]:
        """The velocities that elements move with, as a function of v, and the inertia of each."""

        def speeds(v: Array) -> Array:
            motion = self.linkage.motion(jnp.zeros((), q.dtype), q, v, params)
            return jnp.concatenate([element.speeds(motion) for element in elements])

        counts = [1 if "." in e.joint else len(self.linkage.slot(e.joint).pair.velocities) for e in elements]
        return speeds, jnp.concatenate([jnp.full(n, e.inertia) for e, n in zip(elements, counts, strict=True)])


def _elements(params: Numbers) -> list[JointInertia]:
    return [force for force in params.forces if isinstance(force, JointInertia)]
