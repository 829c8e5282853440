"""Names and units of the numbers of a motion."""

import dataclasses

from .actuation import JointDirections
from .mode import Mode
from .system import System

# The force or torque that does work along a velocity.
EFFORTS = {"m/s": "N", "rad/s": "N m"}


@dataclasses.dataclass(frozen=True)
class Names:
    """Names of the numbers of a motion; SI units, None where they are not known.

    Attributes:
        coordinates: of q.
        velocities: of v.
        inputs: of u.
        rows: of the constraint rows: the constraint's own name, or "name[i]" where it has several rows.
        coordinate_units: of q.
        velocity_units: of v.
        input_units: of u.
    """

    coordinates: tuple[str, ...]
    velocities: tuple[str, ...]
    inputs: tuple[str, ...]
    rows: tuple[str, ...]
    coordinate_units: tuple[str | None, ...]
    velocity_units: tuple[str | None, ...]
    input_units: tuple[str | None, ...]

    @classmethod
    def of(cls, system: System) -> "Names":
        """Those of a system, in the mode that it is in."""
        unknown = (None,) * system.nq, (None,) * system.nv
        units, rates = unknown if system.joints is None else system.joints.units
        inputs = _inputs(system)
        efforts = {name: EFFORTS.get(str(rate)) for name, rate in zip(system.velocities, rates, strict=True)}
        # An actuator has a gain, and so inputs of any unit.
        acts_on_joints = isinstance(system.actuation_fn, JointDirections)
        return cls(
            coordinates=system.coordinates,
            velocities=system.velocities,
            inputs=inputs,
            rows=rows_of({name: part.stop - part.start for name, part in system.rows.items()}),
            coordinate_units=units,
            velocity_units=rates,
            input_units=tuple(efforts.get(name) if acts_on_joints else None for name in inputs),
        )

    @property
    def rates(self) -> tuple[str, ...]:
        """The velocities by names that no coordinate has: "x'" is the rate of "x"."""
        return tuple(name + "'" if name in self.coordinates else name for name in self.velocities)

    @property
    def efforts(self) -> tuple[str | None, ...]:
        """Units of generalised forces."""
        return tuple(EFFORTS.get(str(unit)) for unit in self.velocity_units)

    def rows_in(self, modes: Mode | None) -> tuple[str, ...]:
        """The rows along with those of locks."""
        # By name, each once: rows of locks may be among those of the system already, if that is in a mode.
        locks = () if modes is None else tuple(lock.name for lock in modes.locks)
        return tuple(dict.fromkeys((*self.rows, *locks)))


def rows_of(counts: dict[str, int]) -> tuple[str, ...]:
    """A name for each row."""
    return tuple(name if count == 1 else f"{name}[{i}]" for name, count in counts.items() for i in range(count))


def _inputs(system: System) -> tuple[str, ...]:
    """Those of joints or actuators; u0, u1 and so on where these have none."""
    if isinstance(system.actuation_fn, JointDirections):
        return system.actuation_fn.names
    names = () if system.joints is None else system.joints.actuators(system.params)
    return names if len(names) == system.nu else tuple(f"u{i}" for i in range(system.nu))
