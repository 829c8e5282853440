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
    for title, value, inner in tables:
        body = toml(value, titles, inner)
        is_needed = title.startswith("[[") or not value or not body.startswith("[")
        blocks.append(f"{title}\n{body}" if is_needed else body)
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n" if blocks else ""


def _is_deep(value: Mapping[str, Any]) -> bool:
    return any(isinstance(x, Mapping) or _is_list_of_tables(x) for x in value.values())


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(x, Mapping) for x in value)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(x)}" for key, x in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _value(key)


def _name(path: tuple[str, ...]) -> str:
    return ".".join(map(_key, path))
