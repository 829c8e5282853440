"""Linearisation, equilibria and regulators against closed forms, other coordinates and motions."""

import dataclasses
import functools
import warnings

import diffrax as dfx
import fourbar_model
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import GRAVITY, fourbar, make, moving_line, normalise, pendulum, quaternion_rate, sleigh
from units import in_units, replaced

import jaxmb as jm
from jaxmb.control.names import input_names
from jaxmb.control.readings import StateReadings, deviation, named_readings
from jaxmb.system import State


def agree(found, expected, tol):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.max(np.abs(found - expected), initial=0) <= tol * (1 + np.max(np.abs(expected), initial=0))


def by_change(a, change, rate):
    """A in states x = G z from that in z."""
    return change @ a @ np.linalg.inv(change) + rate @ np.linalg.inv(change)


def bicycle():
    """Of the benchmark of Meijaard, Papadopoulos, Ruina and Schwab (2007), table 1, with z upwards."""
    S = jm.spatial
    tilt, base, trail = np.pi / 10, 1.02, 0.08
    about = lambda xx, yy, zz, xz: np.array([[xx, 0, -xz], [0, yy, 0], [-xz, 0, zz]])
    bodies = [
        S.Body("frame", 85.0, about(9.2, 11.0, 2.8, 2.4), com=(0.3, 0, 0.9)),
        S.Body("rear", 2.0, (0.0603, 0.12, 0.0603), position=(0, 0, 0.3)),
        S.Body("fork", 4.0, about(0.05892, 0.06, 0.00708, -0.00756), com=(0.9, 0, 0.7)),
        S.Body("front", 3.0, (0.1405, 0.28, 0.1405), position=(base, 0, 0.35)),
    ]
    place = (base + trail, 0, 0)
    joints = [
        S.Revolute("rear hub", ("frame", (0, 0, 0.3)), "rear", axis=(0, 1, 0)),
        S.Revolute("steer", ("frame", place), ("fork", place), axis=(-np.sin(tilt), 0, np.cos(tilt))),
        S.Revolute("front hub", ("fork", (base, 0, 0.35)), "front", axis=(0, 1, 0)),
        S.RollingDisk("rear tyre", "ground", "rear", 0.3, axis=(0, 1, 0)),
        S.RollingDisk("front tyre", "ground", "front", 0.35, axis=(0, 1, 0)),
    ]
    return S.Mechanism(bodies, joints, gravity=(0, 0, -9.81))


@pytest.mark.slow
def test_a_bicycle_has_the_eigenvalues_of_the_benchmark():
    """M δ̈ + v C₁ δ̇ + (g K₀ + v² K₂) δ = 0 for lean and steer (Meijaard and others 2007, eqs. 5.3, A 1 to A 4)."""
    system = bicycle().build()
    mass = np.array([[80.81722, 2.31941332208709], [2.31941332208709, 0.29784188199686]])
    damping = np.array([[0, 33.86641391492494], [-0.85035641456978, 1.68540397397560]])
    by_gravity = np.array([[-80.95, -2.59951685249872], [-2.59951685249872, -0.80329488458618]])
    by_speed = np.array([[0, 76.59734589573222], [0, 2.65431523794604]])
    for speed in (0.0, 3.0, 5.0, 8.0):
        turning = {"rear hub": speed / 0.3, "steer": 0.0}
        state = jm.assemble(system, v=turning, hold_velocity=list(turning))
        found = np.asarray(jm.linearise(system, state).eigenvalues)
        stiffness = 9.81 * by_gravity + speed**2 * by_speed
        below = -np.linalg.solve(mass, np.hstack([stiffness, speed * damping]))
        exact = np.linalg.eigvals(np.vstack([np.eye(2, 4, 2), below]))
        nearest = found[np.argmin(np.abs(found[:, None] - exact), axis=0)]
        np.testing.assert_allclose(nearest, exact, rtol=0, atol=1e-9)
        # Place, heading and the wheels' angles may be any: whatever else there is would be a mode that no bicycle has.
        assert np.sum(np.abs(found) > 1e-4) == 4


@pytest.mark.slow_except("4")
@pytest.mark.parametrize("copies", [1, 4])
def test_pendulum_in_motion(copies):
    system, _ = pendulum(copies)
    theta, omega = 0.7, 1.3  # from the vertical
    s, c = np.sin(theta), np.cos(theta)
    state = jm.assemble(system, [s, -c], [c * omega, s * omega])
    found = jm.linearise(system, state, independent=["x"])
    # x = sin θ: δx = c δθ, δẋ = c δθ' − s θ' δθ
    alpha = -GRAVITY * s
    change = np.array([[c, 0], [-s * omega, c]])
    rate = np.array([[-s * omega, 0], [-c * omega**2 - s * alpha, -s * omega]])
    agree(found.A, by_change(np.array([[0, 1], [-GRAVITY * c, 0]]), change, rate), 1e-12)
    agree(found.residual, [c * omega, c * alpha - s * omega**2], 1e-12)
    agree(found.tangent.q[:, 0], [1, s / c], 1e-12)
    agree(found.tangent.v[:, 1], [1, s / c], 1e-12)


@functools.cache
def hinged():
    """A bar on two hinges at one place, in absolute coordinates."""
    bar = jm.planar.Body("bar", 2.0, 0.3, position=(0.5, 0.0), points={"end": (-0.5, 0.0)})
    joints = [jm.planar.Revolute(name, "ground", "bar.end") for name in ("hinge", "again")]
    mechanism = jm.planar.Mechanism(
        [bar], joints, gravity=(0.0, -GRAVITY), actuators=[jm.planar.Motor("motor", "hinge", 2.0)]
    )
    return mechanism.build(coordinates="absolute")


@pytest.mark.slow
def test_joint_coordinate_of_redundant_hinges():
    system = hinged()
    state = jm.assemble(system, v={"bar.angle": 0.8})
    found = jm.linearise(system, state, independent=["hinge"])
    inertia = 0.3 + 2.0 * 0.25
    assert found.names == ("hinge", "hinge'") and found.inputs == ("motor",)
    agree(found.A, [[0, 1], [0, 0]], 1e-12)  # −m g a sin θ/J at θ = 0 from the horizontal
    agree(found.B, [[0], [2 / inertia]], 1e-12)
    tilted = dataclasses.replace(state, q=jnp.array([0.5 * np.cos(0.4), 0.5 * np.sin(0.4), 0.4]), v=0 * state.v)
    found = jm.linearise(system, tilted, independent=["hinge"])
    agree(found.A, [[0, 1], [2.0 * GRAVITY * 0.5 * np.sin(0.4) / inertia, 0]], 1e-12)


