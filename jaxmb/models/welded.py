"""Links that are fixed to each other, as bodies."""

import dataclasses

import numpy as np

from ..foundations import listing
from .graph import WORLD, Graph, Joint, Link, inverse

# Sums of products of places and masses cancel to this part of what they are made of where nothing is left: 450 units of rounding.
ROUNDING = 1e-13


@dataclasses.dataclass(frozen=True)
class Rigid:
    """The bodies of a model.

    Attributes:
        order: the links, those of parents before those of their children.
        carrier: by link, the body it belongs to, which bears the name of its first link, and its pose there.
        spread: by body, ∫ x̃ x̃ᵀ dm in its frame.
        places: by body, its pose in the world as the model is drawn.
        moving: the joints of the tree that move.
    """

    order: tuple[str, ...]
    carrier: dict[str, tuple[str, np.ndarray]]
    spread: dict[str, np.ndarray]
    places: dict[str, np.ndarray]
    moving: tuple[Joint, ...]

    def at(self, link: str, local: np.ndarray) -> tuple[str, np.ndarray]:
        """The body that a place on a link belongs to, and its pose there."""
        body, carried = self.carrier[link]
        return body, carried @ local


def rigid(graph: Graph) -> Rigid:
    """The links that fixed joints hold together as one body each; what is fixed to the ground belongs to it.

    Raises:
        ValueError: for joints that make no tree.
    """
    links = {link.name: link for link in graph.links}
    hung = _parents(graph, links)
    order = _order(links, hung)
    carrier: dict[str, tuple[str, np.ndarray]] = {WORLD: (WORLD, np.eye(4))}
    spread: dict[str, np.ndarray] = {WORLD: np.zeros((4, 4))}
    places: dict[str, np.ndarray] = {WORLD: np.eye(4)}
    moving = []
    for name in order:
        joint = hung[name]
        step = joint.outer @ inverse(joint.inner)
        body, local = carrier[joint.parent]
        if joint.kind == "fixed":
            carrier[name] = body, local @ step
            if links[name].mass and joint.parent != WORLD:
                text = f"belongs to '{body}'" if body != WORLD else "stands still: its mass has no effect"
                graph.note("merged", f"link '{name}'", text)
        else:
            carrier[name], spread[name] = (name, np.eye(4)), np.zeros((4, 4))
            places[name] = places[body] @ local @ step
            moving.append(joint)
        body, local = carrier[name]
        spread[body] = spread[body] + local @ links[name].spread() @ local.T
    found = Rigid(tuple(order), carrier, spread, places, tuple(moving))
    _expect_inertia(graph, found, links)
    return found


def _parents(graph: Graph, links: dict[str, Link]) -> dict[str, Joint]:
    """The joint that each link hangs on."""
    hung: dict[str, Joint] = {}
    for joint in graph.joints:
        for end in (joint.parent, joint.child):
            if end != WORLD and end not in links:
                raise ValueError(f"{joint.where} must join links out of {listing(links)}, but names '{end}'.")
        if joint.parent == joint.child:
            raise ValueError(f"{joint.where} must join two links, but has '{joint.parent}' on both sides.")
        if joint.closes:
            continue
        if joint.child in hung:
            raise ValueError(
                f"{joint.where} must move a link that no other joint moves, but '{joint.child}' hangs on '{hung[joint.child].name}' "
                "too; write it as a <loop>."
            )
        hung[joint.child] = joint
    return hung


def _order(links: dict[str, Link], hung: dict[str, Joint]) -> list[str]:
    """Parents first, else in the order of the model."""
    order: dict[str, None] = {}

    def place(name: str) -> None:
        chain = []
        while name != WORLD and name in hung and name not in order:
            if name in chain:
                raise ValueError(
                    f"{hung[name].where} must belong to a tree that begins at the root, but the links {listing(chain)} hang on each "
                    "other in a cycle; write one of their joints as a <loop>."
                )
            chain.append(name)
            name = hung[name].parent
        order.update(dict.fromkeys(reversed(chain)))

    for name in links:
        place(name)
    return list(order)


def _expect_inertia(graph: Graph, found: Rigid, links: dict[str, Link]) -> None:
    """What each joint moves must have inertia along it, unless something else holds it."""
    moved = {body: found.places[body] @ found.spread[body] @ found.places[body].T for body in found.spread}
    parent = {joint.child: found.carrier[joint.parent][0] for joint in found.moving}
    held = {found.carrier[end][0] for joint in graph.joints if joint.closes for end in (joint.parent, joint.child)}
    held |= {found.carrier[end[0]][0] for cord in graph.cords if cord.fixed for end in (cord.a, cord.b)}
    coupled = {name for coupling in graph.couplings for name in coupling.joints}
    held |= {joint.child for joint in found.moving if joint.name in coupled}
    for joint in reversed(found.moving):
        moved[parent[joint.child]] = moved[parent[joint.child]] + moved[joint.child]
        if joint.child in held:
            held.add(parent[joint.child])
    for joint in found.moving:
        if joint.child not in held and _along(joint, moved[joint.child], found.places[joint.child]) <= 0:
            raise ValueError(
                f"{joint.where} must move something that has inertia along it, but '{joint.child}' and what it carries have none; give "
                f"'{joint.child}' a mass and an inertia, or make the joint fixed."
            )


def _along(joint: Joint, spread: np.ndarray, place: np.ndarray) -> float:
    """The inertia along a joint with one coordinate, tr(S J Sᵀ) of its twist S; the mass along others."""
    mass = float(spread[3, 3])
    if joint.kind != "revolute":
        return mass + joint.armature
    frame = place @ joint.inner
    x, y, z = frame[:3, :3] @ joint.axis_b / np.linalg.norm(joint.axis_b)
    twist = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    shifted = np.column_stack([twist, -twist @ frame[:3, 3]])
    found = float(np.trace(shifted @ spread @ shifted.T))
    size = float(np.trace(spread[:3, :3]) + mass * frame[:3, 3] @ frame[:3, 3])
    return (found if found > ROUNDING * size else 0.0) + joint.armature
