"""Mechanisms in space against equations that are derived by other means, and against each other."""

import functools

import bricard
import bricard_joints
import diffrax as dfx
import governor
import jax
import jax.numpy as jnp
import numpy as np
import puma
import pytest
import rolling_disk
import stewart
import stewart_model
from scipy.integrate import solve_ivp

import jaxmb as jm
from jaxmb.system import constraint_jacobian, position_residual, velocity_residual

ZERO = jnp.zeros(())


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0))
def tree_dynamics(system, q, v):
    """Mass matrix, force and v̇ of a system without constraints."""
    mass, force = system.mass(ZERO, q), system.intrinsic_force(ZERO, q, v) + system.applied_force(ZERO, q, v)
    return mass, force, jnp.linalg.solve(mass, force)


# Bricard's mechanism


@pytest.mark.slow
def test_bricard_has_the_mass_and_the_free_direction_of_the_plain_functions():
    systems = bricard_joints.builds()
    absolute, relative = systems["absolute"], systems["relative"]
    assert (absolute.m, absolute.nv, relative.m, relative.nv) == (30, 30, 5, 5)
    start = np.concatenate([bricard.CENTRES, np.tile([1.0, 0, 0, 0], (5, 1))], axis=1).ravel()
    np.testing.assert_allclose(absolute.guess, start, atol=1e-15)

    @jax.jit
    def rows(q):
        plain = jax.vmap(
            lambda v: jax.jvp(lambda q: bricard.joints(0.0, q, None), (q,), (bricard.rate(q, v, None),))[1]
        )
        return plain(jnp.eye(30)).T, constraint_jacobian(absolute, ZERO, q), absolute.mass(ZERO, q)

    plain, joints, mass = rows(absolute.guess)
    np.testing.assert_allclose(mass, np.diag(np.concatenate([np.ones((5, 3)), bricard.INERTIA], 1).ravel()), atol=1e-15)
    closing = jax.jit(lambda q: constraint_jacobian(relative, ZERO, q))(relative.guess)
    for found, rank in ((plain, 29), (joints, 29), (np.concatenate([plain, joints]), 29), (closing, 4)):
        values = np.linalg.svd(found, compute_uv=False)
        assert values[rank - 1] > 1e-2 and values[rank] < 1e-14


# Stiff governor


def governor_reduced(y):
    """(θ, s, θ̇, ṡ)' by Lagrange's equations of the symmetric motion; the angular momentum about the shaft is kept."""
    theta, s, theta_rate, s_rate = y
    c, d, g = np.cos(theta), np.sin(theta), 9.81
    rod, ball, slider = 0.3, 5.0, 3.0
    long, thin = rod / 12 * (1 + 1e-4), rod / 12 * 2e-4

    def turning(c, d):
        """Moment of inertia about the shaft's axis, and its derivative by θ."""
        value = (
            thin
            + slider * 0.02 / 12
            + 2 * (thin * d**2 + long * c**2 + rod * (0.05 + 0.5 * c) ** 2 + ball * (0.05 + c) ** 2)
        )
        slope = 2 * (2 * (thin - long) * c * d - 2 * rod * (0.05 + 0.5 * c) * 0.5 * d - 2 * ball * (0.05 + c) * d)
        return value, slope

    inertia, slope = turning(c, d)
    rate = 2 * np.pi * turning(np.cos(np.pi / 6), np.sin(np.pi / 6))[0] / inertia
    swing = 2 * (long + rod / 4 + ball)
    across, up = 0.5 * c, 1 - 0.5 * d - s
    length = np.hypot(across, up)
    by_theta, by_s = (-0.5 * d * across - 0.5 * c * up) / length, -up / length
    pull = 8e5 * (length - 0.5) + 4e4 * (by_theta * theta_rate + by_s * s_rate)
    weight = 2 * g * (rod / 2 + ball) * c
    theta_acc = (0.5 * slope * rate**2 + weight - 2 * pull * by_theta) / swing
    return np.array([theta_rate, s_rate, theta_acc, -g - 2 * pull * by_s / slider]), rate


