"""Sweeps described by a file."""

import dataclasses
import importlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from ..foundations import contract, default_float, listing
from ..records.formats import open_source
from ..records.toml_file import check_keys, read_toml, sibling_path
from .columns import combine_columns
from .drive import Report, run
from .table import Table, as_table

# What a key may be, and in words.
KEYS: dict[str, tuple[tuple[type, ...], str]] = {
    "function": ((str,), "text"),
    "folder": ((str,), "text"),
    "table": ((str, dict), "a table or the name of a file"),
    "combine": ((str,), "text"),
    "seed": ((int,), "an integer"),
    "rows": ((int,), "an integer"),
    "rows_per_shard": ((int,), "an integer"),
    "memory": ((int, float), "a number"),
    "kind": ((str,), "text"),
    "float64": ((bool,), "true or false"),
}
# Files of columns alone.
TABLES = (".csv", ".npz")


@dataclasses.dataclass(frozen=True)
class Description:
    """A sweep as described in a TOML file.

    Attributes:
        path: the file.
        function: "file.py:name" or "package.module:name".
        folder: where the results go.
        table: the description of the table.
        combine, seed, rows: how columns make up a table.
        float64: whether the sweep needs float64.
        options: `rows_per_shard`, `memory` and `kind` of `run`, if given.
    """

    path: pathlib.Path
    function: str
    folder: pathlib.Path
    table: str | dict[str, Any]
    combine: str
    seed: int
    rows: int | None
    float64: bool
    options: dict[str, Any]

    def run(self, **options: Any) -> Report:
        """Runs the sweep; options as in `jaxmb.sweep.run`.

        Raises:
            ValueError: if it needs float64 and JAX is not set to it, or the other way round. As `run`, and for a
            function or a table that cannot be loaded.
        """
        if (str(default_float()) == "float64") != self.float64:
            raise ValueError(
                f"{self.path} needs `jax.config.update('jax_enable_x64', {self.float64})` before anything is loaded; "
                "`jaxmb sweep` does so."
            )
        folder = options.pop("folder", self.folder)
        return run(self.load(), self.rows_of_table(), folder, **self.options | options)

    def load(self) -> Callable[..., Any]:
        """The function; a file beside the description may import its neighbours."""
        module_name, _, name = self.function.partition(":")
        try:
            source = (
                _from_file(sibling_path(self.path, module_name, "function"))
                if module_name.endswith(".py")
                else importlib.import_module(module_name)
            )
            return getattr(source, name)
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"'function' in {self.path} must be there, but '{self.function}' is not: {error}"
            ) from error

    def rows_of_table(self) -> Table:
        """The table."""
        if not isinstance(self.table, str):
            return combine_columns(self.table, self.combine, self.seed, self.rows)
        file = open_source(sibling_path(self.path, self.table, "table"))
        return as_table({name: file.values(name, f"Column '{name}'") for name in file.names})


@contract
def read_described(path: str | os.PathLike[str]) -> Description:
    """Reads what a TOML file says of a sweep.

        function = "swing.py:run"     # a file in the same folder or below, or "package.module:name"
        folder = "results"            # relative to the file, below it
        combine = "grid"              # or "zip"
        seed = 1                      # of random columns, 0 by default
        rows_per_shard = 500          # with memory, kind as in `run`
        float64 = true                # by default

        [table] length = {from = 0.5, to = 1.5, count = 100} mass = [1.0, 2.0] friction = {uniform = [0.0, 0.1]}

    Instead of a table `table = "rows.csv"` names a file of columns, or one of `.npz`. Columns: see
    `combine_columns` in `jaxmb/sweep/columns.py`; `rows` is their length where all are random.

    Raises:
        FileNotFoundError: if there is no such file.
        TypeError, ValueError: naming the key, for what is not known, lacks or does not fit.
    """
    path, values = read_toml(path)
    _check(path, values)
    return Description(
        path=path,
        function=values["function"],
        folder=sibling_path(path, values["folder"], "folder"),
        table=values["table"],
        combine=values.get("combine", "grid"),
        seed=values.get("seed", 0),
        rows=values.get("rows"),
        float64=values.get("float64", True),
        options={key: values[key] for key in ("rows_per_shard", "kind") if key in values}
        | ({"memory": float(values["memory"])} if "memory" in values else {}),
    )


def _check(path: pathlib.Path, values: dict[str, Any]) -> None:
    """Refuses what is known to be wrong before anything is loaded."""
    check_keys(values, tuple(KEYS), ("function", "folder", "table"), str(path))
    for key, value in values.items():
        types, words = KEYS[key]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise TypeError(f"'{key}' in {path} must be {words}, but is {value!r}.")
    module_name, _, name = values["function"].partition(":")
    if not module_name or not name.isidentifier():
        raise ValueError(
            f"'function' in {path} must be 'file.py:name' or 'package.module:name', but is {values['function']!r}."
        )
    if module_name.endswith(".py"):
        sibling_path(path, module_name, "function")
    if isinstance(values["table"], str):
        if sibling_path(path, values["table"], "table").suffix.lower() not in TABLES:
            raise ValueError(f"'table' in {path} must end with one of {listing(TABLES)}, but is '{values['table']}'.")
        needless = [key for key in ("combine", "seed", "rows") if key in values]
        if needless:
            raise ValueError(f"'{needless[0]}' in {path} must be left out, as the table is a file.")


def _from_file(path: pathlib.Path) -> Any:
    """The module in a file, which may import its neighbours."""
    if not path.is_file():
        raise ImportError(f"there is no file {path}")
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # as of every name that ends with ".py"
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module
