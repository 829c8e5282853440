"""Linear-quadratic regulators for linearised systems."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PyTree

from ..foundations import (
    Finite,
    Matrix,
    Number,
    Positive,
    TextInNotebooks,
    contract,
    counted,
    expect_shape,
    is_concrete,
    listing,
    positive_or_one,
    table,
    warn,
)
from .linearisation import MAIN_SHARE, REACH, Linearisation, reach
from .readings import Deviation

# An eigenvalue within this distance of the border of stability, relative to the fastest rate, is on it: a double one at zero, such as that of
# a free body, is found to the root of rounding only, 1e-8.
BORDER = 1e-7
# A matrix of weights is symmetric, and semidefinite with a diagonal of ones, up to these errors of its entries.
ASYMMETRY, INDEFINITENESS = 1e-12, 1e-10
# By so much of its reach a coordinate may be off where the loop comes to rest: poses are often given to three digits. Of one that no constraint
# tells the reach of, such as the angle of an open arm, it is one.
OFF = 1e-3


class StateFeedback(eqx.Module):
    """u = u₀ − K x(t, q, v), a control law for `simulate`."""

    gain: Float[Array, "nu n"]
    u: Float[Array, " nu"]
    deviation: Deviation

    def __call__(
        self, t: ArrayLike, q: Float[Array, " nq"], v: Float[Array, " nv"], params: PyTree
    ) -> Float[Array, " nu"]:
        """The inputs."""
        return self.u - self.gain @ self.deviation(t, q, v, params)


class LQR(TextInNotebooks, eqx.Module):
    """A linear-quadratic regulator.

    Attributes:
        gain: K (nu, n) of δu = −K δx.
        cost: P (n, n), xᵀP x being the cost of all that follows on x.
        eigenvalues: of the closed loop (n,): of A − B K in 1/s, or of the step from one sample to the next.
        A: (n, n) of δẋ = A δx + B δu, or of the step.
        B: (n, nu) likewise.
        linearisation: what it was made for.
        period: the time between samples in s; None for continuous feedback.
    """

    gain: Float[Array, "nu n"]
    cost: Float[Array, "n n"]
    eigenvalues: np.ndarray
    A: Float[Array, "n n"]
    B: Float[Array, "n nu"]
    linearisation: Linearisation
    period: float | None = eqx.field(static=True)

    @property
    def law(self) -> StateFeedback:
        """The law u = u₀ − K x as `control(t, q, v, params)`.

        x is read off the state: differences of joint coordinates, N⁺(q₀)(q − q₀) along velocities otherwise, and velocities. Full
        turns are not taken off angles. The gain of a sampled regulator is meant for inputs that are held for a period.
        """
        return StateFeedback(self.gain, self.linearisation.u, self.linearisation.deviation)

    def __str__(self) -> str:
        about = self.linearisation
        how = "continuous" if self.period is None else f"sampled every {self.period:g} s"
        unit = "1/s" if self.period is None else "per step"
        lines = [f"Linear-quadratic regulator, {how}: {counted(len(about.inputs), 'input')}"]
        for name, row in zip(about.inputs, np.asarray(self.gain), strict=True):
            gains = [f"{state} {gain:+.5g}" for state, gain in zip(about.names, row, strict=True)]
            lines.append(table("", {f"−{name}": gains}).lstrip("\n"))
        values = [f"{x.real:+.5g}{x.imag:+.5g}i" if x.imag else f"{x.real:+.5g}" for x in self.eigenvalues]
        lines.append(table("", {f"loop, {unit}": values}).lstrip("\n"))
        return "\n".join(lines)


@contract
def lqr(
    linearisation: Linearisation,
    Q: Finite | Mapping[str, Number],
    R: Finite | Mapping[str, Number],
    *,
    N: Matrix | None = None,
    period: Positive | None = None,
) -> LQR:
    """The feedback δu = −K δx of least ∫ (xᵀQ x + uᵀR u + 2 xᵀN u) dt.

        AᵀP + P A − (P B + N) R⁻¹ (BᵀP + Nᵀ) + Q = 0,   K = R⁻¹ (BᵀP + Nᵀ)

    With a `period` inputs are held between samples, and the sum over the samples takes the place of the integral:

        P = A_dᵀP A_d − (A_dᵀP B_d + N) K + Q,   K = (R + B_dᵀP B_d)⁻¹ (B_dᵀP A_d + Nᵀ)

    with [A_d, B_d; 0, I] = exp([A, B; 0, 0] period). Anderson and Moore 1990; solved by SciPy, for known numbers only.

    Args:
        linearisation: of `linearise`, about an equilibrium; a warning tells where it is about none.
        Q: weights of the states: a matrix (n, n), a diagonal (n,), or by name, zero for those not named.
        R: weights of the inputs: a matrix (nu, nu), a diagonal (nu,), a number for all, or by name.
        N: weights (n, nu) of products; none by default.
        period: time between samples in s; continuous by default.

    Returns:
        An `LQR`; its `law` is a control law for `simulate`.

    Raises:
        ValueError: for weights that do not fit or are not definite, traced numbers, and where no feedback can stabilise the
            system or its cost does not ask for it; the message names the modes.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> cart = jm.System(("s",), mass=lambda t, q, p: jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
        >>> regulator = jm.control.lqr(jm.linearise(cart, jm.assemble(cart)), {"s": 1.0, "s'": 1.0}, 1.0)
        >>> [round(float(x), 6) for x in regulator.gain[0]]
        [1.0, 1.732051]
    """
    if not is_concrete(linearisation, Q, R, N, period):
        raise ValueError("Argument `linearisation` and the weights must be known numbers, but are traced.")
    if linearisation.A.ndim != 2:
        raise ValueError(
            f"Argument `linearisation` must be that of one state, but has leading axes {linearisation.A.shape[:-2]}."
        )
    # SciPy where it is needed: its linear algebra takes a while to import.
    from scipy.linalg import solve_continuous_are, solve_discrete_are

    a, b = np.asarray(linearisation.A, float), np.asarray(linearisation.B, float)
    n, nu = b.shape
    if not nu:
        raise ValueError("Argument `linearisation` must be that of a system with inputs, but it has none.")
    q = _weights(Q, linearisation.names, "Q", 0.0)
    r = _weights(R, linearisation.inputs, "R", None)
    cross = np.zeros((n, nu)) if N is None else np.asarray(N, float)
    expect_shape("`N`", cross, (n, nu))
    _check_definite(q, r, cross)
    if period is not None:
        period = float(period)
        a, b = _discretised(a, b, period)
    _check_modes(
        linearisation, a, b, q - cross @ np.linalg.solve(r, cross.T), a - b @ np.linalg.solve(r, cross.T), period
    )
    if period is None:
        cost = solve_continuous_are(a, b, q, r, s=cross)
        gain = np.linalg.solve(r, b.T @ cost + cross.T)
    else:
        cost = solve_discrete_are(a, b, q, r, s=cross)
        gain = np.linalg.solve(r + b.T @ cost @ b, b.T @ cost @ a + cross.T)
    values = np.linalg.eigvals(a - b @ gain)
    _warn_of_motion(linearisation, gain)
    return LQR(
        gain=jnp.asarray(gain),
        cost=jnp.asarray(cost),
        eigenvalues=values,
        A=jnp.asarray(a),
        B=jnp.asarray(b),
        linearisation=linearisation,
        period=period,
    )


def _weights(
    weights: Finite | Mapping[str, Number], names: tuple[str, ...], argument: str, missing: float | None
) -> np.ndarray:
    """The symmetric matrix of weights."""
    n = len(names)
    if isinstance(weights, Mapping):
        weights = _by_name(weights, names, argument, missing)
    matrix = np.asarray(weights, float)
    if matrix.ndim == 0 and missing is None:
        matrix = np.full(n, matrix)
    if matrix.ndim == 1:
        matrix = np.diag(matrix)
    if matrix.shape != (n, n):
        raise ValueError(
            f"Argument `{argument}` must {'be a number, ' if missing is None else ''}have shape ({n}, {n}) or ({n},), or hold weights by name, but has shape "
            f"{np.asarray(weights).shape}."
        )
    if not np.all(np.isfinite(matrix)) or np.any(np.abs(matrix - matrix.T) > ASYMMETRY * np.abs(matrix).max()):
        raise ValueError(f"Argument `{argument}` must be a symmetric matrix of finite numbers, but is not.")
    return (matrix + matrix.T) / 2


def _by_name(weights: Mapping[str, Number], names: tuple[str, ...], argument: str, missing: float | None) -> np.ndarray:
    """Weights in the order of the names."""
    unknown = [name for name in weights if name not in names]
    absent = [name for name in names if name not in weights] if missing is None else []
    if unknown or absent:
        what = f"holds {listing(unknown)}" if unknown else f"lacks {listing(absent)}"
        raise ValueError(f"Argument `{argument}` must hold weights by name out of {listing(names)}, but {what}.")
    return np.array([float(weights.get(name, missing)) for name in names])


def _check_definite(q: np.ndarray, r: np.ndarray, cross: np.ndarray) -> None:
    lowest = np.linalg.eigvalsh(r)[0]
    if not lowest > 0:
        raise ValueError(f"Argument `R` must be positive definite, but its smallest eigenvalue is {lowest:.3g}.")
    # With products xᵀN u the cost is that of u + R⁻¹Nᵀx, and Q − N R⁻¹Nᵀ is what states alone cost (Anderson and
    # Moore 1990).
    rest = q - cross @ np.linalg.solve(r, cross.T)
    unit = np.sqrt(np.abs(np.diagonal(q)))
    unit = positive_or_one(unit)
    lowest = np.linalg.eigvalsh(rest / np.outer(unit, unit))[0] if q.size else 0.0
    if lowest < -INDEFINITENESS:
        raise ValueError(
            "Argument `Q` must be positive semidefinite, as Q − N R⁻¹Nᵀ, but is not: with a diagonal of ones its smallest eigenvalue "
            f"is {lowest:.3g}."
        )


def _discretised(a: np.ndarray, b: np.ndarray, period: float) -> tuple[np.ndarray, np.ndarray]:
    """A_d and B_d of inputs that are held."""
    from scipy.linalg import expm

    n, nu = b.shape
    # Van Loan (1978): one exponential holds A_d and the integral B_d, also where A has no inverse.
    exponential = expm(np.block([[a, b], [np.zeros((nu, n + nu))]]) * period)
    return exponential[:n, :n], exponential[:n, n:]


def _check_modes(
    about: Linearisation, a: np.ndarray, b: np.ndarray, weight: np.ndarray, free: np.ndarray, period: float | None
) -> None:
    """Inputs reach all modes that do not decay, and the cost sees all that neither grow nor decay."""
    scaled = about.scaled()
    rate = scaled.rate if period is None else 1.0
    to_unit = lambda m: np.linalg.solve(scaled.back, m @ scaled.back) / rate
    lengths = lambda m: np.linalg.norm(m, axis=0)
    unit = lambda m: m / positive_or_one(lengths(m))
    beyond = lambda x: x.real if period is None else np.abs(x) - 1
    names = lambda vectors: "; ".join(
        dict.fromkeys(_described(about, scaled.back @ x, complex(value)) for value, x in vectors)
    )

    # SciPy's solvers fail, or return a wrong P, without stabilisability and detectability, and say not of which mode.
    # Popov, Belevitch and Hautus tell, one eigenvalue at a time.
    values, vectors = np.linalg.eig(to_unit(a))
    margins = reach(to_unit(a), unit(np.linalg.solve(scaled.back, b)), values)
    stuck = [(values[i] * rate, vectors[:, i]) for i in np.flatnonzero((margins < REACH) & (beyond(values) > -BORDER))]
    if stuck:
        raise ValueError(
            "Argument `linearisation` must be stabilisable, but no input reaches modes that do not decay: "
            + names(stuck)
            + "."
        )
    # Modes on the border that cost nothing leave Riccati's equation without a stabilising solution; decaying and
    # growing ones may.
    values, vectors = np.linalg.eig(to_unit(free))
    cost = scaled.back.T @ weight @ scaled.back
    cost = cost / max(np.abs(cost).max(), np.finfo(float).tiny)
    margins = reach(to_unit(free).T, cost, values)
    costless = [
        (values[i] * rate, vectors[:, i]) for i in np.flatnonzero((margins < REACH) & (np.abs(beyond(values)) < BORDER))
    ]
    if costless:
        raise ValueError(
            "Argument `Q` must weight all modes that neither grow nor decay, but these cost nothing: "
            + names(costless)
            + "."
        )


def _warn_of_motion(about: Linearisation, gain: np.ndarray) -> None:
    """Warns where the state accelerates under its inputs, and the loop comes to rest elsewhere."""
    k, residual = len(about.deviation.readings.positions), np.asarray(about.residual, float)
    # Rates of positions are those of a motion that goes on, such as that of a cart: only their changes are for the loop to balance.
    change = np.where(np.arange(residual.size) < k, 0.0, residual)
    rest = np.asarray(about.tangent.r) @ np.linalg.solve(np.asarray(about.A) - np.asarray(about.B) @ gain, -change)
    size = np.asarray(about.state.scale.reach)
    part = np.abs(rest) / positive_or_one(size)
    if np.max(part, initial=0.0) > OFF:
        most, off = int(np.argmax(np.abs(change))), int(np.argmax(part))
        warn(
            f'Argument `linearisation` should be about an equilibrium, but under its inputs "{about.names[most]}" changes by {change[most]:.3g} a second: the '
            f"regulator comes to rest where '{about.velocities[off]}' is off by {abs(rest[off]):.3g}. `jaxmb.equilibrium` finds a pose, and inputs that hold it."
        )


def _described(about: Linearisation, vector: np.ndarray, value: complex) -> str:
    """The eigenvalue of a mode and the states that it moves most."""
    energy = np.abs(np.asarray(about.tangent.r) @ vector) ** 2 * np.asarray(about.weights)
    order = np.argsort(-energy)[:3]
    main = [about.velocities[i] for i in order if energy[i] > MAIN_SHARE * energy.sum()]
    number = f"{value.real:.4g}" + (f" ± {abs(value.imag):.4g}i" if abs(value.imag) > 1e-12 else "")
    return f"{number} of {listing(main)}"
