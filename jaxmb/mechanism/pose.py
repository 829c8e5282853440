"""Rigid poses as matrices [[R, p], [0, 1]], in the plane (3 × 3) and in space (4 × 4) alike."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..foundations import arrays_of, as_jax, in_numpy

# Below this z, within 37° of the opposite direction, the axis is carried there by a half turn and a small rotation:
# 1/(1 + z) grows without bound at −1, and with it rounding and derivatives. Elsewhere it is at most 5.
HALF_TURN_FIRST = -0.8


def pose(
    rotation: Float[Array | np.ndarray, "*b d d"], position: Float[Array | np.ndarray, "*b d"]
) -> Float[Array, "*b D D"]:
    """The pose with a rotation matrix and a position."""
    xp = arrays_of(rotation, position)
    top = xp.concatenate([rotation, xp.asarray(position)[..., None]], axis=-1)
    last = np.broadcast_to(np.eye(top.shape[-1], dtype=top.dtype)[-1:], (*top.shape[:-2], 1, top.shape[-1]))
    return as_jax(xp.concatenate([top, last], axis=-2))


def pose_of_shifts(rotation: Float[Array, "d d"], shifts: Sequence[tuple[int, Array]]) -> Float[Array, "D D"]:
    """The pose with a rotation matrix and shifts along some axes, by sums of whole matrices, which fuse into one kernel."""
    size = rotation.shape[0] + 1
    unit = lambda i, j: np.outer(np.eye(size)[i], np.eye(size)[j])
    turned = jnp.pad(rotation, (0, 1)) + unit(-1, -1)
    return sum((shift * unit(axis, -1) for axis, shift in shifts), turned)


def rotation_of(poses: Float[Array, "*b D D"]) -> Float[Array, "*b d d"]:
    """The rotation R."""
    return poses[..., :-1, :-1]


def position_of(poses: Float[Array, "*b D D"]) -> Float[Array, "*b d"]:
    """The position p."""
    return poses[..., :-1, -1]


def inverse(poses: Float[Array, "... D D"]) -> Float[Array, "... D D"]:
    """[[Rᵀ, −Rᵀp], [0, 1]]."""
    size = poses.shape[-1]
    # Selection by a constant mask fuses with the product behind it, which a concatenation of blocks would not.
    last = np.zeros((size, size), bool)
    last[:-1, -1] = True
    turned = jnp.swapaxes(jnp.where(last, 0, poses), -1, -2)
    return product(turned, jnp.where(last, -poses, np.eye(size)))


def shifted(poses: Float[Array, "*b D D"], by: Float[Array, " d"]) -> Float[Array, "*b D D"]:
    """The poses moved by a vector."""
    last = np.eye(poses.shape[-1], dtype=poses.dtype)[-1]
    return poses + jnp.append(by, 0)[:, None] * last


@jax.jit  # traced once, not each time that it is called
def product(a: Float[Array, "... D D"], b: Float[Array, "... D D"]) -> Float[Array, "... D D"]:
    """The product a b as sums of products, which XLA fuses into larger kernels than a call for each small matrix product."""
    # Slices by `lax`: these are traced often, and indices of arrays take several times as long to read.
    one = lambda x, k, axis: lax.slice_in_dim(x, k, k + 1, axis=axis)
    return functools.reduce(jnp.add, [one(a, k, -1) * one(b, k, -2) for k in range(a.shape[-1])])


def take(x: Float[Array, "n *k"], index: np.ndarray) -> Float[Array, "..."]:
    """x[index], without a gather where the indices are consecutive."""
    flat = index.ravel()
    if flat.size and (np.diff(flat) == 1).all():
        part = x if flat.size == x.shape[0] else x[flat[0] : flat[-1] + 1]
        return part.reshape(*index.shape, *x.shape[1:])
    return x[index]


def world_poses(local: Float[Array, "n D D"], parents: tuple[int, ...]) -> Float[Array, "m D D"]:
    """World poses of ground and bodies from those relative to their parents, −1 for ground.

    Each sweep multiplies all poses by that of the ancestor reached so far and doubles the distance to it, so that a chain of n
    bodies takes log₂ n products of whole arrays.
    """
    size = local.shape[-1]
    poses = jnp.concatenate([jnp.eye(size, dtype=local.dtype)[None], local])
    above = np.concatenate([[0], np.array(parents, int) + 1])
    # Pointer doubling: `above` is static, so that the loop runs while tracing and leaves log₂ n products.
    while above.any():
        poses = product(poses[above], poses)
        above = above[above]
    return poses


def spin(matrix: Float[Array, "*b d d"]) -> Float[Array, "*b k"]:
    """The axial vector ω of the skew part of a matrix: one component in the plane, three in space."""
    if matrix.shape[-1] == 2:
        return 0.5 * (matrix[..., 1, 0] - matrix[..., 0, 1])[..., None]
    pairs = ((2, 1), (0, 2), (1, 0))
    return jnp.stack([0.5 * (matrix[..., i, j] - matrix[..., j, i]) for i, j in pairs], axis=-1)


def axis_rotation(start: int, axis: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """A rotation that carries the unit vector of coordinate `start` to the direction of `axis`.

    The smallest one, except for axes that nearly point the other way.
    """
    axis = in_numpy(axis)
    xp = arrays_of(axis)
    order = np.roll(np.arange(3), 2 - start)  # cyclic, so that `start` comes last
    x, y, z = (axis / xp.linalg.norm(axis))[order]
    flip = xp.where(z < HALF_TURN_FIRST, -1.0, 1.0)  # then a half turn about the first coordinate comes after it
    y, z = flip * y, flip * z
    # R = 1 + [n]ₓ + [n]ₓ²/(1 + z) with n = e × axis, Rodrigues' formula without sine and cosine of the angle.
    k = 1 / (1 + z)
    turned = xp.array([[1 - x * x * k, -x * y * k, x], [-x * y * k, 1 - y * y * k, y], [-x, -y, z]])
    turned = xp.stack([turned[0], flip * turned[1], flip * turned[2]])
    back = np.argsort(order)
    return as_jax(turned[back][:, back])


def velocity_in(
    a: Float[Array, "D D"],
    b: Float[Array, "D D"],
    da: Float[Array, "D D"],
    db: Float[Array, "D D"],
    at: Float[Array, " d"],
) -> Float[Array, " d"]:
    """The velocity of b's body at a place of the world, seen from a's body, in the axes of the world."""
    speed = lambda x, dx: position_of(dx) + rotation_of(dx) @ (rotation_of(x).T @ (at - position_of(x)))
    return speed(b, db) - speed(a, da)
