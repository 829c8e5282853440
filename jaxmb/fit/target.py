"""Where in a model a named number is."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from ..foundations import default_float, listing
from ..mechanism import AbstractBody, AbstractMechanism
from ..system import System

# Components of a vector may be named as axes.
AXES = ("x", "y", "z")
KINDS = ("bodies", "joints", "drivers", "forces", "actuators")
# How to get from a node of a tree to one below: names of attributes, and indices or keys.
Steps = tuple[tuple[str, Any], ...]


class Setup(eqx.Module):
    """All that a run is made of and that parameters may change.

    Attributes:
        model: a mechanism, or a system.
        control: the controller; None for none.
        events: the events.
    """

    model: Any
    control: Any = None
    events: tuple[Any, ...] = ()


class Place(eqx.Module):
    """Where a number is.

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
        node = _at(setup, self.steps)
        if not _is_number(node):
            return ravel_pytree(eqx.filter(node, eqx.is_inexact_array))[0]
        value = jnp.asarray(node, default_float())
        return value if self.component is None else value[self.component]

    def written(self, setup: Setup, value: Array) -> Setup:
        """The setup with another value there."""
        node: Any = _at(setup, self.steps)
        if not _is_number(node):
            numbers, rest = eqx.partition(node, eqx.is_inexact_array)
            return _with(setup, self.steps, eqx.combine(ravel_pytree(numbers)[1](value), rest))
        if self.component is not None:
            value = jnp.asarray(node, value.dtype).at[self.component].set(value)
        changed = _with(setup, self.steps, value)
        return changed if self.body is None else _with(changed, self.body, _at(changed, self.body).resized())


def _at(setup: Setup, steps: Steps) -> Any:
    """What some steps lead to."""
    node: Any = setup
    for kind, key in steps:
        node = getattr(node, key) if kind == "attribute" else node[key]
    return node


def _with(setup: Setup, steps: Steps, value: Any) -> Setup:
    """The setup with something else there."""
    return eqx.tree_at(lambda s: _at(s, steps), setup, value)


def place(setup: Setup, name: str) -> Place:
    """Where the number of a dotted name is.

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
            return Place(steps, parts[word], body)
        else:
            known = listing([*below, *parts])
            raise ValueError(
                f"Parameter '{name}' must name a number, but '{word}' is not one of {known}; or give it a `modifier`."
            )
    whole = words[0] == "control" and steps[0] == ("attribute", "control") and _holds_numbers(node)
    if not (_is_number(node) or whole):
        raise ValueError(f"Parameter '{name}' must name a number; complete it by one of {listing(_members(node))}.")
    return Place(steps, None, body)


def _root(setup: Setup, name: str) -> tuple[Any, Steps]:
    """The setup for what belongs to an experiment, else its model."""
    if name.partition(".")[0] in ("control", "events") and name.partition(".")[0] not in _members(setup.model):
        return setup, ()
    return setup.model, (("attribute", "model"),)


def _members(node: Any) -> dict[str, tuple[Steps, Any]]:
    """What a node consists of: by name, how to get there and what is there."""
    attribute = lambda key: ((("attribute", key),), getattr(node, key))
    if isinstance(node, AbstractMechanism):
        elements = {
            element.name: ((("attribute", kind), ("item", i)), element)
            for kind in KINDS
            for i, element in enumerate(getattr(node, kind))
        }
        return elements | {key: attribute(key) for key in ("gravity", "points", "params")}
    if isinstance(node, System):
        return {name: ((("attribute", "params"), *way), x) for name, (way, x) in _members(node.params).items()}
    if isinstance(node, dict):
        return {str(key): ((("item", key),), value) for key, value in node.items()}
    if isinstance(node, tuple | list):
        numbered = {str(i): ((("item", i),), x) for i, x in enumerate(node)}
        return numbered | {
            x.name: numbered[str(i)] for i, x in enumerate(node) if isinstance(getattr(x, "name", 0), str)
        }
    if isinstance(node, AbstractBody):
        shape = {key: ((("attribute", "shape"), *way), x) for key, (way, x) in _members(node.shape).items()}
        own = {key: attribute(key) for key, value in vars(node).items() if key != "shape" and _holds_numbers(value)}
        return own | {key: shape[key] for key in shape if key in node.dimensions}
    if isinstance(node, eqx.Module):
        return {key: attribute(key) for key, value in vars(node).items() if _holds_numbers(value)}
    return {}


def _is_number(node: Any) -> bool:
    return (
        isinstance(node, float)
        or eqx.is_inexact_array(node)
        or (isinstance(node, np.ndarray) and node.dtype.kind == "f")
    )


def _holds_numbers(node: Any) -> bool:
    return any(_is_number(leaf) for leaf in jax.tree.leaves(node))


def _components(node: Any, is_point: bool) -> dict[str, tuple[int, ...]]:
    """The components of a vector, or of the place of a point, by name."""
    if not _is_number(node):
        return {}
    shape = jnp.shape(node)
    if is_point and len(shape) == 2:
        return {axis: (i, shape[1] - 1) for i, axis in enumerate(AXES[: shape[0] - 1])}
    if len(shape) != 1:
        return {}
    axes = {axis: (i,) for i, axis in enumerate(AXES[: shape[0]])} if shape[0] <= len(AXES) else {}
    return {str(i): (i,) for i in range(shape[0])} | axes
