"""Whether a gradient is that of the values: reverse mode, forward mode and differences along random directions."""

import dataclasses
import textwrap
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..foundations import Count, Key, Positive, TextInNotebooks, calling, contract, expect_returned, function_of

# The first step of differences, relative to the largest number of each array, and by which factor each next one is smaller: so many of them
# reach from 1e-1 down to 1e-5 of it. Far below, rounding of the function takes over; far above, terms of high order.
FIRST_STEP, FACTOR, STEPS = 1e-1, 2.0, 14
Value = Callable[[Sequence[Array]], Array]
Derivative = Callable[[Sequence[Array], Sequence[Array]], Array]
# One-sided slopes at the smallest steps that differ by more than this part of the slope tell a kink; smooth functions differ by O(h).
KINK = 1e-2
# How much slopes bend is read off this many of the largest steps, of which the smallest is a few parts in a thousand: rounding is far below.
BENDS = 6
# The noise of values is read off slopes by so many of the smallest steps.
SCATTER = 5
# One-sided slopes that grow by this factor from the largest step to the smallest, by 8,192 for a jump, tell one, or noise.
JUMP = 10


@dataclasses.dataclass(frozen=True)
class DirectionalDerivative:
    """Derivatives of a function along one direction.

    Attributes:
        name: which arrays move: all of them, "all 1" and so on, or the one at a path.
        reverse: by reverse mode, the gradient times the direction.
        forward: by forward mode; None where the function has none.
        difference: by central differences, extrapolated.
        uncertainty: estimated error of `difference`, from the same table.
        agrees: whether all of them agree.
        reason: the kind of disagreement, in words; empty if there is none.
    """

    name: str
    reverse: float
    forward: float | None
    difference: float
    uncertainty: float
    agrees: bool
    reason: str

    @property
    def digits(self) -> float:
        """Number of digits to which reverse mode and differences agree; differences themselves have no more than −log₁₀(uncertainty/|slope|)."""
        size = max(abs(self.reverse), abs(self.difference))
        off = abs(self.reverse - self.difference)
        if not np.isfinite(off):
            return 0.0
        return 16.0 if off == 0 or size == 0 else max(0.0, -float(np.log10(off / size)))


@dataclasses.dataclass(frozen=True)
class GradientCheck(TextInNotebooks):
    """What `check_gradient` has compared; prints as a table.

    Attributes:
        value: of the function.
        directions: what was compared along each direction.
        without_forward: why there is no forward mode; empty if there is one.
    """

    value: float
    directions: tuple[DirectionalDerivative, ...]
    without_forward: str

    @property
    def agrees(self) -> bool:
        """Whether all derivatives agree along all directions."""
        return all(x.agrees for x in self.directions)

    def __str__(self) -> str:
        number = lambda x: "         –" if x is None else f"{x: .9e}"
        width = max(len(x.name) for x in self.directions)
        lines = [f"Gradient of a function of value {self.value:.9g}: {'agrees' if self.agrees else 'DISAGREES'}"]
        lines.append(
            f"  {'direction':{max(width, 9)}s}  {'reverse':>16s}  {'forward':>16s}  {'differences':>16s}  ±        digits"
        )
        for x in self.directions:
            row = f"  {x.name:{max(width, 9)}s}  {number(x.reverse):>16s}  {number(x.forward):>16s}  {number(x.difference):>16s}"
            lines.append(f"{row}  {x.uncertainty:.1e}  {x.digits:4.1f}" + (f"  {x.reason}" if x.reason else ""))
        if self.without_forward:
            lines.append(f"  no forward mode: {self.without_forward}")
        return "\n".join(lines)


