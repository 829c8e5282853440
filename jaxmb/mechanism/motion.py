"""A mechanism at one instant."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..system import in_turn
from .marker import MarkerLike, marker
from .pose import inverse, position_of, product, rotation_of, spin
from .structure import AbstractStructure, Numbers
from .tree import JointSlot


class Motion(eqx.Module):
    """Positions and velocities of all bodies, points and joints of a mechanism, for user functions and named outputs.

    Places are given as "body", "body.point" or (body, position); vectors are in the world.

    Attributes:
        t: time in s.
        q: coordinates (nq,).
        v: velocities (nv,).
        poses: of ground and bodies (n + 1, D, D).
        rates: their derivatives (n + 1, D, D).
        loads: sizes (k,) of the reaction forces that force elements are proportional to, in N; None for zero.
        accelerations: v̇ (nv,), and the second derivatives (n + 1, D, D) of the poses; None where they are not known.
    """

    linkage: AbstractStructure
    numbers: Numbers
    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    poses: Float[Array, "m D D"]
    rates: Float[Array, "m D D"]
    loads: Float[Array, " k"] | None = None
    accelerations: tuple[Float[Array, " nv"], Float[Array, "m D D"]] | None = None

    @property
    def params(self) -> PyTree:
        """The parameters of the mechanism."""
        return self.numbers.params

    def _find(self, point: MarkerLike) -> tuple[int, Float[Array, "D D"]]:
        """The number of the body and the local pose."""
        return self.linkage.locate(marker(point, "point"), self.numbers)

    def pose(self, point: MarkerLike) -> Float[Array, "D D"]:
        """The pose [[R, p], [0, 1]] of a body or a point in the world."""
        body, local = self._find(point)
        return self.poses[body] @ local

    def pose_rate(self, point: MarkerLike) -> Float[Array, "D D"]:
        """The derivative of the pose."""
        body, local = self._find(point)
        return self.rates[body] @ local

    def position(self, point: MarkerLike) -> Float[Array, " d"]:
        """The position in m."""
        return position_of(self.pose(point))

    def velocity(self, point: MarkerLike) -> Float[Array, " d"]:
        """The velocity in m/s."""
        return position_of(self.pose_rate(point))

    def rotation(self, point: MarkerLike) -> Float[Array, "d d"]:
        """The rotation matrix."""
        return rotation_of(self.pose(point))

    def angular_velocity(self, point: MarkerLike) -> Float[Array, " k"]:
        """ω in rad/s in the axes of the world: one component in the plane, three in space."""
        return spin(rotation_of(self.pose_rate(point)) @ self.rotation(point).T)

    def _pair(self, joint: str) -> tuple[JointSlot, Float[Array, "D D"], Float[Array, "D D"], Float[Array, " k"]]:
        """A joint outside the tree: its slot, the pose of B in A with its derivative, and its numbers."""
        slot = self.slot(joint)
        frames, i = self.numbers.frames[slot.group], slot.entry

        def relative(poses: Array) -> Array:
            return product(inverse(product(poses[slot.a], frames.a[i])), product(poses[slot.b], frames.b[i]))

        # One forward derivative gives X and Ẋ from poses and their rates: no velocity formula by kind of joint.
        x, dx = jax.jvp(relative, (self.poses,), (self.rates,))
        return slot, x, dx, frames.numbers[i]

    def slot(self, joint: str) -> JointSlot:
        """The slot of a joint in the arrays of the build."""
        return self.linkage.slot(joint)

    def relative(self, joint: str) -> Float[Array, " nq"]:
        """The coordinates of a joint, angles between −π and π unless it belongs to the tree."""
        slot = self.slot(joint)
        if slot.in_tree:
            return self.q[np.array(slot.q, int)]
        _, x, _, numbers = self._pair(joint)
        return slot.pair.measure(x, numbers)

    def joint(self, joint: str) -> Float[Array, " nq"]:
        """The coordinates of a joint; angles with their full turns where these are counted."""
        slot, coordinates = self.slot(joint), self.relative(joint)
        if slot.in_tree:
            return coordinates
        # A counter follows the angle's rate and drifts with the integrator; the pose is exact, but without turns. So
        # the angle is the pose's, with the turns that bring it nearest to the counter.
        for i, counter in enumerate(slot.q):
            if counter >= 0:
                coordinates = coordinates.at[i].set(in_turn(coordinates[i], self.q[counter]))
        return coordinates

    def joint_rates(self, joint: str) -> Float[Array, " nv"]:
        """The velocities of a joint."""
        slot = self.slot(joint)
        if slot.in_tree:
            return self.v[np.array(slot.v, int)]
        _, x, dx, _ = self._pair(joint)
        return slot.pair.rates(x, dx)

    def load(self, joint: str) -> Float[Array, ""]:
        """The size of the reaction force in a joint, in N, to which a force element is proportional."""
        index = self.linkage.connectivity.load_joints.index(joint)
        return jnp.zeros((), self.q.dtype) if self.loads is None else self.loads[index]

    def coordinate(self, name: str) -> Float[Array, ""]:
        """One coordinate of a joint: "joint", or "joint.coordinate" where it has several."""
        joint, index = self.linkage.index(name, "coordinates")
        return self.joint(joint)[index]

    def rate(self, name: str) -> Float[Array, ""]:
        """One velocity of a joint: "joint", or "joint.velocity" where it has several."""
        joint, index = self.linkage.index(name, "velocities")
        return self.joint_rates(joint)[index]
