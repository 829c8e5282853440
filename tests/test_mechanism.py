"""Mechanisms: drivers, relations, rolling, forces, assembly, conversion between builds, named outputs and messages."""

import dataclasses
import functools

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from mechanisms import random_states

import jaxmb as jm
from jaxmb.mechanism.joint_rows import wrench_map
from jaxmb.mechanism.joints import absolute
from jaxmb.mechanism.recursion import Inertia
from jaxmb.system import constraint_jacobian, position_residual, velocity_residual

P, S = jm.planar, jm.spatial
G = 9.81
PRECISE = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.PIDController(rtol=1e-11, atol=1e-12)}


BUILDS = ["relative", pytest.param("absolute", marks=pytest.mark.slow)]


def consistent(system, q=None, v=None):
    """A state that is known to be consistent, without the cost of assembling it."""
    q = system.guess if q is None else jnp.asarray(q)
    v = jnp.zeros(system.nv) if v is None else jnp.asarray(v)
    position, velocity, state = _rows(system, q, v)
    assert np.abs(position).max(initial=0) < 1e-12
    assert np.abs(velocity).max(initial=0) < 1e-12
    return state


@eqx.filter_jit
def _rows(system, q, v):
    state = jm.as_state(system, q, v)
    return position_residual(system, state.t, q), velocity_residual(system, state.t, q, v), state


def acceleration(system, state, u=None):
    return jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state, u=u)).vdot


# Drivers


CRANK, ROD, SPEED = 0.3, 0.8, 2.0


@functools.cache
def slider_crank(coordinates, driven=True):
    """A crank of 0.3 m at a prescribed angle, a rod of 0.8 m, a slider along x."""
    bodies = [
        P.Body.rod("crank", 2.0, CRANK),
        P.Body.rod("rod", 1.0, ROD, position=(CRANK, 0.1), angle=-0.3),
        P.Body("slider", 3.0, 0.1, position=(1.1, 0.0)),
    ]
    joints = [
        P.Revolute("O", "ground", "crank.a"),
        P.Revolute("A", "crank.b", "rod.a"),
        P.Revolute("B", "rod.b", "slider"),
        P.Prismatic("guide", "ground", "slider"),
    ]
    drivers = [P.Driver("motor", "O", lambda t, p: 0.4 + p["speed"] * t)] if driven else []
    return P.Mechanism(bodies, joints, drivers, gravity=(0.0, -G), params={"speed": SPEED}).build(coordinates)


