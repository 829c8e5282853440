"""Measured records: samples over time from files, in SI units."""

from .column import Column as Column
from .column import UNITS as UNITS
from .describe import read_described as read_described
from .read import read as read
from .record import Record as Record
