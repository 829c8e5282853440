"""Fits described by a file."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ..control import Recorded
from ..control.names import input_names
from ..fit import Experiment, Fit, Parameter, Signal, identify
from ..foundations import listing, replacing
from ..models import Model, load
from ..records import Record, read_described
from ..records.toml_file import check_keys, read_toml, sibling_path
from ..system import System

KEYS = ("model", "parameters", "experiments", "output", "max_iterations")
PARAMETER_KEYS = ("nominal", "min", "max", "frozen")
EXPERIMENT_KEYS = ("record", "signals", "inputs", "start", "speed", "hold", "fit_start", "windows", "name")
SIGNAL_KEYS = ("of", "sigma", "bias")


def described_fit(path: pathlib.Path) -> Fit:
    """The fit that a TOML file describes; the mechanism with the estimates goes to its `output`, if it names one.

        model = "arm.urdf"              # in the same folder or below, as all files
        output = "fitted.toml"          # may be left out
        max_iterations = 50

        [parameters."rod.mass"]         # names as in `jaxmb.fit.Parameter`
        min = 0.1                       # nominal, min, max and frozen may be left out

        [[experiments]]
        record = "swing.toml"           # as in `jaxmb.records.read_described`
        start = {pivot = 0.3}           # coordinates, and with speed velocities; hold names those that must not be changed
        fit_start = true                # with windows and name as in `jaxmb.fit.Experiment`
        inputs = {motor = "torque"}     # by actuator a column of the record, as in `jaxmb.control.Recorded`; others do nothing

        [experiments.signals.angle]     # a column of the record
        of = "pivot"                    # with sigma and bias as in `jaxmb.fit.Signal`
        sigma = 0.01

    Raises:
        TypeError, ValueError: naming the key, for what is not known, lacks or does not fit.
    """
    path, values = read_toml(path)
    check_keys(values, KEYS, ("model", "parameters", "experiments"), str(path))
    model = load(sibling_path(path, values["model"], "model"))
    system, tables = model.build(), values["experiments"]
    if not isinstance(tables, list) or not tables:
        raise TypeError(f"'experiments' in {path} must be a list of tables, but is {tables!r}.")
    parameters = [
        _parameter(name, table, path) for name, table in _table(values["parameters"], "'parameters'", path).items()
    ]
    experiments = [_experiment(model, system, table, path) for table in tables]
    limit = {"max_iterations": values["max_iterations"]} if "max_iterations" in values else {}
    build = lambda mechanism: mechanism.build(cut=model.loops)
    fit = identify(model.mechanism, parameters, experiments, build=build, **limit)
    if "output" in values:
        with replacing(sibling_path(path, values["output"], "output"), "output") as fresh:
            fresh.write_text(fit.model.to_text(), encoding="utf-8")
    return fit


def _table(value: object, what: str, path: pathlib.Path) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} in {path} must be a table, but is {value!r}.")
    return value


def _parameter(name: str, value: object, path: pathlib.Path) -> Parameter:
    what = f"Parameter '{name}'"
    table = dict(_table(value, what, path))
    check_keys(table, PARAMETER_KEYS, (), f"{what} in {path}")
    renamed = {"min": "min_value", "max": "max_value"}
    return Parameter(name, **{renamed.get(key, key): number for key, number in table.items()})


def _experiment(model: Model, system: System, value: object, path: pathlib.Path) -> Experiment:
    what = f"An experiment in {path}"
    table = _table(value, "An experiment", path)
    check_keys(table, EXPERIMENT_KEYS, ("record", "signals"), what)
    record = read_described(sibling_path(path, table["record"], "record"))
    start, speed = (dict(_table(table.get(key, {}), f"'{key}'", path)) for key in ("start", "speed"))
    state = model.assemble(system, q=start, v=speed or None, hold=table.get("hold", ()))
    signals = []
    for column, entry in _table(table["signals"], "'signals'", path).items():
        own = dict(_table(entry, f"Signal '{column}'", path))
        check_keys(own, SIGNAL_KEYS, ("of",), f"Signal '{column}' in {path}")
        values = _column(record, column, f"Signal '{column}'", path)
        signals.append(Signal(own.pop("of"), values, name=column, **own))
    options = {key: table[key] for key in ("fit_start", "windows", "name") if key in table}
    inputs = _table(table.get("inputs", {}), "'inputs'", path)
    return Experiment(record.t, state, signals, control=_recorded(system, record, inputs, path), **options)


def _recorded(system: System, record: Record, inputs: Mapping[str, Any], path: pathlib.Path) -> Recorded | None:
    """The measured inputs; None where there are none."""
    names = input_names(system)
    if unknown := [name for name in inputs if name not in names]:
        raise ValueError(
            f"'inputs' in {path} must name actuators of the model, {listing(names)}, but names {listing(unknown)}."
        )
    values = np.zeros((len(record), len(names)))
    for name, column in inputs.items():
        measured = np.asarray(_column(record, column, f"Input '{name}'", path), float)
        if measured.ndim > 1 or not np.isfinite(measured).all():
            raise ValueError(
                f"Input '{name}' in {path} must be a finite number at each time, but column '{column}' is not."
            )
        values[:, names.index(name)] = measured
    return Recorded(record.t, values) if inputs else None


def _column(record: Record, column: str, what: str, path: pathlib.Path) -> Float[Array, "T *k"]:
    """A column of a record."""
    if column not in record.columns:
        raise ValueError(
            f"{what} in {path} must be a column of its record, but '{column}' is none of {listing(record.columns)}."
        )
    return record[column]