def slider_position(angle):
    return CRANK * jnp.cos(angle) + jnp.sqrt(ROD**2 - (CRANK * jnp.sin(angle)) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", BUILDS)
def test_driven_mechanism_runs_kinematically(coordinates):
    system = slider_crank(coordinates)
    state = jm.assemble(system)
    found = jm.diagnose(system, state)
    assert (found.freedom, found.freedom_undriven) == (0, 1)
    assert "0 here, 0 nearby, 1 here without drivers" in str(found)
    ts = jnp.linspace(0.0, 8.0, 9)  # more than two turns
    solution = jm.simulate(system, state, ts)
    angle = 0.4 + SPEED * ts
    exact = jax.vmap(slider_position)(angle)
    speed = SPEED * jax.vmap(jax.grad(slider_position))(angle)
    np.testing.assert_allclose(jm.position(system, solution, "slider")[:, 0], exact, atol=1e-10)
    np.testing.assert_allclose(jm.velocity(system, solution, "slider")[:, 0], speed, atol=1e-10)
    np.testing.assert_allclose(
        jm.acceleration(system, solution, "slider")[:, 0],
        SPEED**2 * jax.vmap(jax.grad(jax.grad(slider_position)))(angle),
        atol=1e-9,
    )
    np.testing.assert_allclose(jm.coordinate(system, solution, "O"), angle, atol=1e-10)

    def energy(angle, rate):
        """Of the exact motion, from which the driver's torque follows: its power changes it."""
        place = lambda a: jnp.array(
            [CRANK * jnp.cos(a) + ROD / 2 * jnp.cos(jnp.arcsin(-CRANK * jnp.sin(a) / ROD)), CRANK * jnp.sin(a) / 2]
        )
        tilt_rate = jax.grad(lambda a: jnp.arcsin(-CRANK * jnp.sin(a) / ROD))(angle) * rate
        kinetic = 0.5 * (2.0 * CRANK**2 / 3) * rate**2 + 0.5 * jnp.sum((jax.jacfwd(place)(angle) * rate) ** 2)
        kinetic += 0.5 * ROD**2 / 12 * tilt_rate**2 + 1.5 * (jax.grad(slider_position)(angle) * rate) ** 2
        return kinetic + G * (2.0 * CRANK / 2 * jnp.sin(angle) + CRANK / 2 * jnp.sin(angle))

    torque = jax.vmap(jax.grad(lambda a: energy(a, SPEED)))(angle)  # dE/dt = torque · speed at constant speed
    found = jm.reactions(system, solution).multipliers["motor"]
    np.testing.assert_allclose(found, torque, atol=1e-7)


@pytest.mark.slow
def test_prescribed_distance_angle_and_speed():
    arms = [P.Body.rod("one", 1.0, 1.0), P.Body.rod("two", 1.0, 1.0, position=(1.0, 0.0), angle=1.0)]
    joints = [P.Revolute("O", "ground", "one.a"), P.Revolute("A", "one.b", "two.a")]
    drivers = [
        P.DrivenDistance("rope", "ground", "two.b", lambda t, p: 1.2 + 0.3 * jnp.sin(t)),
        P.DrivenAngle("heading", "ground", "one", lambda t, p: 0.2 * t),
    ]
    system = P.Mechanism(arms, joints, drivers).build()
    solution = jm.simulate(system, jm.assemble(system), jnp.linspace(0.0, 3.0, 7))
    length = jnp.linalg.norm(jm.position(system, solution, "two.b"), axis=1)
    np.testing.assert_allclose(length, 1.2 + 0.3 * jnp.sin(solution.ts), atol=1e-10)
    np.testing.assert_allclose(jm.coordinate(system, solution, "O"), 0.2 * solution.ts, atol=1e-10)
    units = jm.output.tabulate(system, solution, ["multipliers"]).units
    assert dict(units) == {"multiplier.rope": "N", "multiplier.heading": "N m"}
    rail = P.Mechanism(arms[:1], [P.Prismatic("rail", "ground", "one")]).build("absolute")
    units = jm.output.tabulate(rail, jm.simulate(rail, jm.assemble(rail), [0.5]), ["multipliers"]).units
    assert dict(units) == {"multiplier.rail[0]": "N", "multiplier.rail[1]": "N m"}

    speed = P.DrivenSpeed("speed", "O", lambda t, p: jnp.where(t < 1.0, t, 1.0), breaks=[1.0])
    system = P.Mechanism(arms[:1], joints[:1], [speed]).build()
    assert system.breaks.tolist() == [1.0]
    solution = jm.simulate(system, jm.assemble(system, {"O": 0.1}), jnp.array([0.0, 0.5, 1.0, 2.0]))
    np.testing.assert_allclose(solution.q[:, 0], 0.1 + np.array([0.0, 0.125, 0.5, 1.5]), atol=1e-12)
    assert solution.stats["num_rejected_steps"] == 0  # it steps to the break


# Relations, in the tree and outside it, where full turns are counted


def test_speeds_and_shifts_have_no_turns():
    """A driver says by how many turns an angle is ahead; v − fn(t) is left of a speed."""
    slide = P.Prismatic("S", "rod", ("block", (0.0, 0.0)))
    drivers = [
        P.Driver("motor", "O", lambda t, p: 0.5 + t),
        P.Driver("jack", "S", lambda t, p: t),
        P.DrivenSpeed("belt", "S", lambda t, p: 2.0 + t),
    ]
    bodies = [ROD_BODY, P.Body("block", 1.0, 0.1)]
    system = P.Mechanism(bodies, [PIVOT, slide], drivers).build()
    turns = system.joints.driven_turns(jnp.asarray(0.2), jnp.array([0.7 - 4 * np.pi, 9.0]), system.params)
    assert {name: x.tolist() for name, x in turns.items()} == {"motor": [-2.0, 0.0]}
    assert system.joints.effort_units(system.params) == {"motor": "N m", "jack": "N", "belt": "N"}
    slip = system.joints.slip(jnp.asarray(0.2), jnp.array([0.4, 0.3]), jnp.array([1.1, 1.5]), system.params)
    np.testing.assert_allclose(slip, [1.5 - 2.2], rtol=1e-15)
    gaps = system.joints.residual(jnp.asarray(0.2), jnp.array([0.4, 0.3]), system.params)
    np.testing.assert_allclose(gaps, [0.4 - 0.7, 0.3 - 0.2], rtol=0, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", BUILDS)
def test_gear_and_rack_over_many_turns(coordinates):
    wheels = [P.Body(f"wheel{i}", 1.0, j) for i, j in enumerate((0.2, 0.05))]
    bodies = [*wheels, P.Body("rack", 0.5, 0.1, position=(0.3, 0.0))]
    joints = [
        P.Revolute("one", "ground", "wheel0"),
        P.Revolute("two", ("ground", (1.0, 0.0)), "wheel1"),
        P.Prismatic("slide", "ground", "rack"),
        P.Gear("gear", ("one", "two"), ratio=-2.5, offset=0.1),
        P.Rack("teeth", "two", "slide", radius=0.4, offset=0.3),
    ]
    push = P.Load("torque", "wheel0", torque=3.0)
    system = P.Mechanism(bodies, joints, forces=[push]).build(coordinates)
    assert system.nq == (3 if coordinates == "relative" else 11)
    state = jm.assemble(system, {"wheel1.x": 1.0} if coordinates == "absolute" else None)
    solution = jm.simulate(system, state, jnp.linspace(0.0, 4.0, 5), max_steps=300)
    rate = 3.0 / (0.2 + 2.5**2 * (0.05 + 0.5 * 0.4**2))
    start = jm.coordinate(system, state, "one")
    angle = start + 0.5 * rate * solution.ts**2
    assert angle[-1] > 4 * np.pi  # that is several turns
    np.testing.assert_allclose(jm.coordinate(system, solution, "one"), angle, atol=1e-8)
    np.testing.assert_allclose(jm.coordinate(system, solution, "two"), 0.1 - 2.5 * angle, atol=1e-8)
    np.testing.assert_allclose(jm.coordinate(system, solution, "slide"), 0.3 + 0.4 * (0.1 - 2.5 * angle), atol=1e-8)
    np.testing.assert_allclose(jm.residuals(system, solution).position, 0, atol=1e-12)


# Rolling


@pytest.mark.slow
def test_wheel_and_sphere_roll_down_an_incline():
    slope, radius = 0.3, 0.2
    gravity = G * np.array([np.sin(slope), -np.cos(slope)])
    wheel = P.Body("wheel", 2.0, 0.03, position=(0.1, radius))
    system = P.Mechanism(
        [wheel], [P.RollingWheel("ground contact", "ground", "wheel", radius)], gravity=gravity
    ).build()
    assert list(system.rows) == ["ground contact", "ground contact rolling"]
    found = acceleration(system, consistent(system))
    rate = gravity[0] / (1 + 0.03 / (2.0 * radius**2))
    np.testing.assert_allclose(found, [rate, 0.0, -rate / radius], atol=1e-12)

    ball = S.Body("ball", 2.0, 0.4 * 2.0 * radius**2 * np.ones(3), position=(0.0, 0.0, radius))
    gravity = G * np.array([np.sin(slope) * 0.6, np.sin(slope) * 0.8, -np.cos(slope)])
    system = S.Mechanism([ball], [S.RollingSphere("contact", "ground", "ball", radius)], gravity=gravity).build()
    found = acceleration(system, consistent(system, v=[0.0, 0.0, 0.0, 0.0, 0.0, 1.0]))
    rate = 5 / 7 * gravity
    np.testing.assert_allclose(found[:3], [rate[0], rate[1], 0.0], atol=1e-12)


# Forces


def test_joint_springs_friction_motors_and_user_forces():
    rod = P.Body.rod("rod", 3.0, 1.0)
    q, v = 0.4, 0.7
    elements = {
        "spring": (P.JointSpring("e", "O", 5.0, 0.3, 0.1), -5.0 * (q - 0.1) - 0.3 * v),
        "friction": (P.JointFriction("e", "O", 0.2, 0.5, 0.1), -0.2 * v - 0.5 * np.tanh(7.0)),
        "effort": (P.JointForce("e", "O", lambda m: -m.params["k"] * m.coordinate("O") ** 3), -2.0 * q**3),
        "drag": (P.Force("e", "rod.b", lambda m: jnp.append(-0.5 * m.velocity("rod.b"), 0.25)), -0.5 * v + 0.25),
        "load": (P.Load("e", "rod.b", force=(0.0, 2.0), torque=0.5), 2.0 * np.cos(q) + 0.5),
        "follower": (P.Load("e", "rod.b", force=(0.0, 2.0), follows=True), 2.0),
    }

    @functools.partial(jax.jit, static_argnums=0)
    def moments(coordinates, values, rates):
        found = {}
        for name, (force, _) in elements.items():
            joint = [P.Revolute("O", "ground", "rod.a")]
            system = P.Mechanism([rod], joint, forces=[force], params={"k": 2.0}).build(coordinates)
            t, here = jnp.zeros(()), values[: system.nq]
            force = system.intrinsic_force(t, here, rates) + system.applied_force(t, here, rates)
            found[name] = force[system.velocities.index("O" if coordinates == "relative" else "rod.angle")]
        return found

    for coordinates in ("relative", "absolute"):
        values = jnp.array([q]) if coordinates == "relative" else jnp.array([0.0, 0.0, q, q])
        rates = jnp.array([v]) if coordinates == "relative" else jnp.array([0.0, 0.0, v])
        for name, moment in moments(coordinates, values, rates).items():
            np.testing.assert_allclose(moment, elements[name][1], atol=1e-12, err_msg=f"{name}, {coordinates}")


@eqx.filter_jit
def bearing(system, q, v, u, coefficient):
    """v̇, and the friction, of a mechanism whose first force is a `BearingFriction`."""
    system = eqx.tree_at(lambda s: s.params.forces[0].coefficient, system, coefficient)
    state = jm.as_state(system, q, v)
    return acceleration(system, state, u), jm.force(system, state, system.params.forces[0].name, u=u)


class LoadedBearing:
    """A rod on a hinge whose friction grows with its load, pushed by a jet and a motor, and its equations solved by bisection."""

    coefficient, radius, q, v, u = 0.3, 0.1, 0.4, 1.3, np.array([0.5, 3.0])
    mass, length, inertia = 2.0, 1.0, 2.0 / 3

    def mechanism(self):
        return P.Mechanism(
            [P.Body.rod("rod", self.mass, self.length)],
            [P.Revolute("O", "ground", "rod.a")],
            forces=[P.BearingFriction("friction", "O", self.coefficient, self.radius)],
            actuators=[P.Motor("motor", "O"), P.Thruster("jet", "rod.b", (0.0, 1.0))],
            gravity=(0.0, -G),
        )

    def motion(self, load, coefficient):
        """The angular acceleration with a load of the bearing, and the load that follows from it."""
        along, across = np.array([np.cos(self.q), np.sin(self.q)]), np.array([-np.sin(self.q), np.cos(self.q)])
        torque = self.u[0] + self.u[1] * self.length - self.mass * G * self.length / 2 * along[0]
        rate = (torque - coefficient * self.radius * load) / self.inertia
        force = self.mass * self.length / 2 * (rate * across - self.v**2 * along) + [0.0, self.mass * G]
        return rate, np.linalg.norm(force - self.u[1] * across)

    def exact(self, coefficient):
        load = scipy.optimize.brentq(lambda n: n - self.motion(n, coefficient)[1], 0.0, 100.0, xtol=1e-13)
        return self.motion(load, coefficient)


def test_friction_grows_with_the_load_of_its_bearing():
    case = LoadedBearing()
    arguments = case.mechanism().build(), jnp.array([case.q]), jnp.array([case.v]), jnp.asarray(case.u)
    found, friction = bearing(*arguments, jnp.asarray(case.coefficient))
    rate, load = case.exact(case.coefficient)
    np.testing.assert_allclose(found, [rate], rtol=1e-11)
    np.testing.assert_allclose(friction, [-case.coefficient * case.radius * load], rtol=1e-11)
    jammed, _ = bearing(*arguments, jnp.asarray(1e3))
    assert np.isnan(jammed).all()


def test_friction_by_loads_is_looked_at_before_a_run():
    """Events and modes are refused; a load that is determined, or that is not known yet, tells nothing."""
    system = LoadedBearing().mechanism().build()
    state, joints = jm.as_state(system, [0.4], [1.3]), system.joints
    with pytest.raises(
        ValueError, match=r"`events` must be empty where friction grows with the load of a joint \('O'\)"
    ):
        joints.check_run(system, state, True, 1e-9)
    found = [joints.check_run(system, state, False, 1e-9)]
    jax.eval_shape(lambda state: found.append(joints.check_run(system, state, False, 1e-9)), state)
    plain = P.Mechanism([ROD_BODY], [PIVOT]).build()
    found.append(plain.joints.check_run(plain, jm.as_state(plain, [0.0]), True, 1e-9))
    assert found == [[], [], []]


@pytest.mark.slow
def test_friction_by_loads_is_the_same_in_absolute_coordinates_and_has_derivatives():
    case = LoadedBearing()
    arguments = case.mechanism().build(), jnp.array([case.q]), jnp.array([case.v]), jnp.asarray(case.u)
    slope = jax.jit(jax.jacrev(lambda c: bearing(*arguments, c)[0]))(jnp.asarray(case.coefficient))
    step = 1e-5
    difference = case.exact(case.coefficient + step)[0] - case.exact(case.coefficient - step)[0]
    np.testing.assert_allclose(slope[0], difference / (2 * step), rtol=1e-7)
    free = case.mechanism().build("absolute")
    place, rates = jnp.array([0.0, 0.0, case.q]), jnp.array([0.0, 0.0, case.v])
    found, _ = bearing(free, place, rates, arguments[3], jnp.asarray(case.coefficient))
    np.testing.assert_allclose(found, [0.0, 0.0, case.exact(case.coefficient)[0]], rtol=1e-11, atol=1e-11)


@pytest.mark.slow
def test_friction_by_a_load_that_is_not_determined_warns_by_name():
    slope, coefficient = 0.5, 0.2
    gravity = G * np.array([np.sin(slope), -np.cos(slope)])
    block = P.Body("block", 2.0, 0.1, points={"rear": (-0.2, 0.0), "front": (0.2, 0.0)})
    guide = lambda name, x: P.Prismatic(name, ("ground", (x, 0.0)), f"block.{name}")
    friction = P.BearingFriction("friction", "rear", coefficient)
    build = lambda *guides: P.Mechanism([block], guides, forces=[friction], gravity=gravity).build()
    one, two = build(guide("rear", -0.2)), build(guide("rear", -0.2), guide("front", 0.2))
    found, _ = bearing(one, jnp.zeros(1), jnp.ones(1), None, jnp.asarray(coefficient))
    np.testing.assert_allclose(found, [G * (np.sin(slope) - coefficient * np.cos(slope))], rtol=1e-12)
    with pytest.warns(
        UserWarning, match=r"Force 'friction' depends on the reaction in 'rear', .* its load with 'front'"
    ):
        solution = jm.simulate(two, consistent(two, v=[1.0]), jnp.array([0.0, 1.0]))
    rate = G * (np.sin(slope) - coefficient * np.cos(slope) / 2)  # least norm: each carries half
    np.testing.assert_allclose(solution.q[-1], [1 + rate / 2], rtol=1e-8)


def test_inputs_act_by_motors_and_thrusters():
    rod = P.Body.rod("rod", 3.0, 1.0)
    mechanism = P.Mechanism(
        [rod],
        [P.Revolute("O", "ground", "rod.a")],
        actuators=[P.Motor("motor", "O", gain=4.0), P.Thruster("jet", "rod.b", (0.0, 2.0))],
    )
    system = mechanism.build()
    state = consistent(system, [0.3])
    np.testing.assert_allclose(
        acceleration(system, state, u=jnp.array([0.5, -0.25])), [4.0 * 0.5 - 2.0 * 0.25], atol=1e-12
    )
    absolute = mechanism.build("absolute")
    same = jm.convert(state, system, absolute)
    found = acceleration(absolute, same, u=jnp.array([0.5, -0.25]))
    np.testing.assert_allclose(found[2], 1.5, atol=1e-12)
    joint = mechanism.joints[0].name
    for wrong in ({"hold": [joint]}, {"v": {joint: 1.0}, "hold_velocity": [joint]}):
        with pytest.raises(ValueError, match=f"Joint '{joint}' has no coordinate in this build: .*`jaxmb.convert"):
            jm.assemble(absolute, {joint: 0.3}, **wrong)


@pytest.mark.slow
def test_spring_between_points_against_closed_form():
    mass = P.Body("mass", 2.0, 0.1, position=(0.6, 0.8))
    spring = P.SpringDamper("spring", "ground", "mass", stiffness=50.0, damping=3.0, length=0.7)
    system = P.Mechanism([mass], forces=[spring]).build()
    state = consistent(system, v=[0.3, 0.1, 0.0])
    stretch, rate = 0.3, 0.6 * 0.3 + 0.8 * 0.1
    np.testing.assert_allclose(jm.force(system, state, "spring"), 50 * stretch + 3 * rate, atol=1e-12)
    np.testing.assert_allclose(
        acceleration(system, state)[:2], -(50 * stretch + 3 * rate) * np.array([0.6, 0.8]) / 2, atol=1e-12
    )
    np.testing.assert_allclose(jm.energy(system, state).potential, 25 * stretch**2, atol=1e-12)
    solution = jm.simulate(system, state, jnp.array([0.0, 1.0]), **PRECISE)
    assert np.abs(jm.energy(system, solution).balance).max() < 1e-9


# Assembly, conversion, derivatives


@pytest.mark.slow
def test_assembly_takes_the_branch_of_the_guess_and_holds_coordinates():
    system = slider_crank("relative", driven=False)
    sides = {}
    for sign in (1.0, -1.0):
        state = jm.assemble(system, {"O": 0.5, "A": -0.5 - 0.2 * sign - (sign < 0) * 2.6, "guide": sign}, hold=["O"])
        sides[sign] = float(jm.position(system, state, "slider")[0])
        assert abs(float(state.q[0]) - 0.5) < 1e-14
    reach = np.sqrt(ROD**2 - (CRANK * np.sin(0.5)) ** 2)
    np.testing.assert_allclose(sides[1.0], CRANK * np.cos(0.5) + reach, atol=1e-12)
    np.testing.assert_allclose(sides[-1.0], CRANK * np.cos(0.5) - reach, atol=1e-12)
    turned = jm.assemble(system, {"O": 0.5 + 4 * np.pi, "A": -0.7, "guide": 1.0}, hold=["O"])
    assert abs(float(turned.q[0]) - 0.5 - 4 * np.pi) < 1e-13
    with pytest.raises(ValueError, match=r"Constraint '(B|guide)' cannot be satisfied"):
        jm.assemble(system, {"guide": 5.0}, hold=["guide"])


@pytest.mark.slow
def test_joint_that_would_close_the_wrong_way_round_is_turned():
    """From a guess that is nearly half a turn off, where sines alone lead to the half turn."""
    bodies = [P.Body("one", 1.0, 1.0), P.Body("two", 1.0, 1.0, angle=np.pi - 0.1)]
    joints = [P.Revolute("O", "ground", "one"), P.Revolute("A", "one", "two"), P.Fixed("weld", "ground", "two")]
    system = P.Mechanism(bodies, joints).build(cut=["weld"])
    angle = jnp.sum(jm.assemble(system).q)
    assert abs(jnp.sin(angle)) < 1e-12 and jnp.cos(angle) > 0


@pytest.mark.slow
def test_conversion_goes_both_ways_and_keeps_turns():
    relative, absolute = slider_crank("relative", driven=False), slider_crank("absolute", driven=False)
    state = jm.assemble(relative, {"O": 7.0, "A": -7.3, "guide": 1.1}, {"O": 2.0}, hold=["O"])
    there = jm.convert(state, relative, absolute)
    back = jm.convert(there, absolute, relative)
    turns = (state.q - back.q) / (2 * np.pi)
    np.testing.assert_allclose(turns, np.round(turns), atol=1e-12)
    np.testing.assert_allclose(back.v, state.v, atol=1e-11)
    energies = [jm.energy(s, x).total for s, x in ((relative, state), (absolute, there))]
    np.testing.assert_allclose(*energies, rtol=1e-12)


def trammel(*forces, angle=0.6):
    """A rod whose ends slide along x and along y, and a weight on it; x of its end a, and the angle from the line of x."""
    bodies = [P.Body.rod("rod", 2.0, 1.0), P.Body("weight", 0.5, 0.1)]
    joints = [
        P.PointOnLine("along x", "ground", "rod.a", axis=(1.0, 0.0)),
        P.PointOnLine("along y", "ground", "rod.b", axis=(0.0, 1.0)),
        P.Fixed("weld", "rod.centre", "weight"),
    ]
    mechanism = P.Mechanism(bodies, joints, forces=forces)
    system = mechanism.build(cut=["along y"])
    start = dict(zip(system.coordinates, (-np.cos(angle), angle), strict=True))
    return mechanism, system, jm.assemble(system, start, {system.velocities[1]: 1.5})


@pytest.mark.slow
def test_cuts_of_a_trammel_are_those_of_its_free_direction():
    """1/(Dᵀ M D (M⁻¹)_ii) with ẋ = sin θ θ̇; cut at either end it is the larger one of both coordinates."""
    mechanism, system, state = trammel()
    cuts = jm.mechanism.loop_cuts(mechanism, state, system)
    assert set(cuts) == {"along x", "along y"}  # without the weld the weight would be loose
    for name, angle in (("along y", 0.6), ("along x", np.pi / 2 - 0.6)):
        mass, inertia, shift = 2.5, 2.0 / 3 + 0.1 + 0.5 / 4, 2.5 / 2 * np.sin(angle)
        m = np.array([[mass, -shift], [-shift, inertia]])
        free = np.array([np.sin(angle), 1.0])
        values = free**2 / (free @ m @ free) / np.diag(np.linalg.inv(m))
        assert cuts[name] == pytest.approx(values.max(), rel=1e-9)


def test_only_what_is_there_in_both_builds_is_converted():
    """Full turns are kept, of angles that both have."""
    other, none = P.Mechanism([ROD_BODY], [PIVOT]).build(), jnp.zeros(0)
    with pytest.raises(ValueError, match="`source` must have all bodies of `target`, but lacks bar"):
        jm.convert(jm.as_state(other, [0.0]), other, P.Mechanism([P.Body.rod("bar", 1.0, 1.0)]).build())
    mode = jm.system.Mode((), none.astype(bool), none, none, none.astype(bool))
    with pytest.raises(ValueError, match="`state` must have no mode"):
        jm.convert(jm.as_state(other, [0.0], mode=mode), other, other)
    wound = P.Mechanism([ROD_BODY], [PIVOT], forces=[P.JointSpring("coil", "O", 3.0)])
    turned = jm.convert(jm.as_state(other, [7.0]), other, wound.build("absolute"))
    assert float(turned.q[-1]) == pytest.approx(7.0, abs=1e-14)  # the coordinate that counts turns


def test_a_turn_is_counted_once():
    """Where a joint closes a loop, its full turns are one more coordinate, however many elements read them; shifts need none."""
    bodies = [P.Body.rod("rod", 1.0, 1.0), P.Body("block", 1.0, 0.1)]
    joints = [
        P.Revolute("O", "ground", "rod.a"),
        P.Revolute("A", "rod.b", "block"),
        P.Prismatic("S", "ground", "block"),
    ]
    relations = [P.Gear("gear", ("O", "A"), 2.0), P.Rack("rack", "A", "S", 0.4)]
    mechanism = P.Mechanism(bodies, [*joints, *relations], forces=[P.JointSpring("coil", "A", 1.0)])
    assert mechanism.build(cut=["A"]).coordinates == ("O", "S", "A.turns")
    assert mechanism.build(cut=["S"]).coordinates == ("O", "A")


def test_both_angles_of_a_cross_are_counted():
    """For a spring at each, and for a function of both."""
    springs = [S.JointSpring(f"coil {part}", f"cross.{part}", 1.0) for part in ("first", "second")]
    law = S.JointForce("law", "cross", lambda motion: -motion.joint("cross"))
    body = S.Body("body", 1.0, (0.1, 0.1, 0.1))
    for forces in (springs, [law]):
        free = S.Mechanism([body], [S.Universal("cross", "ground", "body")], forces=forces).build("absolute")
        assert free.coordinates[7:] == ("cross.first.turns", "cross.second.turns")


def test_a_spring_that_is_wound_up_acts_on_the_bodies_too():
    """A rod at 7 rad, on a coil spring without torque at 0: ¹⁄₃ φ̈ = −3 · 7 − ½ G cos φ; F = a of its centre, and its weight."""
    angle, rate = 7.0, 1.0
    coil = P.JointSpring("coil", "O", 3.0)
    system = P.Mechanism([ROD_BODY], [PIVOT], forces=[coil], gravity=(0.0, -G)).build()
    state = jm.as_state(system, [angle], [rate])
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    expected = 0.5 * (3 * (-3 * angle - 0.5 * G * np.cos(angle)) * across - rate**2 * along) + np.array([0.0, G])
    np.testing.assert_allclose(jm.joint_reaction(system, state, "O", warn=False).force, expected, rtol=1e-12)


@pytest.mark.slow
def test_cuts_are_judged_by_the_projective_criterion():
    """For one degree of freedom the squared volume is the largest cos²α of that cut."""
    bodies = [P.Body.rod("crank", 2.0, CRANK), P.Body.rod("rod", 1.0, ROD), P.Body("slider", 3.0, 0.1)]
    weight = P.Body.rod("weight", 1.0, 0.2)
    joints = [
        P.Revolute("O", "ground", "crank.a"),
        P.Revolute("A", "crank.b", "rod.a"),
        P.Revolute("B", "rod.b", "slider"),
        P.Prismatic("guide", "ground", "slider"),
        P.Fixed("weld", "slider", "weight.a"),
    ]
    mechanism = P.Mechanism([*bodies, weight], joints)
    system = mechanism.build()
    state = jm.assemble(system, {"O": 0.7, "A": -1.0, "guide": 1.0}, hold=["O"])
    cuts = jm.mechanism.loop_cuts(mechanism, state, system)
    assert set(cuts) == {"O", "A", "B", "guide"}  # without the weld the weight would be loose
    assert list(cuts.values()) == sorted(cuts.values(), reverse=True)
    for name, value in cuts.items():
        cut = mechanism.build(cut=[name])
        terms = jm.evaluate(cut, jm.convert(state, system, cut))
        np.testing.assert_allclose(value, jm.formulation.projective_criterion(terms).tangent.max(), rtol=1e-9)


@pytest.mark.slow
def test_derivatives_with_respect_to_numbers_of_elements():
    mechanism = P.Mechanism(
        [P.Body.rod("rod", 1.0, 1.0)], [P.Revolute("O", "ground", "rod.a")], gravity=(0.0, -G),
        forces=[P.JointFriction("friction", "O", 0.1)],
    )  # fmt: skip

    def end(numbers):
        mass, viscous = numbers
        system = mechanism.replace("rod", mass=mass).replace("friction", viscous=viscous).build()
        state = jm.assemble(system, {"O": 0.3})
        return jm.simulate(system, state, jnp.array([1.0]), **PRECISE).q[0, 0]

    found = jax.jit(jax.grad(end))(jnp.array([1.0, 0.1]))
    step = 1e-5
    run = jax.jit(jax.vmap(end))
    shifts = jnp.array([1.0, 0.1]) + step * jnp.concatenate([jnp.eye(2), -jnp.eye(2)])
    values = run(shifts)
    np.testing.assert_allclose(found, (values[:2] - values[2:]) / (2 * step), rtol=1e-6)


def test_equal_structures_share_a_program():
    traced = []

    @jax.jit
    def mass(system, q):
        traced.append(1)
        return system.mass(jnp.zeros(()), q)

    for length in (1.0, 2.0, 3.0):
        system = P.Mechanism([P.Body.rod("rod", 1.0, length)], [P.Revolute("O", "ground", "rod.a")]).build()
        np.testing.assert_allclose(mass(system, jnp.zeros(1)), [[length**2 / 3]], rtol=1e-14)
    assert len(traced) == 1


def test_far_from_the_origin_little_is_lost():
    def mechanism(x):
        bodies = [P.Body.rod("one", 1.0, 1.0), P.Body.rod("two", 1.0, 1.0)]
        joints = [P.Revolute("O", ("ground", (x, x)), "one.a"), P.Revolute("A", "one.b", "two.a")]
        return P.Mechanism(bodies, joints, gravity=(0.0, -G)).build()

    q, v, t = jnp.array([0.3, 0.8]), jnp.array([1.0, -2.0]), jnp.zeros(())
    near, far = mechanism(0.0), mechanism(1e4)
    found = eqx.filter_jit(lambda system: (system.mass(t, q), system.intrinsic_force(t, q, v)))
    for far_one, near_one in zip(found(far), found(near), strict=True):
        np.testing.assert_allclose(far_one, near_one, atol=1e-10)


# Messages


ROD_BODY = P.Body.rod("rod", 1.0, 1.0)
PIVOT = P.Revolute("O", "ground", "rod.a")
BALL_BODY = S.Body("ball", 1.0, np.ones(3))
hung = lambda **elements: S.Mechanism([BALL_BODY], [S.Spherical("O", "ground", "ball")], **elements)
WRONG = {
    "body": (lambda: P.Mechanism([ROD_BODY], [P.Revolute("O", "ground", "bar.a")]), "Element 'O' must refer to a body out of 'ground' and 'rod', but refers to 'bar'"),
    "point": (lambda: P.Mechanism([ROD_BODY], [P.Revolute("O", "ground", "rod.c")]), "Element 'O' must refer to a point of 'rod' out of 'a', 'b' and 'centre', but refers to 'c'"),
    "name": (lambda: P.Mechanism([ROD_BODY, ROD_BODY]), "names that differ from all others .* holds 'rod'"),
    "ground": (lambda: P.Mechanism([P.Body("ground", 1.0, 0.1)]), "`bodies` must hold elements with names other than 'ground'"),
    "mass": (lambda: P.Mechanism([P.Body("rod", -1.0, 1.0)]), "`mass` of Body 'rod' must be a number that is not negative or None, but is -1.0"),
    "inertia": (lambda: S.Mechanism([S.Body("box", 1.0, (1.0, 3.0, 1.0))]), "Body 'box' must have an inertia whose moments obey the triangle inequality and are not negative, but has 1, 1, 3"),
    "joint of spring": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.JointSpring("k", "Q", 1.0)]), "Element 'k' must name a joint out of 'O', but names 'Q'"),
    "coordinate of spring": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.JointSpring("k", "O.x", 1.0)]), "Element 'k' must name a coordinate of joint 'O' out of 'angle', but names 'O.x'"),
    "coordinates": (lambda: P.Mechanism([ROD_BODY], [PIVOT]).build("polar"), "must be 'relative' or 'absolute', but is 'polar'"),
    "cut": (lambda: P.Mechanism([ROD_BODY], [PIVOT]).build(cut=["Q"]), "Argument `cut` must hold names of joints out of 'O', but holds 'Q'"),
    "place": (lambda: P.Revolute("O", "ground", 3), "Argument `b of joint 'O'` must be 'body', 'body.point'"),
    "no direction": (lambda: P.Prismatic("rail", "ground", "slide", axis=(0.0, 0.0)), "`axis` of Prismatic 'rail' must be a direction, finite numbers not all of them zero, but is"),
    "no direction in space": (lambda: S.Revolute("O", "ground", "door", axis_b=(0.0, 0.0, 0.0)), "`axis_b` of Revolute 'O' must be a direction, finite numbers not all of them zero or None, but is"),
    "shape": (lambda: P.Body("rod", 1.0, 1.0, com=(1.0, 2.0, 3.0)), r"Argument `com of body 'rod'` must have shape \(2,\), but has shape \(3,\)"),
    "dimension": (lambda: P.Mechanism([ROD_BODY], [P.Revolute("O", "ground", ("rod", (0.0, 0.0, 0.0)))]), "Element 'O' must refer to points with 2 components"),
    "kind": (lambda: P.Mechanism([ROD_BODY], [ROD_BODY]), "Argument `joints` must not hold Body objects"),
    "rigid": (lambda: P.Mechanism([ROD_BODY], [P.Fixed("weld", "ground", "rod")]).build(), "has no coordinates.*'absolute'"),
    "none": (lambda: P.Mechanism([]), "Argument `bodies` must hold at least one body"),
    "space in the plane": (lambda: P.Mechanism([ROD_BODY], [S.Revolute("O", "ground", "rod.a")]), "`joints` must hold elements of `jaxmb.planar`, but 'O' is one of `jaxmb.spatial`"),
    "plane in space": (lambda: S.Mechanism([S.Body.box("box", 1.0, (1.0, 1.0, 1.0))], [P.Prismatic("O", "ground", "box")]), "`joints` must hold elements of `jaxmb.spatial`, but 'O' is one of `jaxmb.planar`"),
    "blade in space": (lambda: S.Mechanism([S.Body.box("box", 1.0, (1.0, 1.0, 1.0))], [P.KnifeEdge("edge", "box")]), "`joints` must hold elements of `jaxmb.spatial`, but 'edge' is"),
    "angle in space": (lambda: S.Mechanism([S.Body.box("box", 1.0, (1.0, 1.0, 1.0))], drivers=[P.DrivenAngle("turn", "ground", "box", lambda t, p: t)]), "`drivers` must hold elements of `jaxmb.spatial`, but 'turn' is"),
    "body of space": (lambda: P.Mechanism([S.Body.box("box", 1.0, (1.0, 1.0, 1.0))]), "`bodies` must hold elements of `jaxmb.planar`, but 'box' is"),
    "one body": (lambda: P.Mechanism([ROD_BODY], [PIVOT, P.Distance("bar", "rod.a", "rod.b", 1.0)]), "Element 'bar' must tie two bodies, but has both its markers on 'rod'"),
    "arity of driver": (lambda: P.Mechanism([ROD_BODY], [PIVOT], [P.Driver("motor", "O", lambda t: t)]), "`fn` of Driver 'motor' must be a function \\(t, params\\), but is a function \\(t\\)"),
    "shape of driver": (lambda: P.Mechanism([ROD_BODY], [PIVOT], [P.Driver("motor", "O", lambda t, p: jnp.ones(2))]), r"`fn of driver 'motor'` must return an array of shape \(\), but returns shape \(2,\)"),
    "arity of force": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.JointForce("f", "O", lambda t, q: t)]).build(), "`fn` of JointForce 'f' must be a function \\(motion\\), but is a function \\(t, q\\)"),
    "shape of effort": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.JointForce("f", "O", lambda m: jnp.ones(2))]).build(), r"`fn of force 'f'` must return an array of shape \(1,\) or \(\), but returns shape \(2,\)"),
    "truth of a driver": (lambda: P.Mechanism([ROD_BODY], [PIVOT], [P.Driver("motor", "O", lambda t, p: t > 1)]), "`fn of driver 'motor'` must return .* of floating-point numbers, but returns bool numbers"),
    "truth of a speed": (lambda: hung(drivers=[S.DrivenSpeed("d", "O.wx", lambda t, p: True)]), "`fn of driver 'd'` must return .* of floating-point numbers, but returns bool numbers"),
    "no value of a driver": (lambda: P.Mechanism([ROD_BODY], [PIVOT], [P.Driver("motor", "O", lambda t, p: None)]), "`fn of driver 'motor'` must return .*, but returns None"),
    "truth of an effort": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.JointForce("f", "O", lambda m: m.rate("O") > 0)]).build(), "`fn of force 'f'` must return .* of floating-point numbers, but returns bool numbers"),
    "truth of efforts": (lambda: hung(forces=[S.JointForce("f", "O", lambda m: m.joint_rates("O") > 0)]).build(), "`fn of force 'f'` must return .* of floating-point numbers, but returns bool numbers"),
    "no value of an effort": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.JointForce("f", "O", lambda m: None)]).build(), "`fn of force 'f'` must return .*, but returns None"),
    "truth of a force": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.Force("f", "rod.b", lambda m: m.velocity("rod.b")[jnp.array([0, 1, 1])] > 0)]).build(), "`fn of force 'f'` must return .* of floating-point numbers, but returns bool numbers"),
    "shape of force": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.Force("f", "rod.b", lambda m: jnp.ones(2))]).build(), r"`fn of force 'f'` must return an array of shape \(3,\), but returns shape \(2,\)"),
    "pose": (lambda: P.Mechanism([P.Body("rod", 1.0, 1.0, position=(0.0, np.nan))]), "Argument `position` of Body 'rod' must be an array of finite numbers, but is \\(0.0, nan\\)"),
    "infinite point mass": (lambda: P.Mechanism([P.Body("rod", 1.0, 1.0, point_masses=[(np.inf, (0.0, 0.0))])]), "Argument `point_masses of 'rod'` must hold finite numbers"),
    "point with a dot": (lambda: P.Body("rod", 1.0, 1.0, points={"a.b": (0.0, 0.0)}), r"`points\['a.b'\] of body 'rod'` must have 2 components and no dot in its name"),
    "point in space": (lambda: P.Body("rod", 1.0, 1.0, points={"a": (0.0, 0.0, 0.0)}), r"`points\['a'\] of body 'rod'` must have 2 components"),
    "truth for a mass": (lambda: P.Body("rod", 1.0, 1.0, point_masses=[(True, (0.0, 0.0))]), "`point_masses of body 'rod'` must be an array of numbers, but is True"),
    "gear of one": (lambda: P.Gear("gear", ("O",), 2.0), r"`joints` of 'gear' must be the names of two joints, but is \('O',\)"),
    "negative dimension": (lambda: jm.mechanism.dimension(-1.0, "length of a Rope"), r"`length of a Rope` must be positive, but is -1\.0"),
    "replace nothing": (lambda: P.Mechanism([ROD_BODY]).replace("bar", mass=1.0), "`name` must be one of 'rod', but is 'bar'"),
    "replace": (lambda: P.Mechanism([ROD_BODY]).replace("rod", colour=1.0), "Element 'rod' has no number `colour`; it has 'length', 'pose', 'mass', 'inertia' and 'com'"),
    "replaced mass": (lambda: P.Mechanism([ROD_BODY]).replace("rod", mass=-2.0), "`mass` of Body 'rod' must be a number that is not negative or None, but is -2.0"),
    "replaced moments": (lambda: S.Mechanism([BALL_BODY]).replace("ball", inertia=np.diag([1.0, 1.0, 3.0])), "Body 'ball' must have an inertia whose moments obey"),
    "replaced pose": (lambda: P.Mechanism([ROD_BODY]).replace("rod", position=(1.0, 1.0)), "Element 'rod' has no number `position`"),
    "replaced direction": (lambda: P.Mechanism([ROD_BODY], [P.Prismatic("rail", "ground", "rod")]).replace("rail", axis=(0, 0)), r"`axis` of Prismatic 'rail' must be a direction, .*, but is \(0, 0\)"),
    "replaced bound": (lambda: P.Mechanism([ROD_BODY], [PIVOT], forces=[P.JointStop("stop", "O", 0.0, 1.0, stiffness=1.0)]).replace("stop", lower=2.0), "`lower` of force 'stop' must not be above `upper`, but is 2 above 1"),
    "replaced place": (lambda: P.Mechanism([ROD_BODY]).replace("rod", pose=np.zeros((3, 3))), "`pose of 'rod'` must turn and shift only"),
    "half of a matrix": (lambda: S.Mechanism([S.Body("box", 1.0, np.triu(np.full((3, 3), 0.1) + np.eye(3)))]), "Body 'box' must have an inertia that is a symmetric matrix"),
    "mass of a rod": (lambda: P.Body.rod("rod", -1.0, 1.0), "`mass` of Body 'rod' must be a number that is not negative, but is -1.0"),
    "position in space": (lambda: P.Body("rod", 1.0, 1.0, position=(0.0, 0.0, 0.0)), r"`position of body 'rod'` must have shape \(2,\)"),
    "no quaternion": (lambda: S.Body("box", 1.0, np.ones(3), orientation=np.zeros(4)), "`orientation` of Body 'box' must be a direction, finite numbers not all of them zero, but is"),
    "mirrored pose": (lambda: S.Body("box", 1.0, np.ones(3), orientation=np.diag([1.0, 1.0, -1.0])), "`orientation of body 'box'` must turn and shift only"),
    "force in space": (lambda: P.Mechanism([ROD_BODY], forces=[P.Load("f", "rod.b", force=(0.0, 0.0, 1.0))]), "`force` of 'f' must have 2 components in `jaxmb.planar`, but has 3"),
    "torque in the plane": (lambda: S.Mechanism([BALL_BODY], forces=[S.Load("f", "ball", torque=1.0)]), "`torque` of 'f' must have 3 components in `jaxmb.spatial`, but has 1"),
    "thrust in space": (lambda: P.Mechanism([ROD_BODY], actuators=[P.Thruster("u", "rod.b", (0.0, 0.0, 1.0))]), "`direction` of 'u' must have 2 components in `jaxmb.planar`, but has 3"),
    "point without a name": (lambda: P.Mechanism([ROD_BODY], [P.Revolute("O", "ground", "rod.")]), "Element 'O' must refer to a point of 'rod' out of 'a', 'b' and 'centre', but refers to ''"),
    "gear of the same": (lambda: P.Gear("gear", ("O", "O"), 2.0), r"`joints` of 'gear' must be the names of two joints, but is \('O', 'O'\)"),
    "driver of one body": (lambda: P.Mechanism([ROD_BODY], [PIVOT], [P.DrivenDistance("jack", "rod.a", "rod.b", lambda t, p: 1.0)]), "Element 'jack' must tie two bodies, but has both its markers on 'rod'"),
    "text among numbers": (lambda: P.Mechanism([ROD_BODY], params={"k": "stiff"}), r"`params\['k'\]` must be a number or an array of numbers, but is 'stiff'"),
    "negative distance": (lambda: jm.assemble(P.Mechanism([P.Body("bob", 1.0, 1.0, position=(1.0, 0.0))], drivers=[P.DrivenDistance("jack", "ground", "bob", lambda t, p: -1.0)]).build()), "^Constraint 'jack' must give finite numbers, but does not at t = 0. .* of a distance positive.$"),
    "no screw": (lambda: S.Screw("O", "ground", "ball", 0.0), "`pitch` of Screw 'O' must be a number other than zero"),
    "spring at a ball": (lambda: hung(forces=[S.JointSpring("k", "O", 1.0)]), "Element 'k' must name a coordinate of joint 'O' out of none, but names 'O'"),
    "motor at a ball": (lambda: hung(actuators=[S.Motor("u", "O")]), "Element 'u' must name a coordinate of joint 'O' out of 'wx', 'wy' and 'wz', but names 'O'"),
    "driver of a velocity": (lambda: hung(drivers=[S.Driver("d", "O.wx", lambda t, p: t)]), "Element 'd' must name a coordinate in m or rad of joint 'O' out of none, but names 'O.wx'; a `DrivenSpeed` drives one out of 'wx', 'wy' and 'wz'"),
    "driver of a quaternion": (lambda: hung(drivers=[S.Driver("d", "O.qw", lambda t, p: t)]), "a coordinate in m or rad of joint 'O' out of none, but names 'O.qw'"),
    "rack that turns": (lambda: P.Mechanism([ROD_BODY], [PIVOT, P.Rack("r", "O", "O.angle", 1.0)]), "Element 'r' must name a coordinate in m of joint 'O' out of none, but names 'O.angle'"),
    "half a name": (lambda: S.Mechanism([BALL_BODY], [S.Cylindrical("C", "ground", "ball"), S.Rack("r", "C", "C.z", 1.0)]), "Element 'r' must name a coordinate in rad of joint 'C' out of 'angle', but names 'C'"),
    "driver in Python": (lambda: P.Mechanism([ROD_BODY], [PIVOT], [P.Driver("motor", "O", lambda t, p: float(t))]), "`fn of driver 'motor'` must compute with `jax.numpy` alone"),
    "friction in a part": (lambda: hung(forces=[S.JointFriction("f", "O.wx", 1.0)]), "Element 'f' must name a joint out of 'O', but names 'O.wx'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(case):
    make, message = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def ring(count, length, base):
    """A closed chain: links of one length between two hinges on the ground; no places are given."""
    bodies = [P.Body.rod(f"link{i}", 1.0, length) for i in range(count)]
    joints = [P.Revolute("joint0", "ground", "link0.a")]
    joints += [P.Revolute(f"joint{i}", f"link{i - 1}.b", f"link{i}.a") for i in range(1, count)]
    joints += [P.Revolute(f"joint{count}", f"link{count - 1}.b", ("ground", (base, 0.0)))]
    return P.Mechanism(bodies, joints)


def test_loops_that_do_not_close_are_named_with_their_joints():
    system = ring(3, 1.0, 5.0).build()  # too short
    assert system.joints.loops == {"joint2": ("joint0", "joint1", "joint2", "joint3")}
    text = r"Constraint 'joint2' cannot be .* It closes the loop of 'joint0', 'joint1', 'joint2' and 'joint3'"
    with pytest.raises(ValueError, match=text + r", of which `q` names no coordinate for 'joint1': the lengths must"):
        jm.assemble(system, {"joint0": 1.0, "joint3": 2.0})
    with pytest.raises(ValueError, match=text + ": the lengths must allow it, and the guess be close enough"):
        jm.assemble(system, [1.0, 0.5, 2.0])


@pytest.mark.slow
def test_a_long_chain_closes_or_asks_for_a_guess():
    """Twenty links in line, nothing said of any angle: a singular pose, from which no step leads sideways."""
    system = ring(19, 1.0, 1.0).build()
    try:
        state = jm.assemble(system)
    except ValueError as error:
        assert "of which `q` names no coordinate for 'joint0', 'joint1'" in str(error)
        assert "others: the lengths must allow it" in str(error)
        assert len(str(error)) < 1000
    else:
        np.testing.assert_allclose(jm.residuals(system, state).position, 0, atol=1e-12)


def test_what_is_not_finite_is_named_once():
    with pytest.raises(ValueError, match=r"^Argument `q` must hold finite numbers, but 'O' is none\.$"):
        jm.assemble(P.Mechanism([ROD_BODY], [PIVOT]).build(), {"O": np.nan})


def test_systems_and_mechanisms_are_printed_on_one_screen():
    small = P.Mechanism([ROD_BODY], [PIVOT], [P.Driver("motor", "O", lambda t, p: t)])
    assert str(small).splitlines() == [
        "Mechanism in the plane: 1 body, 1 joint, 1 driver, 0 forces, 0 actuators",
        "  bodies        rod",
        "  joints        O (Revolute)",
        "  drivers       motor (Driver)",
        "  mobility      1 by counting, 0 with drivers; 0 independent loops",
    ]
    assert str(small.build()).splitlines()[:3] == [
        "System: 1 coordinate, 1 velocity, 1 constraint row, 0 inputs",
        "  coordinates   O",
        "  holonomic     motor (1)",
    ]
    large = ring(60, 1.0, 1.0)
    for text in (str(large), str(large.build()), str(large.build("absolute"))):
        assert len(text.splitlines()) <= 20
        assert max(map(len, text.splitlines())) <= 120
        assert "…" in text


def test_directions_of_joints_between_free_bodies():
    """∂ṡ/∂v: a hinge turns its body and a slide goes along its axis; without joints there are none."""
    bodies, slide = [ROD_BODY, P.Body("block", 1.0, 0.1)], P.Prismatic("S", "ground", "block", axis=(0.6, 0.8))
    mechanism = P.Mechanism(bodies, [PIVOT, slide])
    turn, shift = (0, 0, 1, 0, 0, 0), (0, 0, 0, 0.6, 0.8, 0)
    system, free, t = mechanism.build("absolute"), absolute(mechanism.build().acting_at(["S"])), jnp.zeros(())
    axes, inputs = jax.jit(lambda q: (system.joints.axes(t, q, system.params), free.actuation(t, q)))(jnp.zeros(6))
    np.testing.assert_allclose([axes["O"], axes["S"]], [turn, shift], rtol=0, atol=1e-15)
    np.testing.assert_allclose(inputs, np.array([shift]).T, rtol=0, atol=1e-15)
    loose = P.Mechanism(bodies).build()
    assert loose.joints.axes(t, jnp.zeros(6), loose.params) == {}


def test_sums_over_bodies_that_a_velocity_moves():
    """By lookup where each moves few of many, else by a product; of a tree of eight rods on the ground that carry one each."""
    rods = [P.Body.rod(f"{x}{i}", 1.0, 1.0) for i in range(8) for x in "ab"]
    joints = [P.Revolute(f"A{i}", "ground", f"a{i}.a") for i in range(8)]
    joints += [P.Revolute(f"B{i}", f"a{i}.b", f"b{i}.a") for i in range(8)]
    values = jnp.asarray(np.random.default_rng(0).normal(size=(16, 3)))
    for count in (2, 16):
        names = {rod.name for rod in rods[:count]}
        own = [joint for joint in joints if joint.b.body in names]
        linkage = P.Mechanism(rods[:count], own).build().joints
        np.testing.assert_allclose(linkage.summed(values[:count]), linkage.moves.T @ values[:count], rtol=1e-14)


@pytest.mark.parametrize("dim", [2, 3])
def test_the_matrix_of_an_inertia_maps_twists_to_momenta(dim):
    """Column by column; of two bodies it is the sum."""
    rng, size = np.random.default_rng(0), 3 * dim - 3
    make = lambda: Inertia(*(jnp.asarray(rng.normal(size=shape)) for shape in ((), (dim,), (size - dim, size - dim))))
    one, other = make(), make()
    columns = [jnp.concatenate(one.momentum((x[: size - dim], x[size - dim :]))) for x in jnp.eye(size)]
    np.testing.assert_allclose(one.matrix(), np.stack(columns, axis=1), rtol=0, atol=1e-15)
    np.testing.assert_allclose((one + other).matrix(), one.matrix() + other.matrix(), rtol=0, atol=1e-14)


def test_bodies_one_after_the_other_have_the_mass_of_all_at_once():
    rods = [P.Body.rod("one", 1.0, 0.4), P.Body.rod("two", 1.5, 0.6)]
    joints = [P.Revolute("O", "ground", "one.a"), P.Prismatic("S", "one.b", "two.a", axis=(0.6, 0.8))]
    system = P.Mechanism(rods, joints).build()
    both = [dataclasses.replace(system.joints, recursive=recursive) for recursive in (False, True)]
    found = jax.jit(lambda q: [linkage.mass(jnp.zeros(()), q, system.params) for linkage in both])(
        jnp.array([0.4, 0.3])
    )
    np.testing.assert_allclose(*found, rtol=1e-14)


def test_a_joint_pushes_both_bodies_by_its_multipliers():
    """In space: λ · C v is the power of force and torque at the joint's point, and the ground gets the opposite."""
    rod = S.Body("rod", 2.0, (0.1, 0.2, 0.3))
    joints = [S.Revolute("O", "ground", ("rod", (0.1, 0.2, -0.3)), axis=(0.0, 1.0, 0.4))]
    free = S.Mechanism([rod], joints).build("absolute")
    (q, v), multipliers = random_states(free, 1), np.arange(1.0, 6.0)
    jacobian, poses = jax.jit(
        lambda q: (constraint_jacobian(free, jnp.zeros(()), q), free.joints.poses(q, free.params))
    )(q[0])
    wrenches = [wrench_map(free, jacobian, poses, "O", end, "world") for end in (0, 1)]
    (ground, _), (force, point) = ((x @ multipliers, at) for x, at in wrenches)
    turn = np.asarray(poses[1][:3, :3]) @ v[0, 3:]
    power = force[:3] @ (v[0, :3] + np.cross(turn, point - q[0, :3])) + force[3:] @ turn
    np.testing.assert_allclose(power, multipliers @ jacobian @ v[0], rtol=1e-13)
    # The ground's wrench is about the joint's point on the ground, which is its origin.
    np.testing.assert_allclose(ground[:3], -force[:3], rtol=0, atol=1e-14)


def test_outputs_refuse_what_they_do_not_know():
    system = P.Mechanism([ROD_BODY], [PIVOT]).build()
    state = jm.assemble(system)
    plain = jm.System(1, mass=lambda t, q, p: jnp.eye(1))
    with pytest.raises(ValueError, match=r"There is no point 'rod\.c'; 'rod' has rod\.a, rod\.b"):
        jm.position(system, state, "rod.c")
    with pytest.raises(ValueError, match="There is no joint 'Q'; there are O"):
        jm.coordinate(system, state, "Q")
    with pytest.raises(ValueError, match="must be built from a mechanism"):
        jm.position(plain, jm.assemble(plain), "rod")
    with pytest.raises(ValueError, match="must be a force element out of none"):
        jm.force(system, state, "spring")
