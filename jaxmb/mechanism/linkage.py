"""A mechanism as functions of coordinates: poses, inertia, forces and constraint rows.

One set of formulas serves the plane and space, a tree of any shape, and absolute coordinates, which are a tree in which each
body moves freely. All joints of a kind are evaluated by one vectorised call.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..system import System
from .driver import AbstractJointDriver
from .motion import Motion
from .pose import inverse, position_of, product, shifted, take, world_poses
from .recursion import Tree
from .structure import AbstractStructure, Frames, Numbers
from .tree import ConstraintGroup, TreeJoints

Scalar = Float[Array, ""]
# From so many velocities on, in the plane and in space, articulated inertias take fewer operations than a mass matrix and its
# factors: their cost grows with n, that of a dense factorisation with n³ (Featherstone 2008, chapter 10; docs/engines.md).
ARTICULATED_FROM = {2: 8, 3: 12}
# Sums over the bodies that a velocity moves are products with a 0/1 matrix, unless no velocity moves one body in so many, as in
# absolute coordinates, where each moves one only: then bodies are looked up. The first joint of a chain moves all of them.
LOOKUP_BELOW = 4


class AbstractLinkage(AbstractStructure):
    """The functions of a built mechanism."""

    def _tree_frames(self, numbers: Numbers) -> list[tuple[TreeJoints, Frames]]:
        """The joints of the tree with their frames."""
        # A body that moves freely is a joint from the world's frame to its own, without numbers.
        unit = jnp.eye(self.dim + 1, dtype=numbers.inertia.dtype)[None]
        world = Frames(unit, unit, jnp.zeros((1, 0), unit.dtype))
        return [
            (h, world.of((0,) * len(h.bodies)) if h.group is None else numbers.frames[h.group].of(h.entries))
            for h in self.tree_joints
        ]

    def _constraint_frames(self, numbers: Numbers) -> list[tuple[ConstraintGroup, Frames]]:
        """The connections that are constraints with their frames."""
        return [(group, numbers.frames[group.group].of(group.entries)) for group in self.constraint_groups]

    # Kinematics

    def local_poses(self, q: Float[Array, " nq"], numbers: Numbers) -> Float[Array, "n D D"]:
        """Each body's pose in its parent."""
        poses = []
        for group, frames in self._tree_frames(numbers):
            # One `vmap` for all joints of a class: programs grow with the number of classes.
            inner = jax.vmap(group.pair.pose)(take(q, np.array(group.q, int)), frames.numbers)
            poses.append(_placed(group, frames, inner))
        return take(jnp.concatenate(poses), _order(group.bodies for group in self.tree_joints))

    def poses(self, q: Float[Array, " nq"], params: Numbers) -> Float[Array, "m D D"]:
        """World poses of ground and bodies."""
        if self.recursive:
            return Tree(self, q, params).poses
        return world_poses(self.local_poses(q, params), self.parents)

    def tree_rate(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """q̇ of the tree's coordinates; zero for those that count turns."""
        parts = [jnp.zeros(len(self.turns), q.dtype)]
        for group in self.tree_joints:
            parts.append(
                jax.vmap(group.pair.rate)(take(q, np.array(group.q, int)), take(v, np.array(group.v, int))).ravel()
            )
        indices = [np.arange(self.nq - len(self.turns), self.nq), *(np.ravel(group.q) for group in self.tree_joints)]
        return take(jnp.concatenate(parts), _order(indices))

    def rate(self, q: Float[Array, " nq"], v: Float[Array, " nv"], numbers: Numbers) -> Float[Array, " nq"]:
        """q̇ = N(q) v."""
        rate = self.tree_rate(q, v)
        if not self.turns:
            return rate
        motion = self.motion(jnp.zeros((), q.dtype), q, v, numbers)
        # Counters of turns follow the rates of their angles, so that they are integrated like coordinates.
        turning = [motion.joint_rates(joint)[i] for joint, i in self.turns]
        return rate.at[self.nq - len(self.turns) :].set(jnp.stack(turning))

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """Unit quaternions."""
        for group in self.tree_joints:
            index = np.array(group.q, int)
            q = q.at[index].set(jax.vmap(group.pair.normalise)(q[index]))
        return q

    def motion(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], params: Numbers) -> Motion:
        """Poses and their derivatives at an instant."""
        if self.recursive:
            tree = Tree(self, q, params)
            return Motion(linkage=self, numbers=params, t=t, q=q, v=v, poses=tree.poses, rates=tree.rates(v))
        # Poses and their rates from one forward derivative, at about twice the cost of the poses: no velocity
        # recursion is written.
        poses, rates = jax.jvp(lambda q: self.poses(q, params), (q,), (self.tree_rate(q, v),))
        return Motion(linkage=self, numbers=params, t=t, q=q, v=v, poses=poses, rates=rates)

    def at_rest(self, t: Scalar, q: Float[Array, " nq"], numbers: Numbers) -> Motion:
        """Poses at an instant of a mechanism that does not move."""
        poses = self.poses(q, numbers)
        return Motion(
            linkage=self,
            numbers=numbers,
            t=t,
            q=q,
            v=jnp.zeros(self.nv, q.dtype),
            poses=poses,
            rates=jnp.zeros_like(poses),
        )

    def measure(self, poses: Float[Array, "m D D"], numbers: Numbers) -> Float[Array, " nq"]:
        """The coordinates of given poses of ground and bodies; joints of the tree are taken as closed."""
        q = jnp.zeros(self.nq, poses.dtype)
        for group, frames in self._tree_frames(numbers):
            x = self._relative(poses, group, frames)
            q = q.at[np.array(group.q, int)].set(jax.vmap(group.pair.measure)(x, frames.numbers))
        motion = Motion(
            linkage=self,
            numbers=numbers,
            t=jnp.zeros(()),
            q=q,
            v=jnp.zeros(self.nv),
            poses=poses,
            rates=jnp.zeros_like(poses),
        )
        for i, (joint, coordinate) in enumerate(self.turns):
            q = q.at[self.nq - len(self.turns) + i].set(motion.relative(joint)[coordinate])
        return q

    def measure_rates(
        self, poses: Float[Array, "m D D"], rates: Float[Array, "m D D"], numbers: Numbers
    ) -> Float[Array, " nv"]:
        """The velocities of given poses and their derivatives."""
        v = jnp.zeros(self.nv, poses.dtype)
        for group, frames in self._tree_frames(numbers):
            x, dx = jax.jvp(lambda p, g=group, f=frames: self._relative(p, g, f), (poses,), (rates,))
            v = v.at[np.array(group.v, int)].set(jax.vmap(group.pair.rates)(x, dx))
        return v

    def _relative(self, poses: Array, group: TreeJoints, frames: Frames) -> Array:
        bodies = np.array(group.bodies, int)
        parents = np.array(self.parents, int)[bodies]
        flipped = np.array(group.flipped, bool)
        a, b = np.where(flipped, bodies, parents) + 1, np.where(flipped, parents, bodies) + 1
        return product(inverse(_carried(poses, a, frames.a)), _carried(poses, b, frames.b))

    # Dynamics

    def twists(
        self, q: Float[Array, " nq"], poses: Float[Array, "m D D"], numbers: Numbers, centre: Float[Array, " d"]
    ) -> Float[Array, "nv d D"]:
        """S_k, the upper part of (∂X/∂v_k) X⁻¹ of the bodies that velocity k moves, about a point of the world.

        One derivative of the joint's own pose gives the twist in the parent's frame; the parent's pose carries it into the world.
        """
        if self.recursive:
            return Tree(self, q, numbers).twists()
        groups = []
        for group, frames in self._tree_frames(numbers):

            def local(q: Array, v: Array, g=group, f=frames) -> Array:
                inner, inner_rate = jax.jvp(
                    lambda q: jax.vmap(g.pair.pose)(q, f.numbers), (q,), (jax.vmap(g.pair.rate)(q, v),)
                )
                here, change = jax.jvp(lambda x: _placed(g, f, x), (inner,), (inner_rate,))
                return product(change, inverse(here))

            own_q = take(q, np.array(group.q, int))
            count, free = len(group.bodies), len(group.pair.velocities)
            # All joints of a group are moved at once, each by its k-th unit velocity: they do not see each other,
            # since each pose is that in its parent.
            units = jnp.broadcast_to(jnp.eye(free, dtype=q.dtype)[:, None], (free, count, free))
            inside = jax.vmap(lambda v, own_q=own_q, local=local: local(own_q, v), out_axes=1)(units)
            parents = np.array([self.parents[b] + 1 for b in group.bodies], int)
            # Conjugation with the parent's pose about the centre is the adjoint map of the twist.
            carried = shifted(take(poses, parents), -centre)[:, None]
            inside = product(product(carried, inside), inverse(carried))
            groups.append(inside.reshape(-1, *poses.shape[1:])[:, :-1])
        return take(jnp.concatenate(groups), _order(np.ravel(group.v) for group in self.tree_joints))

    def generalised(self, twists: Float[Array, "nv d D"], wrenches: Float[Array, "n d D"]) -> Float[Array, " nv"]:
        """⟨S_k, Σ G⟩ over the bodies that velocity k moves, G = f x̃ᵀ of a force f at x."""
        return jnp.sum(twists * self.summed(wrenches), axis=(1, 2))

    def summed(self, values: Float[Array, "n ..."]) -> Float[Array, "nv ..."]:
        """For each velocity the sum over the bodies that it moves."""
        moves = self.moves
        if LOOKUP_BELOW * moves.sum(axis=0).max(initial=0) >= len(moves):
            return jnp.tensordot(jnp.asarray(moves.T, values.dtype), values, 1)
        bodies = np.argsort(~moves, axis=0, kind="stable")[: moves.sum(axis=0).max()]
        beyond = np.arange(len(bodies))[:, None] >= moves.sum(axis=0)
        # Velocities that move fewer bodies than others look up a row of zeros in place of those.
        padded = jnp.pad(values, [(0, 1)] + [(0, 0)] * (values.ndim - 1))
        return jnp.sum(padded[np.where(beyond, len(moves), bodies)], axis=0)

    def mass(self, t: Scalar, q: Float[Array, " nq"], numbers: Numbers) -> Float[Array, "nv nv"]:
        """M_jk = ⟨S_j, S_k Σ X J Xᵀ⟩ over the bodies that both move."""
        if self.recursive:
            return Tree(self, q, numbers).mass()
        poses = self.poses(q, numbers)
        centre = _centre(poses)
        twists = self.twists(q, poses, numbers, centre)
        about = shifted(poses[1:], -centre)
        inertia = product(product(about, numbers.inertia), jnp.swapaxes(about, 1, 2))
        moves = self.moves
        # The bodies moved by the velocity further out are those that both move.
        momenta = twists @ self.summed(inertia)
        products = twists.reshape(self.nv, -1) @ momenta.reshape(self.nv, -1).T
        sizes = moves.sum(axis=0)
        further = (moves.T.astype(int) @ moves > 0) & (sizes[:, None] >= sizes[None, :])
        # Of a pair of velocities on one path, only the product with the composite inertia of the outer one is right;
        # pairs on different branches move no body together and have none.
        return jnp.where(further, products, jnp.where(further.T, products.T, 0))

    def solved(
        self, q: Float[Array, " nq"], force: Float[Array, " nv"], numbers: Numbers, own: Float[Array, " nv"] | None
    ) -> Float[Array, " nv"] | None:
        """M⁻¹ f by articulated inertias, where bodies are evaluated recursively and are many; else None.

        `own` is the inertia that moves with each velocity alone, None for none.
        """
        is_long = self.recursive and self.nv >= ARTICULATED_FROM[self.dim]
        return (
            Tree(self, q, numbers).solved(force, jnp.zeros(self.nv, q.dtype) if own is None else own)
            if is_long
            else None
        )

    def momenta(
        self, q: Float[Array, " nq"], directions: Float[Array, "k nv"], numbers: Numbers
    ) -> Float[Array, "k nv"]:
        """M v of several velocities: ⟨S_k, Σ Ẋ J Xᵀ⟩."""
        poses = self.poses(q, numbers)
        centre = _centre(poses)
        twists = self.twists(q, poses, numbers, centre)
        about = jnp.swapaxes(shifted(poses[1:], -centre), 1, 2)

        def momentum(v: Array) -> Array:
            rates = jax.jvp(lambda q: self.poses(q, numbers), (q,), (self.tree_rate(q, v),))[1]
            return self.generalised(twists, product(product(rates[1:], numbers.inertia), about)[:, :-1])

        return jax.vmap(momentum)(directions)

    def potential_energy(self, motion: Motion) -> Scalar:
        """The potential energy of gravity, −Σ m g·c, and of elastic elements."""
        numbers = motion.numbers
        moments = (motion.poses[1:] @ numbers.inertia)[:, :-1, -1]
        return self._elastic_energy(motion) - jnp.sum(moments @ numbers.gravity)

    def _elastic_energy(self, motion: Motion) -> Scalar:
        return sum((force.potential(motion) for force in motion.numbers.forces), jnp.zeros((), motion.q.dtype))

    def intrinsic_force(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], numbers: Numbers
    ) -> Float[Array, " nv"]:
        """Inertia forces, with G = −Ẍ J Xᵀ for v̇ = 0, and those of the potential, with G = −∂V/∂X Xᵀ."""
        if self.recursive:
            tree = Tree(self, q, numbers)
            # The recursion takes gravity as an acceleration of the ground, so that only elastic forces are left for
            # the potential. These do not read rates, and zeros are dropped while the program is compiled.
            poses, rates = tree.poses, jnp.zeros_like(tree.poses)
            wrenches, inertial = jnp.zeros_like(poses[1:]), tree.inertia_force(v)
            potential = self._elastic_energy
        else:
            step = self.tree_rate(q, v)
            # Ẍ for v̇ = 0 by a derivative of a derivative: it holds centrifugal, Coriolis and gyroscopic terms of all
            # joints.
            moving = lambda q: jax.jvp(lambda q: self.poses(q, numbers), (q,), (self.tree_rate(q, v),))
            (poses, rates), (_, accelerations) = jax.jvp(moving, (q,), (step,))
            wrenches, inertial = product(accelerations[1:], numbers.inertia), jnp.zeros_like(v)
            potential = self.potential_energy
        motion = Motion(linkage=self, numbers=numbers, t=t, q=q, v=v, poses=poses, rates=rates)
        at = lambda poses, q: potential(dataclasses.replace(motion, poses=poses, q=q))
        pose_slope, coordinate_slope = jax.grad(at, argnums=(0, 1))(poses, q)
        centre = _centre(poses)
        about = jnp.swapaxes(shifted(poses[1:], -centre), 1, 2)
        wrenches = product(-(wrenches + pose_slope[1:]), about)
        force = inertial + self.generalised(self.twists(q, poses, numbers, centre), wrenches[:, :-1])
        # Springs along joints read q itself, not poses: their force goes through N(q)ᵀ. The test is static and spares
        # systems without such springs the transposed program.
        if any(force.coordinates() for force in numbers.forces):
            force = force - jax.vjp(lambda v: self.tree_rate(q, v), v)[1](coordinate_slope)[0]
        return force

    def applied_force(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], numbers: Numbers
    ) -> Float[Array, " nv"]:
        """The generalised force of the elements that have no potential and do not depend on reactions."""
        motion = self.motion(t, q, v, numbers)
        forces = [f for f in numbers.forces if not f.loads()]
        return self._of_power(motion, lambda test: sum(f.power(motion, test) for f in forces))

    def loaded_force(self, motion: Motion, loads: Float[Array, " k"]) -> Float[Array, " nv"]:
        """The generalised force of the elements that are proportional to reactions of the given sizes."""
        motion = dataclasses.replace(motion, loads=loads)
        forces = [f for f in motion.numbers.forces if f.loads()]
        return self._of_power(motion, lambda test: sum(f.power(motion, test) for f in forces))

    def actuation(self, t: Scalar, q: Float[Array, " nq"], numbers: Numbers) -> Float[Array, "nv nu"]:
        """The generalised force of each unit input."""
        motion = self.at_rest(t, q, numbers)
        columns = [self._of_power(motion, lambda test, a=a: a.power(motion, test)) for a in numbers.actuators]
        return jnp.stack(columns, axis=1)

    def _of_power(self, motion: Motion, power: Callable[[Motion], Scalar | int]) -> Float[Array, " nv"]:
        """The generalised force of a virtual power, which is a linear function of a test motion at the same poses."""
        none = (jnp.zeros_like(motion.rates), jnp.zeros_like(motion.v))
        test = lambda rates, v: power(dataclasses.replace(motion, rates=rates, v=v))
        # Reverse mode: one sweep gives the force on all bodies, whatever the number of velocities. At zero since the
        # power is linear in the test motion.
        by_rates, by_v = jax.grad(test, argnums=(0, 1))(*none)
        centre = _centre(motion.poses)
        about = jnp.swapaxes(shifted(motion.poses[1:], -centre), 1, 2)
        # ∂P/∂Ẋ is f x̃ᵀ in the body's frame; times Xᵀ about the centre it is the wrench G that twists are paired
        # with.
        wrenches = product(by_rates[1:], about)[:, :-1]
        return self.generalised(self.twists(motion.q, motion.poses, motion.numbers, centre), wrenches) + by_v

    # Constraints

    def residual(self, t: Scalar, q: Float[Array, " nq"], numbers: Numbers) -> Float[Array, " k"]:
        """φ, rows in the order of the mechanism."""
        motion = self.at_rest(t, q, numbers)
        names, parts = [], [jnp.zeros(0, q.dtype)]
        for group, frames in self._constraint_frames(numbers):
            if group.kind.holonomic:
                a, b = _carried(motion.poses, group.a, frames.a), _carried(motion.poses, group.b, frames.b)
                # Sines in runs: smooth, and without a jump at half a turn. Angles in the search for a closed pose,
                # which must not turn back towards the opposite one.
                rows = group.kind.gap if self.by_angles else group.kind.residual
                parts.append(jax.vmap(rows)(a, b, frames.numbers).ravel())
                names += [name for name in group.names for _ in range(group.kind.holonomic)]
        for (name, pair, _), (first, second, offset) in zip(
            self.connectivity.relations, numbers.relations, strict=True
        ):
            value = first * motion.coordinate(pair[0]) + second * motion.coordinate(pair[1]) - offset
            parts.append(value[None])
            names.append(name)
        for driver in numbers.drivers:
            if driver.holonomic:
                parts.append(driver.residual(motion)[None])
                names.append(driver.name)
        return take(jnp.concatenate(parts), _named_order(self.rows, names))

    def slip(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], numbers: Numbers) -> Float[Array, " k"]:
        """ψ, rows in the order of the mechanism."""
        motion = self.motion(t, q, v, numbers)
        names, parts = [], [jnp.zeros(0, q.dtype)]
        for group, frames in self._constraint_frames(numbers):
            if group.kind.nonholonomic:
                ends = ((group.a, frames.a), (group.b, frames.b))
                frames_and_rates = [_carried(x, *end) for x in (motion.poses, motion.rates) for end in ends]
                parts.append(jax.vmap(group.kind.slip)(*frames_and_rates, frames.numbers).ravel())
                names += [group.kind.slip_name(name) for name in group.names for _ in range(group.kind.nonholonomic)]
        for driver in numbers.drivers:
            if not driver.holonomic:
                parts.append(driver.residual(motion)[None])
                names.append(driver.name)
        return take(jnp.concatenate(parts), _named_order(self.slips, names))

    def alignment(self, q: Float[Array, " nq"], params: Numbers) -> dict[str, Scalar]:
        """By name of each joint that closes a loop, a number that is positive where its frames are aligned, not opposite."""
        poses, alignments = self.poses(q, params), {}
        for group, frames in self._constraint_frames(params):
            pair = getattr(group.kind, "pair", None)
            if pair is not None:
                a, b = _carried(poses, group.a, frames.a), _carried(poses, group.b, frames.b)
                values = jax.vmap(pair.aligned)(product(inverse(a), b), frames.numbers)
                alignments |= {name: values[i] for i, name in enumerate(group.names)}
        return alignments

    def driven_turns(self, t: Scalar, q: Float[Array, " nq"], params: Numbers) -> dict[str, Float[Array, " nq"]]:
        """By name of each driver of an angle with full turns, by how many of these the angle lies beyond the prescribed one."""
        beyond = {}
        for driver in params.drivers:
            if isinstance(driver, AbstractJointDriver) and driver.holonomic:
                joint, part = self.index(driver.joint, "coordinates")
                slot = self.slot(joint)
                if slot.pair.angles[part] and slot.q[part] >= 0:
                    turns = jnp.round((q[slot.q[part]] - driver.fn(t, params.params)) / (2 * jnp.pi))
                    # A driver may be NaN at this time; that is for its residual to tell, not for the guess.
                    turns = jnp.where(jnp.isfinite(turns), turns, 0)
                    beyond[driver.name] = jnp.zeros_like(q).at[slot.q[part]].set(turns)
        return beyond


