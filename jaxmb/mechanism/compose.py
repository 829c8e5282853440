"""Mechanisms from mechanisms: names, places and elements changed as a whole."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from ..foundations import is_concrete, listing
from .body import AbstractBody
from .elements import KINDS, AbstractElements
from .force import Force, JointForce
from .marker import GROUND, Marker
from .pose import product


def parts(mechanism: AbstractElements) -> dict[str, Any]:
    """All that a mechanism is made of, by name of the argument."""
    return {name: getattr(mechanism, name) for name in (*KINDS, "gravity", "points", "params")}


def mapped(mechanism: AbstractElements, fn: Callable[[Any], Any]) -> dict[str, Any]:
    """The elements, each changed by a function."""
    return {kind: [fn(element) for element in getattr(mechanism, kind)] for kind in KINDS}


def changed(element: Any, **fields: Any) -> Any:
    """A copy of an element with other fields, static ones included."""
    copy = object.__new__(type(element))
    for field in dataclasses.fields(element):
        object.__setattr__(copy, field.name, fields.get(field.name, getattr(element, field.name)))
    return copy


# Names


def renamed(mechanism: AbstractElements, prefix: str) -> dict[str, Any]:
    """What a mechanism is made of with a prefix to all names, and to the references between elements."""
    if not isinstance(prefix, str) or "." in prefix:
        raise ValueError(f"Argument `prefix` must be a string without a dot, but is {prefix!r}.")
    for force in mechanism.forces:
        if isinstance(force, Force | JointForce):
            raise ValueError(
                f"Force '{force.name}' must not be renamed, since its function may name other elements; add it afterwards by "
                f"`joined(forces=[…])`."
            )
    points = {prefix + name: at for name, at in mechanism.points.items()}
    return parts(mechanism) | mapped(mechanism, lambda e: _renamed(e, prefix)) | {"points": points}


def _renamed(element: Any, prefix: str) -> Any:
    fields = {"name": prefix + element.name}
    if isinstance(joint := getattr(element, "joint", None), str):
        fields["joint"] = prefix + joint
    if isinstance(joints := getattr(element, "joints", None), tuple):
        fields["joints"] = tuple(prefix + joint for joint in joints)
    return changed(element, **fields, **markers(element, lambda marker: _renamed_marker(marker, prefix)))


def _renamed_marker(marker: Marker, prefix: str) -> Marker:
    if marker.body != GROUND:
        return changed(marker, body=prefix + marker.body)
    return marker if marker.point is None else changed(marker, point=prefix + marker.point)


def markers(element: Any, fn: Callable[[Marker], Marker]) -> dict[str, Marker]:
    """The places that an element refers to, each changed by a function."""
    values = {field.name: getattr(element, field.name) for field in dataclasses.fields(element)}
    return {name: fn(value) for name, value in values.items() if isinstance(value, Marker)}


# Places


def placed(mechanism: AbstractElements, pose: Float[Array, "D D"]) -> dict[str, Any]:
    """What a mechanism is made of with all that is fixed to the ground moved, and the first guesses of bodies."""

    def marker(at: Marker) -> Marker:
        if at.body != GROUND or at.point is not None:
            return at
        return changed(at, local=pose if at.local is None else product(pose, at.local))

    def element(one: Any) -> Any:
        fields = {"pose": product(pose, one.pose)} if isinstance(one, AbstractBody) else {}
        return changed(one, **fields, **markers(one, marker))

    points = {name: product(pose, at) for name, at in mechanism.points.items()}
    return parts(mechanism) | mapped(mechanism, element) | {"points": points}


# Elements


def without(mechanism: AbstractElements, names: tuple[str, ...]) -> dict[str, Any]:
    """What a mechanism is made of less some elements."""
    unknown = [name for name in names if name not in mechanism.elements]
    if unknown:
        raise ValueError(
            f"Argument `names` must be names out of {listing(mechanism.elements)}, but holds {listing(unknown)}."
        )
    kept = {kind: [e for e in getattr(mechanism, kind) if e.name not in names] for kind in KINDS}
    return parts(mechanism) | kept


def joined(mechanisms: list[AbstractElements], added: dict[str, Any]) -> dict[str, Any]:
    """What several mechanisms are made of together, with further elements."""
    found: dict[str, Any] = {kind: [e for m in mechanisms for e in getattr(m, kind)] for kind in KINDS}
    for kind, elements in added.items():
        found[kind] += list(elements)
    names = [element.name for kind in KINDS for element in found[kind]]
    names += [f"{GROUND}.{name}" for m in mechanisms for name in m.points]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Mechanisms that are joined must not share names, but share {listing(twice)}; see `renamed`.")
    points = {name: at for m in mechanisms for name, at in m.points.items()}
    return found | {"gravity": _gravity(mechanisms), "points": points, "params": _params(mechanisms)}


def _gravity(mechanisms: list[AbstractElements]) -> Float[Array, " d"]:
    """That of the first; of the others the same, or none."""
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


def _params(mechanisms: list[AbstractElements]) -> Any:
    """The parameters of one, or the entries of all; several may have the same entry."""
    given = [m.params for m in mechanisms if jax.tree.leaves(m.params)]
    if len(given) < 2:
        return given[0] if given else None
    if not all(isinstance(params, dict) for params in given):
        raise TypeError("Mechanisms that are joined must have `params` that are dictionaries, but have others.")
    whole: dict[str, Any] = {}
    for params in given:
        for key, value in params.items():
            old = whole.setdefault(key, value)
            if old is not value and not (is_concrete(old, value) and eqx.tree_equal(old, value)):
                raise ValueError(f"Mechanisms that are joined must agree on `params['{key}']`, but do not.")
    return whole