def test_governor_accelerates_like_its_reduced_equations():
    system = governor.governor().build()
    assert system.velocities == ("spin", "slide", "hinge1", "hinge2") and system.m == 0
    rng = np.random.default_rng(0)
    reduced = np.stack([rng.uniform(0.2, 0.9, 20), rng.uniform(0.3, 0.6, 20), *rng.normal(size=(2, 20))], axis=1)
    derivatives, rates = zip(*(governor_reduced(y) for y in reduced), strict=True)
    theta, s, theta_rate, s_rate = reduced.T
    q = jnp.stack([rng.uniform(-3, 3, 20), s, theta, theta], axis=1)
    v = jnp.stack([jnp.array(rates), s_rate, theta_rate, theta_rate], axis=1)
    vdot = np.asarray(tree_dynamics(system, q, v)[2])
    expected = np.stack(derivatives)
    scale = np.abs(expected[:, 2:]).max()
    for found, column in ((vdot[:, 1], 3), (vdot[:, 2], 2), (vdot[:, 3], 2)):
        np.testing.assert_allclose(found, expected[:, column], atol=1e-12 * scale)


@pytest.mark.slow
def test_governor_moves_like_its_reduced_equations():
    system = governor.governor().build()
    height = governor.run(system, governor.explicit(1e-8))[0]
    found = solve_ivp(
        lambda t, y: governor_reduced(y)[0], (0, 10), [np.pi / 6, 0.5, 0, 0], "Radau", rtol=1e-11, atol=1e-12
    )
    np.testing.assert_allclose(height, found.y[1, -1], atol=1e-9)


# Puma arm


def newton_euler(q, v, acceleration):
    """Torques of the arm's joints by recursive Newton–Euler, in world axes."""
    pose, origins, axes, links = np.eye(4), [], [], []
    omega = alpha = np.zeros(3)
    moved = np.array([0.0, 0.0, 9.81])  # of the frames' origins; gravity as an upward acceleration of the ground
    for i, (d, a, twist) in enumerate(puma.TABLE):
        axis, origin = pose[:3, 2], pose[:3, 3]
        alpha = alpha + acceleration[i] * axis + np.cross(omega, v[i] * axis)
        omega = omega + v[i] * axis
        c, s, ca, sa = np.cos(q[i]), np.sin(q[i]), np.cos(twist), np.sin(twist)
        step = [[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]]
        pose = pose @ np.array(step)
        turned = pose[:3, :3]
        centre = pose[:3, 3] + turned @ np.array(puma.CENTRES[i])
        of = lambda x, o=origin, w=omega, al=alpha, m=moved: m + np.cross(al, x - o) + np.cross(w, np.cross(w, x - o))
        inertia = turned @ np.diag(puma.INERTIAS[i]) @ turned.T
        torque = inertia @ alpha + np.cross(omega, inertia @ omega)
        links.append((centre, puma.MASSES[i] * of(centre), torque))
        origins.append(origin)
        axes.append(axis)
        moved = of(pose[:3, 3])
    return np.array(
        [
            axes[i] @ sum(np.cross(centre - origins[i], force) + torque for centre, force, torque in links[i:])
            for i in range(6)
        ]
    )


def arm_dynamics(q, v):
    """Mass matrix and bias force: τ = M v̇ + bias."""
    bias = newton_euler(q, v, np.zeros(6))
    return np.stack([newton_euler(q, v, unit) - bias for unit in np.eye(6)], axis=1), bias


@functools.cache
def arm():
    """The relative build, 100 states, and mass matrix and bias force there."""
    system = puma.puma().build()
    rng = np.random.default_rng(0)
    q, v = rng.uniform(-np.pi, np.pi, (100, 6)), rng.normal(scale=2.0, size=(100, 6))
    mass, force, _ = tree_dynamics(system, jnp.asarray(q), jnp.asarray(v))
    return system, q, v, np.asarray(mass), -np.asarray(force)


def relative_error(found, expected):
    """The largest error of each state relative to its largest entry."""
    flat = lambda x: np.reshape(x, (len(x), -1))
    found, expected = flat(found), flat(expected)
    return (np.abs(found - expected).max(axis=1) / np.abs(expected).max(axis=1)).max()


