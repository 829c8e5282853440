"""Bodies of links that are fixed to each other."""

import dataclasses

import numpy as np

from ..foundations import listing
from .graph import WORLD, ModelGraph, ModelJoint, ModelLink, inverse

# Sums of products of positions and masses cancel to this part of what they are made of where nothing is left: 450 units of rounding.
ROUNDING = 1e-13


@dataclasses.dataclass(frozen=True)
class RigidBodies:
    """The bodies of a model.

    Attributes:
        order: the links, those of parents before those of their children.
        carrier: by link, the body it belongs to, which bears the name of its first link, and its pose there.
        spread: by body, ∫ x̃ x̃ᵀ dm in its frame.
        poses: by body, its pose in the world as the model is drawn.
        moving: the joints of the tree that move.
    """

    order: tuple[str, ...]
    carrier: dict[str, tuple[str, np.ndarray]]
    spread: dict[str, np.ndarray]
    poses: dict[str, np.ndarray]
    moving: tuple[ModelJoint, ...]

    def at(self, link: str, local: np.ndarray) -> tuple[str, np.ndarray]:
        """The body that a marker on a link belongs to, and its pose there."""
        body, carried = self.carrier[link]
        return body, carried @ local


def rigid_bodies(graph: ModelGraph) -> RigidBodies:
    """One body for each set of links that fixed joints hold together; links fixed to the ground belong to it.

    Raises:
        ValueError: for joints that make no tree.
    """
    links = {link.name: link for link in graph.links}
    parent_joints = _parents(graph, links)
    order = _order(links, parent_joints)
    carrier: dict[str, tuple[str, np.ndarray]] = {WORLD: (WORLD, np.eye(4))}
    spread: dict[str, np.ndarray] = {WORLD: np.zeros((4, 4))}
    poses: dict[str, np.ndarray] = {WORLD: np.eye(4)}
    moving = []
    for name in order:
        joint = parent_joints[name]
        # The pose of the child in the parent as drawn, both frames of the joint coinciding.
        step = joint.outer @ inverse(joint.inner)
        body, local = carrier[joint.parent]
        if joint.kind == "fixed":
            carrier[name] = body, local @ step
            if links[name].mass and joint.parent != WORLD:
                text = f"belongs to '{body}'" if body != WORLD else "stands still: its mass has no effect"
                graph.note("merged", f"link '{name}'", text)
        else:
            carrier[name], spread[name] = (name, np.eye(4)), np.zeros((4, 4))
            poses[name] = poses[body] @ local @ step
            moving.append(joint)
        body, local = carrier[name]
        # X J Xᵀ moves a pseudo-inertia matrix to the frame of the body, where those of all its links add up.
        spread[body] = spread[body] + local @ links[name].spread() @ local.T
    bodies = RigidBodies(tuple(order), carrier, spread, poses, tuple(moving))
    _expect_inertia(graph, bodies, links)
    return bodies


def _parents(graph: ModelGraph, links: dict[str, ModelLink]) -> dict[str, ModelJoint]:
    """The joint that each link hangs on."""
    parent_joints: dict[str, ModelJoint] = {}
    for joint in graph.joints:
        for end in (joint.parent, joint.child):
            if end != WORLD and end not in links:
                raise ValueError(f"{joint.where} must join links out of {listing(links)}, but names '{end}'.")
        if joint.parent == joint.child:
            raise ValueError(f"{joint.where} must join two links, but has '{joint.parent}' on both sides.")
        if joint.closes:
            continue
        if joint.child in parent_joints:
            raise ValueError(
                f"{joint.where} must move a link that no other joint moves, but '{joint.child}' hangs on '{parent_joints[joint.child].name}' "
                "too; write it as a <loop>."
            )
        parent_joints[joint.child] = joint
    return parent_joints


def _order(links: dict[str, ModelLink], parent_joints: dict[str, ModelJoint]) -> list[str]:
    """Parents first, else in the order of the model."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        chain = []
        while name != WORLD and name in parent_joints and name not in order:
            if name in chain:
                raise ValueError(
                    f"{parent_joints[name].where} must belong to a tree that begins at the root, but the links {listing(chain)} hang on each "
                    "other in a cycle; write one of their joints as a <loop>."
                )
            chain.append(name)
            name = parent_joints[name].parent
        order.update(dict.fromkeys(reversed(chain)))

    for name in links:
        visit(name)
    return list(order)


def _expect_inertia(graph: ModelGraph, bodies: RigidBodies, links: dict[str, ModelLink]) -> None:
    """Refuses joints that move no inertia, unless a loop or a coupling constrains them."""
    subtree = {body: bodies.poses[body] @ bodies.spread[body] @ bodies.poses[body].T for body in bodies.spread}
    parent = {joint.child: bodies.carrier[joint.parent][0] for joint in bodies.moving}
    constrained = {
        # A loop, a rod or a coupling lets other bodies act on the joint: M may be singular along it while M on the
        # constraints is not.
        bodies.carrier[end][0]
        for joint in graph.joints
        if joint.closes
        for end in (joint.parent, joint.child)
    }
    constrained |= {bodies.carrier[end[0]][0] for cord in graph.cords if cord.fixed for end in (cord.a, cord.b)}
    coupled = {name for coupling in graph.couplings for name in coupling.joints}
    constrained |= {joint.child for joint in bodies.moving if joint.name in coupled}
    # Children before parents: inertias of subtrees, as a composite rigid body algorithm has them.
    for joint in reversed(bodies.moving):
        subtree[parent[joint.child]] = subtree[parent[joint.child]] + subtree[joint.child]
        if joint.child in constrained:
            constrained.add(parent[joint.child])
    for joint in bodies.moving:
        if (
            joint.child not in constrained
            and _joint_inertia(joint, subtree[joint.child], bodies.poses[joint.child]) <= 0
        ):
            raise ValueError(
                f"{joint.where} must move something that has inertia along it, but '{joint.child}' and what it carries have none; give "
                f"'{joint.child}' a mass and an inertia, or make the joint fixed."
            )


def _joint_inertia(joint: ModelJoint, spread: np.ndarray, pose: np.ndarray) -> float:
    """The inertia along a joint with one coordinate, tr(S J Sᵀ) of its twist S; the mass along others."""
    mass = float(spread[3, 3])
    if joint.kind != "revolute":
        return mass + joint.armature
    frame = pose @ joint.inner
    x, y, z = frame[:3, :3] @ joint.axis_b / np.linalg.norm(joint.axis_b)
    twist = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    shifted = np.column_stack([twist, -twist @ frame[:3, 3]])
    inertia = float(np.trace(shifted @ spread @ shifted.T))
    size = float(np.trace(spread[:3, :3]) + mass * frame[:3, 3] @ frame[:3, 3])
    return (inertia if inertia > ROUNDING * size else 0.0) + joint.armature
