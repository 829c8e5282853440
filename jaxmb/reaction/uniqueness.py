"""Which reactions a rigid model determines."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..foundations import (
    RESULTS,
    SUCCESS,
    Positive,
    TextInNotebooks,
    announce,
    contract,
    expect_concrete,
    positive_or_one,
    program,
    strong,
)
from ..kinematics import belongs_to_motion, spectral_gap
from ..linalg import RANK_TOL, metric_rows, regular_metric, row_norms
from ..system import BodyRows, State, System, apply_mode, constraint_jacobian

PLANE, SPACE = ("fx", "fy", "tz"), ("fx", "fy", "fz", "tx", "ty", "tz")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the reaction of one constraint is determined, and by what margin.

    Attributes:
        unique: whether C_Xᵀλ_X is determined.
        multipliers_unique: whether λ_X itself is.
        margin: size of the largest change of C_Xᵀλ_X that a change of λ of unit length without effect on the motion makes, in
            scaled rows: rounding if unique, of order one if not.
        components: for a joint of a mechanism, by name of each component of its wrench in the axes of the joint, on the body
            of B: whether it is determined. A component that the joint cannot transmit is zero, and so determined.
        component_margins: likewise the sizes of changes, relative to the largest that the component can take.
        methods: the verdict `unique` by each of the three methods.
    """

    unique: bool
    multipliers_unique: bool
    margin: float
    components: dict[str, bool]
    component_margins: dict[str, float]
    methods: dict[str, bool]


