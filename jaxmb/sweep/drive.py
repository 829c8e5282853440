"""The driver of a sweep."""

import dataclasses
import os
import pathlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from ..batch import batched
from ..foundations import (
    SUCCESS,
    Count,
    Positive,
    TextInNotebooks,
    Whole,
    as_jax,
    codes,
    contract,
    counted,
    function_of,
    optional,
    working,
)
from ..simulation import Solution
from ..system import System
from ..verification import RunCheck
from ..verification import check as run_check
from .manifest import claim, manifest
from .meter import Meter, on_a_line
from .results import check_function, dataset_of, verdict_counts
from .shards import Kind, Shards, reading
from .table import Table, as_table, part

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class Report(TextInNotebooks):
    """The report of one task of a sweep.

    Attributes:
        folder: where the shards are.
        rows: number of rows in the complete shards of the task.
        computed: number of shards that were computed now.
        reused: number of those that were there already.
        verdicts: number of rows by verdict, those of earlier shards included; of results without one, how many are finite.
        failed: by number of a failed shard, the error that its computation raised.
        checks: by number of a row, what `jaxmb.check` says of its run, where that was asked for: of each shard that was computed now the successful row of the most steps.
    """

    folder: pathlib.Path
    rows: int
    computed: int
    reused: int
    verdicts: dict[str, int]
    failed: dict[int, str]
    checks: dict[int, RunCheck]

    def __str__(self) -> str:
        shards = f"{counted(self.computed, 'shard')} computed, {self.reused} reused, {len(self.failed)} failed"
        verdicts = [f"{count} {name}" for name, count in self.verdicts.items()]
        lines = [
            f"Sweep in {self.folder}: {counted(self.rows, 'row')}, {shards}",
            *([", ".join(verdicts)] if verdicts else []),
        ]
        lines += [f"shard {i}: {text}" for i, text in self.failed.items()]
        doubtful = {i: check for i, check in self.checks.items() if check.verdict != "ok"}
        if self.checks:
            lines.append(f"{counted(len(self.checks), 'run')} checked, {len(self.checks) - len(doubtful)} ok")
        return "\n  ".join([*lines, *(f"row {i}: {check.title}" for i, check in doubtful.items())])


@contract
def run(
    fn: Annotated[Any, function_of("row")],
    table: object,
    folder: str | os.PathLike[str],
    *,
    rows_per_shard: Count = 1000,
    memory: Positive | None = None,
    mesh: Mesh | None = None,
    cost: Annotated[Any, function_of("row")] | None = None,
    check: Annotated[Any, function_of("row")] | None = None,
    task: Whole = 0,
    tasks: Count = 1,
    kind: Kind = "nc",
    progress: bool = False,
    throw: bool = True,
) -> Report:
    """Evaluates a function for each row of a table, and writes the results in shards to a folder.

    A shard is computed by `jaxmb.batched`, on all devices of the process, written under a temporary name and renamed when it is complete.
    Complete shards are not computed again, so that an interrupted sweep continues where it was, and gives the same
    numbers. Several processes may work on one folder.

    Args:
        fn: `fn(row)` → `Solution`, or a dictionary of arrays in which "result" may be that of a `Solution`. A row holds the parameters by
            name, and its own number "row" (`jax.random.fold_in(key, row["row"])` makes a seed). Its failures should be results, not
            errors: `simulate(…, throw=False)`.
        table: by name, arrays of equal length, as `sweep.grid` makes them, or a frame of pandas.
        folder: a new one, or that of the same sweep: function, table, precision, platform and versions must agree.
        rows_per_shard: rows in a shard.
        memory: budget in bytes on each device, as in `jaxmb.batched`.
        mesh: devices, likewise; those of this process by default.
        cost: `cost(row)`, likewise, by which the rows of a shard are sorted for the computation.
        check: `check(row)` → the `System` whose motion `fn` returns: in each shard, the successful row with the most steps is checked against
            its equations by `jaxmb.check`, see `Report.checks`.
        task: this call computes the shards task, task + tasks, task + 2 tasks and so on.
        tasks: number of calls, in other processes or on other machines, that share the shards.
        kind: "nc" for shards of netCDF, "zarr" for groups of Zarr.
        progress: whether to print a line for each shard, for a log; on a terminal a progress line is shown in any case, see `show_progress`.
        throw: whether to raise at the end if shards failed; else `Report.failed` says so.

    Returns:
        What was done; `sweep.open(folder)` gives the data.

    Raises:
        TypeError, ValueError: for arguments that do not fit, and for the folder of another sweep.
        RuntimeError: at once, if `fn` cannot be traced; at the end, if the computation of shards raised errors: all other shards are complete.
        ImportError: without `pip install jaxmb[data]`.
    """
    optional("xarray", "data")
    table = as_table(table)
    if task >= tasks:
        raise ValueError(f"Argument `task` must be below `tasks`, {tasks}, but is {task}.")
    optional("netCDF4" if kind == "nc" else "zarr", "data")
    rows = len(next(iter(table.values())))
    shards = Shards(pathlib.Path(folder), rows, min(rows_per_shard, rows), kind)
    # Before the folder is claimed: a function that cannot be traced must leave no manifest behind.
    shapes = check_function(fn, table)
    if check is not None:
        _check_systems(check, shapes, table)
    many = batched(fn, memory=memory, mesh=mesh or _devices(), cost=cost)
    claim(shards.folder, manifest(fn, table, shards.size, shards.count, kind))
    with working("" if progress else "sweep") as say:
        say = on_a_line if progress else say
        report = _compute(many, table, shards, range(task, shards.count, tasks), check, say)
    if throw and report.failed:
        raise RuntimeError(str(report))
    return report


