"""Files by their suffix."""

import pathlib

from ..foundations import listing
from .dataset import Dataset
from .sources import AbstractSource, MatlabFile, NumpyArchive, TextTable

SOURCES = {".csv": TextTable, ".npz": NumpyArchive, ".mat": MatlabFile, ".nc": Dataset, ".zarr": Dataset}


def open_source(path: pathlib.Path) -> AbstractSource:
    """The file by its suffix.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if the suffix is not known or the file cannot be read.
        ImportError: without the package that reads it.
    """
    suffix = path.suffix.lower()
    if suffix not in SOURCES:
        raise ValueError(f"{path} must end with one of {listing(SOURCES)}.")
    if not (path.is_dir() if suffix == ".zarr" else path.is_file()):
        raise FileNotFoundError(f"There is no {'folder' if suffix == '.zarr' else 'file'} {path}.")
    return SOURCES[suffix](path)
