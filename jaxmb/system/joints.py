"""The interface of the joints that a system was built from, as the engine uses it."""

import abc
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
from jaxtyping import Array, Float, Int, PyTree

from ..foundations import TextInNotebooks, counted
from .state import State

if TYPE_CHECKING:
    from .system import System

Scalar = Float[Array, ""]


class BodyRows(eqx.Module):
    """The rows of all constraints as they act on the bodies, whatever the coordinates of the system.

    Attributes:
        mass: M (n, n) of the bodies.
        jacobian: C (m, n), with rows for every joint.
        rows: the numbers of the rows of each constraint, by name.
        wrenches: by name of a joint, the map from λ to force and torque on its body of B, in the axes of the joint.
    """

    mass: Float[Array, "n n"]
    jacobian: Float[Array, "m n"]
    rows: dict[str, Int[Array, " k"]]
    wrenches: dict[str, Float[Array, "w m"]]


@dataclasses.dataclass(frozen=True)
class Topology(TextInNotebooks):
    """Bodies, joints and loops of a mechanism.

    Attributes:
        bodies: how many, ground apart.
        joints: names of joints and other connections by the name of their class.
        loops: how many independent loops they form.
        freedom: degrees of freedom by counting, without drivers (Grübler, Kutzbach): 3 of each body in the plane, 6 in space,
            less the rows of all joints. `jaxmb.diagnose` finds the true number, which redundant rows make larger.
    """

    bodies: int
    joints: dict[str, tuple[str, ...]]
    loops: int
    freedom: int

    def __str__(self) -> str:
        joints = [f"{len(names)} {kind}" for kind, names in self.joints.items()]
        return ", ".join([counted(self.bodies, "body", "bodies"), *joints, counted(self.loops, "loop")])


class AbstractJoints(eqx.Module):
    """The engine's only interface to the mechanism that a system was built from: `System.joints` is one, or None.

    It holds no numbers: these are the `params` of the system, so that equal mechanisms share compiled programs. To build systems
    from other things than `jaxmb.planar` and `jaxmb.spatial` do, inherit from it.
    """

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the joints."""

    @property
    @abc.abstractmethod
    def topology(self) -> Topology:
        """Bodies, joints and loops."""

    @property
    @abc.abstractmethod
    def loops(self) -> dict[str, tuple[str, ...]]:
        """The joints of each loop in order, by name of the constraint that closes it."""

    def unrolled(self) -> "AbstractJoints":
        """The same, whose functions take the fewest operations on numbers, not the fewest on arrays: for compiled code of our own."""
        return self

    def for_search(self) -> "AbstractJoints":
        """The same with rows that vanish only where joints are the right way round, so that a search may start far from a solution."""
        return self

    @property
    def angular_rows(self) -> dict[str, tuple[bool, ...]]:
        """By name of a constraint, which of its rows are in rad; of others it is not known."""
        return {}

    @abc.abstractmethod
    def drivers(self, params: PyTree) -> dict[str, str | None]:
        """By name of each constraint that prescribes a motion, the joint coordinate that it drives; None if it is none."""

    def effort_units(self, params: PyTree) -> dict[str, str]:
        """By name of a driver the SI unit of its effort; of others it is not known."""
        return {}

    def without_inertia(self, params: PyTree) -> tuple[str, ...] | None:
        """Names of the bodies that may move without having inertia; None where that is not known."""
        return None

    @abc.abstractmethod
    def actuators(self, params: PyTree) -> tuple[str, ...]:
        """Names of the inputs."""

    @abc.abstractmethod
    def axes(self, t: Scalar, q: Float[Array, " nq"], params: PyTree) -> dict[str, Float[Array, " nv"]]:
        """By name of each joint velocity, "joint" or "joint.velocity", the generalised force of a unit effort along it."""

    @property
    @abc.abstractmethod
    def units(self) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
        """SI units of the system's coordinates and of its velocities; None for those that are not known."""

    @abc.abstractmethod
    def alignment(self, q: Float[Array, " nq"], params: PyTree) -> dict[str, Scalar]:
        """By name, how well the joints that close loops are the right way round: positive if they are."""

    def driven_turns(self, t: Scalar, q: Float[Array, " nq"], params: PyTree) -> dict[str, Float[Array, " nq"]]:
        """By name of each driver, by how many full turns coordinates lie beyond what it prescribes, to the nearest; none by default."""
        return {}

    @abc.abstractmethod
    def coordinate(self, name: str) -> Callable[..., Scalar]:
        """The function s(t, q, params), without numbers, of the joint coordinate called "joint" or "joint.coordinate".

        Raises:
            ValueError: for an unknown name.
        """

    @abc.abstractmethod
    def wraps(self, name: str) -> bool:
        """Whether this joint coordinate is an angle without its full turns, between −π and π.

        Raises:
            ValueError: for an unknown name.
        """

    @abc.abstractmethod
    def poses(self, q: Float[Array, " nq"], params: PyTree) -> Array:
        """An array that is equal for poses that look the same, such as those that differ by full turns."""

    @abc.abstractmethod
    def motion(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], params: PyTree) -> PyTree:
        """The motion of the mechanism at one time, from which named points and joints are evaluated."""

    @abc.abstractmethod
    def body_rows(self, system: "System", state: State) -> BodyRows:
        """The rows of the system, in whose mode it is, as they act on the bodies."""

    @abc.abstractmethod
    def check_run(self, system: "System", state: State, events: bool, rank_tol: float) -> list[str]:
        """Warnings before a run: motions that a rigid model does not determine.

        Raises:
            ValueError: for events, or a state with a mode, that the mechanism does not allow.
        """
