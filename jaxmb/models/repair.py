"""Loops of files that stay open because their numbers are rounded."""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..foundations import RESULTS
from ..kinematics import Attempt, try_assemble
from ..mechanism import AbstractJoint, AbstractMechanism, marker
from ..mechanism.elements import local_pose
from ..output import pose
from ..system import System
from .graph import inverse
from .graph import pose as rigid

# Files have five digits and more: what stays open by more than this, relative to the size of its rows, is open for another reason.
ROUNDED = 1e-5


def nearly_closed(attempt: Attempt) -> bool:
    """Whether an assembly has failed by no more than rounded numbers may leave open."""
    return bool(attempt.result == RESULTS.no_assembly) and float(np.max(np.abs(attempt.position))) < ROUNDED


def with_closed_loops(
    mechanism: AbstractMechanism, loops: Sequence[str], guess: Mapping[str, float]
) -> tuple[AbstractMechanism, dict[str, float]]:
    """The mechanism with the second frames of its loops' joints where they belong, and how far each has moved, in m.

    A loop with more rows than it needs, such as one in a plane that is closed by a ball, stays open by the rounding of the file's numbers. Where it comes
    nearest to being closed, the frame of b is moved to the nearest pose that the joint allows. Loops that close, and those that stay open by
    more than rounding, remain as they are.

    Args:
        mechanism: a mechanism.
        loops: names of the joints that close loops.
        guess: coordinates by name near which loops are closed.
    """
    system = mechanism.build(cut=loops)
    attempt = try_assemble(system, {name: x for name, x in guess.items() if name in system.coordinates})
    if not nearly_closed(attempt):
        return mechanism, {}
    shifts = {}
    for i, joint in enumerate(mechanism.joints):
        if joint.name in loops and isinstance(joint, AbstractJoint):
            shift, frame = _closed(mechanism, system, attempt, joint)
            if frame is not None:
                end = marker((joint.b.body, frame), f"joint '{joint.name}'")
                mechanism = eqx.tree_at(lambda m, i=i: m.joints[i].b, mechanism, end)
                shifts[joint.name] = shift
    return mechanism, shifts


def _closed(
    mechanism: AbstractMechanism, system: System, attempt: Attempt, joint: AbstractJoint
) -> tuple[float, np.ndarray | None]:
    """How far the frame of a joint on b is moved, and its marker then; None where it stays."""
    turns = [rigid(np.zeros(3), np.asarray(x)) for x in joint.frame_rotations() or (np.eye(3), np.eye(3))]
    a, b = (np.asarray(pose(system, attempt.state, end)) for end in (joint.a, joint.b))
    relative = inverse(a @ turns[0]) @ b @ turns[1]
    allowed = np.asarray(joint.pair.pose(joint.pair.measure(jnp.asarray(relative), joint.data()), joint.data()))
    if np.array_equal(relative, allowed):
        return 0.0, None
    # By what the marker on b moves, in its own axes, so that the pose of B in A is one that the joint allows.
    shift = turns[1] @ inverse(relative) @ allowed @ inverse(turns[1])
    frame = np.asarray(local_pose(mechanism, joint.b, "The mechanism")) @ shift
    return float(np.linalg.norm(shift[:3, 3])), frame
