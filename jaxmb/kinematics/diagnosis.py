"""Rank, redundancy and conditioning of the constraints of a system at one pose."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..formulation import AbstractFormulation, contradiction_tol, formulation_at
from ..foundations import TextInNotebooks, all_hold, contract, expect_concrete, positive_or_one, program, strong
from ..linalg import Eliminated, cutoff, independent_rows, metric_rows, regular_metric, row_norms
from ..system import State, System, Topology, apply_mode, evaluate, linear_algebra, massless, scaled_residuals
from .closing import Guess, solve_guess
from .rows import Rows, choose_rows

# Around a singular pose so many poses are looked at, so far away as a part of the lengths of the mechanism.
AROUND, AWAY = 8, 0.05


@dataclasses.dataclass(frozen=True)
class DependentRows:
    """Rows that depend on each other here, and whether they do so nearby.

    Attributes:
        rows: row numbers by constraint name.
        redundant: how many of these rows are redundant here and nearby.
        degenerate: how many are dependent at this pose only, and independent along the motion.
        indeterminate: how many are dependent at this pose only, where several motions are possible and the velocity selects none.
    """

    rows: dict[str, tuple[int, ...]]
    redundant: int
    degenerate: int
    indeterminate: int

    def __str__(self) -> str:
        return ", ".join(f"{name}[{_ranges(rows)}]" for name, rows in self.rows.items())


@dataclasses.dataclass(frozen=True)
class Diagnosis(TextInNotebooks):
    """The constraints at one pose and velocity. All of it holds there only, unless an attribute says otherwise.

    Attributes:
        t: time in s.
        coordinates: nq.
        velocities: nv.
        rows: number of rows by constraint name.
        rank: rank of C here.
        rank_nearby: rank of C at poses near this one.
        redundancy: rows less rank.
        freedom: nv less rank: degrees of freedom here, in velocities.
        freedom_nearby: likewise at poses near this one.
        singular_around: whether all poses near this one that the constraints allow are equally singular: the mechanism can move only because
            its lengths are exact, and `rank_nearby` is that of poses that it cannot reach. False if this pose is regular.
        freedom_undriven: likewise here, without the drivers of a mechanism; None where there are none.
        freedom_counted: nv less rows: Grübler and Kutzbach's number, which takes all rows for independent.
        topology: bodies, joints and loops of the mechanism; None without one. Its `freedom` is the number without drivers.
        dependent: groups of rows that depend on each other.
        shared: names of joints, those of the tree included, that share redundant rows here, and how many; empty without a
            mechanism. `jaxmb.analyse_reactions` tells which components of their reactions are not determined because of that.
        contradictions: relative amounts by which Γ lies outside range(C), by name, of constraints that contradict others.
        singular_values: of the scaled rows A (see `jaxmb.linalg`), falling.
        rank_tol: the cut-off, at the precision of the state.
        gap: smallest singular value that counts, and largest that does not (0 if there is none).
        row_condition: ratio of the largest to the smallest singular value that counts.
        mass_condition: condition number of M.
        massless: names of the velocities along which M is singular; constraints hold these.
        residual: largest scaled residuals of position and velocity.
        linear_algebra: whether the steps of `simulate` with default arguments are sparse or dense, and why; for other arguments use `choose_engine`.
    """

    t: float
    coordinates: int
    velocities: int
    rows: dict[str, int]
    rank: int
    rank_nearby: int
    redundancy: int
    freedom: int
    freedom_nearby: int
    singular_around: bool
    freedom_undriven: int | None
    freedom_counted: int
    topology: Topology | None
    shared: tuple[tuple[tuple[str, ...], int], ...]
    dependent: tuple[DependentRows, ...]
    contradictions: dict[str, float]
    singular_values: tuple[float, ...]
    rank_tol: float
    gap: tuple[float, float]
    row_condition: float
    mass_condition: float
    massless: tuple[str, ...]
    residual: tuple[float, float]
    linear_algebra: str

    def to_dict(self) -> dict[str, Any]:
        """The same as a dictionary of plain numbers, strings, tuples and dictionaries."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        driven = self.freedom_undriven is not None
        undriven = f", {self.freedom_undriven} here without drivers" if driven else ""
        counted = f", {self.topology.freedom} without drivers" if driven and self.topology else ""
        table = [("mechanism", f"{self.topology}")] if self.topology else []
        table += [
            ("coordinates, velocities", f"{self.coordinates}, {self.velocities}"),
            (
                "constraint rows",
                f"{sum(self.rows.values())} in {len(self.rows)} constraint{'s' * (len(self.rows) != 1)}",
            ),
            ("rank", f"{self.rank} here, {self.rank_nearby} nearby"),
            ("degrees of freedom", f"{self.freedom} here, {self.freedom_nearby} nearby{undriven}"),
            ("the same by counting", f"{self.freedom_counted}{counted} (Grübler, Kutzbach)"),
            ("redundant rows", f"{self.redundancy} here, {sum(self.rows.values()) - self.rank_nearby} nearby"),
            *(("shared by joints", f"{', '.join(joints)} ({count})") for joints, count in self.shared),
            ("singular values", self._spectrum()),
            (
                "condition numbers",
                f"{self.row_condition:.2g} of the rows, {self.mass_condition:.2g} of the mass matrix",
            ),
            *([("without inertia", f"{', '.join(self.massless)}: held by constraints")] if self.massless else ()),
            ("largest scaled residual", f"{self.residual[0]:.2g} of positions, {self.residual[1]:.2g} of velocities"),
            ("linear algebra", self.linear_algebra),
        ]
        lines = [f"Constraints at t = {self.t:g} s, at this pose and velocity only"]
        lines += [f"  {label:<24}{value}" for label, value in table]
        for group in self.dependent:
            lines.append(f"  dependent on each other {group}")
            lines.append(
                f"  {'':<24}{group.redundant} redundant, {group.degenerate} degenerate here, {group.indeterminate} indeterminate"
            )
        lines += [f"  {line}" for line in self._verdicts()]
        return "\n".join(lines)

    def _spectrum(self) -> str:
        """The two singular values beside the cut-off, as far as there are any."""
        words = [f"{self.gap[0]:.2g} counts"] * (self.rank > 0) + [f"{self.gap[1]:.2g} does not"] * (
            self.redundancy > 0
        )
        return ", ".join([*words, f"cut-off {self.rank_tol:.2g}"]) if words else "none"

    def _verdicts(self) -> list[str]:
        verdicts = []
        if self.singular_around:
            verdicts.append(
                "This is a singular pose, and so are all poses around it that the constraints allow: the mechanism can move only because its "
                "lengths are exact. Change one of them."
            )
        elif self.rank_nearby > self.rank:
            verdicts.append("This is a singular pose.")
        if any(group.indeterminate for group in self.dependent):
            verdicts.append(
                "The motion is not determined: several motions are possible, and the velocity selects none of them."
            )
        if any(group.degenerate for group in self.dependent):
            verdicts.append(
                "The motion through it is determined; the multipliers of the rows above are not defined here."
            )
        for name, amount in self.contradictions.items():
            verdicts.append(
                f"Constraint '{name}' contradicts others: no acceleration satisfies it (off by {amount:.2g})."
            )
        return verdicts


