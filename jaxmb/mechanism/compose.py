"""Mechanisms from mechanisms: renamed, placed elsewhere, joined, or without some elements."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..foundations import expect_available, is_concrete, listing
from .body import AbstractBody
from .elements import KINDS, AbstractElements, MechanismElement
from .force import Force, JointForce
from .marker import GROUND, Marker
from .pose import product

E = TypeVar("E", bound=eqx.Module)


def parts(mechanism: AbstractElements) -> dict[str, Any]:
    """The arguments that make the mechanism again, by name."""
    return {name: getattr(mechanism, name) for name in (*KINDS, "gravity", "points", "params")}


def mapped(mechanism: AbstractElements, fn: Callable[[MechanismElement], MechanismElement]) -> dict[str, Any]:
    """The elements by argument, each replaced by a function of it."""
    return {kind: [fn(element) for element in getattr(mechanism, kind)] for kind in KINDS}


def replace_fields(element: E, **fields: object) -> E:
    """A copy of an element with other fields, static ones included."""
    # Elements are frozen, and their `__init__` takes other things than they hold (markers as text, a shape for mass
    # and inertia), so that a copy is filled past both. Numbers may be traced here: nothing is checked again.
    copy = object.__new__(type(element))
    for field in dataclasses.fields(element):
        object.__setattr__(copy, field.name, fields.get(field.name, getattr(element, field.name)))
    return copy


# Names


def renamed(mechanism: AbstractElements, prefix: str) -> dict[str, Any]:
    """Arguments of the mechanism with a prefix to all names, and to the references between elements."""
    if "." in prefix:
        raise ValueError(f"Argument `prefix` must be a string without a dot, but is {prefix!r}.")
    for force in mechanism.forces:
        # The function closes over names as text, which no renaming reaches: it would read the wrong joints, or none.
        if isinstance(force, Force | JointForce):
            raise ValueError(
                f"Force '{force.name}' must not be renamed, since its function may name other elements; add it afterwards by "
                f"`joined(forces=[…])`."
            )
    points = {prefix + name: at for name, at in mechanism.points.items()}
    return parts(mechanism) | mapped(mechanism, lambda e: _renamed(e, prefix)) | {"points": points}


def _renamed(element: MechanismElement, prefix: str) -> MechanismElement:
    fields: dict[str, object] = {"name": prefix + element.name}
    if isinstance(joint := getattr(element, "joint", None), str):
        fields["joint"] = prefix + joint
    if isinstance(joints := getattr(element, "joints", None), tuple):
        fields["joints"] = tuple(prefix + joint for joint in joints)
    return replace_fields(element, **fields, **markers(element, lambda marker: _renamed_marker(marker, prefix)))


def _renamed_marker(marker: Marker, prefix: str) -> Marker:
    if marker.body != GROUND:
        return replace_fields(marker, body=prefix + marker.body)
    # "ground" itself keeps its name, which all mechanisms share; its named points do not.
    return marker if marker.point is None else replace_fields(marker, point=prefix + marker.point)


def markers(element: MechanismElement, fn: Callable[[Marker], Marker]) -> dict[str, Marker]:
    """The markers of an element by field, each replaced by a function of it."""
    values = {field.name: getattr(element, field.name) for field in dataclasses.fields(element)}
    return {name: fn(value) for name, value in values.items() if isinstance(value, Marker)}


# Places


def placed(mechanism: AbstractElements, pose: Float[Array, "D D"]) -> dict[str, Any]:
    """Arguments of the mechanism with everything fixed to the ground moved by a pose, and the guesses of the bodies too."""

    def marker(at: Marker) -> Marker:
        # Named points of the ground are moved by themselves below, and with them the markers that refer to them.
        if at.body != GROUND or at.point is not None:
            return at
        return replace_fields(at, local=pose if at.local is None else product(pose, at.local))

    def element(old: MechanismElement) -> MechanismElement:
        fields = {"pose": product(pose, old.pose)} if isinstance(old, AbstractBody) else {}
        return replace_fields(old, **fields, **markers(old, marker))

    points = {name: product(pose, at) for name, at in mechanism.points.items()}
    return parts(mechanism) | mapped(mechanism, element) | {"points": points}


# Elements


def without(mechanism: AbstractElements, names: tuple[str, ...]) -> dict[str, Any]:
    """Arguments of the mechanism without some elements."""
    expect_available("Argument `names` must hold names", names, mechanism.elements)
    remaining = {kind: [e for e in getattr(mechanism, kind) if e.name not in names] for kind in KINDS}
    return parts(mechanism) | remaining


def joined(mechanisms: list[AbstractElements], added: dict[str, Any]) -> dict[str, Any]:
    """Arguments of one mechanism with the elements of several, and further ones."""
    elements_by_kind: dict[str, Any] = {kind: [e for m in mechanisms for e in getattr(m, kind)] for kind in KINDS}
    for kind, elements in added.items():
        elements_by_kind[kind] += list(elements)
    names = [element.name for kind in KINDS for element in elements_by_kind[kind]]
    names += [f"{GROUND}.{name}" for m in mechanisms for name in m.points]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Mechanisms that are joined must not share names, but share {listing(twice)}; see `renamed`.")
    points = {name: at for m in mechanisms for name, at in m.points.items()}
    return elements_by_kind | {"gravity": _gravity(mechanisms), "points": points, "params": _params(mechanisms)}


def _gravity(mechanisms: list[AbstractElements]) -> Float[Array, " d"]:
    """The gravity of the first mechanism, if the others have the same or none."""
    first = mechanisms[0].gravity
    for other in mechanisms[1:]:
        if not is_concrete(first, other.gravity):
            continue
        mine, theirs = np.asarray(first), np.asarray(other.gravity)
        if mine.shape != theirs.shape or (theirs.any() and not np.array_equal(mine, theirs)):
            raise ValueError(
                "Mechanisms that are joined must have the gravity of the first or none, but have "
                f"{mine.tolist()} and {theirs.tolist()} m/s²."
            )
    return first


def _params(mechanisms: list[AbstractElements]) -> PyTree:
    """The parameters of all mechanisms; dictionaries are merged, and equal entries may be shared."""
    trees = [m.params for m in mechanisms if jax.tree.leaves(m.params)]
    if len(trees) < 2:
        return trees[0] if trees else None
    if not all(isinstance(params, dict) for params in trees):
        raise TypeError("Mechanisms that are joined must have `params` that are dictionaries, but have others.")
    merged: dict[str, Any] = {}
    for params in trees:
        for key, value in params.items():
            old = merged.setdefault(key, value)
            # Identity first: traced parameters cannot be compared, but mechanisms that were made from one usually
            # share them.
            if old is not value and not (is_concrete(old, value) and eqx.tree_equal(old, value)):
                raise ValueError(f"Mechanisms that are joined must agree on `params['{key}']`, but do not.")
    return merged