@pytest.mark.slow
def test_double_pendulum():
    def rods(t, q, p):
        return jnp.stack([q[:2] @ q[:2] - 1, (q[2:] - q[:2]) @ (q[2:] - q[:2]) - 1])

    system = jm.System(
        4, mass=lambda t, q, p: jnp.eye(4), potential=lambda t, q, p: GRAVITY * (q[1] + q[3]),
        constraints=[jm.Holonomic("rods", rods), jm.Holonomic("again", lambda t, q, p: 7 * rods(t, q, p)[::-1])],
    )  # fmt: skip
    found = jm.linearise(system, jm.assemble(system, [0.0, -1.0, 0.0, -2.0]))
    expected = np.sqrt(GRAVITY * (2 + np.array([-1, 1]) * np.sqrt(2)))
    agree([mode.frequency * 2 * np.pi for mode in found.modes()], expected, 1e-12)
    # δx₂ = ±√2 δx₁ in both modes
    for mode, sign in zip(found.modes(), (1, -1), strict=True):
        ratio = (mode.shape["q2"] / mode.shape["q0"]).real
        agree(ratio, 1 + sign * np.sqrt(2), 1e-12) if sign > 0 else agree(ratio, 1 - np.sqrt(2), 1e-12)
        agree(sum(mode.participation.values()), 1.0, 1e-14)


def chain(n=5):
    def potential(t, q, p):
        stretched = jnp.diff(jnp.concatenate([jnp.zeros(1), q, jnp.zeros(1)]))
        return 0.5 * p["k"] * stretched @ stretched

    return jm.System(n, mass=lambda t, q, p: p["m"] * jnp.eye(n), potential=potential, params={"m": 0.7, "k": 250.0})


def test_frequencies_of_a_chain_in_any_units():
    system = chain()
    expected = 2 * np.sqrt(250 / 0.7) * np.sin(np.arange(1, 6) * np.pi / 12)
    measured = in_units(system, [True] * 5)
    for unit in (1.0, 1e-3, 1e6):
        other = replaced(measured, jnp.array([unit, 1e3, 1.0]))
        found = jm.linearise(other, jm.assemble(other))
        agree(np.abs(found.eigenvalues[::2].imag) / expected, np.ones(5), 1e-13)
        agree([m.participation["q2"] for m in found.modes()], [1 / 3, 0, 1 / 3, 0, 1 / 3], 1e-12)
    assert f"{expected[-1] / (2 * np.pi):.5g}" in str(found)
    assert "q2, q3, q1" in str(found) or "q2, q1, q3" in str(found)  # which move alike


@pytest.mark.slow
@pytest.mark.parametrize("formulation", [None, jm.formulation.KKT(), jm.formulation.CoordinatePartition()], ids=str)
def test_fourbar_against_minimal_coordinates(formulation):
    system, state = make("four-bar")
    closure = fourbar_model.CLOSURES["crank"]
    small = jm.kinematics.reduce(system, closure)
    expected = jm.linearise(small, jm.kinematics.restrict(system, closure, state))
    found = jm.linearise(system, state, independent=["a1"], formulation=formulation)
    agree(found.A, expected.A, 1e-11)
    agree(found.residual, expected.residual, 1e-11)


@pytest.mark.slow
def test_rows_change_nothing():
    system, state = make("four-bar")
    copies, _ = fourbar(3)
    again = jm.assemble(copies, state.q, state.v, t=state.t)
    agree(jm.linearise(copies, again).A, jm.linearise(system, state).A, 1e-12)


@pytest.mark.slow
def test_turning_line():
    """A particle on a line that turns, in Cartesian coordinates, against the distance along the line."""
    system = jm.System(
        2, mass=lambda t, q, p: jnp.eye(2), constraints=[
            jm.Holonomic("line", lambda t, q, p: q[1] * jnp.cos(p * t) - q[0] * jnp.sin(p * t))
        ], params=0.9,
    )  # fmt: skip
    w, t, r, speed = 0.9, 0.4, 1.2, 0.3
    c, s = np.cos(w * t), np.sin(w * t)
    q = np.array([r * c, r * s])
    v = np.array([speed * c - r * w * s, speed * s + r * w * c])
    found = jm.linearise(system, jm.assemble(system, q, v, t=t), independent=["q0"])
    change, rate = np.array([[c, 0], [-w * s, c]]), np.array([[-w * s, 0], [-(w**2) * c, -w * s]])
    agree(found.A, by_change(np.array([[0, 1], [w**2, 0]]), change, rate), 1e-12)


def cross(w):
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def test_free_body_with_a_quaternion():
    inertia, omega = np.array([0.2, 0.3, 0.45]), np.array([0.5, -0.8, 1.9])
    system = jm.System(
        7, velocities=("vx", "vy", "vz", "wx", "wy", "wz"), normalise=normalise,
        mass=lambda t, q, p: jnp.diag(jnp.concatenate([2 * jnp.ones(3), p])),
        rate=lambda q, v, p: quaternion_rate(q, v), params=inertia,
    )  # fmt: skip
    state = jm.assemble(system, [0.1, 0.2, 0.3, 0.9, 0.1, -0.3, 0.2], [0.1, 0.0, 0.3, *omega])
    found = jm.linearise(system, state)
    assert found.names[3] == "along wx" and found.names[9] == "wx"
    expected = np.zeros((12, 12))
    expected[:6, 6:] = np.eye(6)
    expected[3:6, 3:6] = -cross(omega)
    expected[9:, 9:] = (cross(inertia * omega) - cross(omega) @ np.diag(inertia)) / inertia[:, None]
    agree(found.A, expected, 1e-13)
    # x of a neighbour by N⁺ (q − q₀)
    x = found.deviation(0.0, system.normalise(state.q + 1e-7 * found.tangent.q @ jnp.arange(12.0)), state.v, None)
    agree(x[:6] / 1e-7, np.arange(6.0), 1e-6)


@pytest.mark.slow
def test_sleigh_straight_on():
    system, _ = sleigh(3)
    speed, m, a, inertia = -1.2, 2.0, 0.25, 0.5
    state = jm.assemble(system, [0.0, 0.0, 0.0], [speed, 0.0, 0.0])
    found = jm.linearise(system, state, independent=[["x", "y", "theta"], ["x", "theta"]])
    expected = np.zeros((5, 5))
    expected[0, 3] = expected[2, 4] = 1
    expected[1, 2] = speed  # y' = u θ
    expected[4, 4] = -m * a * speed / (inertia + m * a**2)
    agree(found.A, expected, 1e-13)
    assert jm.linearise(system, state).names == jm.linearise(system, state, independent=["x", "theta"]).names