@contract
def diagnose(system: System, state: State, *, formulation: AbstractFormulation | None = None) -> Diagnosis:
    """Rank, redundancy, singularity and conditioning of the constraints at one state.

    Args:
        system: the system.
        state: one assembled state, with known numbers.
        formulation: gives metric and cut-off; `GaussProjection()` by default, `KKT()` where M is singular.

    Returns:
        A `Diagnosis`: `print` shows it as a table, `to_dict` gives it as a dictionary.

    Raises:
        TypeError: for traced numbers.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> rod = lambda t, q, p: q @ q - 1
        >>> twice = jm.System(2, mass=lambda t, q, p: jnp.eye(2),
        ...                   constraints=[jm.Holonomic("rod", rod), jm.Holonomic("again", rod)])
        >>> found = jm.diagnose(twice, jm.assemble(twice, [0.6, 0.8]))
        >>> found.rank, found.freedom, str(found.dependent[0])
        (1, 1, 'rod[0], again[0]')
    """
    expect_concrete(system=system, state=state)
    formulation, lacking = formulation_at(formulation, system, state), massless(system, state)
    full, full_state = system, state
    system, state = apply_mode(system, state)
    here: _Analysis = jax.tree.map(np.asarray, _analysis(strong(system), strong(state), formulation))
    rows, scaled = here.rows, here.scaled
    rank_tol = cutoff(formulation.rank_tol, scaled.dtype)
    # For display only, on the host: the rank is that of the rank rule, by which a run would go.
    values = np.linalg.svd(scaled, compute_uv=False)
    rank, m = int(rows.rank), system.m if system.active is None else int(system.active.sum())
    nearby = rank + int(rows.degenerate.sum() + rows.indeterminate.sum())
    tol = contradiction_tol(scaled.dtype)
    amounts = {name: float(rows.contradiction[part].max()) for name, part in system.rows.items()}
    return Diagnosis(
        t=float(state.t),
        coordinates=system.nq,
        velocities=system.nv,
        rows={name: part.stop - part.start for name, part in system.rows.items()},
        rank=rank,
        rank_nearby=nearby,
        redundancy=m - rank,
        freedom=system.nv - rank,
        freedom_nearby=system.nv - nearby,
        singular_around=nearby > rank
        and _singular_around(full, full_state, formulation, np.asarray(here.jacobian), rank),
        freedom_undriven=None if here.undriven is None else system.nv - int(here.undriven),
        freedom_counted=system.nv - m,
        topology=None if system.joints is None else system.joints.topology,
        shared=_shared(system, state, rank_tol) if m > rank else (),
        dependent=_dependent(system, here, rank_tol),
        contradictions={name: amount for name, amount in amounts.items() if amount > tol},
        singular_values=tuple(float(x) for x in values),
        rank_tol=rank_tol,
        gap=spectral_gap(values, rank),
        row_condition=float(values[0] / values[rank - 1]) if rank else 1.0,
        mass_condition=float(np.linalg.cond(here.mass)),
        massless=() if lacking is None else lacking.velocities,
        residual=(float(np.abs(here.position).max(initial=0)), float(np.abs(here.velocity).max(initial=0))),
        linear_algebra=linear_algebra(strong(system)),
    )


