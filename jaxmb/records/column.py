"""Which numbers of a file a column is, and in which unit they are."""

import math
import numbers
from typing import TypeVar

import equinox as eqx
import numpy as np

from ..foundations import contract

Numbers = TypeVar("Numbers", float, np.ndarray)

# Each unit's size in the SI unit behind it.
UNITS: dict[str, tuple[float, str]] = {
    "1": (1.0, "1"),
    "m": (1.0, "m"),
    "cm": (1e-2, "m"),
    "mm": (1e-3, "m"),
    "um": (1e-6, "m"),
    "rad": (1.0, "rad"),
    "mrad": (1e-3, "rad"),
    "deg": (math.pi / 180, "rad"),
    "rev": (2 * math.pi, "rad"),
    "s": (1.0, "s"),
    "ms": (1e-3, "s"),
    "us": (1e-6, "s"),
    "ns": (1e-9, "s"),
    "1/s": (1.0, "1/s"),
    "m/s": (1.0, "m/s"),
    "mm/s": (1e-3, "m/s"),
    "rad/s": (1.0, "rad/s"),
    "deg/s": (math.pi / 180, "rad/s"),
    "rpm": (math.pi / 30, "rad/s"),
    "m/s^2": (1.0, "m/s^2"),
    "mm/s^2": (1e-3, "m/s^2"),
    "rad/s^2": (1.0, "rad/s^2"),
    "deg/s^2": (math.pi / 180, "rad/s^2"),
    "kg": (1.0, "kg"),
    "g": (1e-3, "kg"),
    "N": (1.0, "N"),
    "kN": (1e3, "N"),
    "mN": (1e-3, "N"),
    "N m": (1.0, "N m"),
    "N mm": (1e-3, "N m"),
    "J": (1.0, "J"),
    "W": (1.0, "W"),
    "V": (1.0, "V"),
    "A": (1.0, "A"),
    "mA": (1e-3, "A"),
}


class Column(eqx.Module):
    """A column of a file: (number − offset) · scale in `unit`, converted to SI units.

    Args:
        source: its name in the file.
        unit: a key of `UNITS`; None if the numbers are in SI units and need no unit.
        scale: units per number of the file, 1 if None: 1 / 4096 in "rev" for an encoder that counts to 4096, −1 for one that is
            mounted the other way round.
        offset: the number of the file that stands for zero.
        index: which part of an array of several columns to take: the row or column that runs along the times, from 0. For a cell array of
            MATLAB the cell, or (cell, row).

    Raises:
        TypeError: if an argument is not of its kind.
        ValueError: if `unit` is not known, or `scale` or `offset` is not finite or `scale` is 0.

    Example:
        >>> Column("enc1", "deg", offset=90.0).in_si(180.0)
        1.5707963267948966
    """

    source: str = eqx.field(static=True)
    unit: str | None = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    offset: float = eqx.field(static=True)
    index: tuple[int, ...] = eqx.field(static=True)

    @contract
    def __init__(
        self,
        source: str,
        unit: str | None = None,
        scale: object = None,
        offset: object = 0.0,
        index: object = None,
    ):
        if unit is not None and unit not in UNITS:
            raise ValueError(
                f"Argument `unit` of column '{source}' is {unit!r}; units are {', '.join(map(repr, UNITS))}."
            )
        self.source, self.unit = source, unit
        self.scale = _finite(1.0 if scale is None else scale, f"Argument `scale` of column '{source}'")
        self.offset = _finite(offset, f"Argument `offset` of column '{source}'")
        self.index = _indices(index, f"Argument `index` of column '{source}'")
        if self.scale == 0:
            raise ValueError(f"Argument `scale` of column '{source}' must not be 0.")

    @property
    def si(self) -> str | None:
        """The SI unit."""
        return None if self.unit is None else UNITS[self.unit][1]

    def in_si(self, numbers: Numbers) -> Numbers:
        """Numbers of the file in SI units."""
        size = 1.0 if self.unit is None else UNITS[self.unit][0]
        return (numbers - self.offset) * (self.scale * size)


def _finite(value: object, what: str) -> float:
    # true is a number in Python; in a description it is a slip.
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{what} must be a number, but is {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{what} must be finite, but is {value}.")
    return float(value)


def _indices(index: object, what: str) -> tuple[int, ...]:
    indices = () if index is None else index if isinstance(index, tuple) else (index,)
    natural = [int(i) for i in indices if isinstance(i, numbers.Integral) and not isinstance(i, bool) and int(i) >= 0]
    if len(indices) > 2 or len(natural) < len(indices):
        raise TypeError(f"{what} must be None, an integer from 0 or two of them, but is {index!r}.")
    return tuple(natural)


def as_column(description: str | Column, unit: str | None = None) -> Column:
    """A column from its description, which may be a source's name alone.

    Args:
        description: a `Column` or a name.
        unit: the unit if none is said.
    """
    if isinstance(description, str):
        description = Column(description)
    if unit is None or description.unit is not None:
        return description
    return Column(description.source, unit, description.scale, description.offset, description.index)
