"""Mechanisms to text."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Array, Float, PyTree

from ...foundations import as_parameters, is_concrete
from ..body import AbstractBody, shape_points
from ..compose import replace_fields
from ..elements import AbstractElements, MechanismElement
from ..marker import Marker
from ..shape import AbstractShape
from .language import TABLES, VERSION, Language, arguments, same
from .read import instance, read_params
from .toml import toml


def write(mechanism: AbstractElements, language: Language) -> str:
    """One table for each element, with the arguments that it is made with; those that need not be given are left out.

    Raises:
        TypeError, ValueError: naming what a text cannot hold.
    """
    if not is_concrete(mechanism):
        raise TypeError("A mechanism must hold known numbers to be written, but holds traced ones.")
    table: dict[str, Any] = {"version": VERSION, "space": language.space, "gravity": mechanism.gravity.tolist()}
    table["points"] = {name: _placement(at, language) for name, at in mechanism.points.items()}
    table["params"] = _params(mechanism.params)
    for kind, title in TABLES.items():
        table[title] = {
            e.name: _element(e, f"{title.capitalize()} '{e.name}'", language) for e in getattr(mechanism, kind)
        }
    return toml({key: value for key, value in table.items() if value != {}}, TABLES.values())


def _element(element: MechanismElement, title: str, language: Language) -> dict[str, Any]:
    table = _table(element, title, language)
    del table["name"]
    return table


def _table(element: MechanismElement | AbstractShape, title: str, language: Language) -> dict[str, Any]:
    """The table of an element, a part of a compound or a shape."""
    kind = type(element).__name__
    if language.kinds.get(kind) is not type(element):
        raise TypeError(f"{title} must be of a class of `jaxmb` to be written, but is a {kind}.")
    if isinstance(element, AbstractBody):
        # A fit changes the mass alone: the body then has a mass beside its shape, and no longer a density from which
        # it follows.
        element = _independent(element)
    parameters = arguments(type(element))
    attributes = {name: getattr(element, name) for name in parameters}
    values = {
        name: _data(name, value, element, title, language) for name, value in attributes.items() if value is not None
    }

    def agrees(table: dict[str, Any]) -> bool:
        try:
            return same(instance(kind, table, title, language), element)
        except (TypeError, ValueError):
            return False  # without this argument the class refuses to be made

    for name, argument in parameters.items():
        # Arguments go in turn, each only if what is read back without it is equal bit for bit: short texts, and none
        # that loses a digit.
        fewer = {key: value for key, value in values.items() if key != name}
        if argument.default is not argument.empty and name in values and agrees(fewer):
            values = fewer
    if not same(instance(kind, values, title, language), element):
        raise ValueError(
            f"{title} holds numbers that its arguments do not tell, such as a point of its shape that was moved by itself."
        )
    return values if isinstance(element, AbstractBody) else {"kind": kind} | values


def _independent(body: AbstractBody) -> AbstractBody:
    """The body without its density where its mass is another one, as after a fit."""
    if body.density is None or same(body.resized().mass, body.mass):
        return body
    return replace_fields(body, density=None)


# Values


def _data(name: str, value: Any, element: Any, title: str, language: Language) -> Any:
    """The data of an argument: text, truth values, numbers, and lists and tables of these."""
    if name == language.turn:
        return turn(element.pose, language)
    if name == "points":
        own = shape_points(element.shape)
        return {key: _placement(at, language) for key, at in value.items() if key not in own}
    if name in LISTS:
        return LISTS[name](value, title, language)
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


def _point_masses(masses: tuple[Array, Array], title: str, language: Language) -> list[list[Any]]:
    return [list(pair) for pair in zip(*(x.tolist() for x in masses), strict=True)]


def _parts(parts: tuple[AbstractBody, ...], title: str, language: Language) -> list[dict[str, Any]]:
    return [_table(part, f"Part '{part.name}' of {title[0].lower()}{title[1:]}", language) for part in parts]


def _poses(poses: tuple[Float[Array, "D D"], ...], title: str, language: Language) -> list[Any]:
    return [_placement(pose, language) for pose in poses]


# Arguments that are lists, by name.
LISTS: dict[str, Callable[..., list[Any]]] = {"point_masses": _point_masses, "parts": _parts, "poses": _poses}


def _placement(pose: Float[Array, "D D"], language: Language) -> Any:
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
    exact = np.asarray(language.turn_of(pose[:-1, :-1]))
    # Twelve digits first: an angle of 0.3 was typed as 0.3, while the arctangent of its sine and cosine may end in
    # …004. Then the neighbours of the exact one, since frame and turn round in both directions.
    rounded = np.array([float(f"{x:.12g}") for x in exact.flat]).reshape(exact.shape)
    for candidate in (rounded, exact, np.nextafter(exact, -9), np.nextafter(exact, 9)):
        if same(language.frame(np.zeros(pose.shape[0] - 1), candidate)[:-1, :-1], pose[:-1, :-1]):
            return candidate.tolist()
    return pose[:-1, :-1].tolist()


def _params(params: PyTree) -> dict[str, Any]:
    """Nested dictionaries of numbers."""
    if params is None:
        return {}
    as_lists = lambda x: (
        {key: as_lists(value) for key, value in x.items()} if isinstance(x, dict) else np.asarray(x).tolist()
    )
    table = as_lists(params)
    if not isinstance(params, dict) or not same(as_parameters(read_params(table)), params):
        raise TypeError("`params` must be a dictionary of numbers and arrays of these to be written, but is not.")
    return table
