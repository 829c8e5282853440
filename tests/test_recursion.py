"""Bodies one after the other give what all of them at once do."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import mechanisms
import numpy as np
import puma
import pytest
from mechanisms import P, S

import jaxmb as jm
from jaxmb.lanes import Program, Shaped
from jaxmb.linalg.root import inverse_root
from jaxmb.mechanism.recursion import Tree, tree_joints
from jaxmb.simulation.compiled_step import specialised
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.vector_field import VectorField
from jaxmb.system import evaluate_at


def branched(module, dim):
    """A trunk that carries two arms, one of them upside down in its joint, a hand, and a body that flies beside it on a spring."""
    across = {} if dim == 2 else {"axis": (0.2, 1.0, -0.3)}
    inertia = 0.1 if dim == 2 else np.array([[0.3, 0.02, -0.01], [0.02, 0.4, 0.03], [-0.01, 0.03, 0.5]])
    place = lambda *x: np.array((*x, 0.3)[:dim])
    ends = {"a": place(0.0, 0.0), "b": place(0.7, -0.2)}
    masses = {"left": 0.8, "trunk": 1.5, "right": 0.6, "hand": 0.3, "far": 2.0}  # children before parents, and after
    return module.Mechanism(
        [module.Body(name, m, m * inertia, place(0.2, 0.1), ends) for name, m in masses.items()],
        [
            module.Revolute("root", "trunk.a", "ground", **across),
            module.Revolute("l", "trunk.b", "left.a", **across),
            module.Prismatic("r", "right.a", "trunk.b", axis=place(1.0, 0.4)),
            module.Revolute("wrist", "right.b", "hand.a", **across),
        ],
        forces=[
            module.SpringDamper("spring", "far.b", "hand.b", 30.0, 2.0, 0.3),
            module.JointSpring("coil", "wrist", 3.0, 0.2),
            module.JointFriction("friction", "l", 0.4, 0.3, 0.1),
            module.JointInertia("rotor", "wrist", 0.2),
            module.JointInertia("drive", "root", 0.4),
        ],
        gravity=np.linspace(-9.81, 2.0, dim),
    )


MECHANISMS = {key: functools.partial(mechanisms.pair, key) for key in mechanisms.PAIRS} | {
    ("planar", "branched"): functools.partial(branched, P, 2),
    ("spatial", "branched"): functools.partial(branched, S, 3),
}
QUICK = [("planar", "branched"), ("spatial", "Screw")]
CASES = [(key, how) for key in MECHANISMS for how in ("relative", "absolute")]


def terms(system, params, q, v):
    t, system = jnp.zeros(()), system.with_params(params)
    found = evaluate_at(system, t, q, v, jnp.ones(system.m), system.applied_force(t, q, v))
    return found.mass, found.force, found.jacobian, found.offset, found.gamma, system.intrinsic_force(t, q, v)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join((*case[0], case[1])))
def test_terms_and_their_derivatives_are_the_same(case):
    """Derivatives along random changes of coordinates, velocities, inertias, gravity and the joints' frames on their bodies."""
    key, coordinates = case
    system = MECHANISMS[key]().build(coordinates=coordinates)
    q, v = (x[0] for x in mechanisms.random_states(system, 1))
    rng = np.random.default_rng(1)
    moved = lambda x: jnp.asarray(rng.normal(size=x.shape))
    numbers = system.params
    inner = lambda x: (x.inertia, x.gravity, [f.a for f in x.frames], [f.numbers for f in x.frames])
    symmetric = lambda x: x + jnp.swapaxes(x, -1, -2)
    rigid = lambda x: (x - jnp.swapaxes(x, -1, -2)).at[..., -1, :].set(0)
    inertia, gravity, frames, others = inner(numbers)
    own = symmetric(moved(inertia)), moved(gravity), [a @ rigid(moved(a)) for a in frames], [moved(x) for x in others]
    directions = own, moved(q), moved(v)

    def found(system):
        def fn(own, q, v):
            inertia, gravity, a, others = own
            frames = tuple(
                dataclasses.replace(f, a=a, numbers=x) for f, a, x in zip(numbers.frames, a, others, strict=True)
            )
            params = dataclasses.replace(numbers, inertia=inertia, gravity=gravity, frames=frames)
            return terms(system, params, q, v)

        return jax.jvp(fn, (inner(numbers), q, v), directions)

    for a, b in zip(jax.tree.leaves(found(system.unrolled)), jax.tree.leaves(found(system)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * (1 + np.abs(b).max(initial=0)))


@pytest.mark.slow_except("planar branched")
@pytest.mark.parametrize(
    "key", [key if key in QUICK else pytest.param(key, marks=pytest.mark.slow) for key in MECHANISMS], ids=" ".join
)
def test_articulated_inertias_give_what_the_mass_matrix_does(key):
    """Along random changes of coordinates, forces and inertias too; joints with several velocities and free bodies included."""
    system = MECHANISMS[key]().build()
    q, v = (x[0] for x in mechanisms.random_states(system, 1))
    rng = np.random.default_rng(5)
    at = q, jnp.asarray(rng.normal(size=system.nv)), system.params.inertia
    directions = (*(jnp.asarray(rng.normal(size=x.shape)) for x in at[:2]), 0.1 * at[2] * at[2][0, 0, 0])
    numbers = lambda inertia: dataclasses.replace(system.params, inertia=inertia)

    def by_mass(q, force, inertia):
        return jnp.linalg.solve(system.with_params(numbers(inertia)).mass(jnp.zeros(()), q), force)

    own = system.inertia.joint_inertias(system.params)[0]
    own = jnp.zeros(system.nv) if own is None else own
    by_bodies = lambda q, force, inertia: Tree(system.unrolled.joints, q, numbers(inertia)).solved(force, own)
    momenta = Tree(system.unrolled.joints, q, system.params).momenta(v) + own * v
    np.testing.assert_allclose(
        momenta, system.mass(jnp.zeros(()), q) @ v, rtol=0, atol=1e-12 * (1 + np.abs(momenta).max())
    )
    along = lambda fn: jax.jit(lambda at: jax.jvp(fn, at, directions))(at)
    for a, b in zip(along(by_bodies), along(by_mass), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * (1 + np.abs(b).max()))


def chain(count):
    """Links on hinges along z, y and x."""
    ends = {"a": (0.0, 0.0, 0.0), "b": (0.5, 0.1, 0.0)}
    links = [S.Body(f"link{i}", 1.0 + i / 10, (0.1, 0.2, 0.15), (0.2, 0.0, 0.05), ends) for i in range(count)]
    axes = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0))
    joints = [
        S.Revolute(f"hinge{i}", f"link{i - 1}.b" if i else "ground", f"link{i}.a", axis=axes[i % 3])
        for i in range(count)
    ]
    return S.Mechanism(links, joints, gravity=(0.0, 0.0, -9.81)).build()


