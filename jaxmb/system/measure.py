"""Sizes of rows, residuals and coordinates of a system, in its own units."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from ..foundations import (
    NoNaN,
    Number,
    Positive,
    as_jax,
    as_parameters,
    contract,
    default_float,
    positive_or_one,
    program,
)
from ..linalg import SparseRows, metric_root
from .inertia import rate_matrix
from .mode import Mode
from .state import Scale, State
from .system import System
from .terms import constraint_jacobian, jacobian_rate, position_residual, residuals, sparse_jacobian

Scalar = Float[Array, ""]


class Values(eqx.Module):
    """The values of a system's functions at a state, evaluated once for all checks and sizes there; without derivatives.

    Attributes:
        mass: M (nv, nv).
        jacobian: C (m, nv).
        root: R (nv, nv) with RᵀR = M⁻¹, see `metric_root`.
        measuring: R by which rows and lines are measured, see `heavier`.
        position: φ (m,).
        velocity: C v + b (m,).
        intrinsic: forces (nv,) of inertia and potential.
        applied: the others.
    """

    mass: Float[Array, "nv nv"]
    jacobian: Float[Array, "m nv"]
    root: Float[Array, "nv nv"]
    measuring: Float[Array, "nv nv"]
    position: Float[Array, " m"]
    velocity: Float[Array, " m"]
    intrinsic: Float[Array, " nv"]
    applied: Float[Array, " nv"]

    @classmethod
    def of(
        cls,
        system: System,
        state: State,
        mass: Float[Array, "nv nv"] | None = None,
        jacobian: Float[Array, "m nv"] | None = None,
    ) -> "Values":
        """The values at a state; M (nv, nv) and C (m, nv) may be passed if they are known."""
        # Checks and sizes have no derivatives.
        system, state, mass, jacobian = lax.stop_gradient((system, state, mass, jacobian))
        t, q, v = state.t, state.q, state.v
        mass = system.mass(t, q) if mass is None else mass
        jacobian = constraint_jacobian(system, t, q) if jacobian is None else jacobian
        forces = system.intrinsic_force(t, q, v), system.applied_force(t, q, v)
        # As two lanes of one function: it is large.
        masses = jnp.stack([mass, heavier(system, mass, jacobian)])
        root, measuring = jax.vmap(metric_root, (0, None))(masses, jacobian)
        return cls(mass, jacobian, root, measuring, *residuals(system, t, q, v), *forces)


class _Line(eqx.Module):
    """How rows change along straight lines.

    Attributes:
        bent: whether (m,) they are no linear functions of the distance.
        length: L (m,), the distance at which bent rows have turned.
        change: ‖C(L) − C(0)‖ (m,) of bent rows.
        slope: ‖C(s) − C(0)‖/s (m,) of the others.
        entries: the largest |C_ik| (m, nv) up to where the bent rows turn; those at the pose of the others.
        slopes: |C_ik(s) − C_ik(0)|/s (m, nv) of the others.
    """

    bent: Bool[Array, " m"]
    length: Float[Array, " m"]
    change: Float[Array, " m"]
    slope: Float[Array, " m"]
    entries: Float[Array, "m nv"]
    slopes: Float[Array, "m nv"]


# Powers of two between which distances are tried, in so many directions, and those in single precision. Further out, differences of places
# are rounding, and rows that never change seem to turn.
POWERS, FEWER_POWERS = (-50, 40), (-25, 15)
DIRECTIONS = 4
# Relative second difference at half the distance over which a row turns, by some 50 degrees of an angle.
BENT = 1 / 8
# Over the last doublings of the distance what a linear row has changed by grows by more than this factor.
DOUBLINGS, GROWING = 6, 16
# So many halves of that distance must be without bend: what bends at tiny distances is rounding.
STRAIGHT = 6
# An entry of C below this many units of rounding of the largest one in its column and constraint is zero: sums of rotations and levers
# leave ten, seldom more, and rows of one constraint differ by less than the digits that are left, also where some are lengths and
# some are angles. Rows of other constraints may be in any units, those of one by less than `UNLIKE` apart: in single precision the
# two cannot be distinguished.
ROUNDING, UNLIKE = 100, 1e9
# The least inertia by which a coordinate of a mechanism is measured, relative to the largest of its kind near it, see `heavier`. Measured without:
# a slider–crank in absolute coordinates took 66 steps with a rod of 1e-5 or 1e-6 of the others' mass, 329 with one of 1e-7.
LEAST = 1e-4
# A coordinate that is less than this power of eps beside the others has no size of its own: a place that is zero but for what was rounded to get there.
NEGLIGIBLE = 0.5
# One that is less than this power of eps is rounding beside nothing, as of cos(π/2): 8e-15, and 6e-7 in single precision. Shorter units of length are not meant.
NOTHING = 0.9
# What rounding leaves in constraints is found at so many pairs of poses, by moves of this power of eps.
POSES, MOVE = 32, 0.6


@program
def measure(
    system: System, t: Scalar, q: Float[Array, " nq"], length: Scalar | None = None
) -> tuple[Scale, Bool[Array, " m"], Bool[Array, " m"]]:
    """The sizes at a pose, without Ω, and two masks (m,) of rows that have none, whose sizes are then 1.

    Rows of the first mask are zero everywhere, but for rounding beside other rows; those of the second vanish at the pose, and
    nothing determines over which length they grow.

    Rows are evaluated along generic lines, of unit length per coordinate in the metric of M, at distances s from tiny to huge; a mechanism's light bodies
    count there with `LEAST` of the inertia of their neighbours.
    The length L of a row is where it has ceased to be a linear function of s: half of it is the first s with

        ‖C(2s) − 2 C(s) + C(0)‖ = (‖C(2s) − C(0)‖ + ‖C(0)‖)/8,

    for an angle 0.9 rad at any pose, be the row straight or zero there. A row that is linear throughout, as that of a squared
    distance, has turned where it has changed by its own size, or over the length that other rows give to its coordinates, if
    that is more. With L,

        σ² = ‖C(0)‖² + ‖C(L) − C(0)‖²,   Φ = L ‖C(L) − C(0)‖,   ℓ_k = min Φ_i/max |C_ik|,

    the maximum up to L; a row that never changes has Φ = Σ |C_ik| ℓ_k. Sizes have no derivatives.

    Args:
        system: the system.
        t: time in s.
        q: coordinates (nq,).
        length: ℓ of coordinates whose length no row determines, where one is needed.
    """
    if not system.m:
        none = jnp.zeros(0, q.dtype)
        return Scale(none, none, jnp.zeros(system.nv, q.dtype), none, jnp.zeros_like(t)), none > 0, none > 0
    system, t, q = lax.stop_gradient((system, t, q))
    jacobian = constraint_jacobian(system, t, q)
    root = metric_root(heavier(system, system.mass(t, q), jacobian), jacobian)
    width = jnp.linalg.norm(root, axis=0)  # of each coordinate per unit of length in the metric
    size = jnp.linalg.norm(jacobian @ root.T, axis=1)
    extents = extent(system, q)
    # Distances follow the units; where they start is of no importance.
    line = _sample_lines(system, t, q, jacobian, root, jnp.linalg.norm(extents / width))
    angular, shifts = _joint_rows(system)
    cosines = angular[:, None] | (shifts[:, None] & ~angles(system))
    line, zero = _without_rounding(line, system.row_counts, width, cosines, angles(system))

    linear = line.slope > 0
    # A linear row has no bend to tell a length: it has turned where it has changed by its own size, ‖C(0)‖/slope.
    own = jnp.where(line.bent, line.length, jnp.where(linear, size / jnp.where(linear, line.slope, 1), 0))
    change = jnp.where(line.bent, line.change, jnp.where(linear, size, 0))
    entries = line.entries + line.slopes * own[:, None]
    # The lengths that the other rows give to the coordinates, itself left out: a row must not confirm its own guess.
    others = _least_of_others(_reaches(own * change, entries), jnp.inf if length is None else length)
    others = jnp.min(jnp.where(line.slopes > 0, others / width, jnp.inf), axis=1, initial=jnp.inf)
    others = jnp.where(jnp.isfinite(others), others, 0)
    unknown = linear & (others == 0) & (own * jnp.exp(jnp.mean(jnp.log(width))) < 1e-12)

    # The larger one: where a linear row nearly vanishes its own length is a distance to that pose and no length of the mechanism.
    far = jnp.where(linear, jnp.maximum(own, others), own)
    far = jnp.where(unknown, 1, far)
    change = jnp.where(linear, line.slope * far, change)
    span = far * change
    # In turn: lengths by neighbours, twice, as a row with a length from the first round is a neighbour in the second; then the length of
    # the user, the size of the coordinates, of an angle no less than a radian, and 1.
    extents = jnp.where(angles(system), jnp.maximum(extents, 1), extents)
    extents = jnp.where(extents / width > jnp.finfo(q.dtype).eps ** NEGLIGIBLE * jnp.max(extents / width), extents, 0)
    given = jnp.full_like(extents, 0 if length is None else length)

    def turn(span: Array, fallback: Array) -> tuple[Array, None]:
        reach = _reach(span, entries)
        return jnp.where(span > 0, span, entries @ jnp.where(reach > 0, reach, fallback)), None

    none, one = jnp.zeros_like(extents), jnp.ones_like(extents)
    span, _ = lax.scan(turn, span, jnp.stack([none, none, given, extents, one]))  # rows that never change
    reach = _reach(span, entries)
    # Either part alone may vanish: the row itself at a singular pose, its change if the row is constant.
    row = jnp.sqrt(size**2 + change**2)
    by_length = jnp.linalg.norm(entries * reach, axis=1)
    row, span, by_length = (_of_neighbours(x, zero, system.row_counts) for x in (row, span, by_length))
    # Neighbours may be lengths, which say nothing of rows in rad: these turn with a coordinate of some width, by a radian.
    own_size = zero & angular
    row, span, by_length = (jnp.where(own_size, x, y) for x, y in ((jnp.max(width), row), (1, span), (1, by_length)))
    return Scale(row, span, reach, by_length, jnp.zeros_like(t)), zero, unknown


@program
def with_rate(system: System, state: State, values: Values | None = None) -> State:
    """The state with Ω: how fast rows turn and move by the velocities, and would by the forces; the values there may be known.

    The largest of ‖Ċ_i M^(−1/2)‖/σ_i and Σ |C_ik v_k|/Φ_i, with the acceleration M⁻¹F in place of v of their roots.
    """
    if not system.m:
        return state
    system, fixed = lax.stop_gradient((system, state))
    t, q, v = fixed.t, fixed.q, fixed.v
    here = Values.of(system, fixed) if values is None else values
    jacobian, root = here.jacobian, here.measuring
    vdot = root.T @ (root @ (here.intrinsic + here.applied))
    derivative = lambda direction, tdot: jacobian_rate(system, t, q, direction, tdot)
    # Of a mechanism at rest the forces tell how fast it will go: a row that turns with acceleration a over its length takes a time of
    # a^(−1/2).
    turns = jax.vmap(derivative)(jnp.stack([v, vdot]), jnp.array([1.0, 0.0], q.dtype))
    turning = jnp.linalg.norm((turns / fixed.scale.row[:, None]) @ root.T, axis=-1)
    moving = jnp.abs(jnp.stack([v, vdot])) @ jnp.abs(jacobian).T / fixed.scale.span
    speed, acceleration = jnp.maximum(turning, moving)
    rates = jnp.maximum(speed, jnp.sqrt(acceleration))
    # Where M is singular the free acceleration is not finite, and says nothing of the motion.
    rate = jnp.max(jnp.where(jnp.isfinite(rates), rates, 0), initial=0)
    return dataclasses.replace(state, scale=dataclasses.replace(state.scale, rate=rate))


def heavier(system: System, mass: Array, jacobian: Array) -> Float[Array, "nv nv"]:
    """M by which rows and lines are measured: no coordinate is lighter there than `LEAST` of another of its kind in its rows or the next ones.

    Else lines would carry a light body far away from its neighbours before anything has turned, and rows would get levers of that length.
    """
    if system.joints is None:  # kinds are not known: a length must not be compared with an angle
        return mass
    turning, read = angles(system), (jacobian != 0).astype(mass.dtype)
    # The next ones too: rows of a joint at the origin of a body do not read how that turns.
    near = jnp.linalg.matrix_power(read.T @ read, 2) > 0
    alike = near & (turning[:, None] == turning)
    inertia = jnp.diagonal(mass)
    least = LEAST * jnp.max(jnp.where(alike, inertia, 0), axis=1)
    return mass + jnp.diag(jnp.maximum(least - inertia, 0))


def free_acceleration(system: System, state: State, root: Float[Array, "nv nv"]) -> Float[Array, " nv"]:
    """M⁻¹F, as if there were no constraints; RᵀR, with `root` R, in place of M⁻¹."""
    t, q, v = state.t, state.q, state.v
    return root.T @ (root @ (system.intrinsic_force(t, q, v) + system.applied_force(t, q, v)))


@contract
def as_state(
    system: System,
    q: NoNaN,
    v: NoNaN | None = None,
    *,
    t: Number = 0.0,
    mode: Mode | None = None,
    length: Positive | None = None,
) -> State:
    """A state with the given numbers: they are neither moved onto the constraints nor checked against them.

    Args:
        system: the system.
        q: coordinates (nq,).
        v: velocities (nv,); zero by default.
        t: time in s.
        mode: which constraints act; all by default.
        length: as in `jaxmb.assemble`.

    Raises:
        ValueError: for arrays that do not fit the system.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2),
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> jm.as_state(system, [0.6, 0.7]).q.tolist()
        [0.6, 0.7]
    """
    t, q = (jnp.asarray(as_parameters(x), default_float()) for x in (t, q))
    v = as_jax(np.zeros(system.nv, q.dtype)) if v is None else jnp.asarray(as_parameters(v), default_float())
    length = None if length is None else jnp.asarray(length, default_float())
    for name, value, count in (("q", q, system.nq), ("v", v, system.nv)):
        if value.shape != (count,):
            raise ValueError(f"Argument `{name}` must have shape ({count},), but has shape {value.shape}.")
    if mode is not None:  # rows that do not act have sizes too
        system = system.in_mode(dataclasses.replace(mode, active=as_jax(np.ones(mode.active.shape, bool))))
    state = with_rate(system, State(t, q, v, measure(system, t, q, length)[0]))
    return dataclasses.replace(state, mode=mode)


def _sample_lines(system: System, t: Array, q: Array, jacobian: Array, root: Array, unit: Array) -> _Line:
    n, layout = jacobian.shape[1], system.layout
    # A fixed seed: sizes, and so decisions and steps, must be the same in every process.
    random = np.random.default_rng(0)
    # By coordinate, so that further ones change nothing; none is small, and no two are equal.
    draws = np.stack([random.choice([-1, 1], DIRECTIONS) * random.uniform(0.7, 1.3, DIRECTIONS) for _ in range(n)])
    lines = jnp.asarray(draws.T, q.dtype) @ root
    if layout is None:
        rows_at, dense = lambda q: constraint_jacobian(system, t, q), lambda rows: rows
        squares = lambda rows: jnp.sum((rows @ root.T) ** 2, axis=-1)
    else:  # only the entries that may not be zero
        m = layout.m
        column_numbers = layout.columns.reshape(m, -1)
        metric = jnp.pad(root.T @ root, (0, 1))[column_numbers[:, :, None], column_numbers[:, None]]
        rows_at = lambda q: sparse_jacobian(system, layout, t, q).values.reshape(m, -1)
        dense = lambda rows: SparseRows(rows.reshape(m, -1, layout.blocks.shape[1]), layout).dense()
        squares = lambda rows: jnp.maximum(jnp.einsum("lmi,mij,lmj->lm", rows, metric, rows), 0)
        jacobian = SparseRows.from_dense(layout, jacobian).values.reshape(m, -1)
    sizes = lambda rows: jnp.sqrt(jnp.mean(squares(rows), axis=0))
    at, size = lambda s: jax.vmap(lambda line: rows_at(q + system.qdot(q, s * line)))(lines), sizes(jacobian[None])

    def double(carry: Any, s: Array) -> tuple[Any, tuple[Array, Array, Array]]:
        here, unbent, turned, entries = carry
        there = at(2 * s)
        # Powers of two need one new evaluation each: C(2s) of this distance is C(s) of the next.
        second, shift = sizes(there - 2 * here + jacobian), sizes(there - jacobian)
        bend = second / positive_or_one(shift + size)
        bend = jnp.where(jnp.isfinite(bend), bend, jnp.inf)  # beyond where the functions are defined
        # A bend at tiny distances is rounding, whose second difference is as large as its first. A true one comes after six doublings
        # without.
        turned = turned | ((bend >= BENT) & (unbent >= STRAIGHT))
        unbent = jnp.where(bend < BENT, unbent + 1, 0)
        # `fmax` passes over NaN from beyond where the functions are defined.
        grown = jnp.fmax(entries, jnp.max(jnp.abs(there), axis=0))
        return (there, unbent, turned, jnp.where(turned[:, None], entries, grown)), (bend, shift, turned)

    powers = POWERS if jnp.finfo(q.dtype).eps < 1e-10 else FEWER_POWERS
    s = positive_or_one(unit) * 2.0 ** jnp.arange(*powers, dtype=q.dtype)
    start = (at(s[0]), jnp.zeros(size.shape, int), jnp.zeros(size.shape, bool), jnp.abs(jacobian))
    (last, _, bent, entries), (bend, shift, turned) = lax.scan(double, start, s)
    # Three distances are interpolated, the last one being the first with a bend.
    i = jnp.maximum(jnp.argmax(turned, axis=0), 2)
    # A row may be back where it began, as that of a cam behind its lift: by how much it had changed is what counts.
    most = lax.cummax(jnp.where(jnp.isfinite(shift), shift, 0))
    where, change = _crossing(
        *(jnp.stack([jnp.take_along_axis(x, i[None] - k, axis=0)[0] for k in (2, 1, 0)]) for x in (bend, most))
    )
    growing = shift[-1] > GROWING * shift[-1 - DOUBLINGS]  # else it turns to and fro beside a larger part that stays
    bent &= ~(growing & _by_chance(i, bend, shift, size))
    # Less than 1e-3 of the row at the largest distance is no slope: such a row never changes but for rounding.
    linear = ~bent & (shift[-1] > 1e-3 * size) & growing
    rising = lambda x: jnp.where(linear.reshape((-1,) + (1,) * (x.ndim - 1)), x / (2 * s[-1]), 0)
    slopes = rising(jnp.max(jnp.abs(last - jacobian), axis=0))
    entries = jnp.where(bent[:, None], entries, jnp.abs(jacobian))
    return _Line(
        bent=bent,
        length=2 * s[i] * 2.0**where,
        change=change,
        slope=rising(shift[-1]),
        entries=dense(entries),
        slopes=dense(slopes),
    )


def _by_chance(i: Array, bend: Array, shift: Array, size: Array) -> Bool[Array, " m"]:
    """Whether the first bend, the i-th distance (m,), is none of the row: it comes long after that has changed by its own size, and bends are mostly less from there on.

    What turns to and fro beside a larger part that grows may pass for a bend at any distance.
    """
    beyond = np.arange(len(bend))[:, None] >= i
    mean = jnp.sum(jnp.where(beyond, bend, 0), axis=0) / jnp.sum(beyond, axis=0)
    long_before = jnp.take_along_axis(shift, jnp.maximum(i - DOUBLINGS, 0)[None], axis=0)[0]
    return (long_before > size) & (mean < BENT)


def _joint_rows(system: System) -> tuple[Bool[np.ndarray, " m"], Bool[np.ndarray, " m"]]:
    """The masks of the rows in rad and in m, as far as they are known: those of a mechanism's joints."""
    angular, shifts = np.zeros(system.m, bool), np.zeros(system.m, bool)
    joints = {} if system.joints is None else system.joints.angular_rows
    for name, part in system.rows.items():
        if name in joints:
            angular[part], shifts[part] = joints[name], np.logical_not(joints[name])
    return angular, shifts


