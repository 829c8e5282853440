"""Where in a model a named number is."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..foundations import default_float, listing
from ..mechanism import AbstractMechanism
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
        steps: the way to an array.
        component: which component of it is meant; None for the whole.
    """

    steps: Steps = eqx.field(static=True)
    component: int | None = eqx.field(static=True)

    def read(self, setup: Setup) -> Array:
        """The number, or the array."""
        value = jnp.asarray(self._leaf(setup), default_float())
        return value if self.component is None else value[self.component]

    def written(self, setup: Setup, value: Array) -> Setup:
        """The setup with another value there."""
        if self.component is not None:
            value = jnp.asarray(self._leaf(setup), value.dtype).at[self.component].set(value)
        return eqx.tree_at(self._leaf, setup, value)

    def _leaf(self, setup: Setup) -> Any:
        node: Any = setup
        for kind, key in self.steps:
            node = getattr(node, key) if kind == "attribute" else node[key]
        return node


def place(setup: Setup, name: str) -> Place:
    """Where the number of a dotted name is.

    "body.mass", "spring.stiffness", "gravity", "points.A" and "params…" in a mechanism; the parameters of a system by their
    keys; "control…" and "events.name…" or "events.0…" in what an experiment has. A last "x", "y", "z" or index is a component.

    Raises:
        ValueError: naming what there is, for a name that leads nowhere.
    """
    node, steps = _root(setup, name)
    words = name.split(".")
    for i, word in enumerate(words):
        below = _members(node)
        if word in below:
            way, node = below[word]
            steps = (*steps, *way)
        elif i == len(words) - 1 and word in _components(node):
            return Place(steps, _components(node)[word])
        else:
            known = listing([*below, *_components(node)])
            raise ValueError(
                f"Parameter '{name}' must name a number, but '{word}' is not one of {known}; or give it a `modifier`."
            )
    if not _is_number(node):
        raise ValueError(f"Parameter '{name}' must name a number; complete it by one of {listing(_members(node))}.")
    return Place(steps, None)


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
    if isinstance(node, eqx.Module):
        holds = lambda x: any(_is_number(leaf) for leaf in jax.tree.leaves(x))
        return {key: attribute(key) for key, value in vars(node).items() if holds(value)}
    return {}


def _is_number(node: Any) -> bool:
    return eqx.is_inexact_array_like(node)


def _components(node: Any) -> dict[str, int]:
    """The components of a vector by name."""
    size = jnp.shape(node)[0] if _is_number(node) and jnp.ndim(node) == 1 else 0
    axes = {axis: i for i, axis in enumerate(AXES[:size])} if size <= len(AXES) else {}
    return {str(i): i for i in range(size)} | axes
