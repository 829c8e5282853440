"""Named numbers of a model, and where they are stored."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from ..foundations import as_floats, listing
from ..mechanism import AbstractBody, AbstractMechanism
from ..system import System
from ..topology import AbstractEvent

# Components of a vector may be named as axes.
AXES = ("x", "y", "z")
KINDS = ("bodies", "joints", "drivers", "forces", "actuators")
# How to get from a node of a tree to one below: names of attributes, and indices or keys.
Steps = tuple[tuple[str, Any], ...]
Members = dict[str, tuple[Steps, PyTree]]


class Setup(eqx.Module):
    """All that a run is made of and that parameters may change.

    Attributes:
        model: a mechanism, or a system.
        control: the controller; None for none.
        events: the events.
    """

    model: PyTree
    control: PyTree = None
    events: tuple[AbstractEvent, ...] = ()


class Location(eqx.Module):
    """The location of a number in a setup.

    Attributes:
        steps: the way to an array, or to a node of a tree of which all arrays are meant.
        component: which component of the array is meant; None for the whole.
        body: the way to the body of which it is a dimension, so that mass, inertia and points follow; None for none.
    """

    steps: Steps = eqx.field(static=True)
    component: tuple[int, ...] | None = eqx.field(static=True)
    body: Steps | None = eqx.field(static=True, default=None)

    def read(self, setup: Setup) -> Array:
        """The number, or the array."""
        node = _node_at(setup, self.steps)
        # A part of a controller, such as a network: all its arrays as one vector.
        if not _is_number(node):
            return ravel_pytree(eqx.filter(node, eqx.is_inexact_array))[0]
        value = as_floats(node)
        return value if self.component is None else value[self.component]

    def replaced(self, setup: Setup, value: Array) -> Setup:
        """The setup with another value there."""
        node: PyTree = _node_at(setup, self.steps)
        if not _is_number(node):
            numbers, rest = eqx.partition(node, eqx.is_inexact_array)
            return _replaced(setup, self.steps, eqx.combine(ravel_pytree(numbers)[1](value), rest))
        if self.component is not None:
            value = jnp.asarray(node, value.dtype).at[self.component].set(value)
        changed = _replaced(setup, self.steps, value)
        # Mass, inertia and points follow from the dimensions of a shape, and must be found again.
        return changed if self.body is None else _replaced(changed, self.body, _node_at(changed, self.body).resized())


def _node_at(setup: Setup, steps: Steps) -> PyTree:
    """What some steps lead to."""
    node: PyTree = setup
    for kind, key in steps:
        node = getattr(node, key) if kind == "attribute" else node[key]
    return node


def _replaced(setup: Setup, steps: Steps, value: PyTree) -> Setup:
    """The setup with something else there."""
    return eqx.tree_at(lambda s: _node_at(s, steps), setup, value)


def _why_none(node: PyTree, words: list[str]) -> str:
    """Why the last of some words names nothing in a node, and what to do."""
    *above, word = words
    found = [*_members(node), *_components(node, "points" in above[-2:])]
    parent = repr(".".join(above)) if above else "the model"
    what = f"'{word}' is not one of {listing(found)}" if found else f"{parent} has none by name"
    built = isinstance(node, System) and node.joints is not None
    remedy = "give the mechanism itself as `model`" if built else "give it a `modifier`"
    return f"{what}; or {remedy}"


def locate(setup: Setup, name: str) -> Location:
    """The location of the number with a dotted name.

    "body.mass", "body.length" or another dimension of its shape, "body.points.end.x", "spring.stiffness", "gravity", "points.A.x" and "params…" in a mechanism; the parameters of a system by their
    keys; "control…" and "events.name…" or "events.0…" in what an experiment has. A last "x", "y", "z" or index is a component. A
    part of a controller, such as a network, stands for all its numbers, as one vector.

    Raises:
        ValueError: naming what there is, for a name that leads nowhere.
    """
    node, steps = _root(setup, name)
    words = name.split(".")
    if node is setup and words[0] not in _members(setup):
        raise ValueError(
            f"Parameter '{name}' must name a number, but there is none in the {words[0]} of an experiment."
        )
    body = None
    for i, word in enumerate(words):
        if isinstance(node, AbstractBody) and word in node.dimensions:
            body = steps
        below, parts = _members(node), _components(node, "points" in words[max(i - 2, 0) : i])
        if word in below:
            way, node = below[word]
            steps = (*steps, *way)
        elif i == len(words) - 1 and word in parts:
            return Location(steps, parts[word], body)
        else:
            raise ValueError(f"Parameter '{name}' must name a number, but {_why_none(node, words[: i + 1])}.")
    is_network = words[0] == "control" and steps[0] == ("attribute", "control") and _holds_numbers(node)
    if not (_is_number(node) or is_network):
        below = _members(node)
        what = f"; complete it by one of {listing(below)}" if below else f", but '{name}' has none by name"
        raise ValueError(f"Parameter '{name}' must name a number{what}.")
    return Location(steps, None, body)


def _root(setup: Setup, name: str) -> tuple[PyTree, Steps]:
    """The setup for what belongs to an experiment, else its model."""
    if name.partition(".")[0] in ("control", "events") and name.partition(".")[0] not in _members(setup.model):
        return setup, ()
    return setup.model, (("attribute", "model"),)


def _members(node: PyTree) -> Members:
    """What a node consists of: by name, how to get there and what is there."""
    if isinstance(node, AbstractMechanism):
        return _elements(node)
    if isinstance(node, System):
        return {name: ((("attribute", "params"), *steps), x) for name, (steps, x) in _members(node.params).items()}
    if isinstance(node, dict):
        return {str(key): ((("item", key),), value) for key, value in node.items()}
    if isinstance(node, tuple | list):
        return _items(node)
    if isinstance(node, AbstractBody):
        return _body_numbers(node)
    if isinstance(node, eqx.Module):
        return {key: _attribute(node, key) for key, value in vars(node).items() if _holds_numbers(value)}
    return {}


def _attribute(node: PyTree, key: str) -> tuple[Steps, PyTree]:
    return (("attribute", key),), getattr(node, key)


def _elements(mechanism: AbstractMechanism) -> Members:
    """The elements of a mechanism by their names, and what it holds besides."""
    elements: Members = {
        element.name: ((("attribute", kind), ("item", i)), element)
        for kind in KINDS
        for i, element in enumerate(getattr(mechanism, kind))
    }
    return elements | {key: _attribute(mechanism, key) for key in ("gravity", "points", "params")}


def _items(node: tuple[PyTree, ...] | list[PyTree]) -> Members:
    """The items of a sequence by their numbers, and those that have names by these too."""
    numbered: Members = {str(i): ((("item", i),), x) for i, x in enumerate(node)}
    return numbered | {x.name: numbered[str(i)] for i, x in enumerate(node) if isinstance(getattr(x, "name", 0), str)}


def _body_numbers(body: AbstractBody) -> Members:
    """A body's own numbers, and the dimensions of its shape."""
    dimensions = {key: ((("attribute", "shape"), *steps), x) for key, (steps, x) in _members(body.shape).items()}
    own = {key: _attribute(body, key) for key, value in vars(body).items() if key != "shape" and _holds_numbers(value)}
    return own | {key: dimensions[key] for key in dimensions if key in body.dimensions}


def _is_number(node: PyTree) -> bool:
    return (
        isinstance(node, float)
        or eqx.is_inexact_array(node)
        or (isinstance(node, np.ndarray) and node.dtype.kind == "f")
    )


def _holds_numbers(node: PyTree) -> bool:
    return any(_is_number(leaf) for leaf in jax.tree.leaves(node))


def _components(node: PyTree, is_point: bool) -> dict[str, tuple[int, ...]]:
    """The components of a vector, or of the position of a point, by name."""
    if not _is_number(node):
        return {}
    shape = jnp.shape(node)
    if is_point and len(shape) == 2:
        return {axis: (i, shape[1] - 1) for i, axis in enumerate(AXES[: shape[0] - 1])}
    if len(shape) != 1:
        return {}
    axes = {axis: (i,) for i, axis in enumerate(AXES[: shape[0]])} if shape[0] <= len(AXES) else {}
    return {str(i): (i,) for i in range(shape[0])} | axes
