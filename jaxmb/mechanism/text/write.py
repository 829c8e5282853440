"""Mechanisms to text."""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ...foundations import as_parameters, is_concrete
from ..body import AbstractBody, shape_points
from ..compose import changed
from ..elements import AbstractElements
from ..marker import Marker
from ..shape import AbstractShape
from .language import TABLES, VERSION, Language, arguments, same
from .read import made, read_params
from .toml import toml


def write(mechanism: AbstractElements, language: Language) -> str:
    """One table for each element, with the arguments that it is made with; those that need not be given are left out.

    Raises:
        TypeError, ValueError: naming what a text cannot hold.
    """
    if not is_concrete(mechanism):
        raise TypeError("A mechanism must hold known numbers to be written, but holds traced ones.")
    table: dict[str, Any] = {"version": VERSION, "space": language.space, "gravity": mechanism.gravity.tolist()}
    table["points"] = {name: _place(at, language) for name, at in mechanism.points.items()}
    table["params"] = _params(mechanism.params)
    for kind, title in TABLES.items():
        table[title] = {
            e.name: _element(e, f"{title.capitalize()} '{e.name}'", language) for e in getattr(mechanism, kind)
        }
    return toml({key: value for key, value in table.items() if value != {}}, TABLES.values())


def _element(element: Any, title: str, language: Language) -> dict[str, Any]:
    table = _table(element, title, language)
    del table["name"]
    return table


def _table(element: Any, title: str, language: Language) -> dict[str, Any]:
    """Of an element, a part of a compound or a shape."""
    kind = type(element).__name__
    if language.kinds.get(kind) is not type(element):
        raise TypeError(f"{title} must be of a class of `jaxmb` to be written, but is a {kind}.")
    if isinstance(element, AbstractBody):
        element = _independent(element)
    known = arguments(type(element))
    values = {name: getattr(element, name) for name in known}
    found = {name: _data(name, value, element, title, language) for name, value in values.items() if value is not None}

    def agrees(table: dict[str, Any]) -> bool:
        try:
            return same(made(kind, table, title, language), element)
        except (TypeError, ValueError):
            return False  # since the argument must be given

    for name, argument in known.items():
        fewer = {key: value for key, value in found.items() if key != name}
        if argument.default is not argument.empty and name in found and agrees(fewer):
            found = fewer
    if not same(made(kind, found, title, language), element):
        raise ValueError(
            f"{title} holds numbers that its arguments do not tell, such as a point of its shape that was moved by itself."
        )
    return found if isinstance(element, AbstractBody) else {"kind": kind} | found


def _independent(body: AbstractBody) -> AbstractBody:
    """The body without its density where its mass is another one, as after a fit."""
    if body.density is None or same(body.resized().mass, body.mass):
        return body
    return changed(body, density=None)


# Values


def _data(name: str, value: Any, element: Any, title: str, language: Language) -> Any:
    """What is written for an argument."""
    if name == language.turn:
        return turn(element.pose, language)
    if name == "points":
        own = shape_points(element.shape)
        return {key: _place(at, language) for key, at in value.items() if key not in own}
    if name == "point_masses":
        return [list(pair) for pair in zip(*(x.tolist() for x in value), strict=True)]
    if name == "parts":
        return [_table(part, f"Part '{part.name}' of {title[0].lower()}{title[1:]}", language) for part in value]
    if name == "poses":
        return [_place(at, language) for at in value]
    if isinstance(value, AbstractShape):
        return _table(value, f"The shape of {title[0].lower()}{title[1:]}", language)
    if isinstance(value, Marker):
        return str(value) if value.local is None else {"body": value.body, **_posed(value.local, language)}
    if isinstance(value, tuple):
        return list(value)
    if callable(value):
        raise TypeError(
            f"{title} holds a function, `{name}`, which a text cannot: write the mechanism `without('{element.name}')`, and add "
            f"it after reading, by `joined`."
        )
    return value if isinstance(value, str | bool) else value.tolist()


def _place(pose: Float[Array, "D D"], language: Language) -> Any:
    """A position, or a table where there is a turn."""
    table = _posed(pose, language)
    return table if language.turn in table else table["position"]


def _posed(pose: Float[Array, "D D"], language: Language) -> dict[str, Any]:
    """The position and, unless it is the identity, the turn."""
    position, rotation = pose[:-1, -1].tolist(), np.asarray(pose[:-1, :-1])
    if same(rotation, np.eye(len(position), dtype=rotation.dtype)):
        return {"position": position}
    return {"position": position, language.turn: turn(pose, language)}


def turn(pose: Float[Array, "D D"], language: Language) -> Any:
    """The turn of a pose that gives its rotation matrix bit for bit, with few digits where these do; else the matrix itself."""
    found = np.asarray(language.turn_of(pose[:-1, :-1]))
    rounded = np.array([float(f"{x:.12g}") for x in found.flat]).reshape(found.shape)
    for candidate in (rounded, found, np.nextafter(found, -9), np.nextafter(found, 9)):
        if same(language.frame(np.zeros(pose.shape[0] - 1), candidate)[:-1, :-1], pose[:-1, :-1]):
            return candidate.tolist()
    return pose[:-1, :-1].tolist()


def _params(params: Any) -> dict[str, Any]:
    """Nested dictionaries of numbers."""
    if params is None:
        return {}
    plain = lambda x: {key: plain(value) for key, value in x.items()} if isinstance(x, dict) else np.asarray(x).tolist()
    table = plain(params)
    if not isinstance(params, dict) or not same(as_parameters(read_params(table)), params):
        raise TypeError("`params` must be a dictionary of numbers and arrays of these to be written, but is not.")
    return table