@functools.cache
def rolling_disk():
    """A disk: contact point, heading, lean and spin."""
    m, r, g = 1.3, 0.5, GRAVITY

    def mass(t, q, p):
        def speeds(v):
            e1 = jnp.stack([jnp.cos(q[2]), jnp.sin(q[2]), jnp.zeros(())])
            z = np.array([0.0, 0.0, 1.0])
            e2 = jnp.sin(q[3]) * z + jnp.cos(q[3]) * jnp.cross(z, e1)
            e3 = jnp.cross(e1, e2)
            turn = v[3] * e1 + v[2] * z
            centre = jnp.concatenate([v[:2], jnp.zeros(1)]) + r * jnp.cross(turn, e2)
            omega = jnp.stack([e1, e2, e3]) @ (turn + v[4] * e3)
            return jnp.concatenate([jnp.sqrt(m) * centre, jnp.sqrt(m * r**2 * np.array([0.25, 0.25, 0.5])) * omega])

        jac = jax.jacfwd(speeds)(jnp.zeros(5))
        return jac.T @ jac

    slip = lambda t, q, v, p: v[:2] + r * v[4] * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])
    return jm.System(
        ("x", "y", "heading", "lean", "spin"), mass=mass, constraints=[jm.Pfaffian("contact", slip)],
        potential=lambda t, q, p: m * g * r * jnp.sin(q[3]),
    )  # fmt: skip


@pytest.mark.slow
def test_stability_of_the_rolling_disk():
    """λ² = (m g r − C (C + m r²) Ω²/A)/(A + m r²): stable above Ω² = g/(3 r) (Neimark and Fufaev 1972)."""
    system, r = rolling_disk(), 0.5
    for factor in (0.5, 2.0):
        spin = np.sqrt(factor * GRAVITY / (3 * r))
        upright = [0, 0, 0, np.pi / 2, 0], [-r * spin, 0, 0, 0, spin]
        found = jm.linearise(system, jm.assemble(system, *upright))
        assert len(found.names) == 5 + 3
        square = (GRAVITY * r - 0.5 * 1.5 / 0.25 * r**2 * spin**2) / (1.25 * r**2)
        expected = np.sqrt(square + 0j)
        values = found.eigenvalues
        for sign in (1, -1):
            assert np.min(np.abs(values - sign * expected)) <= 1e-11
        assert (np.max(values.real) > 0.1) == (factor < 1)


def collocation(count, span):
    """Chebyshev's points on [0, span], and the matrix that differentiates polynomials through values there."""
    i = np.arange(count)
    x = np.cos(np.pi * i / (count - 1))
    c = np.where((i == 0) | (i == count - 1), 2.0, 1.0) * (-1.0) ** i
    matrix = np.outer(c, 1 / c) / (x[:, None] - x + np.eye(count))
    matrix = matrix - np.diag(matrix.sum(axis=1))
    return span * (1 - x) / 2, -matrix * 2 / span


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["driven cart", *(pytest.param(name, marks=pytest.mark.slow) for name in ("four-bar", "top"))]
)
def test_variations_of_a_motion(name):
    """Φ' = A Φ along a motion, Φ the derivative of the flow in consistent deviations."""
    system, start = make(name)
    first = jm.linearise(system, start)
    readings, n = first.deviation.readings, len(first.names)
    names = [[r.name for r in part] for part in (readings.positions, readings.velocities)]
    ts, matrix = collocation(13, 0.06)
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-11, atol=1e-11), step_ts=float(start.t) + ts)

    def run(x):
        moved = State(start.t, start.q + first.tangent.q @ x, start.v + first.tangent.v @ x, start.scale)
        options = dict(stepsize_controller=controller, adjoint=dfx.ForwardMode(), max_steps=64, throw=False)
        return jm.simulate(system, moved, float(start.t) + ts, **options).states

    # One direction is enough, and all of it is compiled once.
    way = jnp.linspace(1.0, 0.3, n)
    states, moved = jax.jit(lambda: jax.jvp(run, (jnp.zeros(n),), (way,)))()
    found = jax.jit(jax.vmap(lambda s: jm.linearise(system, s, independent=names, throw=False)))(states)
    inverse = lambda d, s, m: jax.jvp(lambda q, v: d(s.t, q, v, system.params), (s.q, s.v), (m.q, m.v))[1]
    flow = jax.jit(jax.vmap(inverse))(found.deviation, states, moved)
    rates = np.einsum("ijk,ik->ij", found.A, flow)
    agree(matrix @ np.asarray(flow), rates, 1e-9)


@functools.cache
def cartpole(copies=2):
    """A cart and a point mass on a rod, in Cartesian coordinates, with a redundant rod."""

    def rod(t, q, p):
        away = q[1:] - jnp.stack([q[0], jnp.zeros(())])
        return (away @ away - p["l"] ** 2) * jnp.array([1.0, -50.0])[:copies]

    return jm.System(
        ("cart", "x", "y"), mass=lambda t, q, p: jnp.diag(jnp.stack([p["M"], p["m"], p["m"]])),
        potential=lambda t, q, p: p["m"] * GRAVITY * q[2], constraints=[jm.Holonomic("rod", rod)],
        actuation=lambda t, q, p: jnp.array([[1.0], [0.0], [0.0]]), params={"M": 2.0, "m": 0.4, "l": 0.8},
    )  # fmt: skip


def upright():
    system = cartpole()
    return system, jm.assemble(system, [0.0, 0.0, 0.8])


def test_inverted_pendulum_and_its_input():
    system, state = upright()
    found = jm.linearise(system, state, independent=["cart", "x"])
    m, big, length = 0.4, 2.0, 0.8
    # l θ'' = g θ − s'',  (M + m) s'' + m l θ'' = u;  x = s + l θ
    angle = np.array([-m * GRAVITY / big, (big + m) * GRAVITY / (big * length)])  # of s'' and θ'' by θ
    by_angle = np.array([angle[0], angle[0] + length * angle[1]])  # of s'' and x''
    expected = np.zeros((4, 4))
    expected[:2, 2:] = np.eye(2)
    expected[2:, 0], expected[2:, 1] = -by_angle / length, by_angle / length
    agree(found.A, expected, 1e-12)
    agree(found.B[:, 0], [0, 0, 1 / big, 0], 1e-12)
    assert found.controllable and found.inputs == ("u0",)
    # against differences, with an input
    vdot = lambda u: (
        jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state, u=jnp.array([u]))).vdot[:2]
    )
    agree(found.B[2:, 0], (vdot(1.0) - vdot(-1.0)) / 2, 1e-12)