def angles(system: System) -> Bool[np.ndarray, " nv"]:
    """The mask of the velocities in rad/s, as far as they are known: those of a mechanism."""
    units = (None,) * system.nv if system.joints is None else system.joints.units[1]
    return np.array([unit == "rad/s" for unit in units], bool)


def _without_rounding(
    line: _Line,
    counts: tuple[int, ...],
    width: Array,
    cosines: Bool[np.ndarray, "m nv"],
    turning: Bool[np.ndarray, " nv"],
) -> tuple[_Line, Bool[Array, " m"]]:
    """The same without entries that are rounding beside other rows of the constraint, and the mask (m,) of rows without any other entry.

    In one column all entries have the same coordinate, and a loop that moves in a plane has rows that would be zero by exact
    arithmetic, whatever the axes. A loop far out in a tree has columns that are rounding throughout, of what moves it as a whole: these are
    recognised by the other columns, in the metric of M (`width`). Entries of joints in rad, and in m for velocities in m/s, are sums of cosines,
    whose rounding is that of 1 however small what is beside them is; where bodies turn and shift about one axis nothing else is there.
    """
    largest = jnp.maximum(line.entries, line.slopes)
    rounding = ROUNDING * float(jnp.finfo(largest.dtype).eps)
    most = _largest_of_constraint(largest, counts)
    most = jnp.where(cosines & (most > 0), jnp.maximum(most, 1), most)
    change = jnp.max(most * width, axis=1, keepdims=True)
    most = jnp.maximum(most, change / width)
    # A lever, by which an angle moves a row, has the rounding of how far bodies are shifted.
    lever = lambda far: jnp.where(turning, jnp.maximum(most, change * far), most)
    far = jnp.where(line.bent, line.length, 0)[:, None]
    # In single precision a hundred units of rounding, 1e-5, may be an entry in another unit: then none is dropped.
    least = rounding if rounding < 1 / UNLIKE else 0
    entries, slopes = (jnp.where(x > least * lever(at), x, 0) for x, at in ((line.entries, far), (line.slopes, 1.0)))
    # A row of rounding only has no size: one read off it would make rounding count as an independent row.
    zero = ~jnp.any((entries > 0) | (slopes > 0), axis=1)
    none = lambda x: jnp.where(zero, 0, x)
    return _Line(
        bent=line.bent & ~zero,
        length=line.length,
        change=none(line.change),
        slope=none(line.slope),
        entries=entries,
        slopes=slopes,
    ), zero


