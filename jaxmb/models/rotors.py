"""Armature as rotors."""

import numpy as np

from .graph import WORLD, Z_AXIS, Coupling, ModelGraph, ModelJoint, ModelLink


def add_rotors(graph: ModelGraph) -> None:
    """Adds to each joint with one coordinate and an armature a disk that turns about an axis of the ground as the coordinate does.

    Its moment of inertia is the armature, so that T grows by ½ a ṡ² and nothing else: its centre of mass lies on the axis, which stands still.
    A rotor on a link that moves has inertia beyond that, which the number does not tell.

    Args:
        graph: the graph that is added to.
    """
    for joint in [j for j in graph.joints if _is_geared(j)]:
        name, a = f"{joint.name}_rotor", joint.armature
        # The flat disk: the largest moment about an axis that an inertia can have beside the others, with no need of
        # a length.
        disk = np.diag([a / 2, a / 2, a])
        graph.links.append(ModelLink(name=name, mass=a, com=np.zeros(3), inertia=disk, where=joint.where))
        bearing = ModelJoint(
            name=f"{name}_bearing",
            kind="revolute",
            parent=WORLD,
            child=name,
            outer=np.eye(4),
            inner=np.eye(4),
            axis=Z_AXIS,
            axis_b=Z_AXIS,
            where=joint.where,
        )
        graph.joints.append(bearing)
        joints = (joint.name, bearing.name)
        graph.couplings.append(Coupling(name=f"{name}_gear", joints=joints, ratio=1.0, offset=0.0, where=joint.where))
        graph.note(
            "approximated",
            f"joint '{joint.name}'",
            "its armature is a rotor on the ground, geared to it: T has ½ a ṡ² more",
        )


def note_armature(graph: ModelGraph) -> None:
    """Notes of the armature that is not part of the mechanism.

    Args:
        graph: the graph.
    """
    for joint in graph.joints:
        if joint.armature:
            remedy = "`rotors=True` adds rotors" if _is_geared(joint) else "there is no element for it"
            graph.note("left out", f"joint '{joint.name}'", f"its armature is not part of the mechanism; {remedy}")


def _is_geared(joint: ModelJoint) -> bool:
    return joint.armature > 0 and joint.kind in ("revolute", "prismatic") and not joint.closes