@pytest.mark.slow
def test_puma_has_mass_and_bias_of_newton_and_euler():
    _, q, v, mass, bias = arm()
    expected = [arm_dynamics(*state) for state in zip(q, v, strict=True)]
    assert relative_error(mass, [m for m, _ in expected]) < 1e-12
    assert relative_error(bias, [b for _, b in expected]) < 1e-12


def test_puma_has_mass_and_bias_of_mujoco():
    mujoco = pytest.importorskip("mujoco")
    text = lambda x: " ".join(repr(float(y)) for y in x)
    opened, closed = "", ""
    for i, (d, a, twist) in enumerate(puma.TABLE):
        c, s = np.cos(twist), np.sin(twist)
        opened += (
            f'<body pos="{text((a, 0, d))}" quat="{text((np.cos(twist / 2), np.sin(twist / 2), 0, 0))}">'
            f'<inertial pos="{text(puma.CENTRES[i])}" mass="{puma.MASSES[i]}" diaginertia="{text(puma.INERTIAS[i])}"/>'
            f'<joint type="hinge" axis="{text((0, s, c))}" pos="{text((-a, -d * s, -d * c))}"/>'
        )
        closed += "</body>"
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><compiler angle="radian"/><option gravity="0 0 -9.81"/>'
        f"<worldbody>{opened}{closed}</worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    _, q, v, mass, bias = arm()
    masses, biases, column = [], [], np.zeros(6)
    for state in zip(q, v, strict=True):
        data.qpos[:], data.qvel[:] = state
        mujoco.mj_forward(model, data)
        biases.append(np.array(data.qfrc_bias))
        columns = []
        for unit in np.eye(6):
            mujoco.mj_mulM(model, data, column, unit)
            columns.append(column.copy())
        masses.append(columns)
    assert relative_error(mass, masses) < 1e-9
    assert relative_error(bias, biases) < 1e-9


@pytest.mark.slow
def test_puma_falls_like_newton_and_euler():
    def derivative(t, y):
        mass, bias = arm_dynamics(y[:6], y[6:])
        return np.concatenate([y[6:], np.linalg.solve(mass, -bias)])

    ts = np.linspace(0.0, 0.3, 7)
    start = np.concatenate([puma.Q0, puma.V0])
    expected = solve_ivp(derivative, (0, 0.3), start, "DOP853", ts, rtol=1e-12, atol=1e-12).y.T
    system = arm()[0]
    found = puma.run(system, puma.start(system), jnp.asarray(ts))
    np.testing.assert_allclose(np.concatenate([found.q, found.v], axis=1), expected, rtol=0, atol=1e-9)


# Rolling disk


def disk_reduced(y):
    """(θ, ψ, ω₁, ω₂, ω₃, x, y)' from Newton's and Euler's equations along e₁, e₂, e₃; (x, y) is the contact point.

    With the contact force R = m (v̇ + g z) at −r e₂ from the centre and v = r (ω₁ e₃ − ω₃ e₁): L̇ = −r e₂ × R.
    """
    lean, heading, w1, w2, w3 = y[:5]
    m, r, g = rolling_disk.MASS, rolling_disk.RADIUS, rolling_disk.GRAVITY
    across, axial, own = m * r**2 / 4, m * r**2 / 2, m * r**2
    heading_rate = w2 / np.sin(lean)
    turn = heading_rate * np.cos(lean)  # of the axes about e₃
    spin = w3 - turn
    return np.array(
        [
            w1,
            heading_rate,
            (across * turn * w2 - (axial + own) * w2 * w3 - m * g * r * np.cos(lean)) / (across + own),
            (axial * w3 - across * turn) * w1 / across,
            own * w1 * w2 / (axial + own),
            -r * spin * np.cos(heading),
            -r * spin * np.sin(heading),
        ]
    )


def disk_centre(y):
    """The centre from the reduced state."""
    return np.array([y[5], y[6], 0.0]) + rolling_disk.RADIUS * rolling_disk.axes(y[1], y[0])[:, 1]


