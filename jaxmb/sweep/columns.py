"""Columns of a table as a description gives them."""

import numbers
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..foundations import listing
from ..records.toml_file import check_keys
from .table import Table, as_table, grid

COMBINATIONS = ("grid", "zip")
RANDOM = ("uniform", "normal")


def combine_columns(description: Mapping[str, Any], combine: str, seed: int, rows: int | None) -> Table:
    """The table that columns make up.

    Values of their own have lists of numbers, ``{from = 0, to = 1, count = 11}``, and single numbers, which all rows share. In a
    "grid" each combination of them is a row, the last column running fastest; with "zip" the i-th values of all are a row. Random
    draws, ``{uniform = [a, b]}`` and ``{normal = [mean, sd]}``, are made for each row, independent of what other columns there are.

    Args:
        description: by name, what TOML says.
        combine: "grid" or "zip".
        seed: of the draws.
        rows: number of rows, where no column has values of its own.

    Raises:
        TypeError, ValueError: naming the column, for what is not understood.
    """
    _check_choices(combine, seed, rows)
    draws = {
        name: x for name, x in description.items() if isinstance(x, Mapping) and not {"from", "to", "count"} & {*x}
    }
    values = {name: _values(name, x) for name, x in description.items() if name not in draws}
    several = {name: x for name, x in values.items() if np.ndim(x)}
    _check_row_count(several, rows)
    independent = {} if not several else as_table(several) if combine == "zip" else grid(several)
    count = len(next(iter(independent.values()))) if independent else int(rows or 0)
    shared = {name: np.full(count, x) for name, x in values.items() if name not in several}
    random = {name: _random_values(name, x, seed, count) for name, x in draws.items()}
    return as_table({name: (independent | shared | random)[name] for name in description})


def _check_choices(combine: str, seed: int, rows: int | None) -> None:
    if combine not in COMBINATIONS:
        raise ValueError(f"'combine' must be one of {listing(COMBINATIONS)}, but is {combine!r}.")
    for key, value, least in (("seed", seed, 0), ("rows", rows, 1)):
        if value is not None and value < least:
            raise ValueError(f"'{key}' must be at least {least}, but is {value}.")


def _check_row_count(several: Mapping[str, float | np.ndarray], rows: int | None) -> None:
    """The number of rows is told once: by columns of several values, or by `rows` where all are random or shared."""
    if several and rows is not None:
        raise ValueError(f"'rows' must be left out where columns have values of their own, as {listing(several)} have.")
    if not several and rows is None:
        raise ValueError("'rows' must say how many rows there are, as no column has several values of its own.")


def _values(name: str, description: object) -> float | np.ndarray:
    """A number, or an array of the values of a column."""
    what = f"Column '{name}'"
    if isinstance(description, Mapping):
        check_keys(description, ("from", "to", "count"), ("from", "to", "count"), what)
        start, stop = (_number(description[key], f"'{key}' of {what.lower()}") for key in ("from", "to"))
        count = description["count"]
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"'count' of column '{name}' must be an integer of at least 1, but is {count!r}.")
        return np.linspace(start, stop, count)
    if isinstance(description, list):
        return (
            np.array([_number(x, what) for x in description], float)
            if not _nested(description)
            else np.array(description, float)
        )
    return _number(description, what)


def _nested(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(x, list) for x in values)


def _random_values(name: str, description: Mapping[str, Any], seed: int, count: int) -> np.ndarray:
    what = f"Column '{name}'"
    check_keys(description, RANDOM, (), what)
    if len(description) != 1:
        raise ValueError(
            f"{what} must have one of {listing(RANDOM)}, or 'from', 'to' and 'count', but has {listing(description)}."
        )
    ((kind, pair),) = description.items()
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError(f"'{kind}' of column '{name}' must be two numbers, but is {pair!r}.")
    a, b = (_number(x, f"'{kind}' of column '{name}'") for x in pair)
    if b < (a if kind == "uniform" else 0):
        raise ValueError(
            f"'{kind}' of column '{name}' must be {'[low, high]' if kind == 'uniform' else '[mean, sd]'}, but is {pair}."
        )
    # A stream of its own for each column: adding or removing one does not change the others. CRC, since `hash` of a
    # text differs from process to process.
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return random.uniform(a, b, count) if kind == "uniform" else random.normal(a, b, count)


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, but is {value!r}.")
    return float(value)