@pytest.mark.slow  # one coordinate of the same four-bar is compared with its reduced equation
def test_choice_of_coordinates():
    rest = jm.equilibrium(fourbar()[0], [0.3, 1.1, 1.7]).state
    values = [jm.linearise(fourbar()[0], rest, independent=[name]).eigenvalues for name in ("a1", "a2", "a3")]
    agree(values[0], values[1], 1e-11)
    agree(values[0], values[2], 1e-11)


@pytest.mark.slow
def test_outputs_batches_and_derivatives():
    system, _ = pendulum(4)
    poses = jnp.array([[0.0, -1.0], [0.6, -0.8]])
    speed = lambda t, q, v, p: jnp.stack([q[1], v[0]])
    both = lambda q: jm.linearise(system, jm.as_state(system, q), independent=["x"], outputs=speed)
    found = jax.jit(jax.vmap(both))(poses)
    assert found.eigenvalues.shape == (2, 2)
    agree(found.A[1], both(poses[1]).A, 1e-13)
    agree(found.C[1], [[0.75, 0], [0, 1]], 1e-12)

    def stiffness(length):
        changed = system.with_params({"m": 1.0, "l": length})
        return jm.linearise(changed, jm.as_state(changed, jnp.stack([0.0, -length])), independent=["x"]).A[1, 0]

    agree(jax.jit(jax.grad(stiffness))(1.3), GRAVITY / 1.3**2, 1e-12)


def test_modes_say_what_inputs_reach():
    found = jm.linearise(two(), jm.assemble(two()))
    first, second = found.modes()
    assert first.controllable and not second.controllable and not found.controllable
    assert second.main == ("b",) and "do not" in str(found)
    agree([first.damping, second.damping], [0.1, 0.2 / 3], 1e-13)
    agree(second.frequency, np.sqrt(9 - 0.04) / (2 * np.pi), 1e-13)
    # decaying modes need no input, others do
    assert jm.control.lqr(found, np.eye(4), 1.0).eigenvalues.real.max() < 0


@functools.cache
def two():
    """Two masses on springs of their own, of which a force pushes the first."""
    return jm.System(
        ("a", "b"), mass=lambda t, q, p: jnp.eye(2), force=lambda t, q, v, p: -jnp.array([4.0, 9.0]) * q - 0.4 * v,
        actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]),
    )  # fmt: skip


@functools.cache
def of_two():
    outputs = lambda t, q, v, p: jnp.stack([jnp.sin(q[0]) + 3 * v[1]])
    return jm.linearise(two(), jm.assemble(two(), [0.5, 0.0]), u=[2.0], outputs=outputs)


def test_outputs_are_differentiated_by_states():
    agree(of_two().C, [[np.cos(0.5), 0, 0, 3]], 1e-15)
    agree(of_two().residual, np.zeros(4), 1e-15)


def test_a_mode_is_one_line_of_text():
    first, second = (str(mode) for mode in of_two().modes())
    assert first == f"-0.2 ± {np.sqrt(3.96):.4g}i 1/s of a" and second.endswith(" 1/s of b")


def test_growth_that_is_rounding_prints_as_none():
    mode = of_two().modes()[0]
    for growth, text in ((-3e-17, "+0 ± 2i"), (1e-13, "+1e-13 ± 2i")):
        assert str(dataclasses.replace(mode, eigenvalue=growth + 2j)) == f"{text} 1/s of a"
    assert str(dataclasses.replace(mode, eigenvalue=-3e-17 + 0j)) == "-3e-17 1/s of a"


def test_modes_are_those_of_one_state_with_known_numbers():
    several = jax.tree.map(lambda x: jnp.stack([x, x]), of_two())
    agree(several.eigenvalues[1], of_two().eigenvalues, 1e-15)
    with pytest.raises(ValueError, match=r"must be those of one state, but there are leading axes \(2,\)"):
        several.modes()
    with pytest.raises(ValueError, match=r"must be that of one state, but has leading axes \(2,\)"):
        jm.control.lqr(several, np.eye(4), 1.0)
    with pytest.raises(ValueError, match="to differentiate, use A itself"):
        jax.jit(lambda found: found.eigenvalues)(of_two())


def test_what_cannot_move_has_no_states():
    fixed = jm.System(("x",), mass=lambda t, q, p: jnp.eye(1), constraints=[jm.Holonomic("pin", lambda t, q, p: q)])
    found = jm.linearise(fixed, jm.as_state(fixed, jnp.zeros(1)))
    assert found.names == () and found.modes() == () and found.controllable and found.eigenvalues.shape == (0,)
    agree(found.deviation(0.0, jnp.ones(1), jnp.ones(1), None), [], 0)


def test_a_joint_names_states_and_inputs_that_act_there():
    """Of a bar in absolute coordinates, none of which is the joint's, that swings about its end."""
    body = jm.planar.Body("bar", 2.0, 0.3, position=(0.5, 0.0), points={"end": (-0.5, 0.0)})
    hinge = jm.planar.Revolute("hinge", "ground", "bar.end")
    system = jm.planar.Mechanism([body], [hinge]).build(coordinates="absolute").acting_at(("hinge",))
    assert input_names(system) == ("hinge",)
    own = named_readings(["hinge"], system)
    both = StateReadings(own, own)
    assert both.names(system) == ("hinge", "hinge'") and both.same_names
    pose = lambda a, speed: (
        jnp.array([0.5 * np.cos(a), 0.5 * np.sin(a), a]),
        speed * jnp.array([-0.5 * np.sin(a), 0.5 * np.cos(a), 1.0]),
    )
    apart = lambda there, here: deviation(both, system, jnp.array(0.0), *here)(0.0, *there, system.params)
    agree(jax.jit(apart)(pose(0.7, 1.5), pose(0.4, 2.0)), [0.3, -0.5], 1e-13)


def test_positions_and_velocities_may_be_named_apart():
    found = jm.linearise(two(), of_two().state, u=of_two().u, independent=[["b", "a"], ["a", "b"]])
    assert found.names == ("b", "a", "a'", "b'")
    order = [1, 0, 2, 3]
    agree(found.A, np.asarray(of_two().A)[np.ix_(order, order)], 1e-15)
    with pytest.raises(ValueError, match="of positions and of velocities, but holds 3 sequences"):
        jm.linearise(two(), of_two().state, independent=[["a"], ["b"], ["a"]])


