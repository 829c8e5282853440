"""A tree of bodies one after the other: with the fewest operations, for scalar programs.

What `linkage.py` finds for all bodies at once by products of whole arrays is found here body by body, as in the recursive
algorithms of Featherstone (Rigid Body Dynamics Algorithms, 2008, chapters 5 to 7): inertia forces by Newton and Euler, the mass
matrix by composite bodies, accelerations of long open trees by articulated ones. Screws and inertias are about one point c, in the axes of the world, so that none is carried from one
body to the next. A twist is (ω, velocity of the body's point that is at c), a wrench (moment about c, force); ω and moments have one
component in the plane and three in space.
"""

import dataclasses
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .pose import inverse, position_of, product, rotation_of
from .structure import AbstractStructure, Numbers
from .tree import Hinges

Screw = tuple[Float[Array, " k"], Float[Array, " d"]]


@dataclasses.dataclass(frozen=True)
class Hinge:
    """The joint by which a body hangs on its parent.

    Attributes:
        body: the body.
        parent: its parent, −1 for ground.
        outer: the joint's frame on the parent (D, D).
        back: what brings the joint's frame on the body to the body's (D, D).
        q: numbers of its coordinates.
        v: numbers of its velocities.
        steady: whether its twists are the same in all positions, seen from the parent.
        inner: the pose of the joint's frame on the body in that on the parent.
        rate: q̇ of v.
    """

    body: int
    parent: int
    outer: Float[Array, "D D"]
    back: Float[Array, "D D"]
    q: tuple[int, ...]
    v: tuple[int, ...]
    steady: bool
    inner: Callable[[Array], Array]
    rate: Callable[[Array, Array], Array]

    def twist(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Screw:
        """Seen from the joint's frame on the parent, about its origin."""
        pose, change = jax.jvp(self.inner, (q,), (self.rate(q, v),))
        matrix = product(change, inverse(pose))
        entries = ((1, 0),) if pose.shape[0] == 3 else ((2, 1), (0, 2), (1, 0))
        return jnp.stack([matrix[i, j] for i, j in entries]), position_of(matrix)

    def units(self, q: Float[Array, " nq"]) -> list[Screw]:
        """Of each velocity by itself."""
        at = jnp.zeros_like(q) if self.steady else q
        return [self.twist(at, unit) for unit in jnp.eye(len(self.v), dtype=q.dtype)]


def hinges(structure: AbstractStructure, numbers: Numbers) -> list[Hinge]:
    """The joints of the tree, those of parents before those of their children."""
    unit, found = jnp.eye(structure.dim + 1, dtype=numbers.inertia.dtype), {}
    for group in structure.hinges:
        for body, hinge in _members(structure, group, numbers, unit):
            found[body] = hinge
    order: list[int] = []
    while len(order) < len(found):
        order += [b for b in found if b not in order and structure.parents[b] in (-1, *order)]
    return [found[b] for b in order]


def _members(structure: AbstractStructure, group: Hinges, numbers: Numbers, unit: Array) -> Iterator[tuple[int, Hinge]]:
    frames = None if group.group is None else numbers.frames[group.group]
    for i, body in enumerate(group.bodies):
        data = jnp.zeros(0, unit.dtype) if frames is None else frames.numbers[group.entries[i]]
        a, b = (unit, unit) if frames is None else (frames.a[group.entries[i]], frames.b[group.entries[i]])
        inner = lambda q, data=data: group.pair.pose(q, data)
        if group.flipped[i]:
            a, b, forth = b, a, inner
            inner = lambda q, forth=forth: inverse(forth(q))
        parent, back = structure.parents[body], b if frames is None else inverse(b)
        yield body, Hinge(body, parent, a, back, group.q[i], group.v[i], group.pair.steady, inner, group.pair.rate)


class Tree:
    """All bodies at a pose.

    Args:
        structure: the mechanism's.
        q: the coordinates.
        numbers: its numbers.

    Attributes:
        poses: of ground and bodies in the world, in their order.
        centre: c, amid the bodies.
        screws: the twist of each velocity by itself.
    """

    def __init__(self, structure: AbstractStructure, q: Float[Array, " nq"], numbers: Numbers):
        self.structure, self.q, self.numbers = structure, q, numbers
        self.hinges = hinges(structure, numbers)
        unit = jnp.eye(structure.dim + 1, dtype=q.dtype)
        poses, self._frames = {-1: unit}, {}
        for hinge in self.hinges:
            frame = product(poses[hinge.parent], hinge.outer)
            poses[hinge.body] = product(product(frame, hinge.inner(q[jnp.array(hinge.q, int)])), hinge.back)
            self._frames[hinge.body] = frame
        self.poses = jnp.stack([poses[b] for b in range(-1, len(self.hinges))])
        self.centre = lax.stop_gradient(jnp.mean(position_of(self.poses[1:]), axis=0))
        self.screws: dict[int, Screw] = {}
        for hinge in self.hinges:
            for k, screw in zip(hinge.v, hinge.units(self._own(hinge)), strict=True):
                self.screws[k] = self._carried(hinge, screw)

    def _own(self, hinge: Hinge) -> Float[Array, " k"]:
        return self.q[jnp.array(hinge.q, int)]

    def _carried(self, hinge: Hinge, screw: Screw) -> Screw:
        """A twist that is seen from the joint's frame on the parent, in the world."""
        frame, (turn, shift) = self._frames[hinge.body], screw
        rotation = rotation_of(frame)
        turn = turn if len(turn) == 1 else rotation @ turn
        return turn, rotation @ shift - _across(turn, position_of(frame) - self.centre)

    def _moved(self, hinge: Hinge, v: Float[Array, " nv"]) -> Screw:
        """The twist of a joint that moves."""
        return _sum([_times(v[k], self.screws[k]) for k in hinge.v], self._still)

    @property
    def _still(self) -> Screw:
        dim = self.structure.dim
        return jnp.zeros(1 if dim == 2 else 3, self.q.dtype), jnp.zeros(dim, self.q.dtype)

    def twists(self) -> Float[Array, "nv d D"]:
        """`AbstractLinkage.twists` about c."""
        return jnp.stack([_matrix(*self.screws[k]) for k in range(self.structure.nv)])

    def rates(self, v: Float[Array, " nv"]) -> Float[Array, "m D D"]:
        """The derivatives of the poses."""
        found, last = {-1: self._still}, jnp.zeros((1, self.structure.dim + 1), self.q.dtype)
        out = {-1: jnp.zeros_like(self.poses[0])}
        for hinge in self.hinges:
            found[hinge.body] = _sum([found[hinge.parent], self._moved(hinge, v)], self._still)
            moved = self.poses[hinge.body + 1].at[:-1, -1].add(-self.centre)
            out[hinge.body] = jnp.concatenate([_matrix(*found[hinge.body]) @ moved, last])
        return jnp.stack([out[b] for b in range(-1, len(self.hinges))])

    def inertias(self) -> dict[int, "Inertia"]:
        """Of each body with all that hang on it."""
        found = {b: self._inertia(b) for b in range(len(self.hinges))}
        for hinge in reversed(self.hinges):
            if hinge.parent >= 0:
                found[hinge.parent] = found[hinge.parent] + found[hinge.body]
        return found

    def mass(self) -> Float[Array, "nv nv"]:
        """M_jk = S_j · (I S_k), I being that of the body of k with all that hang on it, for j on the way to ground."""
        inertias, nv = self.inertias(), self.structure.nv
        zero = jnp.zeros((), self.q.dtype)
        entries = [[zero] * nv for _ in range(nv)]
        above: dict[int, tuple[int, ...]] = {-1: ()}
        for hinge in self.hinges:
            above[hinge.body] = (*above[hinge.parent], *hinge.v)
            for k in hinge.v:
                momentum = inertias[hinge.body].momentum(self.screws[k])
                for j in above[hinge.body]:
                    entries[j][k] = entries[k][j] = _power(self.screws[j], momentum)
        return jnp.stack([jnp.stack(row) for row in entries]) if nv else jnp.zeros((0, 0), self.q.dtype)

    def momenta(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """M v: S_k · Σ I V over the bodies that velocity k moves."""
        twists, momenta = {-1: self._still}, {}
        for hinge in self.hinges:
            twists[hinge.body] = _sum([twists[hinge.parent], self._moved(hinge, v)], self._still)
            momenta[hinge.body] = self._inertia(hinge.body).momentum(twists[hinge.body])
        return self._generalised(momenta)

    def solved(self, force: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """M⁻¹ f without M; its derivatives are those of M x = f."""
        solve = lambda _, force: self._by_articulated_inertias(force)
        return lax.custom_linear_solve(self.momenta, force, solve, solve, symmetric=True)

    def _by_articulated_inertias(self, force: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """M⁻¹ f (chapter 7), velocity by velocity from the last one to the first.

        With U = I S, D = S · U and u = (f − S · p)/D a body leaves I − U Uᵀ/D and p + U u to what carries it; where that moves
        with a, x = u − U · a/D.
        """
        bodies = range(len(self.hinges))
        inertia = {b: self._inertia(b).matrix() for b in bodies}
        wrench = {b: jnp.zeros_like(inertia[b][0]) for b in bodies}
        screws = [jnp.concatenate(self.screws[k]) for k in range(self.structure.nv)]
        shares: dict[int, tuple[Array, Array]] = {}
        for hinge in reversed(self.hinges):
            left, push = inertia[hinge.body], wrench[hinge.body]
            for k in reversed(hinge.v):
                momentum = left @ screws[k]
                share = momentum / jnp.dot(screws[k], momentum)
                own = (force[k] - jnp.dot(screws[k], push)) / jnp.dot(screws[k], momentum)
                left, push = left - _symmetric(jnp.outer(momentum, share)), push + momentum * own
                shares[k] = share, own
            if hinge.parent >= 0:
                inertia[hinge.parent], wrench[hinge.parent] = inertia[hinge.parent] + left, wrench[hinge.parent] + push
        moved, out = {-1: jnp.zeros(len(jnp.concatenate(self._still)), self.q.dtype)}, {}
        for hinge in self.hinges:
            rate = moved[hinge.parent]
            for k in hinge.v:
                share, own = shares[k]
                out[k] = own - jnp.dot(share, rate)
                rate = rate + screws[k] * out[k]
            moved[hinge.body] = rate
        return jnp.stack([out[k] for k in range(self.structure.nv)])

    def inertia_force(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """−S_k · Σ (I A + V × I V − I g) for v̇ = 0, over the bodies that velocity k moves."""
        twists: dict[int, Screw] = {-1: self._still}
        rates: dict[int, Screw] = {-1: (self._still[0], -self.numbers.gravity)}
        wrenches: dict[int, Screw] = {}
        for hinge in self.hinges:
            own, carrier = self._moved(hinge, v), twists[hinge.parent]
            turning = _crossed(carrier, own)
            if not hinge.steady:
                part = v[jnp.array(hinge.v, int)]
                q = self._own(hinge)
                moved = lambda q, hinge=hinge, part=part: hinge.twist(q, part)
                turning = _sum([turning, self._carried(hinge, jax.jvp(moved, (q,), (hinge.rate(q, part),))[1])], own)
            twists[hinge.body] = twist = _sum([carrier, own], own)
            rates[hinge.body] = rate = _sum([rates[hinge.parent], turning], own)
            inertia = self._inertia(hinge.body)
            spin, push = inertia.momentum(twist)
            gyroscopic = _moment(twist[0], spin) + _moment_of(twist[1], push), _across(twist[0], push)
            wrenches[hinge.body] = _sum([inertia.momentum(rate), gyroscopic], own)
        return -self._generalised(wrenches)

    def _inertia(self, body: int) -> "Inertia":
        """Of a body by itself."""
        return Inertia.of(self.poses[body + 1], self.numbers.inertia[body], self.centre)

    def _generalised(self, wrenches: dict[int, Screw]) -> Float[Array, " nv"]:
        """S_k · Σ of a wrench of each body over those that velocity k moves."""
        total, out = dict(wrenches), [jnp.zeros((), self.q.dtype)] * self.structure.nv
        for hinge in reversed(self.hinges):
            wrench = total[hinge.body]
            for k in hinge.v:
                out[k] = _power(self.screws[k], wrench)
            if hinge.parent >= 0:
                total[hinge.parent] = _sum([total[hinge.parent], wrench], wrench)
        return jnp.stack(out) if out else jnp.zeros(0, self.q.dtype)


@dataclasses.dataclass(frozen=True)
class Inertia:
    """Of a body about c.

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
        """Of a body with ∫ x̃ x̃ᵀ dm in its own frame, at a pose."""
        rotation, place, mass = rotation_of(pose), position_of(pose) - centre, spread[-1, -1]
        shifted = rotation @ spread[:-1, -1]
        moment = shifted + mass * place
        own = spread[:-1, :-1]
        if len(place) == 2:
            tensor = jnp.trace(own) + jnp.sum(place * (shifted + moment))
            return cls(mass, moment, tensor[None, None])
        turned = rotation @ (jnp.trace(own) * jnp.eye(3, dtype=own.dtype) - own)
        entries = [[jnp.zeros((), own.dtype)] * 3 for _ in range(3)]
        parallel = [shifted[i] * place[i] + place[i] * moment[i] for i in range(3)]
        total = parallel[0] + parallel[1] + parallel[2]
        for i in range(3):
            for j in range(i, 3):
                x = jnp.sum(turned[i] * rotation[j])
                y = total - parallel[i] if i == j else -(shifted[i] * place[j] + place[i] * moment[j])
                entries[i][j] = entries[j][i] = x + y
        return cls(mass, moment, jnp.stack([jnp.stack(row) for row in entries]))

    def __add__(self, other: "Inertia") -> "Inertia":
        return Inertia(self.mass + other.mass, self.moment + other.moment, self.tensor + other.tensor)

    def matrix(self) -> Float[Array, "s s"]:
        """Of twists and momenta as vectors."""
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
    """X × f."""
    return jnp.stack([x[0] * force[1] - x[1] * force[0]]) if len(x) == 2 else _cross(x, force)


def _moment(turn: Array, spin: Array) -> Array:
    """ω × L, nothing in the plane."""
    return jnp.zeros_like(spin) if len(turn) == 1 else _cross(turn, spin)


def _cross(a: Array, b: Array) -> Array:
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def _crossed(a: Screw, b: Screw) -> Screw:
    """The derivative of a twist that is carried along by another one."""
    return _moment(a[0], b[0]), _across(a[0], b[1]) - _across(b[0], a[1])


def _symmetric(matrix: Array) -> Array:
    """What stands on the diagonal and above it, and below it again: of numbers that are the same but for rounding."""
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
