"""Recursive algorithms over the tree of bodies, with the fewest scalar operations, for compiled steps.

`linkage.py` evaluates all bodies at once by products of whole arrays. Here they are evaluated one after the other, as in the
algorithms of Featherstone (Rigid Body Dynamics Algorithms, 2008, chapters 5 to 7): inertia forces by Newton and Euler, the mass
matrix by composite bodies, accelerations of long open trees by articulated ones. Screws and inertias are about one point c, in the axes of the world, so that none is carried from one
body to the next. A twist is (ω, velocity of the body's point that is at c), a wrench (moment about c, force); ω and moments have one
component in the plane and three in space.
"""

import dataclasses
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .pair import AbstractPair
from .pose import inverse, position_of, product, rotation_of, take
from .structure import AbstractStructure, Numbers
from .tree import TreeJoints

Screw = tuple[Float[Array, " k"], Float[Array, " d"]]


@dataclasses.dataclass(frozen=True)
class TreeJoint:
    """The joint of the tree between a body and its parent.

    Attributes:
        body: the body.
        parent: its parent, −1 for ground.
        outer: the joint's frame on the parent (D, D).
        back: the pose (D, D) of the body in the joint's frame on it.
        q: numbers of its coordinates.
        v: numbers of its velocities.
        pair: its pair.
        flipped: whether the pair's second frame is the parent's.
        data: its further numbers (k,).
    """

    body: int
    parent: int
    outer: Float[Array, "D D"]
    back: Float[Array, "D D"]
    q: tuple[int, ...]
    v: tuple[int, ...]
    pair: AbstractPair
    flipped: bool
    data: Float[Array, " k"]

    def inner(self, q: Float[Array, " nq"]) -> Float[Array, "D D"]:
        """The pose of the joint's frame on the body in that on the parent."""
        return _inner(self.pair, self.flipped, q, self.data)

    def twist(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Screw:
        """The twist in the joint's frame on the parent, about its origin."""
        return _twist(self.pair, self.flipped, q, v, self.data)

    def units(self, q: Float[Array, " nq"]) -> list[Screw]:
        """The twists of unit velocities, one at a time."""
        # At zero the twist of a steady joint is made of constants, which the compiler folds into all that follows.
        at = jnp.zeros_like(q) if self.pair.steady else q
        return [self.twist(at, jnp.asarray(unit)) for unit in np.eye(len(self.v), dtype=q.dtype)]


# Traced once for a class of joints, not each time that they are called.
@functools.partial(jax.jit, static_argnums=(0, 1))
def _inner(pair: AbstractPair, flipped: bool, q: Array, data: Array) -> Array:
    return inverse(pair.pose(q, data)) if flipped else pair.pose(q, data)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _twist(pair: AbstractPair, flipped: bool, q: Array, v: Array, data: Array) -> Screw:
    # By automatic differentiation of the pose: a joint states its pose only. Zeros of Ẋ X⁻¹ are known while
    # tracing, so that no more operations are left than in a formula by hand.
    pose, change = jax.jvp(lambda q: _inner(pair, flipped, q, data), (q,), (pair.rate(q, v),))
    matrix = product(change, inverse(pose))
    entries = ((1, 0),) if pose.shape[0] == 3 else ((2, 1), (0, 2), (1, 0))
    return jnp.stack([matrix[i, j] for i, j in entries]), position_of(matrix)


def tree_joints(structure: AbstractStructure, numbers: Numbers) -> list[TreeJoint]:
    """The joints of the tree, those of parents before those of their children."""
    unit = jnp.eye(structure.dim + 1, dtype=numbers.inertia.dtype)
    by_body: dict[int, TreeJoint] = {}
    for group in structure.tree_joints:
        for body, joint in _members(structure, group, numbers, unit):
            by_body[body] = joint
    order: list[int] = []
    while len(order) < len(by_body):
        # Numbers of bodies are those of the mechanism, in which a child may come before its parent.
        order += [b for b in by_body if b not in order and structure.parents[b] in (-1, *order)]
    return [by_body[b] for b in order]


def _members(
    structure: AbstractStructure, group: TreeJoints, numbers: Numbers, unit: Array
) -> Iterator[tuple[int, TreeJoint]]:
    frames = None if group.group is None else numbers.frames[group.group]
    for i, body in enumerate(group.bodies):
        data = jnp.zeros(0, unit.dtype) if frames is None else frames.numbers[group.entries[i]]
        a, b = (unit, unit) if frames is None else (frames.a[group.entries[i]], frames.b[group.entries[i]])
        if group.flipped[i]:
            a, b = b, a
        # A body that moves freely has its pose in the world itself: no identity is multiplied.
        parent, back = structure.parents[body], b if frames is None else inverse(b)
        own = group.q[i], group.v[i], group.pair, group.flipped[i], data
        yield body, TreeJoint(body, parent, a, back, *own)


class Tree:
    """All bodies at a pose.

    Args:
        structure: the mechanism's.
        q: the coordinates.
        numbers: its numbers.

    Attributes:
        poses: of ground and bodies in the world, in their order.
        centre: c, the mean position of the bodies.
    """

    def __init__(self, structure: AbstractStructure, q: Float[Array, " nq"], numbers: Numbers):
        self.structure, self.q, self.numbers = structure, q, numbers
        self.tree_joints = tree_joints(structure, numbers)
        unit = jnp.eye(structure.dim + 1, dtype=q.dtype)
        self._coordinates = {joint.body: take(q, np.array(joint.q, int)) for joint in self.tree_joints}
        poses, self._frames = {-1: unit}, {}
        for joint in self.tree_joints:
            frame = product(poses[joint.parent], joint.outer)
            poses[joint.body] = product(product(frame, joint.inner(self._coordinates[joint.body])), joint.back)
            self._frames[joint.body] = frame
        self.poses = jnp.stack([poses[b] for b in range(-1, len(self.tree_joints))])
        # As in `linkage._centre`: results depend on it by rounding only, which grows with the distance from the
        # bodies.
        self.centre = lax.stop_gradient(jnp.mean(position_of(self.poses[1:]), axis=0))

    @functools.cached_property
    def screws(self) -> dict[int, Screw]:
        """The twist of each unit velocity."""
        screws = {}
        for joint in self.tree_joints:
            for k, screw in zip(joint.v, joint.units(self._coordinates[joint.body]), strict=True):
                screws[k] = self._in_world(joint, screw)
        return screws

    def _in_world(self, joint: TreeJoint, screw: Screw) -> Screw:
        """A twist of the joint's frame on the parent, in the axes of the world and about c."""
        frame, (turn, shift) = self._frames[joint.body], screw
        rotation = rotation_of(frame)
        # In the plane ω has one component, which no rotation changes.
        turn = turn if len(turn) == 1 else rotation @ turn
        return turn, rotation @ shift - _across(turn, position_of(frame) - self.centre)

    def _joint_twist(self, joint: TreeJoint, v: Float[Array, " nv"]) -> Screw:
        """The twist of a joint at its velocities."""
        return _sum([_times(v[k], self.screws[k]) for k in joint.v], self._zero_screw)

    @property
    def _zero_screw(self) -> Screw:
        dim = self.structure.dim
        return jnp.zeros(1 if dim == 2 else 3, self.q.dtype), jnp.zeros(dim, self.q.dtype)

    def twists(self) -> Float[Array, "nv d D"]:
        """`AbstractLinkage.twists` about c."""
        return jnp.stack([_matrix(*self.screws[k]) for k in range(self.structure.nv)])

    def rates(self, v: Float[Array, " nv"]) -> Float[Array, "m D D"]:
        """The derivatives of the poses."""
        twists, last = {-1: self._zero_screw}, jnp.zeros((1, self.structure.dim + 1), self.q.dtype)
        rates = {-1: jnp.zeros_like(self.poses[0])}
        for joint in self.tree_joints:
            twists[joint.body] = _sum([twists[joint.parent], self._joint_twist(joint, v)], self._zero_screw)
            centred = self.poses[joint.body + 1].at[:-1, -1].add(-self.centre)
            rates[joint.body] = jnp.concatenate([_matrix(*twists[joint.body]) @ centred, last])
        return jnp.stack([rates[b] for b in range(-1, len(self.tree_joints))])

    def inertias(self) -> dict[int, "Inertia"]:
        """Composite inertias: of each body with its whole subtree."""
        inertias = {b: self._inertia(b) for b in range(len(self.tree_joints))}
        for joint in reversed(self.tree_joints):
            if joint.parent >= 0:
                inertias[joint.parent] = inertias[joint.parent] + inertias[joint.body]
        return inertias

    def mass(self) -> Float[Array, "nv nv"]:
        """M_jk = S_j · (I S_k) by composite rigid bodies (chapter 6).

        I is the composite inertia of the body of k, and j belongs to the path from it to the ground.
        """
        inertias, nv = self.inertias(), self.structure.nv
        if not nv:
            return jnp.zeros((0, 0), self.q.dtype)
        turns, shifts = (jnp.stack([self.screws[k][part] for k in range(nv)]) for part in (0, 1))
        # All entries of one velocity at once, and behind a zero, which those of velocities on different branches are: known while tracing.
        products, index, count = [jnp.zeros(1, self.q.dtype)], np.zeros((nv, nv), int), 1
        above: dict[int, tuple[int, ...]] = {-1: ()}
        for joint in self.tree_joints:
            above[joint.body] = (*above[joint.parent], *joint.v)
            path = np.array(above[joint.body], int)
            for k in joint.v:
                turn, shift = inertias[joint.body].momentum(self.screws[k])
                products.append(take(turns, path) @ turn + take(shifts, path) @ shift)
                index[path, k] = index[k, path] = count + np.arange(len(path))
                count += len(path)
        return jnp.concatenate(products)[index]

    def momenta(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """M v: S_k · Σ I V over the bodies that velocity k moves."""
        twists, momenta = {-1: self._zero_screw}, {}
        for joint in self.tree_joints:
            twists[joint.body] = _sum([twists[joint.parent], self._joint_twist(joint, v)], self._zero_screw)
            momenta[joint.body] = self._inertia(joint.body).momentum(twists[joint.body])
        return self._generalised(momenta)

    def solved(self, force: Float[Array, " nv"], own: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """(M + diag(own))⁻¹ f without M; its derivatives are those of the linear equation."""
        # Outside of the functions that are traced below: what is cached there is theirs.
        screws = [jnp.concatenate(self.screws[k]) for k in range(self.structure.nv)]
        solve = lambda _, force: self._by_articulated_inertias(force, own, screws)
        # The solve is differentiated as M⁻¹, not through its recursion: derivatives are again solves, and M v is a
        # cheap recursion of its own.
        return lax.custom_linear_solve(lambda v: self.momenta(v) + own * v, force, solve, solve, symmetric=True)

    def _by_articulated_inertias(
        self, force: Float[Array, " nv"], own: Float[Array, " nv"], screws: list[Float[Array, " s"]]
    ) -> Float[Array, " nv"]:
        """(M + diag(own))⁻¹ f (chapter 7), velocity by velocity from the last one to the first.

        With U = I S, D = S · U + own and u = (f − S · p)/D a body hands I − U Uᵀ/D and p + U u on to its parent; where that accelerates
        by a, x = u − U · a/D.
        """
        bodies = range(len(self.tree_joints))
        inertia = {b: self._inertia(b).matrix() for b in bodies}
        wrench = {b: jnp.zeros_like(inertia[b][0]) for b in bodies}
        shares: dict[int, tuple[Array, Array]] = {}
        for joint in reversed(self.tree_joints):
            # Joints with several velocities are eliminated one velocity at a time, which needs no inverse of the
            # small matrix Sᵀ I S.
            articulated, bias = inertia[joint.body], wrench[joint.body]
            for k in reversed(joint.v):
                momentum = articulated @ screws[k]
                inertia_of_joint = jnp.dot(screws[k], momentum) + own[k]
                share = momentum / inertia_of_joint
                free_rate = (force[k] - jnp.dot(screws[k], bias)) / inertia_of_joint
                articulated = articulated - _symmetric(jnp.outer(momentum, share))
                bias = bias + momentum * free_rate
                shares[k] = share, free_rate
            if joint.parent >= 0:
                inertia[joint.parent] = inertia[joint.parent] + articulated
                wrench[joint.parent] = wrench[joint.parent] + bias
        rates, accelerations = {-1: jnp.zeros(len(jnp.concatenate(self._zero_screw)), self.q.dtype)}, {}
        for joint in self.tree_joints:
            rate = rates[joint.parent]
            for k in joint.v:
                share, free_rate = shares[k]
                accelerations[k] = free_rate - jnp.dot(share, rate)
                rate = rate + screws[k] * accelerations[k]
            rates[joint.body] = rate
        return jnp.stack([accelerations[k] for k in range(self.structure.nv)])

    def inertia_force(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """−S_k · Σ (I A + V × I V − I g) for v̇ = 0, over the bodies that velocity k moves."""
        twists: dict[int, Screw] = {-1: self._zero_screw}
        # Gravity as an acceleration −g of the ground (Featherstone 2008, section 5.3): one term for the whole tree in
        # place of one for each body.
        rates: dict[int, Screw] = {-1: (self._zero_screw[0], -self.numbers.gravity)}
        wrenches: dict[int, Screw] = {}
        for joint in self.tree_joints:
            own, carrier = self._joint_twist(joint, v), twists[joint.parent]
            turning = _crossed(carrier, own)
            # Ṡ v of joints whose twists change with q, by a derivative of the twist at fixed v; zero for all others,
            # and left out.
            if not joint.pair.steady:
                part, q = take(v, np.array(joint.v, int)), self._coordinates[joint.body]
                twist_at = lambda q, joint=joint, part=part: joint.twist(q, part)
                turning = _sum(
                    [turning, self._in_world(joint, jax.jvp(twist_at, (q,), (joint.pair.rate(q, part),))[1])], own
                )
            twists[joint.body] = twist = _sum([carrier, own], own)
            rates[joint.body] = rate = _sum([rates[joint.parent], turning], own)
            inertia = self._inertia(joint.body)
            spin, push = inertia.momentum(twist)
            # V ×* (I V), the rate of momentum that moves with the body.
            gyroscopic = _moment(twist[0], spin) + _moment_of(twist[1], push), _across(twist[0], push)
            wrenches[joint.body] = _sum([inertia.momentum(rate), gyroscopic], own)
        return -self._generalised(wrenches)

    def _inertia(self, body: int) -> "Inertia":
        """The inertia of a single body about c."""
        return Inertia.of(self.poses[body + 1], self.numbers.inertia[body], self.centre)

    def _generalised(self, wrenches: dict[int, Screw]) -> Float[Array, " nv"]:
        """S_k · Σ f over the wrenches f of the bodies that velocity k moves."""
        total, out = dict(wrenches), [jnp.zeros((), self.q.dtype)] * self.structure.nv
        for joint in reversed(self.tree_joints):
            wrench = total[joint.body]
            for k in joint.v:
                out[k] = _power(self.screws[k], wrench)
            if joint.parent >= 0:
                total[joint.parent] = _sum([total[joint.parent], wrench], wrench)
        return jnp.stack(out) if out else jnp.zeros(0, self.q.dtype)


@dataclasses.dataclass(frozen=True)
class Inertia:
    """The inertia of a body, or of several, about c.

    Attributes:
        mass: m.
        moment: m (x − c).
        tensor: about c, (k, k).
    """

    mass: Float[Array, ""]
    moment: Float[Array, " d"]
    tensor: Float[Array, "k k"]

    @classmethod
    def of(cls, pose: Float[Array, "D D"], spread: Float[Array, "D D"], centre: Float[Array, " d"]) -> "Inertia":
        """The inertia about c of a body at a pose, from ∫ x̃ x̃ᵀ dm in its own frame."""
        rotation, offset, mass = rotation_of(pose), position_of(pose) - centre, spread[-1, -1]
        shifted = rotation @ spread[:-1, -1]
        moment = shifted + mass * offset
        own = spread[:-1, :-1]
        if len(offset) == 2:
            tensor = jnp.trace(own) + jnp.sum(offset * (shifted + moment))
            return cls(mass, moment, tensor[None, None])
        turned = rotation @ (jnp.trace(own) * np.eye(3, dtype=own.dtype) - own)
        parallel = jnp.outer(shifted, offset) + jnp.outer(offset, moment)
        parallel = jnp.where(np.eye(3, dtype=bool), jnp.trace(parallel), 0) - parallel
        return cls(mass, moment, _symmetric(turned @ rotation.T + parallel))

    def __add__(self, other: "Inertia") -> "Inertia":
        return Inertia(self.mass + other.mass, self.moment + other.moment, self.tensor + other.tensor)

    def matrix(self) -> Float[Array, "s s"]:
        """The matrix that maps a twist to a momentum, both as vectors."""
        h = self.moment
        if len(h) == 2:
            across = jnp.stack([-h[1], h[0]])[None]
        else:
            zero = jnp.zeros((), h.dtype)
            rows = [[zero, -h[2], h[1]], [h[2], zero, -h[0]], [-h[1], h[0], zero]]
            across = jnp.stack([jnp.stack(row) for row in rows])
        return jnp.block([[self.tensor, across], [across.T, jnp.diag(jnp.stack([self.mass] * len(h)))]])

    def momentum(self, twist: Screw) -> Screw:
        """I V: moment of momentum about c, and momentum."""
        turn, shift = twist
        return self.tensor @ turn + _moment_of(self.moment, shift), self.mass * shift + _across(turn, self.moment)


# Products of screws, in the plane and in space


def _across(turn: Array, x: Array) -> Array:
    """ω × x."""
    return turn[0] * jnp.stack([-x[1], x[0]]) if len(x) == 2 else _cross(turn, x)


def _moment_of(x: Array, force: Array) -> Array:
    """The moment x × f."""
    return jnp.stack([x[0] * force[1] - x[1] * force[0]]) if len(x) == 2 else _cross(x, force)


def _moment(turn: Array, spin: Array) -> Array:
    """ω × L, nothing in the plane."""
    return jnp.zeros_like(spin) if len(turn) == 1 else _cross(turn, spin)


@jax.jit  # traced once, not each time that it is called
def _cross(a: Array, b: Array) -> Array:
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def _crossed(a: Screw, b: Screw) -> Screw:
    """The rate a × b of a twist b that moves with another one (Featherstone 2008, chapter 2)."""
    return _moment(a[0], b[0]), _across(a[0], b[1]) - _across(b[0], a[1])


def _symmetric(matrix: Array) -> Array:
    """The upper triangle, mirrored: the lower one differs by rounding only, and need not be computed."""
    return jnp.triu(matrix) + jnp.triu(matrix, 1).T


def _power(twist: Screw, wrench: Screw) -> Array:
    return jnp.sum(twist[0] * wrench[0]) + jnp.sum(twist[1] * wrench[1])


def _times(factor: Array, screw: Screw) -> Screw:
    return factor * screw[0], factor * screw[1]


def _sum(parts: list[Screw], none: Screw) -> Screw:
    total = none if not parts else parts[0]
    for part in parts[1:]:
        total = total[0] + part[0], total[1] + part[1]
    return total


def _matrix(turn: Array, shift: Array) -> Float[Array, "d D"]:
    """[ω̂ | v]."""
    zero = jnp.zeros((), shift.dtype)
    if len(shift) == 2:
        rows = [[zero, -turn[0], shift[0]], [turn[0], zero, shift[1]]]
    else:
        x, y, z = turn
        rows = [[zero, -z, y, shift[0]], [z, zero, -x, shift[1]], [-y, x, zero, shift[2]]]
    return jnp.stack([jnp.stack(row) for row in rows])