def test_positions_beside_named_velocities_are_chosen():
    """A blade leaves two velocities and three positions free: y' = v θ."""
    system, _ = sleigh()
    state = jm.assemble(system, [0.0, 0.0, 0.0], [-1.2, 0.0, 0.0])
    found = jm.linearise(system, state, independent=["theta", "x"])
    assert found.names == ("theta", "x", "y", "theta'", "x'")
    expected = np.zeros((5, 5))
    expected[0, 3] = expected[1, 4] = 1
    expected[2, 0], expected[3, 3] = -1.2, 2.0 * 0.25 * 1.2 / (0.5 + 2.0 * 0.25**2)
    agree(found.A, expected, 1e-13)
    with pytest.raises(ValueError, match=r"must hold two sequences .* where values are traced, but is None"):
        jax.jit(lambda s: jm.linearise(system, s).A)(state)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"independent": ["c"]}, ValueError, "must hold names of velocities out of 'a' and 'b', but holds 'c'"),
        ({"independent": ["a", "a"]}, ValueError, "`independent` must hold different names, but repeats 'a'"),
        ({"u": [1.0, 2.0]}, ValueError, r"`u` must have shape \(1,\), but has shape \(2,\)"),
        ({"outputs": lambda t, q, v, p: q[0]}, ValueError, r"`outputs` must return an array of shape \(ny,\)"),
    ],
)
def test_arguments_that_linearise_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        jm.linearise(two(), of_two().state, **arguments)


def test_names_in_no_order_are_refused():
    with pytest.raises(TypeError, match=r"`independent` must be a sequence of names, but is \{'a'\}"):
        named_readings({"a"}, two())


# Equilibrium


@functools.cache
def catenary():
    """Two masses on three rods of length l between supports at the same height."""

    def rods(t, q, p):
        points = jnp.concatenate([jnp.zeros(2), q, jnp.stack([p["s"], jnp.zeros(())])]).reshape(-1, 2)
        gaps = jnp.diff(points, axis=0)
        squares = jnp.sum(gaps**2, axis=1) - p["l"] ** 2
        return jnp.concatenate([squares, 3 * squares[:1]])

    return jm.System(
        ("x1", "y1", "x2", "y2"), mass=lambda t, q, p: p["m"] * jnp.eye(4),
        potential=lambda t, q, p: p["m"] * GRAVITY * (q[1] + q[3]), constraints=[jm.Holonomic("rods", rods)],
        params={"l": 1.0, "s": 2.2, "m": 1.5},
    )  # fmt: skip


@pytest.mark.slow
def test_hanging_chain():
    system, guess = catenary(), [0.5, -0.9, 1.5, -0.6]
    sine = np.sqrt(1 - 0.6**2)  # 2 l cos β + l = s
    found = jm.equilibrium(system, guess)
    agree(found.state.q, [0.6, -sine, 1.6, -sine], 1e-12)
    agree(found.residual, np.zeros(4), 1e-11)
    # tension of the outer rods m g/sin β, of the middle one m g/tan β; λ = −T/2l; shared by the copy 1 : 3
    tension = 1.5 * GRAVITY / sine
    outer, middle = -tension / 2, -tension * 0.6 / 2
    agree(found.multipliers["rods"], [outer / 10, middle, outer, 3 * outer / 10], 1e-11)
    agree(found.reaction, [0, 1.5 * GRAVITY, 0, 1.5 * GRAVITY], 1e-11)

    @jax.jit
    @jax.grad
    def lowest(p):
        return jm.equilibrium(system.with_params(p), guess).state.q[1]

    # y = −l sin β, cos β = (s − l)/2l
    slope = lowest(system.params)
    agree(slope["s"], 0.6 / (2 * sine), 1e-11)
    agree(slope["l"], -sine - 2.2 / 2 * 0.6 / sine, 1e-11)
    agree(slope["m"], 0.0, 1e-11)
    assert "rods" in str(found)


@pytest.mark.slow
def test_fourbar_with_a_spring():
    def potential(t, q, p):
        return fourbar_model.potential(t, q, p) + 0.5 * p["k"] * (q[0] - 1.0) ** 2

    params = {"l": fourbar_model.LENGTHS, "m": fourbar_model.MASSES, "k": 60.0}
    loop = jm.Holonomic("loop", fourbar_model.loop)
    again = jm.Holonomic("again", lambda t, q, p: -20 * fourbar_model.loop(t, q, p))
    system = jm.System(
        3, mass=fourbar_model.mass, potential=potential, constraints=[loop, again], params=params
    )  # fmt: skip
    p = system.params

    def energy(x):
        a, k = x
        return potential(0.0, jnp.concatenate([x[:1], fourbar_model.by_crank(0.0, [a], p)]), {**p, "k": k})

    @jax.jit
    @jax.value_and_grad
    def angle(k):
        return jm.equilibrium(system.with_params({**p, "k": k}), [0.9, 0.9, 1.6]).state.q[0]

    (a, slope), k = angle(60.0), 60.0
    first, second = jax.jit(lambda x: (jax.grad(energy)(x), jax.hessian(energy)(x)))(jnp.array([a, k]))
    agree(first[0], 0.0, 1e-10)
    agree(slope, -second[0, 1] / second[0, 0], 1e-10)
    agree(slope, (angle(k + 1e-3)[0] - angle(k - 1e-3)[0]) / 2e-3, 1e-8)


@functools.cache
def pushed(copies=4):
    """A pendulum that two inputs push: sideways, and up."""
    system, _ = pendulum(copies)
    return jm.System(
        ("x", "y"), mass=lambda t, q, p: p["m"] * jnp.eye(2), potential=lambda t, q, p: p["m"] * GRAVITY * q[1],
        constraints=system.constraints, params={"m": 1.0, "l": 1.0}, actuation=lambda t, q, p: jnp.diag(jnp.array([1.0, 2.0])),
    )  # fmt: skip