def linkage_of(system: System, argument: str = "system") -> AbstractLinkage:
    """The linkage of a system.

    Raises:
        ValueError: if it was not built from a mechanism.
    """
    if not isinstance(system.joints, AbstractLinkage):
        raise ValueError(f"Argument `{argument}` must be built from a mechanism, but is not.")
    return system.joints


def _carried(
    poses: Float[Array, "m D D"], bodies: Sequence[int] | np.ndarray, frames: Float[Array, "n D D"]
) -> Float[Array, "n D D"]:
    """Frames of some bodies in the world; of rates their derivatives."""
    return product(poses[np.asarray(bodies, int)], frames)


def _placed(group: TreeJoints, frames: Frames, inner: Float[Array, "n D D"]) -> Float[Array, "n D D"]:
    """Poses of bodies in their parents from those of B in A."""
    flipped = np.array(group.flipped, bool)
    if group.group is None:
        return inner
    # Most groups have no joint whose B is on the parent; the test is static, and they skip two inversions.
    if not flipped.any():
        return product(product(frames.a, inner), inverse(frames.b))
    turned = jnp.where(flipped[:, None, None], inverse(inner), inner)
    outer = jnp.where(flipped[:, None, None], frames.b, frames.a)
    return product(product(outer, turned), inverse(jnp.where(flipped[:, None, None], frames.a, frames.b)))


def _centre(poses: Float[Array, "m D D"]) -> Float[Array, " d"]:
    """The mean position of the bodies, about which twists and wrenches are written."""
    # Results do not depend on this point but by rounding, which grows with the distance of the bodies from it:
    # mechanisms far from the origin keep their digits. So no derivative goes through it.
    return lax.stop_gradient(jnp.mean(position_of(poses[1:]), axis=0))


def _order(indices: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
    """The order in which concatenated parts stand at the indices given for them."""
    return np.argsort(np.concatenate([np.asarray(p, int) for p in indices]))


def _named_order(rows: tuple[tuple[str, int], ...], names: list[str]) -> np.ndarray:
    """The indices that sort rows with these names into the order of `rows`."""
    rank = {name: i for i, (name, _) in enumerate(rows)}
    return np.argsort([rank[name] for name in names], kind="stable") if names else np.zeros(0, int)