def _of_neighbours(sizes: Array, zero: Array, counts: tuple[int, ...]) -> Array:
    """The sizes, in rows that are zero the largest of the same constraint, or else of all; 1 if there is none."""
    sizes = jnp.where(zero, 0, sizes)
    own, most = _largest_of_constraint(sizes, counts), jnp.max(sizes)
    size = jnp.where(sizes > 0, sizes, jnp.where(own > 0, own, most))
    return positive_or_one(size)


def _largest_of_constraint(values: Array, counts: tuple[int, ...]) -> Array:
    """In each row, and column if there are any, the largest of what is positive in rows of the same constraint."""
    constraint = np.repeat(np.arange(len(counts)), counts)
    return jax.ops.segment_max(values, constraint, len(counts), indices_are_sorted=True)[constraint]


def _crossing(bend: Array, shift: Array) -> tuple[Array, Array]:
    """Where the bend reaches `BENT`, in powers of two from the last of three distances, and the change there.

    Both are nearly powers of the distance, so that parabolas in logarithms find them.
    """
    tiny = jnp.finfo(bend.dtype).tiny
    a, b, c = (jnp.log(jnp.maximum(x, tiny)) - jnp.log(BENT) for x in bend)
    e, f, g = (jnp.log(jnp.maximum(y, tiny)) for y in shift)
    # A parabola through three rising values only; otherwise a straight line through two, or the middle distance.
    rising = jnp.isfinite(c) & (b < c)
    monotone = rising & (a < b)
    # Inverse quadratic interpolation by Lagrange, at nodes −2, −1 and 0.
    i, j, k = (jnp.where(monotone, x, y) for x, y in ((a, -2.0), (b, -1.0), (c, 0.0)))
    x = -2 * j * k / ((i - j) * (i - k)) - i * k / ((j - i) * (j - k))
    straight = jnp.where(rising, -c / jnp.where(rising, c - b, 1), -1.0)
    x = jnp.where(monotone & (x > -1) & (x < 0), x, straight)
    change = e * x * (x + 1) / 2 - f * x * (x + 2) + g * (x + 1) * (x + 2) / 2
    # A row that was constant before, as that of a cam in its dwell, is no power: a parabola through its logarithms leads anywhere.
    change = jnp.clip(change, f, g)
    return x, jnp.exp(jnp.where(rising, change, f))