@pytest.mark.slow
def test_inputs_of_least_norm():
    system = pushed()
    c, s = 0.8, 0.6  # at (s, −c): tangent (c, s), c u0 + 2 s u1 = m g s

    @jax.jit
    def push(m, weights):
        def inputs(m):
            changed = system.with_params({"m": m, "l": 1.0})
            found = jm.equilibrium(
                changed, [s, -c], solve_inputs=dict(zip(("u0", "u1"), weights, strict=True)), hold=["x"]
            )
            return found.u, found.state.q

        return jax.jvp(inputs, (m,), (1.0,))

    for weights in ([1.0, 1.0], [1.0, 3.0]):
        row, squares = np.array([c, 2 * s]), np.array(weights) ** 2
        expected = squares * row / (squares @ row**2) * GRAVITY * s
        (u, q), (slope, moved) = push(1.0, weights)
        agree(u, expected, 1e-12)
        agree(q, [s, -c], 1e-14)
        agree(slope, expected, 1e-12)
        agree(moved, [0, 0], 1e-13)
    # one given, one solved for; without hold nothing moves that an input can hold
    found = jm.equilibrium(system, [s, -c], u=[0.5, 7.0], solve_inputs=["u1"])
    agree(found.u, [0.5, (GRAVITY * s - 0.5 * c) / (2 * s)], 1e-12)
    agree(found.state.q, [s, -c], 1e-14)


def test_an_equilibrium_is_the_one_beside_the_start():
    """A bead on a hoop that turns with ω has three: below, above, and where ω² R cos a = g, to which the others must not be preferred."""
    gravity, radius, speed = 9.81, 0.4, 7.0
    potential = lambda t, q, p: -gravity * radius * jnp.cos(q[0]) - 0.5 * (radius * speed * jnp.sin(q[0])) ** 2
    bead = jm.System(("a",), mass=lambda t, q, p: radius**2 * jnp.eye(1), potential=potential)
    found = [float(jm.equilibrium(bead, [a]).state.q[0]) for a in (-1.2, -1e-3, 0.1, 0.9, 1.04, 1.3, 3.0)]
    side = np.arccos(gravity / (radius * speed**2))
    np.testing.assert_allclose(found, [-side, 0.0, 0.0, side, side, side, np.pi], atol=1e-9)


@pytest.mark.slow
def test_equilibria_of_a_batch():
    system, _ = pendulum(4)
    guess = jnp.array(
        [[-0.8, -0.5], [0.3, -0.9], [0.1, 0.99], [1.0, 0.0]]
    )  # at the last forces do not change to first order
    found = jax.jit(jax.vmap(lambda q: jm.equilibrium(system, q)))(guess)
    agree(found.state.q, [[0, -1], [0, -1], [0, 1], [0, -1]], 1e-13)


@pytest.mark.slow
def test_equilibrium_of_a_top():
    system, state = make("top, 2 pivots")
    found = jm.equilibrium(system, state)
    r = np.asarray(system.params["r"])
    agree(jnp.abs(found.state.q[2]), np.linalg.norm(r), 1e-12)
    agree(found.state.q[:2], [0, 0], 1e-12)


@functools.cache
def springs():
    """Two masses in a row on springs of stiffness k and 2k, a load on the last that grows with time."""

    def force(t, q, v, p):
        inner, outer = p * q[0], 2 * p * (q[1] - q[0])
        return jnp.stack([outer - inner, 3 * t - outer])

    return jm.System(
        ("a", "b"), mass=lambda t, q, p: jnp.eye(2), force=force, actuation=lambda t, q, p: jnp.eye(2), params=10.0
    )


def test_springs_at_rest_by_hand():
    """At the time of the start, of inputs that are given; by the stiffness q ∝ 1/k."""
    start = jm.assemble(springs(), [5.0, -3.0], t=0.5)

    def rest(k, u=(0.0, 2.0)):
        return jm.equilibrium(springs().with_params(k), start, u=u).state.q

    exact = np.array([3.5 / 10, 3.5 / 10 + 3.5 / 20])
    q, slope = jax.jvp(rest, (10.0,), (1.0,))
    agree(q, exact, 1e-14)
    agree(slope, -exact / 10, 1e-14)


@pytest.mark.parametrize("hold", ["a", 0])
def test_an_input_holds_a_coordinate_that_is_held(hold):
    """With the first mass held, which of the two inputs is solved for is given by its weight."""
    found = jm.equilibrium(springs(), {"a": 0.4}, t=2.0, solve_inputs={"u0": 3.0}, hold=[hold])
    agree(found.state.q, [0.4, 0.4 + 6.0 / 20], 1e-14)
    agree(found.u, [10 * 0.4 - 6.0, 0.0], 1e-13)
    assert str(found).splitlines()[0].startswith("Equilibrium at t = 2 s, accelerations up to ")
    assert [line.split()[0] for line in str(found).splitlines()[1:]] == ["q", "u"]
    both = jm.equilibrium(springs(), {"a": 0.4, "b": 0.1}, solve_inputs=True, hold=["a", "b"])
    agree(both.u, [10 * 0.4 + 20 * 0.3, -20 * 0.3], 1e-13)


def test_a_blade_holds_a_load_at_rest():
    """Along the blade and in its heading springs hold; across it nothing moves, and the blade carries the load."""
    system = jm.System(
        ("x", "y", "theta"), mass=lambda t, q, p: jnp.eye(3),
        potential=lambda t, q, p: 5.0 * (q[0] - 1) ** 2 + 7.0 * q[1] + 2.0 * q[2] ** 2,
        constraints=[jm.Pfaffian("blade", lambda t, q, v, p: v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2]))],
    )  # fmt: skip
    found = jm.equilibrium(system, [0.3, 0.2, 0.0])
    agree(found.state.q, [1.0, 0.2, 0.0], 1e-13)
    agree(found.multipliers["blade"], [-7.0], 1e-13)
    agree(found.reaction, [0.0, 7.0, 0.0], 1e-13)


@pytest.mark.parametrize(
    ("start", "arguments", "error", "message"),
    [
        ([1.0], {}, ValueError, r"`start` must have shape \(2,\), but has shape \(1,\)"),
        (None, {"u": [1.0]}, ValueError, r"`u` must have shape \(2,\), but has shape \(1,\)"),
        (None, {"solve_inputs": "u0"}, TypeError, "must hold names of inputs, or be True, but is 'u0'"),
        (None, {"solve_inputs": ["u0", "up"]}, ValueError, "names of inputs out of 'u0' and 'u1', but holds 'up'"),
    ],
)
def test_arguments_that_equilibrium_refuses(start, arguments, error, message):
    with pytest.raises(error, match=message):
        jm.equilibrium(springs(), start, **arguments)


def test_what_is_held_must_be_a_coordinate():
    start = jm.assemble(springs())
    for name in ("c", 2):
        with pytest.raises(ValueError, match=f"indices or names out of 'a' and 'b', but holds '{name}'"):
            jm.equilibrium(springs(), start, hold=[name])


