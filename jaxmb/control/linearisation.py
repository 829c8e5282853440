"""What a linearisation tells: modes, their shapes, and which of them the inputs reach."""

import dataclasses
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..foundations import RESULTS, TextInNotebooks, counted, is_concrete, positive_or_one, table
from ..system import State
from .readings import Deviation
from .tangent import Tangent

# A mode is out of reach of the inputs where its margin is below this. Numbers are without unit; eigenvalues that are equal, and with them
# margins of modes without inputs, are exact to the root of rounding, 1e-8.
REACH = 1e-6
# A velocity is named as part of a mode from this share of its kinetic energy on.
MAIN_SHARE = 0.05
# Directions with less than this part of the largest mass have none: rounding of the largest, with two digits of room.
MASSLESS = 1e-14
# Re λ below this part of |λ| prints as zero: a hundred units of rounding.
GROWTH = 2e-14


@dataclasses.dataclass(frozen=True)
class Eigenmode(TextInNotebooks):
    """A motion x = Re(c e^{λt}) of the linearisation, or a pair of conjugate ones.

    Attributes:
        eigenvalue: λ in 1/s; of a pair that with the positive imaginary part.
        frequency: |Im λ|/2π in Hz.
        damping: −Re λ/|λ|, negative where it grows; 0 where λ = 0.
        vector: c (n,), of length one in the metric of M.
        shape: by name of each coordinate its part of δq, the largest share being real.
        participation: by name of each velocity its share |δr_i|² M_ii / Σ |δr_j|² M_jj, which does not depend on units.
        margin: smallest singular value of [λ − A, B], without unit: 0 where no input reaches the mode.
    """

    eigenvalue: complex
    frequency: float
    damping: float
    vector: np.ndarray
    shape: dict[str, complex]
    participation: dict[str, float]
    margin: float

    @property
    def controllable(self) -> bool:
        """Whether inputs reach it."""
        return self.margin > REACH

    @property
    def main(self) -> tuple[str, ...]:
        """Names of the velocities with the largest shares, three at most."""
        order = sorted(self.participation, key=lambda name: -self.participation[name])
        return tuple(name for name in order[:3] if self.participation[name] > MAIN_SHARE)

    def __str__(self) -> str:
        return f"{_text_of(self.eigenvalue, 4)} 1/s of {', '.join(self.main)}"


def _text_of(eigenvalue: complex, digits: int) -> str:
    """λ, of a pair both; growth or decay that is rounding beside |λ| is none."""
    growth = eigenvalue.real if abs(eigenvalue.real) > GROWTH * abs(eigenvalue) else 0.0
    return f"{growth:+.{digits}g}" + (f" ± {eigenvalue.imag:.{digits}g}i" if eigenvalue.imag else "")


