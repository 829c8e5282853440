"""Sweeps: one function over the rows of a table, in shards, to labelled data."""

from .data import open as open
from .data import Status as Status
from .data import status as status
from .describe import read_described as read_described
from .describe import Description as Description
from .drive import Report as Report
from .drive import run as run
from .table import grid as grid