def test_a_pose_that_inputs_hold_stays_where_it_is():
    """Forces and stiffness are rounding there, and say nothing of where the pose goes."""
    coupled = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: jnp.array([[2.0, 0.3], [0.3, 1.0]]) + 0.1 * jnp.sin(q[1]) * jnp.eye(2),
        potential=lambda t, q, p: 9.81 * q[1] + 3 * q[0] ** 2 + jnp.cos(q[1]),
        actuation=lambda t, q, p: jnp.array([[1.0, jnp.sin(q[1])], [0.2, jnp.cos(q[0])]]),
    )
    start = jnp.array([0.6, -0.7])
    agree(jm.equilibrium(coupled, start, solve_inputs=True).state.q, start, 0.0)


@pytest.mark.slow
def test_a_pose_that_inputs_hold_has_no_derivative_by_the_load():
    coupled = jm.System(
        ("x", "y", "z"),
        mass=lambda t, q, p: jnp.diag(jnp.array([2.0, 1.0, 3.0])) + 0.3 * jnp.sin(q[1]) * (1 - jnp.eye(3)),
        potential=lambda t, q, p: p * (9.81 * q[1] + 3 * q[0] ** 2 + jnp.cos(q[2])),
        constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1.0)],
        actuation=lambda t, q, p: jnp.stack([jnp.array([1.0, 0.0, 0.2]), jnp.stack([0.0, 1.0, q[0]])], 1),
        params=1.0,
    )
    start = jnp.array([0.6, -0.7, np.sqrt(0.15)])
    pose = lambda load: jm.equilibrium(coupled.with_params(load), start, solve_inputs=True).state.q
    agree(jax.jacfwd(pose)(1.0), jnp.zeros(3), 1e-12)


# Regulators


def test_a_deviation_about_half_a_turn_is_the_shorter_way_round():
    """Of a hinge outside the tree, whose angle lies between −π and π."""
    rod = jm.planar.Body.rod("rod", 1.0, 1.0)
    pendulum = jm.planar.Mechanism([rod], [jm.planar.Revolute("hinge", "ground", "rod.a")], gravity=(9.81, 0.0))
    system = pendulum.build("absolute")
    pose = lambda angle: jnp.array([0.0, 0.0, angle])
    readings = named_readings(["hinge"], system)
    away = deviation(StateReadings(readings, readings), system, jnp.zeros(()), pose(np.pi), jnp.zeros(3))
    found = jax.jit(jax.vmap(lambda q: away(0.0, q, jnp.zeros(3), system.params)))
    agree(found(jnp.stack([pose(np.pi - 0.1), pose(np.pi + 0.1)])), [[-0.1, 0.0], [0.1, 0.0]], 1e-12)


