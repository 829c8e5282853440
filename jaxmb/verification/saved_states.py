"""The saved states of a run, or of a batch of runs, as the constraints see them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..formulation import AbstractFormulation, formulation_at
from ..foundations import as_jax, positive_or_one, program, strong
from ..kinematics import by_lengths, choose_rows, consistency
from ..simulation import Solution
from ..system import State, System, apply_mode, jacobian_rate, rate_matrix, rows_at

# States are looked at by blocks whose C have so many entries, of no fewer and no more states than these: memory is bounded, and all runs of a
# system share a program. A call takes some 3 ms, so that small blocks of small systems would be slow.
ENTRIES, FEWEST, MOST = 2**16, 16, 512
# From one saved time to the next rows may turn by so many radians, at the rates of both ends: beyond a right angle a sign would say nothing.
RESOLVED = 1.0


class _Block(eqx.Module):
    """What constraints say of a state, or of each of several, see `SavedStates`."""

    qdot: Float[Array, "*b nq"]
    reach: Float[Array, "*b nq"]
    position: Float[Array, "*b k"]
    velocity: Float[Array, "*b k"]
    contradiction: Float[Array, "*b k"]
    redundancy: Int[Array, "*b"]
    singular: Bool[Array, "*b"]
    distance: Float[Array, "*b"]
    turning: Float[Array, "*b"]
    turned: Bool[Array, "*b"]


@dataclasses.dataclass(frozen=True)
class Peak:
    """The largest of some values: how large, of which run, when, and of which entry."""

    value: float
    run: tuple[int, ...]
    t: float
    entry: int


@dataclasses.dataclass(frozen=True)
class SavedStates:
    """States at T times of B runs; what was not reached repeats another state and is masked by `reached`.

    Attributes:
        axes: leading axes of the batch, B entries in all.
        names: of the constraints, and locks.
        ts: times (B, T) in s.
        reached: mask (B, T).
        following: whether (B, T − 1) a state and the next one were both reached, and no event has happened between.
        q, qdot: coordinates and their rates (B, T, nq).
        reach: ℓ (B, T, nq), how far each coordinate moves while rows turn; zero where no row determines it.
        extent: the larger of that and of how far each coordinate gets in the run (B, T, nq).
        position, velocity: largest residuals of each constraint (B, T, k), relative to Φ and to Φ Ω.
        contradiction: by how much no acceleration satisfies a constraint (B, T, k), relative to its terms.
        redundancy: number (B, T) of redundant rows.
        singular: whether (B, T) rows are dependent at the pose that are independent nearby.
        distance: of the rows in use from being dependent (B, T), see `jaxmb.kinematics.distance_to_dependence`.
        turning: how fast (B, T) rows turn, in rad/s.
        turned: whether (B, T − 1) a row has changed its sign until the next state.
        flat: all states, of B T times.
    """

    axes: tuple[int, ...]
    names: tuple[str, ...]
    ts: Float[np.ndarray, "B T"]
    reached: Bool[np.ndarray, "B T"]
    following: Bool[np.ndarray, "B T-1"]
    q: Float[np.ndarray, "B T nq"]
    qdot: Float[np.ndarray, "B T nq"]
    reach: Float[np.ndarray, "B T nq"]
    extent: Float[np.ndarray, "B T nq"]
    position: Float[np.ndarray, "B T k"]
    velocity: Float[np.ndarray, "B T k"]
    contradiction: Float[np.ndarray, "B T k"]
    redundancy: Int[np.ndarray, "B T"]
    singular: Bool[np.ndarray, "B T"]
    distance: Float[np.ndarray, "B T"]
    turning: Float[np.ndarray, "B T"]
    turned: Bool[np.ndarray, "B T-1"]
    flat: State

    @classmethod
    def of(cls, system: System, solution: Solution) -> "SavedStates":
        """Those of a solution with known numbers."""
        axes = solution.ts.shape[:-1]
        shape = (int(np.prod(axes)), solution.ts.shape[-1])
        states = dataclasses.replace(solution.states, control=None)
        flat: State = jax.tree.map(
            lambda x: np.asarray(x).reshape(shape[0] * shape[1], *x.shape[len(axes) + 1 :]), states
        )
        reached = np.asarray(np.isfinite(flat.q).all(axis=1) & np.isfinite(flat.v).all(axis=1))
        flat = eqx.tree_at(lambda state: state.scale.rate, flat, _rates(flat, reached, shape))
        # Of what was not reached nothing is read: a state that was stands for it, so that no NaN enters decisions about rows.
        present = np.where(reached, np.arange(reached.size), np.argmax(reached))
        flat = jax.tree.map(lambda x: x[present], flat)
        blocks = _blocks(strong(system), formulation_at(None, system, solution.states), flat)
        reshaped = lambda x: x.reshape(*shape, *x.shape[1:])
        values = {x.name: reshaped(getattr(blocks, x.name)) for x in dataclasses.fields(blocks)}
        reached, q = reshaped(reached), reshaped(np.asarray(flat.q))
        values["extent"] = np.maximum(values["reach"], _ranges(q, reached))
        values["turned"] = values["turned"][:, :-1]
        ts = np.asarray(solution.ts).reshape(shape)
        names = tuple(system.in_mode(solution.modes).rows)
        following = reached[:, 1:] & reached[:, :-1] & ~_eventful(solution, ts)
        return cls(axes=axes, names=names, ts=ts, reached=reached, following=following, q=q, flat=flat, **values)

    @property
    def resolved(self) -> Bool[np.ndarray, "B N"]:
        """Whether the time to the next state is so short that rows turn by less than a right angle, and coordinates move by less than they do in all."""
        moves = np.abs(self.qdot) / np.where(self.extent > 0, self.extent, np.inf)
        fastest = np.maximum(self.turning / RESOLVED, moves.max(axis=-1, initial=0))
        # With the states beside: rates of a row that turns to and fro may be small at both ends of an interval.
        beside = np.pad(fastest, ((0, 0), (1, 1)))
        around = np.max([beside[:, i : i + fastest.shape[1] - 1] for i in range(4)], axis=0)
        return self.following & (around * np.diff(self.ts) <= 1)

    def index(self, run: int) -> tuple[int, ...]:
        """The index of a run in the batch; empty for a single run."""
        return tuple(int(i) for i in np.unravel_index(run, self.axes)) if self.axes else ()

    def peak(self, values: Float[np.ndarray, "B t *k"], among: Bool[np.ndarray, "B t"]) -> Peak:
        """The largest value of those in a mask; what is not a number is larger than all others."""
        # Values between neighbours belong to the time at their end.
        ts = self.ts[:, -values.shape[1] :]
        masked = np.where(np.isnan(values), np.inf, values)
        masked = np.where(among.reshape(*among.shape, *(1,) * (values.ndim - 2)), masked, -np.inf)
        run, i, *entry = (int(x) for x in np.unravel_index(np.argmax(masked), masked.shape))
        return Peak(float(masked[run, i, *entry]), self.index(run), float(ts[run, i]), entry[0] if entry else 0)


def _rates(flat: State, reached: Bool[np.ndarray, " n"], shape: tuple[int, int]) -> Float[np.ndarray, " n"]:
    """Ω of each run: how fast the motion goes at its fastest, by its start (`Scale.rate`), its velocities, and its duration."""
    passing = np.asarray(flat.scale.passing(jnp.where(reached[:, None], flat.v, 0)))
    duration = np.ptp(np.asarray(flat.t).reshape(shape), axis=1)
    # As of a run's step sizes: at least one motion in the time of the run.
    least = 1 / positive_or_one(duration)
    rates = np.maximum(np.maximum(flat.scale.rate, passing).reshape(shape).max(axis=1), least)
    return np.repeat(rates, shape[1]).astype(flat.v.dtype)


def _eventful(solution: Solution, ts: Float[np.ndarray, "B T"]) -> Bool[np.ndarray, "B N"]:
    """Whether an event has happened between a time and the next one: it may change rates, rows and, by assembly, coordinates."""
    if solution.events is None:
        return np.zeros((len(ts), ts.shape[1] - 1), bool)
    # A state saved at an event's time is that after it; entries that are not used are NaN, between no times.
    at = np.asarray(solution.events.t).reshape(len(ts), 1, -1)
    return np.any((ts[:, :-1, None] < at) & (at <= ts[:, 1:, None]), axis=2)


def _ranges(q: Float[np.ndarray, "B T nq"], reached: Bool[np.ndarray, "B T"]) -> Float[np.ndarray, "B 1 nq"]:
    """How far each coordinate gets in each run; zero in a run that has reached nothing."""
    among = reached[..., None]
    low = np.min(q, axis=1, keepdims=True, where=among, initial=np.inf)
    high = np.max(q, axis=1, keepdims=True, where=among, initial=-np.inf)
    return np.maximum(high - low, 0)


def _blocks(system: System, formulation: AbstractFormulation, flat: State) -> PyTree:
    """What constraints say of each state, block by block."""
    count, parts = len(flat.t), []
    size = int(np.clip(ENTRIES // max(1, system.m * system.nv), FEWEST, MOST))
    for start in range(0, count, size):
        # One state more than is read: a row is compared with that of the next state.
        indices = np.minimum(np.arange(start, start + size + 1), count - 1)
        states = jax.tree.map(lambda x, indices=indices: as_jax(x[indices]), flat)
        parts.append(jax.tree.map(np.asarray, _block(system, formulation, states)))
    return jax.tree.map(lambda *x: np.concatenate(x)[:count], *parts)


@program
def _block(system: System, formulation: AbstractFormulation, states: State) -> _Block:
    """What constraints say of each state but the last one."""
    block, in_use, basis = jax.vmap(lambda state: _one(system, formulation, state))(states)
    block = jax.tree.map(lambda x: x[:-1], block)
    # Rows that are independent in the same order go over into each other; between other ones no sign is comparable.
    alike = jnp.all(in_use[1:] == in_use[:-1], axis=1)
    opposite = jnp.any(jnp.sum(basis[1:] * basis[:-1], axis=2) < 0, axis=1)
    return dataclasses.replace(block, turned=alike & opposite)


def _one(
    system: System, formulation: AbstractFormulation, state: State
) -> tuple[_Block, Bool[Array, " m"], Float[Array, "m nv"]]:
    """What constraints say of a state, its rows in use, and their directions."""
    system, state = apply_mode(system, state)
    q, v, scale = state.q, state.v, state.scale
    reach = scale.reach if system.rate is None else jnp.abs(rate_matrix(system.rate, q, system.nv)) @ scale.reach
    rows = choose_rows(system, formulation, state)
    terms = rows_at(system, state.t, q, scale.row)
    # The rows are decided; none is to be left out again, however close to dependence.
    factor = formulation.factorise(terms, rows.in_use, rank_tol=0.0)
    rates = jacobian_rate(system, state.t, q, v)
    position, velocity = consistency(system, state, "")
    singular = jnp.any(rows.degenerate | rows.indeterminate)
    # As of `distance_to_dependence`: rows that become dependent do so in either metric. At the pose itself the factors have lost them.
    lengths = by_lengths(scale, factor)
    distance = jnp.where(singular, 0, jnp.maximum(factor.gap, lengths.gap))
    block = _Block(
        qdot=system.qdot(q, v),
        reach=reach,
        position=jnp.asarray(position.amount),
        velocity=jnp.asarray(velocity.amount),
        contradiction=system.largest(rows.contradiction),
        redundancy=jnp.sum(system.acting) - jnp.sum(rows.in_use | rows.indeterminate),
        singular=singular,
        distance=distance,
        turning=jnp.max(jnp.where(system.acting, factor.speeds(rates), 0), initial=0),
        turned=jnp.array(False),
    )
    return block, rows.in_use, lengths.basis
