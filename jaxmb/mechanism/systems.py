"""The system of a linkage."""

import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array

from ..system import Holonomic, Pfaffian, System
from .inertia import LinkageInertia
from .linkage import AbstractLinkage
from .structure import Numbers


def system_of(
    linkage: AbstractLinkage, numbers: Numbers, guess: Array | None = None, resistance: Partial | None = None
) -> System:
    """The system of a linkage; `resistance` holds the forces that depend on reactions."""
    constraints = []
    if linkage.rows:
        constraints.append(Holonomic("positions", Partial(AbstractLinkage.residual, linkage), parts=dict(linkage.rows)))
    if linkage.slips:
        constraints.append(Pfaffian("velocities", Partial(AbstractLinkage.slip, linkage), parts=dict(linkage.slips)))
    # A system without `rate` knows that q̇ = v, and leaves N out of all its terms; with it N would be a Jacobian of
    # ones.
    rates_are_velocities = not linkage.turns and all(
        h.pair.coordinates == h.pair.velocities for h in linkage.tree_joints
    )
    breaks = [element.breaks for element in (*numbers.drivers, *numbers.forces) if element.breaks.size]
    return System(
        linkage.coordinates,
        inertia=LinkageInertia(linkage),
        force=Partial(AbstractLinkage.applied_force, linkage) if any(not f.loads() for f in numbers.forces) else None,
        constraints=constraints,
        params=numbers,
        velocities=linkage.velocities,
        rate=None if rates_are_velocities else Partial(AbstractLinkage.rate, linkage),
        normalise=None if rates_are_velocities else Partial(AbstractLinkage.normalise, linkage),
        actuation=Partial(AbstractLinkage.actuation, linkage) if numbers.actuators else None,
        resistance=resistance,
        guess=guess,
        # The integrator steps to each of them: across a jump of a derivative a method loses its order and the error
        # its meaning.
        breaks=jnp.sort(jnp.concatenate(breaks)) if breaks else None,
        joints=linkage,
    )