def _reaches(span: Array, entries: Array) -> Array:
    """Φ_i/|C_ik|; infinite where it is not known."""
    spans = span[:, None]
    # The inner `where` keeps the untaken branch free of 0/0.
    defined = (entries > 0) & (spans > 0)
    return jnp.where(defined, spans / jnp.where(defined, entries, 1), jnp.inf)


def _least_of_others(values: Array, otherwise: Array | float) -> Array:
    """The least of each column, that of the row itself left out; infinite ones replaced."""
    first = jnp.min(values, axis=0, initial=jnp.inf)
    winner = jnp.argmin(values, axis=0)
    itself = jnp.arange(values.shape[0])[:, None] == winner
    second = jnp.min(jnp.where(itself, jnp.inf, values), axis=0, initial=jnp.inf)
    least = jnp.where(itself, second, first)
    return jnp.where(jnp.isfinite(least), least, otherwise)


def _reach(span: Array, entries: Array) -> Array:
    """How far each coordinate moves: min Φ_i/|C_ik|, zero where no row tells."""
    reach = jnp.min(_reaches(span, entries), axis=0, initial=jnp.inf)
    return jnp.where(jnp.isfinite(reach), reach, 0)


def rounding_nearby(system: System, state: State) -> Float[Array, ""]:
    """What rounding leaves of φ at poses around a state, relative to the size of the mechanism."""
    moves = np.random.default_rng(0).uniform(-1, 1, (POSES, system.nv))
    moves = jnp.finfo(state.q.dtype).eps ** MOVE * moves * state.scale.reach
    # A second difference, so that only rounding is left; all poses are lanes of one evaluation. Not to both sides alike: to these numbers are often
    # rounded alike.
    at = jax.vmap(lambda move: position_residual(system, state.t, system.displaced(state.q, move)))
    far, near, here = jnp.split(at(jnp.concatenate([2 * moves, moves, 0 * moves])), 3)
    bend = far - 2 * near + here
    return jnp.max(jnp.abs(bend) / state.scale.span, initial=0)


def extent(system: System, q: Array) -> Array:
    """|q| as displacements of the velocities' coordinates, zero where it is rounding."""
    extents = jnp.abs(q)
    if system.rate is not None:
        matrix = jnp.abs(rate_matrix(system.rate, q, system.nv))
        extents = (matrix.T @ extents) / jnp.sum(matrix**2, axis=0)
    return jnp.where(extents > jnp.finfo(q.dtype).eps ** NOTHING, extents, 0)