@pytest.mark.slow
def test_a_long_chain_takes_half_the_operations_without_its_mass_matrix():
    system, shaped = chain(20).with_constants(), Shaped((20,), jnp.float64)

    def by_mass(q, force):
        root = inverse_root(system.specialised.unrolled.mass(jnp.zeros(()), q), quick=True)
        return [root.T @ (root @ force)]

    def by_bodies(q, force):
        own = system.specialised.unrolled
        return [own.inertia.solve(jnp.zeros(()), q, force, own.params)]

    assert 2 * Program.of(by_bodies, shaped, shaped).code.count < Program.of(by_mass, shaped, shaped).code.count


@pytest.mark.slow
def test_compiled_steps_of_a_long_chain_are_those_of_the_plain_ones():
    """And its gradient."""
    system = chain(12)
    start = jm.as_state(system, jnp.linspace(-1, 1, 12), jnp.linspace(0.5, 1, 12))

    def end(v, engine):
        moving = dataclasses.replace(start, v=v)
        return jnp.sum(jm.simulate(system, moving, [0.05], engine=engine, throw=False).q[-1])

    found = [jax.value_and_grad(functools.partial(end, engine=engine))(start.v) for engine in (None, jm.XLA())]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("key", mechanisms.PAIRS, ids=" ".join)