@contract
def check_gradient(
    fn: Annotated[Any, function_of("at")],
    at: PyTree,
    *,
    rtol: Positive = 1e-6,
    directions: Count = 2,
    key: Key | None = None,
) -> GradientCheck:
    """Compares the gradient of a function by reverse mode with forward mode and with differences of its values.

    The comparison is made along `directions` random directions of all arrays, and along one direction of each array by
    itself, so that a disagreement names the array. Differences are central ones with steps from 1e-1 to 1e-5 of the
    largest number of each array, extrapolated to a step of zero; the entry of least error of that table is taken
    (Ridders, Accurate computation of F′(x) and F′(x) F″(x), Advances in Engineering Software 4, 1982), and its error is
    reported.

    Args:
        fn: a function of `at` that returns a floating-point number, such as a cost of a run of `simulate`.
        at: the point, a pytree of floating-point arrays or numbers.
        rtol: derivatives agree if they differ by less than this fraction of their size, or of their change within a step of 1e-1, or within the
            error of the differences and the rounding of values. So they may agree at a minimum, where all of them are next to zero.
        directions: how many directions move all arrays.
        key: of `jax.random`, for the directions.

    Returns:
        A `GradientCheck`, with a verdict and a reason for each direction.

    Raises:
        ValueError: if `at` holds no floating-point number, and if the function does not return one.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> found = jm.check_gradient(lambda p: jnp.sin(p["a"]) * jnp.sum(p["b"] ** 2), {"a": 0.3, "b": jnp.array([1.0, -2.0])})
        >>> found.agrees, [x.name for x in found.directions]
        (True, ['all 1', 'all 2', "['a']", "['b']"])
    """
    point = _Point.of(at)
    value_of = point.function(fn, "fn")
    value, gradient = jax.jit(jax.value_and_grad(value_of))(point.start)
    derivative, without_forward = _forward_mode(value_of, point.start)
    seed = 0 if key is None else np.asarray(jax.random.key_data(key)).ravel()
    rng, results = np.random.default_rng(seed), []
    of_all = [(f"all {i + 1}", None) for i in range(int(directions))]
    for name, which in (*of_all, *((name, i) for i, name in enumerate(point.names))):
        direction = [_direction(rng, x) if which in (None, i) else jnp.zeros_like(x) for i, x in enumerate(point.start)]
        results.append(
            _compare(name, value_of, point.start, direction, float(value), gradient, derivative, float(rtol))
        )
    return GradientCheck(float(value), tuple(results), without_forward)


@dataclasses.dataclass(frozen=True)
class _Point:
    """Where a gradient is taken: all leaves, and which of them have a derivative."""

    leaves: list[PyTree]
    structure: PyTree
    moving: list[int]
    names: list[str]

    @classmethod
    def of(cls, at: PyTree) -> "_Point":
        flat, structure = jax.tree_util.tree_flatten_with_path(at)
        leaves = [np.asarray(x) if isinstance(x, float) else x for _, x in flat]
        floating = lambda x: hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating) and x.size
        moving = [k for k, x in enumerate(leaves) if floating(x)]
        if not moving:
            raise ValueError("Argument `at` must hold floating-point numbers, but holds none.")
        names = [jax.tree_util.keystr(flat[k][0]) or "argument" for k in moving]
        return cls(leaves, structure, moving, names)

    @property
    def start(self) -> list[Array]:
        """The arrays with a derivative."""
        return [jnp.asarray(self.leaves[k]) for k in self.moving]

    def function(self, fn: Callable[[PyTree], Array], argument: str) -> Value:
        """The function of those arrays alone, which must return a number."""

        def value_of(xs: Sequence[Array]) -> Array:
            own = dict(zip(self.moving, xs, strict=True))
            with calling(argument):
                value = fn(jax.tree.unflatten(self.structure, [own.get(k, x) for k, x in enumerate(self.leaves)]))
            expect_returned(argument, value, ())
            return jnp.asarray(value)

        jax.eval_shape(value_of, self.start)
        return jax.jit(value_of)


def _direction(rng: np.random.Generator, x: Array) -> Array:
    """A random direction, as large as the array: a step of the same part moves all quantities alike, whatever their units."""
    size = float(jnp.max(jnp.abs(x)))
    return jnp.asarray(rng.normal(size=x.shape) * (size if size > 0 else 1.0), x.dtype)


def _forward_mode(value_of: Value, start: Sequence[Array]) -> tuple[Derivative | None, str]:
    """The derivative along a direction, or None and why there is none."""
    derivative = jax.jit(lambda xs, dots: jax.jvp(value_of, (xs,), (dots,))[1])
    try:
        derivative.lower(list(start), list(start))  # not by shapes alone: JAX refuses some functions as late as here
    except Exception as error:  # JAX and its users refuse in many ways what has reverse mode only
        return None, textwrap.shorten(str(error).splitlines()[0], 200, placeholder=" …")
    return derivative, ""


