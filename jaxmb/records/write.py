"""Records as files and as tables of other libraries."""

import csv
import io
import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..foundations import listing, optional, replacing
from .sources import UNITS_LINE, names_in

if TYPE_CHECKING:
    from .record import Record


def write_csv(record: "Record", path: str | os.PathLike[str]) -> None:
    """See `Record.to_csv`."""
    columns, units = columns_and_units(record)
    header, rows = _line(columns), zip(*(column.tolist() for column in columns.values()), strict=True)
    if "\n" in header or names_in(header) != (list(columns), ","):
        raise ValueError(
            f"A record must have names that text can hold to be written as such, but has {listing(columns)}."
        )
    lines = [UNITS_LINE + json.dumps(units, ensure_ascii=False)]
    lines += [*(f"# {line}" for line in record.source.splitlines()), header]
    # `repr` of a float is the shortest text that reads back to the last bit; x != x is NaN.
    lines += [_line("" if x != x else repr(x) for x in row) for row in rows]
    with replacing(path) as fresh:
        fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def as_frame(record: "Record") -> Any:
    """See `Record.to_pandas`."""
    pandas = optional("pandas", "data")
    columns, units = columns_and_units(record)
    table = pandas.DataFrame(columns).set_index("time")
    table.attrs |= {"units": units} | ({"source": record.source} if record.source else {})
    return table


def as_dataset(record: "Record") -> Any:
    """See `Record.to_xarray`."""
    xarray = optional("xarray", "data")
    units = dict(record.units)
    attributes = lambda name: {"units": units[name]} if name in units else {}
    wide = lambda name, column: ("time",) if column.ndim == 1 else ("time", f"{name}_part")
    variables = {name: (wide(name, x), np.asarray(x), attributes(name)) for name, x in record.columns.items()}
    times = {"time": ("time", np.asarray(record.t), {"units": "s"})}
    return xarray.Dataset(variables, times, {"source": record.source} if record.source else {})


def columns_and_units(record: "Record") -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The times and all columns of one number each, by name, and their units.

    Raises:
        ValueError: if two would have the same name.
    """
    columns, units, unit_of = [("time", np.asarray(record.t))], {"time": "s"}, dict(record.units)
    for name, column in record.columns.items():
        values = np.asarray(column)
        parts = [(name, values)] if values.ndim == 1 else [(f"{name}[{i}]", part) for i, part in enumerate(values.T)]
        columns += parts
        units |= {part: unit_of[name] for part, _ in parts if name in unit_of}
    names = [name for name, _ in columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"Columns must have different names, but several are called {listing(repeated)}.")
    return dict(columns), units