class Linearisation(TextInNotebooks, eqx.Module):
    """δẋ = A δx + B δu, δy = C δx, about a state.

    Attributes:
        A: (n, n).
        B: (n, nu).
        C: (ny, n); None without `outputs`.
        residual: ẋ (n,) at the state: zero in an equilibrium.
        tangent: which deviations of all coordinates and velocities the states stand for.
        state: the state.
        u: inputs (nu,) there.
        metric: of M, (n, n): xᵀ `metric` x are the sums of (δr)ᵀ M δr and (T_v δṡ)ᵀ M (T_v δṡ).
        weights: the diagonal of M (nv,).
        deviation: x as a function of (t, q, v, params).
        result: `RESULTS.undetermined_motion` at a singular pose, `RESULTS.unfit_choice` where the independent coordinates are
            none, `RESULTS.contradictory_constraints`, `RESULTS.nonfinite`.
        names: of the states, positions first.
        inputs: names of the inputs.
        coordinates: names of q.
        velocities: names of v.
    """

    A: Float[Array, "... n n"]
    B: Float[Array, "... n nu"]
    C: Float[Array, "... ny n"] | None
    residual: Float[Array, "... n"]
    tangent: Tangent
    state: State
    u: Float[Array, "... nu"]
    metric: Float[Array, "... n n"]
    weights: Float[Array, "... nv"]
    deviation: Deviation
    result: RESULTS
    names: tuple[str, ...] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    velocities: tuple[str, ...] = eqx.field(static=True)

    @property
    def eigenvalues(self) -> np.ndarray:
        """λ (..., n) in 1/s, by size. Of a defective one several are found, as far apart as the root of rounding.

        Raises:
            ValueError: for traced numbers.
        """
        scaled = self.scaled()
        values = np.linalg.eigvals(scaled.A)
        return np.take_along_axis(values, by_size(values), axis=-1) * scaled.rate[..., None]

    @property
    def controllable(self) -> bool:
        """Whether inputs reach every mode (Popov, Belevitch and Hautus): rank [λ − A, B] = n at each eigenvalue λ."""
        return all(mode.controllable for mode in self.modes())

    def modes(self) -> tuple[Eigenmode, ...]:
        """All modes by size of λ, one of each conjugate pair.

        Raises:
            ValueError: for traced numbers, and for several states.
        """
        if self.A.ndim != 2:
            raise ValueError(f"Modes must be those of one state, but there are leading axes {self.A.shape[:-2]}.")
        scaled = self.scaled()
        values, vectors = (np.asarray(x, complex) for x in np.linalg.eig(scaled.A))
        order = [i for i in by_size(values) if np.imag(values[i]) >= 0]
        margins = reach(scaled.A, scaled.B, values)
        return tuple(
            self._mode(complex(values[i] * scaled.rate), scaled.back @ vectors[:, i], margins[i]) for i in order
        )

    def _mode(self, value: complex, vector: np.ndarray, margin: float) -> Eigenmode:
        weights, tangent = np.asarray(self.weights), self.tangent
        energy = np.abs(np.asarray(tangent.r) @ vector) ** 2 * weights
        total = energy.sum()
        # Without any mass in a mode, displacements stand in for energies.
        share = energy / total if total > 0 else np.abs(np.asarray(tangent.r) @ vector) ** 2
        changed = np.asarray(tangent.q) @ vector
        displaced = np.asarray(tangent.r) @ vector
        largest = displaced[np.argmax(energy)] if total > 0 else 1.0
        # An eigenvector is determined up to a factor: its largest share is made real and positive.
        phase = abs(largest) / largest if largest != 0 else 1.0
        size = abs(value)
        return Eigenmode(
            eigenvalue=complex(value),
            frequency=float(abs(value.imag) / (2 * np.pi)),
            damping=float(-value.real / size) if size > 0 else 0.0,
            vector=vector * phase,
            shape={name: complex(x * phase) for name, x in zip(self.coordinates, changed, strict=True)},
            participation={name: float(x) for name, x in zip(self.velocities, share, strict=True)},
            margin=float(margin),
        )

    def scaled(self) -> "Scaled":
        """A and B in numbers without unit: deviations of unit length in the metric of M, time by the fastest rate."""
        if not is_concrete(self.A, self.B, self.metric):
            raise ValueError(
                "Eigenvalues and modes need known numbers, but A is traced; to differentiate, use A itself."
            )
        a, b, metric = (np.asarray(x, float) for x in (self.A, self.B, self.metric))
        n, k = a.shape[-1], len(self.deviation.readings.positions)
        into, back = np.zeros(a.shape), np.zeros(a.shape)
        for part in (slice(0, k), slice(k, n)):  # apart, so that positions and velocities do not mix
            into[..., part, part], back[..., part, part] = _roots(metric[..., part, part])
        a, b = into @ a @ back, into @ b
        size = lambda x: np.sqrt((x**2).sum(axis=(-2, -1)))
        # ‖stiffness‖ is a squared frequency, ‖damping‖ a rate: the faster one is the unit of time.
        rate = np.maximum(np.sqrt(size(a[..., k:, :k])), size(a[..., k:, k:]))
        rate = positive_or_one(rate)
        unit = np.where(np.arange(n) < k, rate[..., None], 1.0)  # positions times the rate are velocities
        a = a * unit[..., :, None] / unit[..., None, :] / rate[..., None, None]
        lengths = np.sqrt((b**2).sum(axis=-2, keepdims=True))
        return Scaled(a, b / positive_or_one(lengths), rate, back / unit[..., None, :])

    def __str__(self) -> str:
        modes = self.modes()
        at_rest = not np.any(np.asarray(self.state.v))
        title = (
            f"Linearisation at t = {float(self.state.t):g} s {'at rest' if at_rest else 'in motion'}: "
            f"{counted(len(self.names), 'state')}, {counted(len(self.inputs), 'input')}, "
            f"rate of the states up to {np.max(np.abs(np.asarray(self.residual)), initial=0):.2g}"
        )
        lines = [table(title, {"states": self.names, "inputs": self.inputs})]
        lines.append(f"  {'eigenvalue, 1/s':<28}{'frequency, Hz':>14}{'damping':>10}  {'inputs':<9}mostly in")
        for mode in modes:
            value = _text_of(mode.eigenvalue, 5)
            reached = "" if not self.inputs else "reach it" if mode.controllable else "do not"
            lines.append(
                f"  {value:<28}{mode.frequency:>14.5g}{round(mode.damping, 4) + 0.0:>10.4f}  {reached:<9}{', '.join(mode.main)}"
            )
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Scaled:
    """A and B without unit; λ of A times `rate`, and vectors in states by `back`."""

    A: np.ndarray
    B: np.ndarray
    rate: np.ndarray
    back: np.ndarray


def by_size(values: np.ndarray) -> np.ndarray:
    """The order of eigenvalues by size, then by real part; of a conjugate pair the one with the positive imaginary part first."""
    real, imaginary = np.real(values), np.imag(values)
    # Rounded to 1e-9, so that conjugate pairs, equal up to rounding, stay together in the order that is asked for.
    return np.lexsort((-imaginary, np.round(real, 9), np.round(np.abs(values), 9)), axis=-1)


def _roots(metric: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A root of a symmetric matrix, by which vectors get its length, and its inverse; directions without mass stay as they are."""
    if not metric.size:
        return metric, metric
    values, basis = np.linalg.eigh(metric)
    largest = np.max(values, axis=-1, keepdims=True)
    root = np.sqrt(np.where(values > MASSLESS * largest, values, positive_or_one(largest)))
    return root[..., :, None] * np.swapaxes(basis, -1, -2), basis / root[..., None, :]


def reach(a: np.ndarray, b: np.ndarray, values: np.ndarray) -> Any:
    """The smallest singular value of [λ − A, B] at each λ."""
    n = a.shape[0]
    if not n:
        return np.zeros(0)
    return np.array(
        [np.linalg.svd(np.concatenate([x * np.eye(n) - a, b], axis=1), compute_uv=False)[-1] for x in values]
    )