def _compare(
    name: str,
    value_of: Value,
    start: Sequence[Array],
    direction: Sequence[Array],
    value: float,
    gradient: Sequence[Array],
    derivative: Derivative | None,
    rtol: float,
) -> DirectionalDerivative:
    reverse = float(sum(jnp.sum(g * d) for g, d in zip(gradient, direction, strict=True)))
    forward = None if derivative is None else float(derivative(list(start), list(direction)))
    steps = FIRST_STEP / FACTOR ** np.arange(STEPS)

    def value_at(h: float) -> float:
        try:
            return float(value_of([x + h * d for x, d in zip(start, direction, strict=True)]))
        except jax.errors.JaxRuntimeError:  # of a run, or a search, that raises where it fails
            return float("nan")

    above, below = (np.array([value_at(sign * h) for h in steps]) for sign in (1.0, -1.0))
    difference, uncertainty = _extrapolated((above - below) / (2 * steps), steps)
    # Where a function is stationary its slope has no size of its own, but that by which it changes within the first step.
    bends = np.abs(above - 2 * value + below)[:BENDS] / steps[:BENDS] ** 2 * FIRST_STEP
    bend = float(np.min(bends, where=np.isfinite(bends), initial=np.inf))
    sizes = [reverse, difference, 0.0 if forward is None else forward, bend if np.isfinite(bend) else 0.0]
    size = max(map(abs, sizes))
    # A slope that is zero is rounding by all three ways: of values, over the smallest step.
    rounding = (
        float(jnp.finfo(start[0].dtype).eps) * float(np.nanmax(np.abs([value, *above, *below]), initial=0)) / steps[-1]
    )
    within = lambda a, b, error=0.0: bool(abs(a - b) <= rtol * size + error + rounding)
    by_differences = np.isfinite(difference) and within(reverse, difference, uncertainty)
    modes_agree = forward is None or within(reverse, forward)
    reason = ""
    if not (by_differences and modes_agree):
        reason = _reason(value, reverse, forward, above, below, steps, modes_agree)
    return DirectionalDerivative(
        name=name,
        reverse=reverse,
        forward=forward,
        difference=difference,
        uncertainty=uncertainty,
        agrees=not reason,
        reason=reason,
    )


def _extrapolated(slopes: Float[np.ndarray, " k"], steps: Float[np.ndarray, " k"]) -> tuple[float, float]:
    """The entry of least error of Ridders' table of central differences, whose steps fall by `FACTOR`, and that error."""
    best, error = float("nan"), float("inf")
    before: list[float] = []
    # By how much slopes scatter at the smallest steps, times the step, values do: of a run by its tolerance, far more than by rounding.
    scatter = np.abs(np.diff(slopes)[-SCATTER:]) * steps[-SCATTER:]
    scatter = np.median(scatter[np.isfinite(scatter)]) if np.isfinite(scatter).any() else 0.0
    for slope, noise in zip(slopes, scatter / steps, strict=True):
        if not np.isfinite(slope):
            before = []  # a step that leads to where the function has no value: the table begins with smaller ones
            continue
        row = [float(slope)]
        for j, coarser in enumerate(before):
            # Central differences have errors of even powers of h only: each column removes the next one.
            power = FACTOR ** (2 * (j + 1))
            row.append((power * row[j] - coarser) / (power - 1))
            off = max(abs(row[j + 1] - row[j]), abs(row[j + 1] - coarser)) + noise
            if off < error:
                best, error = row[j + 1], off
        before = row
    return best, error


def _reason(
    value: float,
    reverse: float,
    forward: float | None,
    above: Float[np.ndarray, " k"],
    below: Float[np.ndarray, " k"],
    steps: Float[np.ndarray, " k"],
    modes_agree: bool,
) -> str:
    """What a disagreement looks like."""
    if not np.isfinite(value):
        return "the function has no finite value here: a failed run"
    if not np.isfinite(reverse) or (forward is not None and not np.isfinite(forward)):
        return "the derivative is not finite: a failed run, or a function without a derivative here"
    if not modes_agree:
        return "reverse and forward mode differ"
    if not (np.isfinite(above).all() and np.isfinite(below).all()):
        return "the function has no finite value nearby: a run fails there"
    rising, falling = (above - value) / steps, (value - below) / steps
    # With their difference at the largest step, so that a smooth minimum is no kink.
    size = max(abs(reverse), *np.abs([rising[-1], falling[-1], rising[0] - falling[0]]))
    # A jump makes one-sided slopes grow without bound as steps shrink; noise, as of a tolerance that is loose, makes them irregular.
    if max(abs(rising[-1]), abs(falling[-1])) > JUMP * max(abs(rising[0]), abs(falling[0]), abs(reverse)):
        return "values jump or are noisy at small steps: an event changes its order, or the tolerance of a run is loose"
    if abs(rising[-1] - falling[-1]) > KINK * size:
        return "the slopes on both sides differ: a kink"
    return "the derivative is not that of the values"
