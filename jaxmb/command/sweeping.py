"""Sweeps described by a file."""

import argparse
import os
from collections.abc import Mapping

import jax

from ..sweep import Report, Status, read_described, status


def described_sweep(options: argparse.Namespace) -> Report | Status:
    """Runs the sweep that a TOML file describes, or tells how far it is.

    Raises:
        ValueError: for a number of the task without that of all.
    """
    if (options.task is None) != (options.tasks is None):
        raise ValueError("Arguments --task and --tasks must go together, but one stands alone.")
    sweep = read_described(options.description)
    folder = options.folder or sweep.folder
    if options.status:
        return status(folder)
    task, tasks = of_array(os.environ) if options.task is None else (options.task, options.tasks)
    # Before the sweep's own module is loaded, which may make arrays.
    jax.config.update("jax_enable_x64", sweep.float64)
    return sweep.run(folder=folder, task=task, tasks=tasks, progress=options.progress, throw=False)


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