class _Analysis(NamedTuple):
    """The rows of the constraints at one state, as arrays.

    Attributes:
        rows: which act, and how.
        combined: (m, m), each dependent row as a combination of others; zero in independent rows.
        scaled: A (m, nv), the rows in the metric of M and in units of their sizes.
        mass, jacobian: M (nv, nv) and C (m, nv).
        position, velocity: scaled residuals (m,).
        undriven: the rank without the rows of drivers; None where there are none.
    """

    rows: Rows
    combined: Array
    scaled: Array
    mass: Array
    jacobian: Array
    position: Array
    velocity: Array
    undriven: Array | None


@program
def _analysis(system: System, state: State, formulation: AbstractFormulation) -> _Analysis:
    terms = evaluate(system, state)
    rows = choose_rows(system, formulation, state)
    metric = formulation.metric(terms)
    scaled = metric_rows(metric, terms.jacobian, terms.scale)
    # The rows in use have been decided with the motion in view; here they come first, so that the others are combinations of these.
    elimination = Eliminated.of(scaled).eliminate(
        cutoff(formulation.rank_tol, scaled.dtype), rows.in_use & ~rows.degenerate
    )
    combined = jnp.where(elimination.chosen[:, None], 0, elimination.combined)
    driven, undriven = _driven(system), None
    if driven.any():
        # Zero rows are never independent: the rank without drivers needs no other shapes. Nor another metric: without masses the rows of drivers make it.
        loose = formulation.mask_excluded(jnp.where(driven[:, None], 0, terms.jacobian))
        undriven = jnp.sum(independent_rows(metric, loose, terms.scale, formulation.rank_tol))
    position, velocity = scaled_residuals(system, state)
    return _Analysis(
        rows=rows,
        combined=combined,
        scaled=scaled,
        mass=terms.mass,
        jacobian=terms.jacobian,
        position=position,
        velocity=velocity,
        undriven=undriven,
    )


def _dependent(system: System, analysis: _Analysis, rank_tol: float) -> tuple[DependentRows, ...]:
    """The groups of rows that depend on each other, with row numbers within each constraint."""
    rows, combined = analysis.rows, analysis.combined
    names = [name for name, part in system.rows.items() for _ in range(part.stop - part.start)]
    index = [i for part in system.rows.values() for i in range(part.stop - part.start)]
    groups = []
    for group in _connected(np.abs(combined) > rank_tol):
        counts = {
            kind: int(sum(mask[group]))
            for kind, mask in (("degenerate", rows.degenerate), ("indeterminate", rows.indeterminate))
        }
        members = {
            name: tuple(index[i] for i in group if names[i] == name) for name in dict.fromkeys(names[i] for i in group)
        }
        # Each dependent row is one combination: those neither degenerate nor indeterminate here follow from the others nearby as well.
        combinations = sum(1 for i in group if combined[i].any())
        groups.append(DependentRows(members, combinations - sum(counts.values()), **counts))
    return tuple(groups)


