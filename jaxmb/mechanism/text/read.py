"""Mechanisms from text."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ...foundations import as_floats, listing, toml_table
from .language import TABLES, VERSION, Language, TomlValue, arguments


def read(text: str, language: Language) -> dict[str, Any]:
    """The arguments of a mechanism.

    Raises:
        ValueError, TypeError: for a text that is not one of a mechanism, naming the element and the key.
    """
    try:
        table = toml_table(text)
    except ValueError as error:
        raise ValueError(f"Argument `text` must be TOML, but is not: {error}.") from error
    _expect_keys(table, ("version", "space", "gravity", "points", "params", *TABLES.values()), "The text")
    for key, expected in (("version", VERSION), ("space", language.space)):
        if table.get(key) != expected:
            raise ValueError(f"The text must have `{key}` {expected!r}, but has {table.get(key)!r}.")
    # Only classes of a fixed list are made, by checked names of arguments: a text from elsewhere cannot run anything.
    arguments: dict[str, Any] = {
        kind: [
            _element(kind, name, part, language) for name, part in _tables(table.get(title, {}), f"`{title}`").items()
        ]
        for kind, title in TABLES.items()
    }
    points = _tables({"points": table.get("points", {})}, "The text")["points"]
    arguments["points"] = {name: placement(at, f"Point '{name}'", language) for name, at in points.items()}
    return arguments | {"gravity": table.get("gravity"), "params": read_params(table.get("params"))}


def _element(kind: str, name: str, table: Mapping[str, Any], language: Language) -> Any:
    title = f"{TABLES[kind].capitalize()} '{name}'"
    if kind == "bodies":
        return instance("Body", {"name": name} | dict(table), title, language)
    return instance_by_kind({"name": name} | dict(table), title, language)


def instance_by_kind(table: TomlValue, title: str, language: Language) -> Any:
    """An element, or a shape, of the class that its table names as `kind`."""
    table = dict(_tables({"": table}, title)[""])
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in language.kinds:
        raise ValueError(
            f"{title} must have a `kind` out of {listing(language.kinds)}, but has {kind!r}{_near(kind, language.kinds)}."
        )
    return instance(kind, table, title, language)


def instance(kind: str, table: Mapping[str, Any], title: str, language: Language) -> Any:
    """An object of a class by the arguments in a table."""
    cls = language.kinds[kind]
    parameters = arguments(cls)
    _expect_keys(table, tuple(parameters), title)
    missing = [name for name, value in parameters.items() if value.default is value.empty and name not in table]
    if missing:
        raise ValueError(f"{title} must have {listing(missing)}, but has not.")
    return cls(**{name: _argument(name, value, title, language) for name, value in table.items()})


def _argument(name: str, value: TomlValue, title: str, language: Language) -> Any:
    """The value of an argument, from its data."""
    title = f"`{name}` of {title[0].lower()}{title[1:]}"
    if name == "shape":
        return instance_by_kind(value, title, language)
    if name == "points":
        return {key: placement(at, title, language) for key, at in _tables({"": value}, title)[""].items()}
    if name == "parts":
        return [instance("Body", part, title, language) for part in value]
    if name == "point_masses":
        return [tuple(pair) for pair in value]
    if name == "poses":
        return [placement(at, title, language) for at in value]
    if isinstance(value, Mapping):
        _expect_keys(value, ("body", "position", language.turn), title)
        return value.get("body"), placement({key: x for key, x in value.items() if key != "body"}, title, language)
    return value


def placement(value: TomlValue, title: str, language: Language) -> Any:
    """A position, or a pose of a table."""
    if not isinstance(value, Mapping):
        return value
    _expect_keys(value, ("position", language.turn), title)
    if language.turn not in value:
        return value.get("position")
    return language.frame(**value)


def read_params(value: TomlValue) -> Any:
    """Numbers, arrays and nested dictionaries of these."""
    if isinstance(value, Mapping):
        return {key: read_params(x) for key, x in value.items()}
    # Scalars stay Python's: the mechanism makes arrays of them as of those in a script.
    return as_floats(value) if isinstance(value, list) else value


# Refusals


def _tables(value: TomlValue, title: str) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(x, Mapping) for x in value.values()):
        raise TypeError(f"{title} must be a table, but is {value!r}.")
    return value


def _expect_keys(keys: Iterable[str], allowed: tuple[str, ...], title: str) -> None:
    for key in keys:
        if key not in allowed:
            raise ValueError(f"{title} must have keys out of {listing(allowed)}, but has '{key}'{_near(key, allowed)}.")


def _near(key: object, allowed: Iterable[str]) -> str:
    near = get_close_matches(str(key), list(allowed), 1)
    return f"; perhaps '{near[0]}' is meant" if near else ""
