"""TOML written from dictionaries; reading it is the standard library's."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any


def toml(table: Mapping[str, Any], titles: Collection[str], path: tuple[str, ...] = ()) -> str:
    """Nested dictionaries of strings, booleans, numbers and lists, floats to the last digit.

    Dictionaries without others inside stand in one line, in order; those of the root and of its `titles` are tables.
    """
    lines, tables = [], []
    for key, value in table.items():
        inner = (*path, key)
        stands_alone = not path or (len(path) == 1 and path[0] in titles)
        if isinstance(value, Mapping) and (stands_alone or _is_deep(value)):
            tables.append((f"[{_name(inner)}]", value, inner))
        elif _is_list_of_tables(value):
            tables += [(f"[[{_name(inner)}]]", one, inner) for one in value]
        else:
            lines.append(f"{_key(key)} = {_value(value)}")
    blocks = ["\n".join(lines)] if lines else []
    blocks += [_block(title, value, toml(value, titles, inner)) for title, value, inner in tables]
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n" if blocks else ""


def _block(title: str, value: Mapping[str, Any], body: str) -> str:
    """A table under its title, which may be left out where the body begins with the title of a table inside."""
    is_implied = value and body.startswith("[") and not title.startswith("[[")
    return body if is_implied else f"{title}\n{body}"


def _is_deep(value: Mapping[str, Any]) -> bool:
    return any(isinstance(x, Mapping) or _is_list_of_tables(x) for x in value.values())


def _is_list_of_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(x, Mapping) for x in value)


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(x)}" for key, x in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    # `repr` of a float is the shortest text that reads back to the same bits. JSON's escapes of strings are TOML's
    # too, but for DEL, which TOML does not allow raw.
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    # Keys of other characters, such as dots in names of parameters, are quoted: a bare dot would open a table inside.
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _value(key)


def _name(path: tuple[str, ...]) -> str:
    return ".".join(map(_key, path))
