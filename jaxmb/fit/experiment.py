"""What was measured, and how."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..control import AbstractController, Sampled
from ..foundations import (
    Count,
    FunctionOfMotion,
    Numbers,
    Positive,
    Text,
    TextInNotebooks,
    as_floats,
    as_function,
    as_parameters,
    contract,
    expect_different,
    expect_shape,
    floats_or_none,
    function_of,
    is_concrete,
)
from ..system import State
from ..topology import AbstractEvent


class Signal(TextInNotebooks, eqx.Module):
    """A measured quantity.

    Args:
        of: what was measured: the name of a coordinate or joint coordinate; with "'" behind it its rate; "body" or "body.point" for
            the position of a point (d,); a sensor such as `jaxmb.output.IMU`; or a function `of(system, solution)` → (T,) or (T, k), for
            other quantities of a motion: reactions, energies, inputs.
        values: (T,) or (T, k), at the times of the experiment; NaN where a sample is missing. None before anything was measured.
        sigma: standard deviation of its noise: one, one for each component (k,), or one for each value. Residuals are divided by it.
        bias: whether the sensor adds an unknown constant to each component.
        name: its name in reports; by default what was measured.
    """

    of: str | Callable[..., Array]
    values: Float[Array, "..."] | None
    sigma: Float[Array, "..."]
    bias: bool = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @contract
    def __init__(
        self,
        of: str | Annotated[Any, function_of("system, solution")],
        values: Numbers | None = None,
        sigma: Numbers = 1.0,
        *,
        bias: bool = False,
        name: str | None = None,
    ):
        self.of = of if isinstance(of, str) else as_parameters(as_function(of, "of"))
        self.name = name or (of if isinstance(of, str) else _name(of))
        self.values = floats_or_none(values)
        self.sigma, self.bias = as_floats(sigma), bias
        if self.values is not None and self.values.ndim not in (1, 2):
            raise ValueError(
                f"Argument `values` of signal '{self.name}' must have shape (T,) or (T, k), but has shape {self.values.shape}."
            )
        if self.values is not None and is_concrete(self.values) and np.any(np.isinf(self.values)):
            raise ValueError(
                f"Argument `values` of signal '{self.name}' must be finite, or NaN where a sample is missing."
            )
        if self.values is not None and is_concrete(self.values) and np.all(np.isnan(self.values)):
            raise ValueError(
                f"Argument `values` of signal '{self.name}' must hold a sample, but all are missing; without measurements it is None."
            )
        if is_concrete(self.sigma) and not np.all(np.asarray(self.sigma) > 0):
            raise ValueError(
                f"Argument `sigma` of signal '{self.name}' must be positive, but is {np.asarray(self.sigma)}."
            )

    @property
    def width(self) -> int:
        """Number of its components; 1 if it is not known."""
        return 1 if self.values is None or self.values.ndim == 1 else self.values.shape[1]

    def table(self, times: int) -> tuple[Float[Array, "T k"], Float[Array, "T k"]]:
        """Values, and weights 1/σ that are zero where a sample is missing."""
        values = jnp.zeros((times, 1)) if self.values is None else self.values.reshape(times, -1)
        sigma = self.sigma
        # (T,) and (k,) may be equal lengths: with one component it is over time, with as many components as times it
        # is by component.
        if sigma.ndim == 1 and sigma.shape[0] == times and (values.shape[1] == 1 or sigma.shape[0] != values.shape[1]):
            sigma = sigma[:, None]
        # Weight zero, value zero: a NaN times zero would be NaN, in derivatives too.
        there = jnp.isfinite(values)
        return jnp.where(there, values, 0.0), jnp.where(there, 1.0 / jnp.broadcast_to(sigma, values.shape), 0.0)


def _name(of: Callable[..., object]) -> str:
    """The name of a sensor, or of a function."""
    return next((x for at in ("name", "__name__") if isinstance(x := getattr(of, at, None), str)), type(of).__name__)


class Experiment(TextInNotebooks, eqx.Module):
    """A run with measurements, or with an objective.

    Args:
        ts: times (T,) of the samples in s.
        start: the state from which it starts, made by `assemble` with the nominal model. If parameters move the constraints it is assembled
            again: independent coordinates and velocities keep their values.
        signals: what was measured.
        control: the controller, or the inputs as a function, as in `simulate`.
        events: the events of the run, as in `simulate`.
        fit_start: whether independent coordinates and velocities of the start are unknowns too: True for all, or their names; rates are named
            "name'".
        windows: number of parts into which the record is cut, each with a start of its own, which must meet (multiple shooting); for long and
            for chaotic records.
        gap: by how much the end of a window may miss the start of the next one, as a standard deviation relative to the spread of their starts.
        about: any pytree, which an objective of `tune` receives.
        name: its name in reports.
    """

    ts: Float[Array, " T"]
    start: State
    signals: tuple[Signal, ...]
    control: AbstractController | Sampled | Callable[..., Array] | None
    events: tuple[AbstractEvent, ...]
    about: PyTree
    fit_start: bool | tuple[str, ...] = eqx.field(static=True)
    windows: int = eqx.field(static=True)
    gap: float = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @contract
    def __init__(
        self,
        ts: Numbers,
        start: State,
        signals: Sequence[Signal] | Signal = (),
        *,
        control: AbstractController | FunctionOfMotion | Sampled | None = None,
        events: Sequence[AbstractEvent] = (),
        fit_start: bool | Sequence[str] = False,
        windows: Count = 1,
        gap: Positive = 1e-3,
        about: PyTree = None,
        name: Text = "",
    ):
        self.ts = as_floats(ts)
        self.start, self.name = start, name
        self.signals = (signals,) if isinstance(signals, Signal) else tuple(signals)
        self.control = (
            control if control is None or isinstance(control, AbstractController | Sampled) else _law(control)
        )
        self.events = tuple(events)
        self.fit_start = fit_start if isinstance(fit_start, bool) else tuple(fit_start)
        self.windows, self.gap = windows, gap
        # Numbers become leaves, so that objectives can be differentiated by them and experiments that differ in them
        # share a program.
        self.about = as_parameters(about)
        self._check()

    @property
    def where(self) -> str:
        """Its name in messages."""
        return f"experiment '{self.name}'" if self.name else "an experiment"

    def _check(self) -> None:
        where = self.where
        if self.ts.ndim != 1 or self.ts.shape[0] < 1:
            raise ValueError(f"Argument `ts` of {where} must be times of shape (T,), but has shape {self.ts.shape}.")
        if is_concrete(self.ts, self.start.t):
            ts = np.asarray(self.ts)
            if not np.all(np.isfinite(ts)) or np.any(np.diff(ts) < 0) or ts[0] < float(self.start.t):
                raise ValueError(
                    f"Argument `ts` of {where} must be finite, increase, and not begin before `start.t`, {float(self.start.t):g} s."
                )
        expect_different(f"`signals` of {where}", [s.name for s in self.signals])
        for signal in self.signals:
            _check_shapes(signal, self.ts.shape[0], where)
        # A window starts in the mode of the record's start; which mode acts there after events is not known.
        if self.windows > 1 and self.events:
            raise ValueError(f"Argument `windows` of {where} must be 1 with events, but is {self.windows}.")


def _check_shapes(signal: Signal, times: int, where: str) -> None:
    """Values and standard deviations fit the times of an experiment."""
    if signal.values is not None and signal.values.shape[0] != times:
        raise ValueError(
            f"Argument `values` of signal '{signal.name}' must have a value for each of the {times} times of {where}, "
            f"but has {signal.values.shape[0]}."
        )
    size = (times, signal.width)
    expect_shape(f"`sigma` of signal '{signal.name}'", signal.sigma, (), size[1:], size[:1], size, (size[0], 1))


def listed(experiments: Iterable[Experiment] | Experiment) -> tuple[Experiment, ...]:
    """One or several experiments as a tuple."""
    experiments = (experiments,) if isinstance(experiments, Experiment) else tuple(experiments)
    if not experiments:
        raise TypeError("Argument `experiments` must be an `Experiment`, or a sequence of some.")
    return experiments


def _law(control: Callable[..., Array]) -> PyTree:
    """A function with its numbers as leaves."""
    return control if isinstance(control, eqx.Module) else as_parameters(as_function(control, "control"))


# Arguments of `simulate` that say how a run is made.
OPTIONS = ("formulation", "drift", "solver", "stepsize_controller", "dt0", "max_steps", "max_events", "engine")