@dataclasses.dataclass(frozen=True)
class ReactionReport(TextInNotebooks):
    """Uniqueness of reactions at one pose; `print` shows it as a table.

    Attributes:
        t: time in s.
        rows: number of rows, joints of a tree included.
        rank: their rank.
        redundancy: rows less rank.
        method: the method that `unique` follows.
        rank_tol: the cut-off.
        gap: smallest singular value of the scaled rows that counts, and largest that does not (0 if there is none).
        groups: verdicts by name of the constraint.
        clusters: names of constraints whose reactions can be exchanged for each other.
    """

    t: float
    rows: int
    rank: int
    redundancy: int
    method: str
    rank_tol: float
    gap: tuple[float, float]
    groups: dict[str, Verdict]
    clusters: tuple[tuple[str, ...], ...]

    @property
    def multipliers_unique(self) -> bool:
        """Whether λ of all rows is unique."""
        return self.redundancy == 0

    @property
    def unique(self) -> tuple[str, ...]:
        """Names of the constraints whose reactions are determined."""
        return tuple(name for name, verdict in self.groups.items() if verdict.unique)

    def cluster_of(self, name: str) -> tuple[str, ...]:
        """The cluster of a constraint; empty if its reaction is determined."""
        return next((cluster for cluster in self.clusters if name in cluster), ())

    def to_dict(self) -> dict[str, Any]:
        """The same as a dictionary of plain numbers, strings, tuples and dictionaries."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        lines = [
            f"Reactions at t = {self.t:g} s, at this pose only: {self.rows} rows, rank {self.rank}, redundancy {self.redundancy}",
            f"  smallest singular value that counts {self.gap[0]:.2g}, largest that does not {self.gap[1]:.2g}, "
            f"cut-off {self.rank_tol:.2g}, method '{self.method}'",
            f"  {'constraint':<18}{'reaction':<14}{'multipliers':<14}{'change':>9}   not determined",
        ]
        for name, v in self.groups.items():
            open_components = [c for c, unique in v.components.items() if not unique]
            lines.append(
                f"  {name:<18}{_word(v.unique):<14}{_word(v.multipliers_unique):<14}{v.margin:>9.1e}   "
                + (", ".join(open_components) if v.components else "" if v.unique else "all")
            )
        lines += [f"  trade against each other: {', '.join(cluster)}" for cluster in self.clusters]
        return "\n".join(lines)


def _word(unique: bool) -> str:
    return "unique" if unique else "not unique"


@contract
def analyse_reactions(
    system: System, state: State, method: Literal["qr", "svd", "rank"] = "qr", *, rank_tol: Positive = RANK_TOL
) -> ReactionReport:
    """Which reactions are determined by a rigid model, at one pose (Frączek and Wojtyra 2013, eqs. 21–27).

    With C = [C_X; C_Y] the reaction C_Xᵀλ_X of a constraint is unique if and only if range(C_Xᵀ) and range(C_Yᵀ) meet in zero only:

    * "rank": rank(C_X) + rank(C_Y) = rank(C);
    * "qr": B_X = C_XᵀQ_X = 0, Q_X the rows of X in the columns of Q beyond the rank, C Π = Q R with column pivoting;
    * "svd": the same with left singular vectors.

    All three are evaluated; a component ℓᵀλ_X of a joint's wrench is unique if and only if ℓᵀQ_X = 0. Rows are scaled in the metric
    of M first, so that units do not matter. A mechanism is analysed in absolute coordinates, whatever those of the system.

    Args:
        system: the system.
        state: one assembled state, with concrete numbers.
        method: the one that decides `unique`.
        rank_tol: cut-off of scaled rows, for ranks and for changes.

    Raises:
        TypeError: for traced numbers.
        ValueError: for a batch of states, or an unknown method.
        RuntimeError: for a state whose pose violates its constraints, or that is not finite, as of `reactions`.
    """
    from scipy.linalg import qr

    expect_concrete(system=system, state=state)
    system, state = apply_mode(system, state)
    rows, parts, maps = _evaluate(system, state)
    # On the host with NumPy: the analysis is of one pose and has no derivative.
    vectors, values, _ = np.linalg.svd(rows)
    rank = int((values > rank_tol).sum())
    bases = {"svd": vectors[:, rank:]}
    # Columns of Q beyond the rank span what Cᵀ maps to zero (Frączek and Wojtyra 2013).
    orthogonal = np.asarray(qr(rows, mode="full", pivoting=True)[0])
    bases["qr"] = orthogonal[:, rank:]
    groups = {}
    for name, part in parts.items():
        others = np.setdiff1d(np.arange(rows.shape[0]), part)
        changes = {kind: _size(rows[part].T @ basis[part]) for kind, basis in bases.items()}
        methods = {kind: bool(change <= _limit(rank_tol)) for kind, change in changes.items()}
        # The criterion itself, a direct sum of ranges; it gives no size, so that margins come from the null vectors.
        methods["rank"] = _rank(rows[part], rank_tol) + _rank(rows[others], rank_tol) == rank
        # Relative to the largest change that the component can take. A component that the joint cannot transmit has ℓ = 0 and counts as
        # determined; 1e-300 keeps its quotient from 0/0.
        margins = {c: _size(ell @ bases["qr"]) / max(_size(ell), 1e-300) for c, ell in maps.get(name, {}).items()}
        groups[name] = Verdict(
            unique=methods[method],
            multipliers_unique=bool(_size(bases["qr"][part]) <= _limit(rank_tol)),
            margin=changes["qr"],
            components={c: bool(x <= _limit(rank_tol)) for c, x in margins.items()},
            component_margins=margins,
            methods=methods,
        )
    return ReactionReport(
        t=float(state.t),
        rows=rows.shape[0],
        rank=rank,
        redundancy=rows.shape[0] - rank,
        method=method,
        rank_tol=rank_tol,
        gap=spectral_gap(values, rank),
        groups=groups,
        clusters=_clusters(rows, parts, bases["qr"], groups),
    )


def _limit(rank_tol: float) -> float:
    """Changes below it are rounding: null vectors of rows that are exact to δ are so to δ divided by the gap."""
    return rank_tol**0.5


def _size(matrix: np.ndarray) -> float:
    return float(np.linalg.norm(matrix, 2)) if matrix.size and matrix.ndim == 2 else float(np.linalg.norm(matrix))


def _rank(rows: np.ndarray, tol: float) -> int:
    return int((np.linalg.svd(rows, compute_uv=False) > tol).sum()) if rows.size else 0


def _evaluate(
    system: System, state: State
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Scaled rows, the rows of each constraint, and of each component of a wrench its map in scaled multipliers."""
    names, consistent, arrays = _terms(strong(system), strong(state))
    announce(RESULTS.where(consistent, SUCCESS, RESULTS.inconsistent_state))
    rows, scale, parts, wrenches = jax.tree.map(np.asarray, arrays)
    labels = PLANE if next(iter(wrenches.values()), np.zeros((3, 0))).shape[0] == 3 else SPACE
    maps = {}
    for name, wrench in wrenches.items():
        size = np.abs(wrench).max(initial=0)
        # Entries that are rounding of a turn of axes would make a component that the joint cannot transmit look undetermined.
        significant = np.where(np.abs(wrench) > 1e-12 * size, wrench, 0) / scale
        maps[name] = dict(zip(labels, significant, strict=True))
    return rows, dict(zip(names, parts, strict=True)), maps