@pytest.mark.slow_cases(
    "spatial Cylindrical",
    "spatial Fixed",
    "spatial Planar",
    "spatial PointOnLine",
    "spatial PointOnPlane",
    "spatial Revolute",
    "spatial Spherical",
)
@pytest.mark.slow
def test_twists_of_steady_joints_do_not_change(key):
    system = mechanisms.pair(key).build()
    q, v = mechanisms.random_states(system, 1)
    for hinge in tree_joints(system.joints, system.params):
        own, along = q[0][np.array(hinge.q, int)], v[0][np.array(hinge.v, int)]
        if hinge.pair.steady and hinge.v:
            found, change = jax.jvp(lambda x, h=hinge, w=along: h.twist(x, w), (own,), (hinge.pair.rate(own, along),))
            for a, b, c in zip(found, change, hinge.twist(jnp.zeros_like(own), along), strict=True):
                assert float(jnp.abs(b).max()) < 1e-12 and float(jnp.abs(a - c).max()) < 1e-12


def test_an_arm_takes_half_the_operations():
    system = puma.puma().build().with_constants()
    shaped = (Shaped((system.nq,), jnp.float64), Shaped((system.nv,), jnp.float64))

    def operations(system):
        system = system.specialised
        fn = lambda q, v: [system.mass(jnp.zeros(()), q), system.intrinsic_force(jnp.zeros(()), q, v)]
        return Program.of(fn, *shaped).code.count

    assert 2 * operations(system.unrolled) < operations(system)


def test_a_shorter_way_to_free_accelerations_is_none_to_those_of_rows(monkeypatch):
    """Compiled code has the system by the fewest operations, or by its layout."""
    fell = lambda self, t, q, force, params: jnp.full(2, 99.0)
    rows = [jm.Holonomic("both", lambda t, q, p: q)]
    for constraints, expected in (((), 99), (rows, 0)):
        system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=constraints)
        monkeypatch.setattr(type(system.inertia), "solve", fell)
        state = jm.as_state(system, jnp.zeros(2), length=1.0)
        parts = jm.formulation.GaussProjection(), jm.Projection(), None, state.scale, jnp.array(True), None
        y = StateVector.of(state.q, state.v, jnp.zeros(()))
        flow = VectorField(system, *parts).evaluate_regular(state.t, y, jnp.ones(system.m, bool))[0]
        np.testing.assert_allclose(flow.v, expected, atol=1e-12)


def test_compiled_code_is_of_the_fewest_operations_or_by_the_layout():
    system = puma.puma().build().with_constants()
    state = jm.as_state(system, jnp.zeros(6))
    parts = jm.formulation.GaussProjection(), jm.Projection(), None, state.scale, jnp.array(True), None
    field = specialised(VectorField(system, *parts))
    assert field.smooth and field.system.joints.recursive and not field.sparse
    layout = jm.linalg.Layout.of(np.ones((6, 6), bool), np.zeros((0, 6), bool))
    field = specialised(VectorField(system.with_layout(layout), *parts))
    assert field.sparse and field.system.layout is layout and not field.system.joints.recursive


@pytest.mark.slow
def test_compiled_steps_are_those_of_the_plain_ones():
    """A tree of joints with a body that flies, and the same in the plane by rows of its joints."""
    for system in (branched(S, 3).build(), branched(P, 2).build(coordinates="absolute")):
        start = jm.assemble(system, system.guess, jnp.linspace(0.5, 1.0, system.nv))
        runs = [jm.simulate(system, start, [0.1, 0.2], engine=engine) for engine in (jm.Compiled(), jm.XLA())]
        assert runs[0].stats["compiled_steps"] > 0 and runs[0].stats["num_steps"] == runs[1].stats["num_steps"]
        np.testing.assert_allclose(runs[0].q, runs[1].q, rtol=0, atol=1e-11)
        np.testing.assert_allclose(runs[0].v, runs[1].v, rtol=0, atol=1e-10)