def disk_start():
    lean, heading = rolling_disk.LEAN, rolling_disk.HEADING
    rate = rolling_disk.HEADING_RATE
    omega = (rolling_disk.LEAN_RATE, rate * np.sin(lean), rate * np.cos(lean) + rolling_disk.SPIN)
    return np.array([lean, heading, *omega, 0.0, 0.0])


@pytest.mark.slow
def test_disk_accelerates_like_its_reduced_equations():
    system = rolling_disk.rolling_disk().build()
    assert (system.m, system.nv) == (3, 6)
    rng = np.random.default_rng(1)
    r, count = rolling_disk.RADIUS, 20
    states = np.stack(
        [rng.uniform(0.3, 2.8, count), *rng.uniform(-3, 3, (4, count)), *rng.normal(size=(2, count))], axis=1
    )
    poses, v, expected = [], [], []
    for y in states:
        turned, dy = rolling_disk.axes(y[1], y[0]), disk_reduced(y)
        frame = np.eye(4)
        frame[:3, :3], frame[:3, 3] = turned, disk_centre(y)
        poses.append(np.stack([np.eye(4), frame]))
        w, axis_rate = y[2:5], np.array([y[2], y[3], dy[1] * np.cos(y[0])])  # of the body, of the axes e
        centre = r * np.array([-w[2], 0.0, w[0]])
        v.append(np.concatenate([turned @ centre, w]))
        linear = r * np.array([-dy[4], 0.0, dy[2]]) + np.cross(axis_rate, centre)
        expected.append(np.concatenate([turned @ linear, dy[2:5] + np.cross(axis_rate, w)]))

    @jax.jit
    @jax.vmap
    def found(poses, v):
        q = system.joints.measure(poses, system.params)
        state = jm.as_state(system, q, v)
        slip, gap = velocity_residual(system, ZERO, q, v), position_residual(system, ZERO, q)
        return slip, gap, jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state)).vdot

    slip, gap, vdot = found(jnp.array(poses), jnp.array(v))
    assert np.abs(slip).max() < 1e-13 and np.abs(gap).max() < 1e-14
    # ω̇ in the body's axes, which are e at this instant, is that of the vector ω: ω × ω vanishes.
    np.testing.assert_allclose(vdot, expected, atol=1e-11)


@pytest.mark.slow
def test_disk_rolls_like_its_reduced_equations():
    ts = np.linspace(0.0, 6.0, 13)
    expected = solve_ivp(lambda t, y: disk_reduced(y), (0, 6), disk_start(), "DOP853", ts, rtol=1e-13, atol=1e-13).y.T
    system = rolling_disk.rolling_disk().build()
    solution = rolling_disk.run(system, jnp.asarray(ts))
    centres = np.stack([disk_centre(y) for y in expected])
    np.testing.assert_allclose(jm.position(system, solution, "disk"), centres, rtol=0, atol=1e-9)
    assert np.abs(jm.energy(system, solution).balance).max() < 1e-10


# Stewart platform


def stewart_poses(t):
    """Poses of ground and bodies from the motion that is wanted."""
    place, turned = stewart_model.platform_pose(t)
    low, high, along, _ = stewart_model.leg_frames(place, turned)
    legs = [jm.spatial.frame(x[i], along[i]) for i in range(stewart_model.LEGS) for x in (low, high)]
    return jnp.stack([jnp.eye(4), jm.spatial.frame(place, turned), *legs])


@functools.cache
def stewart_motion():
    """The system, and times, coordinates and velocities of the motion that is wanted."""
    system = stewart_model.stewart().build()
    ts = jnp.linspace(0.0, 4.0, 9)

    @jax.jit
    @jax.vmap
    def states(t):
        poses, rates = jax.jvp(stewart_poses, (t,), (jnp.ones_like(t),))
        q = system.joints.measure(poses, system.params)
        v = system.joints.measure_rates(poses, rates, system.params)
        closed = position_residual(system, t, q), velocity_residual(system, t, q, v)
        return q, v, closed, constraint_jacobian(system, t, q)

    return system, ts, *states(ts)


