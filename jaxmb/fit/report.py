"""What a search found, and how well it is known."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..foundations import RESULTS, TextInNotebooks, aligned, listing, over_leading_axes, program
from ..linalg import at_bounds
from ..system import State
from ..verification import SearchCheck
from .identifiability import RANK_TOL, ZERO, Identifiability, eliminated
from .prepare import Prepared
from .problem import Problem
from .target import Setup

# So many biases and starts are printed.
PRINTED = 12
# Residuals of so many σ on average are no noise.
LARGE = 3.0


class SignalFit(eqx.Module):
    """A measured signal and the values of the model.

    Attributes:
        ts: times (T,).
        measured: values (T, k), NaN where a sample is missing.
        model: those of the run with the estimates, the bias added (T, k); NaN where a sample is missing.
        residual: (model − measured)/σ (T, k), zero where a sample is missing.
    """

    ts: Float[Array, "... T"]
    measured: Float[Array, "... T k"]
    model: Float[Array, "... T k"]
    residual: Float[Array, "... T k"]


class Fit(TextInNotebooks, eqx.Module):
    """The result of `identify`. Arrays gain leading axes under `jax.vmap`; `print` shows a single one as a table.

    Attributes:
        estimates: values of all parameters by name, the frozen ones included.
        nuisances: biases and starts that were estimated, by name.
        nominal: where the search started.
        prepared: what was asked.
        unknowns: all estimates, over the scales (N,).
        setup: model, control and events of the first experiment, with the estimates.
        cost: ½ Σ residual².
        signals: by experiment and signal, the measurements and the values of the model.
        residuals: of all samples, and of the gaps between windows, over their σ (R,).
        jacobian: of the residuals by all unknowns over their scales (R, N).
        scales: of the unknowns (N,).
        labels: names of the unknowns, parameters first.
        parameters: how many of them are parameters.
        count: number of samples.
        freedom: degrees of freedom: samples, and gaps between windows, less unknowns.
        at_bound: mask (N,) of the unknowns that are held by a bound.
        iterations: evaluations that were made.
        result: how the search ended, see `jaxmb.RESULTS`.
        runs: the result of the run of each experiment, or window.
        starts: the cost that each of several searches reached.
        check: the evidence for the runs and the Jacobian, if `check` was set.
    """

    estimates: dict[str, Array]
    nuisances: dict[str, Array]
    nominal: dict[str, Array]
    prepared: Prepared
    unknowns: Float[Array, "... N"]
    setup: Setup
    cost: Float[Array, "..."]
    signals: dict[str, dict[str, SignalFit]]
    residuals: Float[Array, "... R"]
    jacobian: Float[Array, "... R N"]
    scales: Float[Array, "... N"]
    labels: tuple[str, ...] = eqx.field(static=True)
    parameters: int = eqx.field(static=True)
    count: Int[Array, "..."]
    freedom: Int[Array, "..."]
    at_bound: Bool[Array, "... N"]
    iterations: Int[Array, "..."]
    result: RESULTS
    runs: RESULTS
    starts: Float[Array, "... S"]
    check: SearchCheck | None = eqx.field(static=True, default=None)

    @property
    def model(self) -> Any:
        """The model with the estimates."""
        return self.setup.model

    def start(self, experiment: str | None = None) -> State:
        """The state from which an experiment, the first by default, starts with the estimates, for other runs."""
        names = self.prepared.experiments
        if experiment is not None and experiment not in names:
            raise ValueError(f"Argument `experiment` must be one of {listing(names)}, but is '{experiment}'.")
        number = 0 if experiment is None else names.index(experiment)
        shot = next(i for i, (of, _) in enumerate(self.prepared.shots) if of == number)
        group = next(k for k, members in enumerate(self.prepared.members) if shot in members)
        return _start(self.prepared.problem, group, self.prepared.members[group].index(shot), self.unknowns)

    @property
    def gradient(self) -> dict[str, Array]:
        """The gradient of the cost, by parameter."""
        slopes = jnp.einsum("...r,...rn->...n", self.residuals, self.jacobian) / self.scales
        return self._by_name(slopes[..., : self.parameters])

    def covariance(self, absolute_sigma: bool = False) -> Float[Array, "... n n"]:
        """Covariance of the parameters' entries, s² (JᵀJ)⁻¹ with biases and starts eliminated.

        Infinite for parameters that the data do not determine, zero for those held by a bound. NaN if the search did
        not converge: away from a minimum JᵀJ says nothing about its position.

        Args:
            absolute_sigma: whether the given σ are the noise itself, s = 1; otherwise only their ratios count, and s² is the sum of the
                squares of the residuals over the remaining degrees of freedom.
        """
        # Arrays alone go into the program, so that fits of equal shapes share it.
        numbers = (self.jacobian, self.scales, self.at_bound, self.freedom, self.cost)
        matrix = _covariances(numbers, self.parameters, absolute_sigma, self.cost.ndim)
        return jnp.where((self.result == RESULTS.successful)[..., None, None], matrix, jnp.nan)

    def standard_errors(self, absolute_sigma: bool = False) -> dict[str, Array]:
        """Square roots of the diagonal of the covariance, by parameter."""
        errors = jnp.sqrt(jnp.diagonal(self.covariance(absolute_sigma), axis1=-2, axis2=-1))
        return self._by_name(errors)

    def intervals(self, level: float = 0.95, absolute_sigma: bool = False) -> dict[str, tuple[Array, Array]]:
        """Confidence intervals of the linearised problem by parameter: Student's, or normal ones for `absolute_sigma`.

        NaN if the search did not converge, see `covariance`.
        """
        free = None if absolute_sigma else np.asarray(self.freedom)
        width = scipy.special.ndtri(0.5 + level / 2) if free is None else scipy.special.stdtrit(free, 0.5 + level / 2)
        errors = self.standard_errors(absolute_sigma)
        spread = lambda e: e * jnp.asarray(width).reshape(np.shape(width) + (1,) * (e.ndim - np.ndim(width)))
        return {
            name: (self.estimates[name] - spread(e), self.estimates[name] + spread(e)) for name, e in errors.items()
        }

    @property
    def identifiability(self) -> Identifiability:
        """Which parameters the data determine, see `Identifiability`."""
        return Identifiability.of(self.jacobian, self.labels, self.parameters, self.scales)

    def _by_name(self, entries: Float[Array, "... n"]) -> dict[str, Array]:
        values, start = {}, 0
        names = dict.fromkeys(label.partition("[")[0] for label in self.labels[: self.parameters])
        batch = self.cost.ndim
        for name in names:
            shape = self.estimates[name].shape
            size = int(np.prod(shape[batch:], dtype=int))
            values[name] = entries[..., start : start + size].reshape(shape)
            start += size
        return values

    def __str__(self) -> str:
        if self.cost.ndim:
            return f"Fits of {listing(self.estimates)}, {self.cost.size} of them; index one for its table."
        if bool(self.result == RESULTS.search_failed):
            return f"Fit of {int(self.count)} samples: {RESULTS[self.result]}"
        identifiability = self.identifiability
        lines = aligned(self._rows())
        how = "converged" if bool(self.result == RESULTS.successful) else RESULTS[self.result]
        spread = float(jnp.sqrt(2 * self.cost / self.freedom)) if int(self.freedom) > 0 else float("nan")
        head = f"Fit of {int(self.count)} samples: residual {spread:.4g} σ, {int(self.iterations)} iterations, {how}"
        if spread > LARGE:
            lines.append(
                "Residuals are far above the noise that σ states: σ is too small, the model lacks something, or the search ended in a "
                "local minimum that is not the lowest; try other starts (`starts`) or `windows`."
            )
        checked = [] if self.check is None else [str(self.check)]
        return "\n".join([head, *lines, *identifiability.sentences(), *checked])

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        """Of the printed table: name, estimate, interval, start and a note."""
        rows = [("parameter", "estimate", "95 % interval", "start", "")]
        entries = iter(range(self.parameters))
        for name, (low, high) in self.intervals().items():
            value, first = np.ravel(self.estimates[name]), np.ravel(self.nominal[name])
            for k, (x, a, b) in enumerate(zip(value, np.ravel(low), np.ravel(high), strict=True)):
                i = next(entries)
                unknown = "not converged" if np.isnan(a) else "not determined"
                note = "at its bound" if bool(self.at_bound[i]) else "" if np.isfinite(a) else unknown
                interval = f"± {(b - a) / 2:.3g}" if np.isfinite(a) else ""
                rows.append((self.labels[i], f"{x:.6g}", interval, f"{first[k]:.6g}", note))
        others = self.labels[self.parameters :]
        rows += [(name, f"{float(self.nuisances[name]):.6g}", "", "", "") for name in others[:PRINTED]]
        if len(others) > PRINTED:
            rows.append((f"… and {len(others) - PRINTED} more in `nuisances`", "", "", "", ""))
        return rows


@program
def _start(problem: Problem, group: int, shot: int, y: Float[Array, " N"]) -> State:
    return problem.start(problem.groups[group], shot, y)


@program
def _covariances(numbers: tuple[Array, ...], parameters: int, absolute: bool, axes: int) -> Array:
    return over_leading_axes(functools.partial(_covariance, parameters, absolute), axes)(*numbers)


def _covariance(
    parameters: int, absolute: bool, jacobian: Array, scales: Array, fixed: Array, freedom: Array, cost: Array
) -> Float[Array, "n n"]:
    rows = eliminated(jnp.where(fixed, 0.0, jacobian), parameters)
    # Eigenvalues of JᵀJ instead of an inverse: what the data do not tell must come out infinite, not as 1e16.
    values, vectors = jnp.linalg.eigh(rows.T @ rows)
    is_null = values <= RANK_TOL**2 * jnp.max(values, initial=0)  # squares of the singular values
    inverse = (vectors * jnp.where(is_null, 0.0, 1 / jnp.where(is_null, 1.0, values))) @ vectors.T
    size = scales[:parameters]
    unknown = (jnp.sum(jnp.where(is_null, vectors**2, 0.0), axis=1) > ZERO**2) & ~fixed[:parameters]
    # s² = Σ r²/freedom.
    spread = 1.0 if absolute else 2 * cost / jnp.maximum(freedom, 1)
    matrix = spread * inverse * size[:, None] * size
    matrix = jnp.where(fixed[:parameters, None] | fixed[:parameters], 0.0, matrix)
    return jnp.where(jnp.diag(unknown), jnp.inf, matrix)


@program
def summarise(prepared: Prepared, y: Array, r: Array, jacobian: Array, **outcome: PyTree) -> Fit:
    """The fit with the unknowns y, the residuals and their Jacobian there, and what the search tells."""
    problem = prepared.problem
    unknowns, full = problem.runs.unknowns, y * problem.scale
    setup = problem.runs.setup(problem.groups[0][0], full[: problem.count])
    channels = [channel for group in problem.groups for channel in group.channels]
    count = sum((jnp.sum(channel.weights > 0) for channel in channels), start=jnp.zeros((), int))
    gaps = sum((jnp.sum(group.following >= 0) for group in problem.groups), start=jnp.zeros((), int))
    return Fit(
        estimates=unknowns.values(full[: problem.count]),
        nuisances=dict(zip(prepared.labels[problem.count :], full[problem.count :], strict=True)),
        nominal=unknowns.nominal,
        prepared=prepared,
        unknowns=y,
        setup=setup,
        signals=_signals(prepared, r),
        residuals=r,
        jacobian=jacobian,
        scales=jnp.concatenate([unknowns.scale, problem.scale[problem.count :]]),
        labels=prepared.labels,
        parameters=problem.count,
        count=count,
        freedom=count + gaps - problem.size,
        at_bound=at_bounds(y, r @ jacobian, problem.low, problem.high),
        **outcome,
    )


def _signals(prepared: Prepared, r: Float[Array, " R"]) -> dict[str, dict[str, SignalFit]]:
    """The residuals by experiment and signal; windows are joined."""
    parts: dict[str, dict[str, list[SignalFit]]] = {name: {} for name in prepared.experiments}
    start = 0
    for group, members in zip(prepared.problem.groups, prepared.members, strict=True):
        shots = [prepared.shots[i] for i in members]
        for channel in group.channels:
            values, weights = channel.values, channel.weights
            off = r[start : start + values.size].reshape(values.shape)
            start += values.size
            is_measured = weights > 0
            measured = jnp.where(is_measured, values, jnp.nan)
            model = measured + off / jnp.where(is_measured, weights, 1.0)
            for shot, (number, length) in enumerate(shots):
                signal = SignalFit(*(x[shot, :length] for x in (group.ts, measured, model, off)))
                parts[prepared.experiments[number]].setdefault(channel.name, []).append(signal)
        start += group.following.size
    join = lambda *x: jnp.concatenate(x)
    return {e: {s: jax.tree.map(join, *signal) for s, signal in of.items()} for e, of in parts.items()}


def failures(prepared: Prepared, runs: RESULTS) -> str:
    """Which experiments failed, and what their runs report."""
    text, order = "", [i for members in prepared.members for i in members]
    for k, i in enumerate(order):
        one: RESULTS = jax.tree.map(lambda x, k=k: x[k], runs)
        if not bool(one == RESULTS.successful):
            text += f"\nExperiment '{prepared.experiments[prepared.shots[i][0]]}': {RESULTS[one]}"
    return text