@program
def _terms(
    system: System, state: State
) -> tuple[tuple[str, ...], Array, tuple[Array, Array, tuple[Array, ...], dict[str, Array]]]:
    """Names of constraints in their order; whether the pose is on them; scaled rows, the scale, the rows of each constraint, and the maps to wrenches."""
    if system.joints is None:
        parts = {name: jnp.arange(part.start, part.stop) for name, part in system.rows.items()}
        mass, jacobian = system.mass(state.t, state.q), constraint_jacobian(system, state.t, state.q)
        body_rows = BodyRows(mass, jacobian, parts, {})
    else:
        body_rows = system.joints.body_rows(system, state)
    rows, scale = scaled_rows(body_rows.mass, body_rows.jacobian)
    consistent = belongs_to_motion(system, state, pose_only=True)
    return tuple(body_rows.rows), consistent, (rows, scale, tuple(body_rows.rows.values()), body_rows.wrenches)


def scaled_rows(mass: Array, jacobian: Array) -> tuple[Array, Array]:
    """The rows of C in the metric of M, of unit size where they are not zero, and their sizes."""
    metric = regular_metric(mass, jacobian)
    size = row_norms(metric, jacobian)
    scale = positive_or_one(size)
    return metric_rows(metric, jacobian, scale), scale


def determined_multipliers(rows: np.ndarray) -> np.ndarray:
    """Whether each λ is determined (…, m), that is whether its row is in no vanishing combination of rows.

    Args:
        rows: scaled rows (…, m, nv).
    """
    vectors, values, _ = np.linalg.svd(rows)
    # Rows beyond the number of velocities have no singular value: their left vectors are null vectors as well.
    vanishing = np.ones(rows.shape[:-1], bool)
    vanishing[..., : values.shape[-1]] = values <= RANK_TOL
    return np.linalg.norm(vectors * vanishing[..., None, :], axis=-1) <= _limit(RANK_TOL)


def _clusters(
    rows: np.ndarray, parts: dict[str, np.ndarray], basis: np.ndarray, groups: dict[str, Verdict]
) -> tuple[tuple[str, ...], ...]:
    """The constraints whose multipliers can change together without effect on the motion, from changes with few rows each.

    The reduced echelon form of the null space holds, for each dependent row, the independent rows of which it is a combination; rows
    tied together by these cannot be separated any further.
    """
    names = [name for name, verdict in groups.items() if not verdict.unique]
    label = {name: name for name in names}
    # Rows of the reduced form change as few constraints as possible; a null vector as it comes would tie all of them together.
    for vector in _echelon(basis.T):
        # 1e-6 is far above the rounding of an echelon form with pivots of the largest entries, far below an entry of order one.
        affected = [name for name in names if np.linalg.norm(rows[parts[name]].T @ vector[parts[name]]) > 1e-6]
        for name in affected[1:]:
            old, new = label[name], label[affected[0]]
            label = {k: new if x == old else x for k, x in label.items()}
    return tuple(tuple(n for n in names if label[n] == x) for x in dict.fromkeys(label.values()))


def _echelon(matrix: np.ndarray) -> np.ndarray:
    """The reduced row echelon form, with complete pivoting."""
    matrix = matrix.copy()
    for i in range(matrix.shape[0]):
        _, column = np.unravel_index(np.abs(matrix[i:]).argmax(), matrix[i:].shape)
        row = i + np.abs(matrix[i:, column]).argmax()
        matrix[[i, row]] = matrix[[row, i]]
        matrix[i] /= matrix[i, column]
        others = np.arange(matrix.shape[0]) != i
        matrix[others] -= np.outer(matrix[others, column], matrix[i])
    # Rounding of the elimination is no tie between constraints.
    return np.where(np.abs(matrix) > 1e-9, matrix, 0)
