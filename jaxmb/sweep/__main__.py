"""`python -m jaxmb.sweep description.toml`."""

import argparse
import os
import pathlib
import sys
from collections.abc import Mapping

import jax

from .data import status
from .describe import described


def main(arguments: list[str] | None = None) -> int:
    """Runs the sweep that a TOML file describes, or tells how far it is; 1 if it failed."""
    parser = argparse.ArgumentParser(
        "python -m jaxmb.sweep", description="Evaluate a function over the rows of a table."
    )
    parser.add_argument("description", help="TOML file, see jaxmb.sweep.described")
    parser.add_argument("--folder", type=pathlib.Path, help="where the results go, instead of what the file says")
    parser.add_argument("--task", type=int, help="number of this task, from 0; by default that of SLURM's array")
    parser.add_argument("--tasks", type=int, help="number of tasks that share the shards")
    parser.add_argument("--status", action="store_true", help="only tell which shards are there")
    parser.add_argument("--progress", action="store_true", help="a line for each shard, into a log")
    options = parser.parse_args(arguments)
    if (options.task is None) != (options.tasks is None):
        parser.error("--task and --tasks go together")
    try:
        sweep = described(options.description)
        folder = options.folder or sweep.folder
        if options.status:
            print(status(folder))
            return 0
        task, tasks = of_array(os.environ) if options.task is None else (options.task, options.tasks)
        # Before the sweep's own module is loaded, which may make arrays.
        jax.config.update("jax_enable_x64", sweep.float64)
        report = sweep.run(folder=folder, task=task, tasks=tasks, progress=options.progress, throw=False)
    except (OSError, TypeError, ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(report)
    return 1 if report.failed else 0


def of_array(environment: Mapping[str, str]) -> tuple[int, int]:
    """Number of the task and of all tasks in an array of SLURM; 0 and 1 outside of one.

    Raises:
        ValueError: for an array with gaps, whose tasks cannot be numbered.
    """
    if "SLURM_ARRAY_TASK_ID" not in environment:
        return 0, 1
    number = lambda key, default: int(environment.get(f"SLURM_ARRAY_TASK_{key}", default))
    tasks = number("COUNT", "1")
    first, step = number("MIN", "0"), number("STEP", "1")
    task, rest = divmod(number("ID", "0") - first, step)
    if rest or task >= tasks:
        raise ValueError("The array of SLURM must have no gaps (--array=0-9), or `--task` and `--tasks` must be given.")
    return task, tasks


if __name__ == "__main__":
    sys.exit(main())