def _check_systems(system_of: Callable[[Any], Any], shapes: object, table: Table) -> None:
    if not isinstance(shapes, Solution):
        raise ValueError("Argument `check` must be None unless `fn` returns a `Solution`.")
    system = system_of(_row(table, 0))
    if not isinstance(system, System):
        raise TypeError(f"Argument `check` must return a System, but returns a {type(system).__name__}.")


def _row(table: Table, number: int) -> dict[str, Array]:
    return jax.tree.map(lambda x: as_jax(x[0]), part(table, np.array([number])))


def _compute(
    many: Callable[[Any], Any],
    table: Table,
    shards: Shards,
    own: range,
    system_of: Callable[[Any], System] | None,
    say: Callable[[str], None],
) -> Report:
    """Computes the shards that are not there."""
    verdicts, failed, checks = Counter(), {}, {}
    present = [i for i in own if _count(verdicts, shards.read(i), shards.path(i))]
    missing = sorted({*own} - {*present})
    meter = Meter(len(missing), sum(len(shards.numbers(i)) for i in missing), say)
    for i in missing:
        numbers = shards.numbers(i)
        # The last shard is filled up with its last row, so that all come from one program.
        padded = np.minimum(numbers[0] + np.arange(shards.size), numbers[-1])
        try:
            results = many(part(table, padded))
        # Whatever a user's function raises: one bad shard must not cost the others. Interrupts are no `Exception`,
        # and end the sweep.
        except Exception as error:
            failed[i] = f"{type(error).__name__}: {error}"
            meter.add(i, len(numbers), ", failed")
            continue
        data = dataset_of(results, table, numbers)
        shards.write(i, data)
        _count(verdicts, data, shards.path(i))
        if system_of is not None:
            checks |= _checked(system_of, results, table, numbers)
        meter.add(i, len(numbers))
    shards.tidy()
    rows = sum(len(shards.numbers(i)) for i in own if i not in failed)
    return Report(
        folder=shards.folder,
        rows=rows,
        computed=len(missing) - len(failed),
        reused=len(present),
        verdicts=dict(verdicts),
        failed=failed,
        checks=checks,
    )


def _checked(
    system_of: Callable[[Any], System], solutions: Solution, table: Table, numbers: np.ndarray
) -> dict[int, RunCheck]:
    """The evidence for the successful row of the most steps, by its number; nothing where all have failed."""
    succeeded = codes(solutions.result) == int(codes(SUCCESS))
    steps = np.where(succeeded, np.asarray(solutions.stats["num_steps"]), -1)[: len(numbers)]
    worst = int(np.argmax(steps))
    if steps[worst] < 0:
        return {}
    number = int(numbers[worst])
    solution: Solution = jax.tree.map(lambda x: as_jax(x[worst]), solutions)
    return {number: run_check(system_of(_row(table, number)), solution)}


def _count(verdicts: Counter[str], data: "xarray.Dataset | None", path: pathlib.Path) -> bool:
    """Adds the verdicts of a shard; False if there is none."""
    if data is None:
        return False
    with data, reading(path):
        verdicts.update(verdict_counts(data))
    return True


def _devices() -> Mesh | None:
    """All devices of this process; None if there is one."""
    devices = jax.local_devices()
    return Mesh(np.array(devices), ("rows",)) if len(devices) > 1 else None
