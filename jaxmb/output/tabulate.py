"""A run as one table."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..formulation import AbstractFormulation
from ..foundations import (
    RESULTS,
    contract,
    expect_concrete,
    listing,
)
from ..mechanism import CoordinateFunction
from ..reaction import determined_multipliers, scaled_rows
from ..records import Record
from ..simulation import Solution, columns_of, units_of
from ..system import Coordinate, Names, State, System, constraint_jacobian, rows_of
from .quantities import energy, over_states, reactions, residuals


@contract
def tabulate(
    system: System,
    solution: Solution,
    quantities: Sequence[str] | None = None,
    *,
    formulation: AbstractFormulation | None = None,
) -> Record:
    """A run as one table over its saved times: a `Record`, which `to_csv`, `to_pandas` and `to_xarray` pass on.

    * "motion": coordinates by name, velocities ("x'" is the rate of coordinate "x"), inputs "u.name", and `work`;
    * "multipliers": "multiplier.name", λ of each constraint row, which for a driver is its effort. If a row is redundant its
      share is not determined: it is NaN, not the share of least norm;
    * "reactions": "reaction.name", M v̇ − F along each velocity, which is determined wherever v̇ is;
    * "energy": "energy.kinetic", "energy.potential", "energy.total", "energy.balance", and `work`;
    * "residuals": "residual.name" and "residual_rate.name" of each row, see `jaxmb.output.Residuals`.

    Values at times that the run did not reach are NaN. Units are those that are known.

    Args:
        system: the system of the run.
        solution: a single run.
        quantities: which of these, all by default.
        formulation: of multipliers and reactions, as in `jaxmb.reactions`.

    Raises:
        TypeError: for traced numbers.
        ValueError: for a batch, and for unknown quantities.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.81 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> sol = jm.simulate(system, jm.assemble(system, [-1.0, 0.0]), jnp.linspace(0, 1, 5))
        >>> list(jm.output.tabulate(system, sol, ["motion", "multipliers"]).columns)
        ['x', 'y', "x'", "y'", 'work', 'multiplier.rod']
    """
    chosen = tuple(QUANTITIES) if quantities is None else tuple(quantities)
    unknown = [what for what in chosen if what not in QUANTITIES]
    if isinstance(quantities, str) or unknown:
        raise ValueError(f"Argument `quantities` must be out of {listing(QUANTITIES)}, but is {quantities!r}.")
    expect_concrete(system=system, solution=solution)
    if solution.ts.ndim != 1:
        raise ValueError(
            f"Argument `solution` must be a single run, but has leading axes {solution.ts.shape[:-1]}; index it, or use `to_xarray`."
        )
    run = _Run(system, solution, solution.names or Names.of(system), formulation)
    columns, units = {}, {}
    for what in chosen:
        values, value_units = QUANTITIES[what](run)
        columns |= values
        units |= value_units
    return Record(solution.ts, columns, units)


Columns = tuple[dict[str, Any], dict[str, str]]


@dataclasses.dataclass(frozen=True)
class _Run:
    system: System
    solution: Solution
    names: Names
    formulation: AbstractFormulation | None

    @property
    def rows(self) -> tuple[str, ...]:
        return self.names.rows_in(self.solution.modes)


def _motion(run: _Run) -> Columns:
    columns = columns_of(run.solution, run.names)
    return columns, {name: unit for name, unit in units_of(run.names).items() if name in columns}


def _multipliers(run: _Run) -> Columns:
    # Not raised: times that the run did not reach have no result, and become NaN.
    results = reactions(run.system, run.solution, formulation=run.formulation, throw=False)
    values = np.concatenate(
        [np.zeros((len(run.solution.ts), 0)), *(np.reshape(x, (len(x), -1)) for x in results.multipliers.values())],
        axis=1,
    )
    rows = np.asarray(over_states(_rows, run.system, run.solution))
    # NumPy's singular value decomposition may raise where an entry is NaN.
    reached = np.all(np.isfinite(rows), axis=(1, 2), keepdims=True)
    determined = determined_multipliers(np.where(reached, rows, 0))
    if run.solution.modes is not None:  # a row that does not act has no force
        determined |= ~np.asarray(run.solution.modes.active)
    # A share of least norm is one of many: NaN keeps it from being read as the load of the row.
    values = np.where(determined & jnp.asarray(results.result == RESULTS.successful)[:, None], values, np.nan)
    units = {f"multiplier.{name}": unit for name, unit in _effort_units(run).items()}
    return {f"multiplier.{name}": values[:, i] for i, name in enumerate(run.rows)}, units


def _effort_units(run: _Run) -> dict[str, str]:
    """By name of each row of a joint, and of those that drive or lock a coordinate."""
    joints, names = run.system.joints, run.names
    if joints is None:
        return {}
    effort = lambda angular: "N m" if angular else "N"
    rows = joints.angular_rows
    named = {name: rows_of({name: len(angular)}) for name, angular in rows.items()}
    units = {row: effort(x) for name, angular in rows.items() for row, x in zip(named[name], angular, strict=True)}
    locks = () if run.solution.modes is None else run.solution.modes.locks
    lock_units = {lock.name: names.coordinate_units[lock.fn.index] for lock in locks if isinstance(lock.fn, Coordinate)}
    lock_units |= {lock.name: lock.fn.unit for lock in locks if isinstance(lock.fn, CoordinateFunction)}
    units |= {name: effort(unit == "rad") for name, unit in lock_units.items() if unit in ("m", "rad")}
    return units | joints.effort_units(run.system.params)


def _rows(system: System, state: State) -> Array:
    return scaled_rows(system.mass(state.t, state.q), constraint_jacobian(system, state.t, state.q))[0]


def _reactions(run: _Run) -> Columns:
    results = reactions(run.system, run.solution, formulation=run.formulation, throw=False)
    values = jnp.where((results.result == RESULTS.successful)[:, None], results.reaction, jnp.nan)
    names = [f"reaction.{name}" for name in run.names.velocities]
    units = {name: unit for name, unit in zip(names, run.names.efforts, strict=True) if unit is not None}
    return dict(zip(names, values.T, strict=True)), units


def _energy(run: _Run) -> Columns:
    energies = energy(run.system, run.solution)
    columns = {f"energy.{part}": getattr(energies, part) for part in ("kinetic", "potential", "total", "balance")}
    columns["work"] = energies.work
    return columns, dict.fromkeys(columns, "J")


def _residuals(run: _Run) -> Columns:
    values = residuals(run.system, run.solution)
    position = {f"residual.{name}": values.position[:, i] for i, name in enumerate(run.rows)}
    rate = {f"residual_rate.{name}": values.velocity[:, i] for i, name in enumerate(run.rows)}
    return position | rate, dict.fromkeys(position, "1") | dict.fromkeys(rate, "1/s")


QUANTITIES: dict[str, Callable[[_Run], Columns]] = {
    "motion": _motion,
    "multipliers": _multipliers,
    "reactions": _reactions,
    "energy": _energy,
    "residuals": _residuals,
}
