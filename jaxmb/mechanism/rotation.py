"""The second primitive of a lower pair: how b's frame may turn in a's."""

import abc
import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..foundations import positive_or_one
from .pose import spin


@dataclasses.dataclass(frozen=True)
class AbstractRotation(abc.ABC):
    """A set of rotations R. To add one, inherit and define all of this; poses, velocities and twists follow from `matrix` by differentiation.

    Attributes:
        coordinates: names of the coordinates q.
        velocities: names of the velocities v.
        angles: for each coordinate whether it is an angle, known from R up to full turns only.
        reversed: names of the coordinates and velocities that change their sign when y does in both frames, as turns about x and z do.
    """

    coordinates: tuple[str, ...]
    velocities: tuple[str, ...]
    angles: tuple[bool, ...]
    reversed: tuple[str, ...]

    @abc.abstractmethod
    def matrix(self, q: Float[Array, " nq"]) -> Float[Array, "d d"]:
        """R(q)."""

    @abc.abstractmethod
    def residual(self, matrix: Float[Array, "d d"]) -> Float[Array, " rows"]:
        """Zero, with full rank, for the rotations of the set, and for some with opposite axes, which `aligned` tells apart."""

    @abc.abstractmethod
    def measure(self, matrix: Float[Array, "d d"]) -> Float[Array, " nq"]:
        """The coordinates q of R, angles between −π and π."""

    @abc.abstractmethod
    def rates(self, matrix: Float[Array, "d d"], derivative: Float[Array, "d d"]) -> Float[Array, " nv"]:
        """The velocities v of R and Ṙ."""

    def rate(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """q̇ = N(q) v."""
        return v

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The coordinates with their own conditions restored, such as unit length."""
        return q

    def aligned(self, matrix: Float[Array, "d d"]) -> Float[Array, ""]:
        """Positive for aligned rotations; `residual` also vanishes for some with opposite axes."""
        return jnp.ones((), matrix.dtype)

    def angles_off(self, matrix: Float[Array, "d d"]) -> Float[Array, " rows"]:
        """`residual` with angles in place of their sines: zero for aligned rotations only, and growing up to half a turn."""
        return self.residual(matrix)


@dataclasses.dataclass(frozen=True)
class Locked(AbstractRotation):
    """R = I."""

    coordinates: tuple[str, ...] = ()
    velocities: tuple[str, ...] = ()
    angles: tuple[bool, ...] = ()
    reversed: tuple[str, ...] = ()
    dim: int = 3

    def matrix(self, q: Float[Array, " nq"]) -> Float[Array, "d d"]:
        """I."""
        return jnp.eye(self.dim, dtype=q.dtype)

    def residual(self, matrix: Float[Array, "d d"]) -> Float[Array, " rows"]:
        """The sine of the angle along the axis; it vanishes for half turns too."""
        return spin(matrix)

    def measure(self, matrix: Float[Array, "d d"]) -> Float[Array, " nq"]:
        """An empty array: there is none."""
        return jnp.zeros(0, matrix.dtype)

    def rates(self, matrix: Float[Array, "d d"], derivative: Float[Array, "d d"]) -> Float[Array, " nv"]:
        """An empty array: there is none."""
        return jnp.zeros(0, matrix.dtype)

    def aligned(self, matrix: Float[Array, "d d"]) -> Float[Array, ""]:
        """The cosine of the angle, in the plane and in space."""
        return (jnp.trace(matrix) - (self.dim - 2)) / 2

    def angles_off(self, matrix: Float[Array, "d d"]) -> Float[Array, " rows"]:
        """The angle along the axis."""
        # Half the skew part of R is sin θ along the axis of rotation, and its trace gives cos θ.
        return lengthened(spin(matrix), self.aligned(matrix))


@dataclasses.dataclass(frozen=True)
class Turning(AbstractRotation):
    """One angle: in the plane, or in space about z."""

    coordinates: tuple[str, ...] = ("angle",)
    velocities: tuple[str, ...] = ("angle",)
    angles: tuple[bool, ...] = (True,)
    reversed: tuple[str, ...] = ("angle",)
    dim: int = 3

    def matrix(self, q: Float[Array, " nq"]) -> Float[Array, "d d"]:
        """[[cos, −sin], [sin, cos]], bordered by 1."""
        # Constant matrices are NumPy's: zeros and ones stay known while tracing, and compiled programs drop their
        # products.
        axis = np.eye(self.dim)
        axis[0, 0] = axis[1, 1] = 0
        across = np.zeros((self.dim, self.dim))
        across[0, 1], across[1, 0] = -1, 1
        return jnp.cos(q[0]) * (np.eye(self.dim) - axis) + jnp.sin(q[0]) * across + axis

    def residual(self, matrix: Float[Array, "d d"]) -> Float[Array, " rows"]:
        """Components of b's z axis along a's x and y: the sine between both axes, which vanishes for opposite ones too."""
        return matrix[:2, 2] if self.dim == 3 else jnp.zeros(0, matrix.dtype)

    def measure(self, matrix: Float[Array, "d d"]) -> Float[Array, " nq"]:
        """The angle."""
        return jnp.arctan2(matrix[1, 0], matrix[0, 0])[None]

    def rates(self, matrix: Float[Array, "d d"], derivative: Float[Array, "d d"]) -> Float[Array, " nv"]:
        """ω about z."""
        return spin(derivative @ matrix.T)[-1:]

    def aligned(self, matrix: Float[Array, "d d"]) -> Float[Array, ""]:
        """The cosine between both z axes."""
        return matrix[-1, -1] if self.dim == 3 else jnp.ones((), matrix.dtype)

    def angles_off(self, matrix: Float[Array, "d d"]) -> Float[Array, " rows"]:
        """The angle between both z axes, along b's across a's."""
        return lengthened(matrix[:2, 2], matrix[2, 2]) if self.dim == 3 else jnp.zeros(0, matrix.dtype)


# ½ q ∘ (0, ω), which is linear in q and in ω, as [row, component of q, component of ω].
_HALF_PRODUCT = 0.5 * np.array(
    [
        [[0, 0, 0], [-1, 0, 0], [0, -1, 0], [0, 0, -1]],
        [[1, 0, 0], [0, 0, 0], [0, 0, 1], [0, -1, 0]],
        [[0, 1, 0], [0, 0, -1], [0, 0, 0], [1, 0, 0]],
        [[0, 0, 1], [0, 1, 0], [-1, 0, 0], [0, 0, 0]],
    ]
)


@dataclasses.dataclass(frozen=True)
class Ball(AbstractRotation):
    """Any rotation in space: a unit quaternion (w, x, y, z), and ω in the axes of b."""

    coordinates: tuple[str, ...] = ("qw", "qx", "qy", "qz")
    velocities: tuple[str, ...] = ("wx", "wy", "wz")
    angles: tuple[bool, ...] = (False, False, False, False)
    reversed: tuple[str, ...] = ("qx", "qz", "wx", "wz")

    def matrix(self, q: Float[Array, " nq"]) -> Float[Array, "d d"]:
        """The rotation of q/|q|, so that R is one at the stages of a step too."""
        return quaternion_matrix(q)

    def residual(self, matrix: Float[Array, "d d"]) -> Float[Array, " rows"]:
        """An empty array: there is none."""
        return jnp.zeros(0, matrix.dtype)

    def measure(self, matrix: Float[Array, "d d"]) -> Float[Array, " nq"]:
        """The quaternion with w ≥ 0."""
        return matrix_quaternion(matrix)

    def rates(self, matrix: Float[Array, "d d"], derivative: Float[Array, "d d"]) -> Float[Array, " nv"]:
        """ω of Rᵀ Ṙ."""
        return spin(matrix.T @ derivative)

    def rate(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """½ q ∘ (0, ω)."""
        # ω in the axes of b is multiplied from the right (Shuster 1993); q̇ is orthogonal to q, so that |q| drifts by
        # rounding and truncation only.
        return (q @ jnp.asarray(_HALF_PRODUCT, q.dtype)) @ v

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The quaternion at unit length."""
        return q / jnp.sqrt(jnp.sum(q**2))


@dataclasses.dataclass(frozen=True)
class Cardan(AbstractRotation):
    """About a's z by the first angle, then about b's x by the second."""

    coordinates: tuple[str, ...] = ("first", "second")
    velocities: tuple[str, ...] = ("first", "second")
    angles: tuple[bool, ...] = (True, True)
    reversed: tuple[str, ...] = ("first", "second")

    def matrix(self, q: Float[Array, " nq"]) -> Float[Array, "d d"]:
        """Rz Rx."""
        (a, b), (c, d) = jnp.cos(q), jnp.sin(q)
        return jnp.array([[a, -c * b, c * d], [c, a * b, -a * d], [jnp.zeros_like(a), d, b]])

    def residual(self, matrix: Float[Array, "d d"]) -> Float[Array, " rows"]:
        """B's x axis stays across a's z axis."""
        return matrix[2:, 0]

    def measure(self, matrix: Float[Array, "d d"]) -> Float[Array, " nq"]:
        """Both angles."""
        return jnp.stack([jnp.arctan2(matrix[1, 0], matrix[0, 0]), jnp.arctan2(matrix[2, 1], matrix[2, 2])])

    def rates(self, matrix: Float[Array, "d d"], derivative: Float[Array, "d d"]) -> Float[Array, " nv"]:
        """ω along both axes."""
        # ω in a's axes; the first joint turns about a's z, the second about b's x, which lies across z.
        omega = spin(derivative @ matrix.T)
        return jnp.stack([omega[2], jnp.dot(omega, matrix[:, 0])])


def lengthened(sine: Float[Array, " k"], cosine: Float[Array, ""]) -> Float[Array, " k"]:
    """A vector whose length is an angle between 0 and π, from one whose length is its sine; at π along the first axis."""
    # Both roots and quotients are guarded before they are taken: at zero the branch not chosen would have the
    # gradient NaN.
    square = jnp.sum(sine**2)
    length = jnp.sqrt(positive_or_one(square))
    # At exactly half a turn the sine vanishes and tells no direction; any axis will do to leave that pose.
    half_turn = jnp.where(cosine < 0, jnp.pi, 0) * np.eye(sine.shape[0])[0]
    return jnp.where(square > 0, jnp.arctan2(length, cosine) / length * sine, sine + half_turn)


def quaternion_matrix(q: Float[Array | np.ndarray, "4"]) -> Any:
    """The rotation matrix of q/|q|, q = (w, x, y, z)."""
    w, vector = q[0], q[1:]
    cross = sum(vector[k] * CROSS[k] for k in range(3))
    square = vector[:, None] * vector - (vector**2).sum() * np.eye(3)
    # R = 1 + 2 (w [u]ₓ + [u]ₓ²)/|q|² is of degree zero in q: at stages of a step, where |q| ≠ 1, it is still a
    # rotation.
    return np.eye(3) + 2 / (q**2).sum() * (w * cross + square)


# The matrices of the cross products with the unit vectors.
CROSS = np.stack([np.cross(np.eye(3), unit) for unit in np.eye(3)])


def matrix_quaternion(matrix: Float[Array, "3 3"]) -> Float[Array, "4"]:
    """The unit quaternion with w ≥ 0, by the largest of its components (Shepperd 1978)."""
    m = matrix
    trace = jnp.trace(m)
    squares = jnp.concatenate([trace[None], 2 * jnp.diag(m) - trace])
    sums = lambda i, j: m[i, j] + m[j, i]
    x, y, z = 2 * spin(m)
    products = jnp.array(
        [
            [1 + squares[0], x, y, z],
            [x, 1 + squares[1], sums(0, 1), sums(0, 2)],
            [y, sums(0, 1), 1 + squares[2], sums(1, 2)],
            [z, sums(0, 2), sums(1, 2), 1 + squares[3]],
        ]
    )
    # Each row is 4 q_i q; that of the largest component, |q_i| ≥ ½, is free of cancellation, and no root of a small
    # number is taken.
    q = products[jnp.argmax(squares)]
    q = q / jnp.sqrt(jnp.sum(q**2))
    return jnp.where(q[0] < 0, -q, q)
