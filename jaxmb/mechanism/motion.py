"""A mechanism at one instant."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .marker import marker
from .pose import inverse, position_of, product, rotation_of, spin
from .structure import AbstractStructure, Numbers
from .tree import JointPlace


class Motion(eqx.Module):
    """Positions and velocities of everything in a mechanism, for user functions and named outputs.

    Places are given as "body", "body.point" or (body, position); vectors are in the world.

    Attributes:
        t: time in s.
        q: coordinates (nq,).
        v: velocities (nv,).
        poses: of ground and bodies (n + 1, D, D).
        rates: their derivatives (n + 1, D, D).
        loads: sizes (k,) of the reaction forces that force elements are proportional to, in N; None for zero.
    """

    linkage: AbstractStructure
    numbers: Numbers
    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    poses: Float[Array, "m D D"]
    rates: Float[Array, "m D D"]
    loads: Float[Array, " k"] | None = None

    @property
    def params(self) -> Any:
        """The parameters of the mechanism."""
        return self.numbers.params

    def _find(self, place: Any) -> tuple[int, Float[Array, "D D"]]:
        """The number of the body and the local pose."""
        return self.linkage.locate(marker(place, "place"), self.numbers)

    def pose(self, place: Any) -> Float[Array, "D D"]:
        """The pose [[R, p], [0, 1]] of a body or a point in the world."""
        body, local = self._find(place)
        return self.poses[body] @ local

    def pose_rate(self, place: Any) -> Float[Array, "D D"]:
        """The derivative of the pose."""
        body, local = self._find(place)
        return self.rates[body] @ local

    def position(self, place: Any) -> Float[Array, " d"]:
        """The position in m."""
        return position_of(self.pose(place))

    def velocity(self, place: Any) -> Float[Array, " d"]:
        """The velocity in m/s."""
        return position_of(self.pose_rate(place))

    def rotation(self, place: Any) -> Float[Array, "d d"]:
        """The rotation matrix."""
        return rotation_of(self.pose(place))

    def angular_velocity(self, place: Any) -> Float[Array, " k"]:
        """ω in rad/s in the axes of the world: one component in the plane, three in space."""
        return spin(rotation_of(self.pose_rate(place)) @ self.rotation(place).T)

    def _pair(self, joint: str) -> tuple[Any, Any, Any, Any]:
        """Of a joint outside the tree: its place, the pose of B in A with its derivative, and its numbers."""
        place = self.place(joint)
        frames, i = self.numbers.frames[place.group], place.entry

        def relative(poses: Array) -> Array:
            return product(inverse(product(poses[place.a], frames.a[i])), product(poses[place.b], frames.b[i]))

        x, dx = jax.jvp(relative, (self.poses,), (self.rates,))
        return place, x, dx, frames.numbers[i]

    def place(self, joint: str) -> JointPlace:
        """Where a joint is found."""
        return self.linkage.place(joint)

    def relative(self, joint: str) -> Float[Array, " nq"]:
        """The coordinates of a joint, angles between −π and π unless it belongs to the tree."""
        place = self.place(joint)
        if place.in_tree:
            return self.q[np.array(place.q, int)]
        _, x, _, numbers = self._pair(joint)
        return place.pair.measure(x, numbers)

    def joint(self, joint: str) -> Float[Array, " nq"]:
        """The coordinates of a joint; angles with their full turns where these are counted."""
        place, found = self.place(joint), self.relative(joint)
        if place.in_tree:
            return found
        for i, counter in enumerate(place.q):
            if counter >= 0:
                turns = jnp.round((self.q[counter] - found[i]) / (2 * jnp.pi))
                found = found.at[i].add(2 * jnp.pi * turns)
        return found

    def joint_rates(self, joint: str) -> Float[Array, " nv"]:
        """The velocities of a joint."""
        place = self.place(joint)
        if place.in_tree:
            return self.v[np.array(place.v, int)]
        _, x, dx, _ = self._pair(joint)
        return place.pair.rates(x, dx)

    def load(self, joint: str) -> Float[Array, ""]:
        """The size of the reaction force in a joint, in N, that a force element is proportional to."""
        index = self.linkage.skeleton.loaded.index(joint)
        return jnp.zeros((), self.q.dtype) if self.loads is None else self.loads[index]

    def coordinate(self, name: str) -> Float[Array, ""]:
        """One coordinate of a joint: "joint", or "joint.coordinate" where it has several."""
        joint, index = self.linkage.index(name, "coordinates")
        return self.joint(joint)[index]

    def rate(self, name: str) -> Float[Array, ""]:
        """One velocity of a joint: "joint", or "joint.velocity" where it has several."""
        joint, index = self.linkage.index(name, "velocities")
        return self.joint_rates(joint)[index]
