"""The choice of the joint at which a loop is cut."""

import jax.numpy as jnp

from ..formulation import CoordinatePartition
from ..foundations import contract
from ..system import State, System, evaluate
from .connection import AbstractJoint
from .convert import convert
from .linkage import linkage_of
from .mechanism import AbstractMechanism


@contract
def loop_cuts(mechanism: AbstractMechanism, state: State, system: System) -> dict[str, float]:
    """The joints that can close a loop, ranked by how good the independent coordinates at a pose are if they are cut.

    With the joint cut, independent coordinates I are chosen greedily by the projective criterion (Blajer, Schiehlen and
    Schirm 1994, eq. 23), and the squared volume of their free directions is

        det(M_d)⁻¹ / Π_I (M⁻¹)_ii,

    which for one degree of freedom is the largest cos²α. One means that the constraints reduce nothing, zero that the
    coordinates cannot describe the motion there. Pass the first name as `build(cut=[name])`.

    Args:
        mechanism: the mechanism.
        state: an assembled state of `system`.
        system: a build of the mechanism.

    Returns:
        The squared volume by name of the joint, falling.
    """
    free_bodies = lambda s: sum(len(group.bodies) for group in linkage_of(s).tree_joints if group.group is None)
    volumes, least = {}, free_bodies(mechanism.build())
    for joint in mechanism.joints:
        if isinstance(joint, AbstractJoint):
            cut = mechanism.build(cut=[joint.name])
            if free_bodies(cut) > least:
                continue  # the joint belongs to no loop: without it a body moves freely
            terms = evaluate(cut, convert(state, system, cut))
            parts = CoordinatePartition().partition(terms)
            # Units of the independent coordinates cancel between det M_d and the diagonal of M⁻¹, so that shifts and
            # angles compare.
            inverse = jnp.diagonal(jnp.linalg.inv(terms.mass))
            volumes[joint.name] = float(
                1 / jnp.linalg.det(parts.mass) / jnp.prod(jnp.where(parts.independent, inverse, 1))
            )
    return dict(sorted(volumes.items(), key=lambda item: -item[1]))
