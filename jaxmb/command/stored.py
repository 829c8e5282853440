"""Runs in files: a motion, and the mechanism that moves."""

import dataclasses
import json
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..foundations import RESULTS, as_jax, optional, replacing, verdicts
from ..models import Model
from ..models.load import mechanism_of_text
from ..simulation import Solution
from ..system import Scale, System

# Attributes of the file beside the data set of the solution: the mechanism's text, and the joints that close loops as a list in JSON.
MECHANISM, LOOPS = "mechanism", "loops"


def store(path: pathlib.Path, model: Model, solution: Solution) -> None:
    """Writes a run as netCDF: `Solution.to_xarray`, with the text of its mechanism among the attributes.

    Args:
        path: of the file.
        model: what moves, in the build with its own loops.
        solution: the motion.
    """
    data = solution.to_xarray()
    loops = json.dumps(list(model.loops))
    data.attrs |= {"title": model.name, MECHANISM: model.mechanism.to_text(), LOOPS: loops}
    with replacing(path, "out") as fresh:
        data.to_netcdf(fresh)


def stored_run(path: pathlib.Path) -> tuple[str, System, Solution]:
    """The name of the model, its system, and the motion of a file that `store` has written.

    Raises:
        ValueError: for a file that holds something else.
    """
    xarray = optional("xarray", "data")
    with xarray.open_dataset(path) as file:
        data = file.load()
    if MECHANISM not in data.attrs or LOOPS not in data.attrs:
        raise ValueError(
            f"{path} must hold a run that `jaxmb simulate` has written, but has no mechanism among its attributes."
        )
    mechanism = mechanism_of_text(str(data.attrs[MECHANISM]), str(path))
    system = mechanism.build(cut=json.loads(data.attrs[LOOPS]))
    if tuple(data["coordinate"].values.tolist()) != system.coordinates or data["q"].ndim != len(("time", "coordinate")):
        raise ValueError(f"{path} must hold a single motion in the coordinates of its mechanism, but does not.")
    return str(data.attrs.get("title", path.stem)), system, _solution(data)


def _solution(data: Any) -> Solution:
    numbers = lambda name: as_jax(np.asarray(data[name].values, float))
    names = {code: name for code, (name, _) in verdicts().items()}
    return Solution(
        ts=numbers("time"),
        q=numbers("q"),
        v=numbers("v"),
        work=numbers("work"),
        u=None,
        scale=Scale(**{field.name: numbers(f"scale_{field.name}") for field in dataclasses.fields(Scale)}),
        stats={
            str(name).removeprefix("stats_"): jnp.asarray(data[name].values)
            for name in data
            if str(name).startswith("stats_")
        },
        switches=None,
        result=getattr(RESULTS, names[int(data["result"])]),
        field=None,
        dense=None,
    )