def spectral_gap(values: np.ndarray, rank: int) -> tuple[float, float]:
    """The smallest singular value that counts and the largest that does not, of falling ones; 0 where there is none."""
    return float(values[rank - 1]) if rank else 0.0, float(values[rank]) if rank < len(values) else 0.0


def _singular_around(
    system: System, state: State, formulation: AbstractFormulation, jacobian: np.ndarray, rank: int
) -> bool:
    """Whether poses around, moved onto the constraints from along the free directions, have no more independent rows than this one."""
    reach = np.asarray(state.scale.reach)
    _, _, right = np.linalg.svd(jacobian * reach / np.asarray(state.scale.span)[:, None])
    # Directions in units of the lengths ℓ, of a fixed seed: neither units nor calls change the verdict.
    steps = np.random.default_rng(0).normal(size=(AROUND, system.nv - rank)) @ right[rank:]
    reached = []
    for step in AWAY * reach * steps / np.abs(steps).max(axis=1, keepdims=True):
        q = strong(state.q + system.qdot(state.q, jnp.asarray(step, state.q.dtype)))
        guess = Guess(
            state.t, q, jnp.zeros_like(state.v), mode=state.mode, rank_tol=formulation.rank_tol, concrete=True
        )
        near = solve_guess(strong(system), guess)
        if bool(all_hold(near.checks)):
            here, there = apply_mode(system, near.state)
            reached.append(int(_analysis(strong(here), strong(there), formulation).rows.rank))
    # Where no pose around can be reached at all nothing is known, and nothing is said.
    return bool(reached) and max(reached) <= rank


def _shared(system: System, state: State, rank_tol: float) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Joints that share redundant rows, and how many, from the rows of all joints as they act on the bodies."""
    if system.joints is None:
        return ()
    names, parts, combined = _on_bodies(strong(system), strong(state), rank_tol)
    owner = np.empty(len(combined), object)
    for name, part in zip(names, parts, strict=True):
        owner[np.asarray(part)] = name
    combined = np.asarray(combined)
    groups = _connected(np.abs(combined) > rank_tol)
    counts: dict[frozenset[str], int] = {}
    order: dict[frozenset[str], tuple[str, ...]] = {}
    # Of the same joints forces may be shared in one group of rows and torques in another.
    for group in groups:
        joints = frozenset(owner[group])
        order.setdefault(joints, tuple(dict.fromkeys(owner[group])))
        counts[joints] = counts.get(joints, 0) + sum(1 for i in group if combined[i].any())
    return tuple((order[joints], count) for joints, count in counts.items())


@program
def _on_bodies(system: System, state: State, rank_tol: float) -> tuple[tuple[str, ...], tuple[Array, ...], Array]:
    """Names and rows of the constraints, and the combinations (m, m) of scaled rows that vanish; zero in independent rows."""
    assert system.joints is not None
    body_rows = system.joints.body_rows(system, state)
    metric = regular_metric(body_rows.mass, body_rows.jacobian)
    size = row_norms(metric, body_rows.jacobian)
    rows = metric_rows(metric, body_rows.jacobian, positive_or_one(size))
    elimination = Eliminated.of(rows).eliminate(cutoff(rank_tol, rows.dtype))
    return (
        tuple(body_rows.rows),
        tuple(body_rows.rows.values()),
        jnp.where(elimination.chosen[:, None], 0, elimination.combined),
    )


def _driven(system: System) -> np.ndarray:
    """Mask (m,) of the rows of drivers."""
    mask = np.zeros(system.m, bool)
    for name in () if system.joints is None else system.joints.drivers(system.params):
        mask[system.rows[name]] = True
    return mask


def _connected(linked: np.ndarray) -> list[np.ndarray]:
    """The groups of indices that the rows of `linked` tie together, in order; rows without any entry tie nothing."""
    label = np.arange(linked.shape[0])
    # Groups that a row ties together take the smallest label: one pass, as a row merges all labels that it meets.
    for row in linked:
        if row.any():
            label[np.isin(label, label[row])] = label[row].min()
    groups = [np.flatnonzero(label == x) for x in dict.fromkeys(label)]
    return [group for group in groups if linked[group].any()]


def _ranges(numbers: tuple[int, ...]) -> str:
    """0–3, 7."""
    parts: list[list[int]] = []
    for x in numbers:
        if parts and x == parts[-1][1] + 1:
            parts[-1][1] = x
        else:
            parts.append([x, x])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in parts)