def test_double_integrator():
    cart = jm.System(("s",), mass=lambda t, q, p: jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
    found = jm.linearise(cart, jm.assemble(cart))
    regulator = jm.control.lqr(found, np.eye(2), 1.0)
    agree(regulator.gain, [[1, np.sqrt(3)]], 1e-12)
    agree(regulator.cost, [[np.sqrt(3), 1], [1, np.sqrt(3)]], 1e-12)
    agree(np.sort_complex(regulator.eigenvalues), (-np.sqrt(3) + np.array([-1j, 1j])) / 2, 1e-12)
    h = 0.3
    sampled = jm.control.lqr(found, {"s": 1.0}, {"u0": 0.5}, period=h)
    agree(sampled.A, [[1, h], [0, 1]], 1e-15)
    agree(sampled.B, [[h**2 / 2], [h]], 1e-15)
    a, b, p, k = (np.asarray(x) for x in (sampled.A, sampled.B, sampled.cost, sampled.gain))
    agree(a.T @ p @ a - p - a.T @ p @ b @ k + np.diag([1.0, 0.0]), np.zeros((2, 2)), 1e-11)
    agree(k, np.linalg.solve(0.5 + b.T @ p @ b, b.T @ p @ a), 1e-11)
    assert np.abs(sampled.eigenvalues).max() < 1 and "per step" in str(sampled)


def test_a_regulator_about_no_equilibrium_is_told():
    """A cart under a constant force f: K = (1, √3) comes to rest at f; the input −f holds it where it is, at any speed."""
    cart = jm.System(
        ("s",),
        mass=lambda t, q, p: jnp.eye(1),
        force=lambda t, q, v, p: jnp.array([0.5]),
        actuation=lambda t, q, p: jnp.eye(1),
    )
    with pytest.warns(UserWarning, match=r"\"s'\" changes by 0.5 a second: .* where 's' is off by 0.5\."):
        jm.control.lqr(jm.linearise(cart, jm.assemble(cart)), np.eye(2), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jm.control.lqr(jm.linearise(cart, jm.assemble(cart, [0.0], [3.0]), u=[-0.5]), np.eye(2), 1.0)


def test_a_regulator_feeds_back_the_deviation():
    """u = u₀ − K x, of a product weight N too: K = R⁻¹ (BᵀP + Nᵀ)."""
    cross = np.array([[0.1], [0.0], [0.2], [0.0]])
    regulator = jm.control.lqr(of_two(), np.eye(4), 0.5, N=cross)
    agree(0.5 * regulator.gain, np.asarray(of_two().B).T @ np.asarray(regulator.cost) + cross.T, 1e-12)
    x = np.array([0.1, -0.2, 0.3, 0.4])
    u = regulator.law(0.0, jnp.array([0.5, 0.0]) + x[:2], jnp.asarray(x[2:]), None)
    agree(u, 2.0 - np.asarray(regulator.gain) @ x, 1e-14)
    with pytest.raises(ValueError, match=r"`N` must have shape \(4, 1\), but has shape \(1, 4\)"):
        jm.control.lqr(of_two(), np.eye(4), 0.5, N=cross.T)
    for matrix in (np.eye(4) + np.eye(4, k=1), np.diag([1.0, np.inf, 1.0, 1.0])):
        with pytest.raises(ValueError, match=r"`Q` must be .*finite numbers"):
            jm.control.lqr(of_two(), matrix, 0.5)


@pytest.mark.slow
def test_regulator_of_an_inverted_pendulum():
    system, state = upright()
    found = jm.linearise(system, state, independent=["cart", "x"])
    cross = 0.1 * np.ones((4, 1))
    regulator = jm.control.lqr(found, [10.0, 1.0, 1.0, 1.0], 0.1, N=cross)
    a, b, p, k = (np.asarray(x) for x in (found.A, found.B, regulator.cost, regulator.gain))
    agree(a.T @ p + p @ a - k.T @ (0.1 * k) + np.diag([10.0, 1, 1, 1]), np.zeros((4, 4)), 1e-9)
    agree(0.1 * k, b.T @ p + cross.T, 1e-9)
    loop, vectors = np.linalg.eig(a - b @ k)
    assert loop.real.max() < 0
    # a motion along the slowest real mode decays as predicted
    i = max((i for i in range(4) if loop[i].imag == 0), key=lambda i: loop[i].real)
    x = 1e-5 * vectors[:, i].real
    start = jm.assemble(
        system, state.q + found.tangent.q @ x, found.tangent.v @ x, hold=["cart", "x"], hold_velocity=["cart", "x"]
    )
    law = regulator.law
    motion = jm.simulate(system, start, [0.0, 0.5], control=law)
    end = law.deviation(0.5, motion.q[-1], motion.v[-1], system.params)
    agree(end / np.abs(x).max(), x * np.exp(loop[i].real * 0.5) / np.abs(x).max(), 1e-4)
    assert "−u0" in str(regulator)


# Refusals


@pytest.mark.slow
def test_what_linearise_refuses():
    system, state = make("pendulum")
    cases = [
        (dict(independent=["z"]), r"`independent` must hold names of velocities out of 'x' and 'y', but holds 'z'"),
        (dict(independent="x"), r"`independent` must be a sequence, .*, but is 'x'"),
        (dict(independent=["x", "x"]), r"must hold different names"),
        (dict(independent=["x", "y"]), r"must name independent positions, but 'y' follows from those before it"),
        (dict(independent=[[], []]), r"as many positions as are free, but names none"),
        (dict(u=[1.0]), r"`u` must have shape \(0,\), but has shape \(1,\)"),
    ]
    for arguments, message in cases:
        with pytest.raises((ValueError, TypeError), match=message):
            jm.linearise(system, state, **arguments)
    with pytest.raises(ValueError, match="Constraint 'rod' is violated by the state"):
        jm.linearise(system, jm.as_state(system, [0.5, 0.6]))
    with pytest.raises(ValueError, match="`independent` must hold names where values are traced, but is None"):
        jax.jit(lambda s: jm.linearise(system, s).A)(state)
    with pytest.raises(ValueError, match="to differentiate, use A itself"):
        jax.jit(lambda s: jm.linearise(system, s, independent=["x"]).eigenvalues)(state)


def test_no_linearisation_at_a_singular_pose():
    crossing = jm.System(
        ("x", "y"), mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("cross", lambda t, q, p: q[0] * q[1])]
    )
    state = jm.assemble(crossing, [0.0, 0.0], [1.0, 0.0], length=1.0)
    with pytest.raises(ValueError, match="Constraint 'cross' must have the same rank nearby"):
        jm.linearise(crossing, state)
    found = jm.linearise(crossing, state, throw=False)
    assert found.result == jm.RESULTS.undetermined_motion


@pytest.mark.slow
def test_what_equilibrium_refuses():
    system = pushed()
    cases = [
        (
            dict(solve_inputs=["motor"]),
            r"`solve_inputs` must hold names of inputs out of 'u0' and 'u1', but holds 'motor'",
        ),
        (dict(solve_inputs="u0"), r"`solve_inputs` must hold names of inputs, or be True, but is 'u0'"),
        (dict(u=[1.0]), r"`u` must have shape \(2,\)"),
        (
            dict(hold=["x"]),
            r"must be near an equilibrium, but none was found: along '[xy]' forces are out of balance by",
        ),
    ]
    for arguments, message in cases:
        with pytest.raises((ValueError, TypeError), match=message):
            jm.equilibrium(system, [0.6, -0.8], **arguments)
    found = jm.equilibrium(system, [0.6, -0.8], hold=["x"], throw=False)
    assert found.result == jm.RESULTS.no_equilibrium
    line, (q, _) = moving_line()
    with pytest.raises(ValueError, match="Constraint 'line' cannot hold at rest"):
        jm.equilibrium(line, q)
    with pytest.raises(ValueError, match="`hold` must hold indices or names out of"):
        jm.equilibrium(line, q, hold=["z"])


def test_what_lqr_refuses():
    system, state = upright()
    found = jm.linearise(system, state, independent=["cart", "x"])
    cases = [
        (
            (np.eye(3), 1.0),
            {},
            r"`Q` must have shape \(4, 4\) or \(4,\), or hold weights by name, but has shape \(3, 3\)",
        ),
        (
            ({"z": 1.0}, 1.0),
            {},
            r"`Q` must hold weights by name out of 'cart', 'x', \"cart'\" and \"x'\", but holds 'z'",
        ),
        ((np.eye(4), {}), {}, r"`R` must hold weights by name out of 'u0', but lacks 'u0'"),
        ((np.eye(4), np.eye(3)), {}, r"`R` must be a number, have shape \(1, 1\) or \(1,\), or hold weights by name"),
        ((np.eye(4), -1.0), {}, r"`R` must be positive definite, but its smallest eigenvalue is -1"),
        ((-np.eye(4), 1.0), {}, r"`Q` must be positive semidefinite"),
        ((np.eye(4), 1.0), {"period": -1.0}, r"`period` must be a positive number or None, but is -1.0"),
        (
            ({"x": 0.0}, 1.0),
            {},
            r"`Q` must weight all modes that neither grow nor decay, but these cost nothing: .*'cart'",
        ),
    ]
    for arguments, more, message in cases:
        with pytest.raises(ValueError, match=message):
            jm.control.lqr(found, *arguments, **more)
    loose = jm.System(
        ("held", "loose"), mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 2 * q[0] ** 2 - 3 * q[1] ** 2,
        actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]),
    )  # fmt: skip
    message = r"must be stabilisable, but no input reaches modes that do not decay: 2\.449 of 'loose'\."
    for period in (None, 0.1):
        with pytest.raises(ValueError, match=message if period is None else "1.278 of 'loose'"):
            jm.control.lqr(jm.linearise(loose, jm.assemble(loose)), np.eye(4), 1.0, period=period)
    with pytest.raises(ValueError, match="must be that of a system with inputs, but it has none"):
        jm.control.lqr(jm.linearise(chain(), jm.assemble(chain())), np.eye(10), 1.0)
    with pytest.raises(ValueError, match="must be known numbers, but are traced"):
        jax.jit(lambda q: jm.control.lqr(found, q, 1.0).gain)(jnp.eye(4))
