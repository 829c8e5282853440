"""Inertia that moves with a joint alone, and stops of joints."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
import jaxmb.planar as P
import jaxmb.spatial as S

A = 0.37


def fourbar(*, disk=False):
    """Four bars with an inertia along B, as an element or as a disk on the ground that is geared to B."""
    bodies = [
        P.Body.rod("crank", 1.0, 0.2),
        P.Body.rod("coupler", 1.5, 0.6, position=(0.2, 0.0), angle=0.9),
        P.Body.rod("rocker", 1.2, 0.5, position=(0.5, 0.0), angle=1.9),
    ]
    joints = [
        P.Revolute("A", "ground", "crank.a"),
        P.Revolute("B", "crank.b", "coupler.a"),
        P.Revolute("C", "coupler.b", "rocker.b"),
        P.Revolute("D", ("ground", (0.5, 0.0)), "rocker.a"),
    ]
    forces = [] if disk else [P.JointInertia("rotor", "B", A)]
    if disk:
        bodies.append(P.Body("disk", A, A))
        joints += [P.Revolute("E", "ground", "disk"), P.Gear("gear", ("B", "E"), 1.0)]
    return P.Mechanism(bodies, joints, forces=forces, gravity=(0.0, -9.81))


BUILDS = {
    "in the tree": lambda: fourbar().build(cut=["C"]),
    "closing the loop": lambda: fourbar().build(cut=["B"]),
    "absolute": lambda: fourbar().build("absolute"),
    "disk": lambda: fourbar(disk=True).build(cut=["C"]),
}


def moving(system):
    """The four-bar in motion, the same in all builds."""
    first = fourbar().build(cut=["C"])
    start = jm.assemble(first, {"A": 0.4}, {"A": 3.0}, hold=["A"], hold_velocity=["A"])
    bodies = system.joints.bodies
    if "disk" not in bodies:
        return jm.convert(start, first, system)
    q = {"A": start.q[0], "B": start.q[1], "D": start.q[2], "E": start.q[1]}
    return jm.assemble(system, q, {"A": 3.0}, hold=["A"], hold_velocity=["A"])


def found(name):
    system = BUILDS[name]()
    state = moving(system)
    tip = jm.acceleration(system, state, "coupler.b")
    load = jm.output.joint_reaction(system, state, "D")
    return np.concatenate([tip, load.force, jm.energy(system, state).kinetic[None]])


@pytest.fixture(scope="module")
def expected():
    return found("in the tree")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["closing the loop", "absolute", "disk"])
def test_it_is_the_same_in_all_coordinates_and_as_a_geared_disk(name, expected):
    np.testing.assert_allclose(found(name), expected, rtol=0, atol=1e-11)


@pytest.mark.slow
def test_absolute_coordinates_give_the_same_mass_and_force():
    """M = Nᵀ M N and F = Nᵀ (F − M Ṅ v) with the velocities N v of the bodies."""
    rods = [P.Body.rod("one", 1.0, 0.4), P.Body.rod("two", 1.5, 0.6)]
    joints = [P.Revolute("O", "ground", "one.a"), P.Prismatic("S", "one.b", "two.a", axis=(0.6, 0.8))]
    forces = [P.JointInertia("rotor", "S", A), P.JointInertia("crank", "O", 0.2)]
    mechanism = P.Mechanism(rods, joints, forces=forces, gravity=(0.0, -9.81))
    one, free = mechanism.build(), mechanism.build("absolute")
    q, v, t = jnp.array([0.4, 0.3]), jnp.array([1.1, -0.7]), jnp.zeros(())

    @jax.jit
    def terms(q, v):
        def bodies(q, v):
            motion = one.joints.motion(t, q, v, one.params)
            there = free.joints.measure(motion.poses, free.params)
            return there, free.joints.measure_rates(motion.poses, motion.rates, free.params)

        there, rates = bodies(q, v)
        n = jax.jacfwd(lambda v: bodies(q, v)[1])(v)
        drift = jax.jvp(lambda q: bodies(q, v)[1], (q,), (v,))[1]
        mass = free.mass(t, there)
        force = n.T @ (free.intrinsic_force(t, there, rates) - mass @ drift)
        return (n.T @ mass @ n, force), (one.mass(t, q), one.intrinsic_force(t, q, v))

    for a, b in zip(*terms(q, v), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def arm(*forces, **options):
    bodies = [S.Body(n, 1.3, (0.02, 0.05, 0.04), (0.2, 0.03, 0.01)) for n in ("one", "two")]
    joints = [
        S.Spherical("ball", "ground", "one"),
        S.Cylindrical("sleeve", ("one", (0.4, 0.0, 0.0)), ("two", (0.1, 0.0, 0.0)), axis=(0.0, 1.0, 0.3)),
    ]
    return S.Mechanism(bodies, joints, forces=forces, gravity=(0.0, 0.0, -9.81), **options)


@pytest.mark.slow
def test_in_space_it_adds_to_the_velocities_of_its_joint():
    """To all of a ball, or to one of a sleeve; T and M v agree with M."""
    inertias = (S.JointInertia("a", "ball", 0.3), S.JointInertia("b", "sleeve.angle", A))
    plain, system = arm().build(), arm(*inertias).build()
    rng = np.random.default_rng(0)
    q, v = (jnp.asarray(rng.normal(size=n)) for n in (system.nq, system.nv))

    @jax.jit
    def terms(system):
        t, here = jnp.zeros(()), system.normalise(q)
        products = system.mass_products(t, here, v[None])[0]
        return system.mass(t, here), system.intrinsic_force(t, here, v), products, system.energies(t, here, v)[0]

    (mass, force, products, energy), (other, same, *_) = terms(system), terms(plain)
    added = [A if name == "sleeve.angle" else 0.3 if name.startswith("ball") else 0.0 for name in system.velocities]
    np.testing.assert_allclose(mass - other, np.diag(added), rtol=0, atol=1e-14)
    np.testing.assert_allclose(force, same, rtol=0, atol=1e-14)
    np.testing.assert_allclose(products, mass @ v, rtol=0, atol=1e-13)
    np.testing.assert_allclose(energy, 0.5 * v @ mass @ v, rtol=1e-13)


def pendulum(a):
    rod = P.Body.rod("rod", 3.0, 1.0)
    joints, forces = [P.Revolute("O", "ground", "rod.a")], [P.JointInertia("rotor", "O", a)]
    return P.Mechanism([rod], joints, forces=forces, gravity=(0.0, -9.81))


def test_it_is_differentiated_replaced_read_and_written():
    """v̇ = −M g l/2 cos q/(I + a) with its derivative; the force of the element is −a v̇."""
    torque = -3.0 * 9.81 * 0.5 * np.cos(0.4)

    def rate(a):
        system = pendulum(0.1).replace("rotor", inertia=a).build()
        return jm.reactions(system, jm.as_state(system, [0.4], [0.0])).vdot[0]

    value, slope = jax.jit(jax.value_and_grad(rate))(jnp.asarray(A))
    np.testing.assert_allclose((value, slope), (torque / (1 + A), -torque / (1 + A) ** 2), rtol=1e-13)
    again = P.Mechanism.from_text(pendulum(A).to_text())
    assert float(again.elements["rotor"].inertia) == A
    system = again.build()
    state = jm.as_state(system, [0.4], [0.0])
    np.testing.assert_allclose(jm.force(system, state, "rotor"), [-A * value], rtol=1e-13)
    motion = system.joints.motion(state.t, state.q, state.v, system.params)
    with pytest.raises(
        ValueError, match=r"force of 'rotor' must be read by `jaxmb.force`: it depends on accelerations"
    ):
        again.elements["rotor"].value(motion)
    with pytest.raises(ValueError, match="Argument `inertia` of JointInertia 'rotor' must"):
        P.JointInertia("rotor", "O", -1.0)


def test_a_joint_that_closes_a_loop_has_the_inertia_of_one_in_the_tree():
    """A rod whose ends slide along lines: both joints turn with it. T and M v agree with M."""
    rod = P.Body.rod("rod", 2.0, 1.0)
    lines = [
        P.PointOnLine(name, "ground", f"rod.{end}", axis=x) for name, end, x in (("X", "a", (1, 0)), ("Y", "b", (0, 1)))
    ]

    @jax.jit
    def terms(q, v):
        found = []
        for joint in ("X", "Y"):
            forces = [P.JointInertia("rotor", f"{joint}.angle", A), P.JointInertia("slide", f"{joint}.x", 0.2)]
            system, t = (
                P.Mechanism([rod], lines, forces=forces[: 1 if joint == "Y" else 2]).build(cut=["Y"]),
                jnp.zeros(()),
            )
            mass, products = system.mass(t, q), system.mass_products(t, q, v[None])[0]
            found.append((mass, system.intrinsic_force(t, q, v), products, system.energies(t, q, v)[0]))
        return found

    q, v = jnp.array([0.4, 0.7]), jnp.array([1.1, -0.7])
    (mass, force, *_), (other, same, products, energy) = terms(q, v)
    np.testing.assert_allclose(mass - other, np.diag((0.2, 0.0)), rtol=0, atol=1e-14)
    np.testing.assert_allclose(force, same, rtol=0, atol=1e-14)
    np.testing.assert_allclose(products, other @ v, rtol=0, atol=1e-14)
    np.testing.assert_allclose(energy, 0.5 * v @ other @ v, rtol=1e-14)


# Stops

K, D = 500.0, 0.4
TIGHT = dfx.PIDController(rtol=1e-10, atol=1e-12)


def slider(**bounds):
    body = P.Body("slider", 2.0, 0.1)
    stop = P.JointStop("stop", "rail", stiffness=K, damping=D, **bounds)
    return P.Mechanism([body], [P.Prismatic("rail", "ground", "slider")], forces=[stop])


def test_a_stop_pushes_and_never_pulls():
    system = slider(lower=-0.3, upper=0.5).build()
    points = {(0.4, 9.0): 0.0, (0.6, 1.0): -K * 0.1 * (1 + D), (0.6, -9.0): 0.0, (-0.4, -1.0): K * 0.1 * (1 + D)}
    states = [jm.as_state(system, [q], [v]) for q, v in points]
    np.testing.assert_allclose([jm.force(system, x, "stop") for x in states], list(points.values()), rtol=0, atol=1e-11)
    one = [system.intrinsic_force(x.t, x.q, x.v) + system.applied_force(x.t, x.q, x.v) for x in states]
    np.testing.assert_allclose(np.ravel(one), list(points.values()), rtol=0, atol=1e-11)


def test_a_stop_gives_back_what_its_damping_says():
    """e = 1 − ⅔ d v for small speeds (Hunt and Crossley 1975), with an error of the second order; the balance of energy holds."""
    system, lost = slider(upper=0.0).build(), []
    for speed in (0.1, 0.05):
        state = jm.as_state(system, [-0.01 * speed], [speed])
        solution = jm.simulate(system, state, [0.0, 0.1, 0.25], stepsize_controller=TIGHT)
        assert solution.q[-1, 0] < 0 and abs(jm.energy(system, solution).balance[-1]) < 1e-9
        lost.append(1 + solution.v[-1, 0] / speed)
    first = 2 / 3 * D * np.array([0.1, 0.05])
    assert np.all(np.abs(lost - first) < first**2)


def test_a_stop_is_read_and_written_and_needs_a_bound():
    mechanism = slider(upper=0.5)
    again = P.Mechanism.from_text(mechanism.to_text()).elements["stop"]
    assert again.lower is None and float(again.upper) == 0.5
    with pytest.raises(ValueError, match="Force 'stop' must have `lower` or `upper`, but has neither"):
        slider()
    with pytest.raises(ValueError, match="`lower` of force 'stop' must not be above `upper`, but is 1 above 0"):
        slider(lower=1.0, upper=0.0)