def stewart_drives(t):
    """Forces of the drives by Lagrange's equations in the six coordinates of the platform."""
    cylinder, piston, platform = stewart_model.CYLINDER, stewart_model.PISTON, stewart_model.PLATFORM

    def spread(mass, inertia, com, shape=None):  # which is for pictures
        place = jnp.append(jnp.array(com), 1.0)
        about = 0.5 * sum(inertia) * jnp.eye(3) - jnp.diag(jnp.array(inertia))
        return mass * jnp.outer(place, place) + jnp.zeros((4, 4)).at[:3, :3].set(about)

    inertia = jnp.stack([spread(**platform), *[spread(**cylinder), spread(**piston)] * stewart_model.LEGS])
    place, turned = stewart_model.platform_pose(t)

    def pose(x):
        """The platform's, from a shift and a rotation vector beside the present pose, to second order."""
        cross = lambda w: jnp.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
        return place + x[:3], turned @ (jnp.eye(3) + cross(x[3:]) + cross(x[3:]) @ cross(x[3:]) / 2)

    def bodies(x):
        at, rotation = pose(x)
        low, high, along, _ = stewart_model.leg_frames(at, rotation)
        rows = jnp.stack([jnp.concatenate([rotation, at[:, None]], 1)])
        legs = jnp.stack(
            [jnp.concatenate([along, low[:, :, None]], 2), jnp.concatenate([along, high[:, :, None]], 2)], 1
        )
        return jnp.concatenate([rows, legs.reshape(-1, 3, 4)])

    def lagrangian(x, xdot):
        here, rates = jax.jvp(bodies, (x,), (xdot,))
        heights = jnp.sum((here @ inertia)[:, 2, 3])
        return 0.5 * jnp.sum(rates * (rates @ inertia)) - 9.81 * heights

    def coordinates(s):
        """x of the motion that is wanted: the inverse of `pose`, to second order about t."""
        at, rotation = stewart_model.platform_pose(s)
        turn = turned.T @ rotation
        return jnp.concatenate(
            [at - place, 0.5 * jnp.stack([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])]
        )

    one = jnp.ones_like(t)
    speed = lambda s: jax.jvp(coordinates, (s,), (one,))
    (x, xdot), (_, xddot) = jax.jvp(speed, (t,), (one,))
    momentum = lambda x, xdot: jax.grad(lagrangian, argnums=1)(x, xdot)
    change = jax.jvp(momentum, (x, xdot), (xdot, xddot))[1]
    force = change - jax.grad(lagrangian)(x, xdot)
    lengths = jax.jacobian(lambda x: stewart_model.leg_frames(*pose(x))[3])(x)
    return jnp.linalg.solve(lengths.T, force)


@pytest.mark.slow
def test_stewart_platform_closes_along_the_motion_that_is_wanted():
    system, _, _, _, (position, velocity), jacobian = stewart_motion()
    assert (system.m, system.nv) == (21, 21)
    assert np.abs(position).max() < 1e-14 and np.abs(velocity).max() < 1e-13
    assert np.linalg.svd(jacobian, compute_uv=False)[:, -1].min() > 1e-2


@pytest.mark.slow
def test_stewart_platform_finds_the_motion_and_needs_the_forces_of_lagrange():
    system, ts, q, v, _, _ = stewart_motion()
    solution = stewart.run(system, ts)
    np.testing.assert_allclose(solution.q, q, atol=1e-9)
    np.testing.assert_allclose(solution.v, v, atol=1e-9)
    multipliers = jm.reactions(system, solution).multipliers
    forces = np.stack([multipliers[f"drive{i}"] for i in range(stewart_model.LEGS)], axis=1)
    np.testing.assert_allclose(forces, jax.jit(jax.vmap(stewart_drives))(ts), rtol=0, atol=1e-9)
    assert solution.stats["lowest_rank"] == solution.stats["highest_rank"] == 21


# Free gyroscope

INERTIA = np.array([0.3, 0.5, 0.7])


