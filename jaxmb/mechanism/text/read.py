"""Mechanisms from text."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import jax.numpy as jnp

from ...foundations import default_float, listing, toml_table
from .language import TABLES, VERSION, Language, arguments


def read(text: str, language: Language) -> dict[str, Any]:
    """The arguments of a mechanism.

    Raises:
        ValueError, TypeError: for a text that is not one of a mechanism, naming the element and the key.
    """
    try:
        table = toml_table(text)
    except ValueError as error:
        raise ValueError(f"Argument `text` must be TOML, but is not: {error}.") from error
    _known(table, ("version", "space", "gravity", "points", "params", *TABLES.values()), "The text")
    for key, wanted in (("version", VERSION), ("space", language.space)):
        if table.get(key) != wanted:
            raise ValueError(f"The text must have `{key}` {wanted!r}, but has {table.get(key)!r}.")
    found: dict[str, Any] = {
        kind: [
            _element(kind, name, part, language) for name, part in _tables(table.get(title, {}), f"`{title}`").items()
        ]
        for kind, title in TABLES.items()
    }
    points = _tables({"points": table.get("points", {})}, "The text")["points"]
    found["points"] = {name: place(at, f"Point '{name}'", language) for name, at in points.items()}
    return found | {"gravity": table.get("gravity"), "params": read_params(table.get("params"))}


def _element(kind: str, name: str, table: Mapping[str, Any], language: Language) -> Any:
    title = f"{TABLES[kind].capitalize()} '{name}'"
    if kind == "bodies":
        return made("Body", {"name": name} | dict(table), title, language)
    return shaped({"name": name} | dict(table), title, language)


def shaped(table: Any, title: str, language: Language) -> Any:
    """An element, or a shape, of the class that its table names as `kind`."""
    table = dict(_tables({"": table}, title)[""])
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in language.kinds:
        raise ValueError(
            f"{title} must have a `kind` out of {listing(language.kinds)}, but has {kind!r}{_near(kind, language.kinds)}."
        )
    return made(kind, table, title, language)


def made(kind: str, table: Mapping[str, Any], title: str, language: Language) -> Any:
    """An object of a class by the arguments in a table."""
    cls = language.kinds[kind]
    known = arguments(cls)
    _known(table, tuple(known), title)
    missing = [name for name, value in known.items() if value.default is value.empty and name not in table]
    if missing:
        raise ValueError(f"{title} must have {listing(missing)}, but has not.")
    return cls(**{name: _argument(name, value, title, language) for name, value in table.items()})


def _argument(name: str, value: Any, title: str, language: Language) -> Any:
    """What an argument is, of what is written for it."""
    title = f"`{name}` of {title[0].lower()}{title[1:]}"
    if name == "shape":
        return shaped(value, title, language)
    if name == "points":
        return {key: place(at, title, language) for key, at in _tables({"": value}, title)[""].items()}
    if name == "parts":
        return [made("Body", part, title, language) for part in value]
    if name == "point_masses":
        return [tuple(pair) for pair in value]
    if name == "poses":
        return [place(at, title, language) for at in value]
    if isinstance(value, Mapping):
        _known(value, ("body", "position", language.turn), title)
        return value.get("body"), place({key: x for key, x in value.items() if key != "body"}, title, language)
    return value


def place(value: Any, title: str, language: Language) -> Any:
    """A position, or a pose of a table."""
    if not isinstance(value, Mapping):
        return value
    _known(value, ("position", language.turn), title)
    if language.turn not in value:
        return value.get("position")
    return language.frame(**value)


def read_params(value: Any) -> Any:
    """Numbers, arrays and nested dictionaries of these."""
    if isinstance(value, Mapping):
        return {key: read_params(x) for key, x in value.items()}
    return jnp.asarray(value, default_float()) if isinstance(value, list) else value


# Refusals


def _tables(value: Any, title: str) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(x, Mapping) for x in value.values()):
        raise TypeError(f"{title} must be a table, but is {value!r}.")
    return value


def _known(found: Iterable[str], known: tuple[str, ...], title: str) -> None:
    for key in found:
        if key not in known:
            raise ValueError(f"{title} must have keys out of {listing(known)}, but has '{key}'{_near(key, known)}.")


def _near(key: Any, known: Iterable[str]) -> str:
    near = get_close_matches(str(key), list(known), 1)
    return f"; perhaps '{near[0]}' is meant" if near else ""
