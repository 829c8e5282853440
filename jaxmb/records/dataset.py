"""Data sets of netCDF and Zarr as named arrays of numbers."""

import pathlib

import numpy as np

from ..foundations import optional
from .sources import AbstractSource, within_limit


class Dataset(AbstractSource):
    """A data set as `xarray` reads it.

    Only what is asked for is read. Beside its variables, of a matrix with one axis of names each row or column is known as "variable.name": "q.crank".
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        xarray = optional("xarray", "data")
        engine = "zarr" if path.suffix.lower() == ".zarr" else None
        try:
            data = xarray.open_dataset(path, engine=engine, decode_times=False, decode_timedelta=False)
        # A missing engine is no damaged file.
        except ImportError:
            raise
        except Exception as error:
            raise ValueError(f"{path} must be a data set of netCDF or Zarr, but: {error}") from error
        self._arrays = {str(name): variable for name, variable in data.variables.items()}
        for name, variable in list(self._arrays.items()):
            for axis in variable.dims if variable.ndim == 2 else ():
                words = self._arrays.get(str(axis))
                # Zarr gives words as NumPy's strings of any length, "T".
                if words is not None and words.dtype.kind in "OUT":
                    parts = {f"{name}.{word}": variable.isel({axis: i}) for i, word in enumerate(self._load(str(axis)))}
                    self._arrays = parts | self._arrays

    @property
    def names(self) -> list[str]:
        """Names of the variables, and of their parts."""
        return list(self._arrays)

    def unit(self, name: str) -> str | None:
        """The variable's attribute `units`."""
        unit = self._arrays[name].attrs.get("units") if name in self._arrays else None
        return None if unit is None else str(unit)

    def _load(self, name: str) -> np.ndarray:
        variable = self._arrays[name]
        # Zarr and netCDF compress: the size is known before anything is unpacked.
        within_limit(variable.nbytes, f"'{name}' in {self.path}")
        try:
            values = np.asarray(variable.values)
        except Exception as error:
            raise ValueError(f"'{name}' in {self.path} must be an array, but: {error}") from error
        return values.astype(str) if values.dtype == object else values