@functools.cache
def gyroscope():
    system = jm.spatial.Mechanism([jm.spatial.Body("top", 1.0, INERTIA)]).build()
    return system, jm.assemble(system, v={"top.wx": 1.0, "top.wy": 2.0, "top.wz": 0.5})


def turn(solver, step):
    """Orientations and angular momenta in the world at four times, with steps of constant size."""
    system, state = gyroscope()
    solution = jm.simulate(
        system, state, jnp.arange(1.0, 5.0), solver=solver, stepsize_controller=dfx.ConstantStepSize(), dt0=step
    )
    turned = jm.pose(system, solution, "top")[:, :3, :3]
    omega = jm.angular_velocity(system, solution, "top")
    momentum = jnp.einsum("tij,j,tkj,tk->ti", turned, INERTIA, turned, omega)
    return np.asarray(turned), np.asarray(momentum)


@functools.cache
def finest():
    return turn(dfx.Dopri8(), 1 / 64)


@pytest.mark.slow
def test_gyroscope_keeps_its_angular_momentum():
    turned, momentum = finest()
    np.testing.assert_allclose(momentum, np.tile(INERTIA * np.array([1.0, 2.0, 0.5]), (4, 1)), rtol=0, atol=1e-13)
    np.testing.assert_allclose(turned @ np.swapaxes(turned, 1, 2), np.tile(np.eye(3), (4, 1, 1)), atol=1e-14)


@pytest.mark.slow_except("Tsit5--")
@pytest.mark.parametrize(
    ("solver", "order", "steps"),
    [
        (dfx.Bosh3(), 3, (1 / 32, 1 / 64, 1 / 128)),
        (dfx.Tsit5(), 5, (1 / 16, 1 / 32, 1 / 64)),
        (dfx.Dopri8(), 8, (1 / 2, 1 / 4, 1 / 8)),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, dfx.AbstractSolver) else "",
)
@pytest.mark.slow
def test_order_of_integration_of_rotations(solver, order, steps):
    errors = np.array([np.linalg.norm(turn(solver, step)[0] - finest()[0]) for step in steps])
    np.testing.assert_allclose(np.log2(errors[:-1] / errors[1:]), order, rtol=0, atol=0.3)


@pytest.mark.slow
def test_gimbals_without_mass_leave_their_rotor_free_beside_and_through_their_lock():
    """A rotor in two rings, whose mass matrix is singular where yaw and spin turn about one axis; it passes there after 0.1 s."""
    space, none, inertia = jm.spatial, (0.0, 0.0, 0.0), (1e-2, 1.2e-2, 2e-2)
    bodies = [space.Body("outer", 0.0, none), space.Body("inner", 0.0, none), space.Body("rotor", 1.0, inertia)]
    joints = [
        space.Revolute("yaw", "ground", "outer", axis=(0.0, 0.0, 1.0)),
        space.Revolute("pitch", "outer", "inner", axis=(1.0, 0.0, 0.0)),
        space.Revolute("spin", "inner", "rotor", axis=(0.0, 0.0, 1.0)),
    ]
    rings = space.Mechanism(bodies, joints).build()
    free = space.Mechanism([bodies[2]], [space.Spherical("ball", "ground", "rotor")]).build()
    ts, turned = jnp.linspace(0.0, 0.5, 11), lambda system, run: np.asarray(jm.pose(system, run, "rotor"))[..., :3, :3]
    for pitch, yaw_rate in ((-0.2, 0.0), (-0.2, 1e-3), (0.3, 1.0)):
        state = jm.assemble(rings, {"pitch": pitch}, {"yaw": yaw_rate, "pitch": 2.0, "spin": -3.0})
        omega = turned(rings, state).T @ np.asarray(jm.angular_velocity(rings, state, "rotor"))
        start = jm.assemble(free, [np.cos(pitch / 2), np.sin(pitch / 2), 0.0, 0.0], omega)
        runs = jm.simulate(rings, state, ts), jm.simulate(free, start, ts)
        np.testing.assert_allclose(turned(rings, runs[0]), turned(free, runs[1]), rtol=0, atol=5e-8)
