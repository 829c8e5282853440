"""Controllers by the projectors along runs, against the error laws that they promise."""

import functools
import warnings

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_control import START, fivebar

import jaxmb as jm

C, P = jm.control, jm.planar
FINE = {"solver": dfx.Dopri8(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01, "max_steps": 256}
MOTORS = ["base1", "base2"]


@functools.cache
def circle():
    """The five-bar, its tip and a circle that begins there with another velocity."""
    _, system = fivebar()
    state = jm.assemble(system, START)
    begin = jm.position(system, state, "lower1.end")
    path = lambda t: begin + 0.08 * jnp.stack([1 - jnp.cos(4 * t), jnp.sin(4 * t)])
    return system, state, path, C.MotionOutput(lambda motion: motion.position("lower1.end"))


@functools.cache
def tip_law(**options):
    _, _, path, tip = circle()
    return C.Track(tip, path, 100.0, 20.0, joints=MOTORS, **options)


TS = jnp.linspace(0, 0.5, 6)


@functools.cache
def tracked():
    system, state, *_ = circle()
    return jm.simulate(system, state, TS, control=tip_law(), **FINE)


@pytest.mark.slow
def test_the_error_of_an_output_is_that_of_its_law():
    """ë + 20 ė + 100 e = 0 from e = 0, ė = v: e = v t exp(−10 t), with motors at two of five joints."""
    system, _, path, _ = circle()
    error = jax.vmap(path)(TS) - jm.position(system, tracked(), "lower1.end")
    exact = (np.exp(-10 * TS) * TS)[:, None] * np.array([0.0, 0.32])
    np.testing.assert_allclose(error, exact, rtol=0, atol=1e-9)
    np.testing.assert_allclose(jm.energy(system, tracked()).balance, 0, atol=1e-8)


PLANT_LAWS = pytest.mark.parametrize("kind", ["continuous", "sampled", "force"])


def off_track(kind, gain, engine=None, adjoint=None):
    """A run by a law that needs the plant, from a start with another velocity than its reference."""
    if kind == "force":
        (system, _), (_, law) = arm(2.0, flat=True), wall_law(True, gain=1.0, integral=8.0)
        state, law = jm.assemble(system, [-0.2, 1.7], [0.3, 0.0]), eqx.tree_at(lambda x: x.motion.stiffness, law, gain)
    else:
        (system, state, *_), law = circle(), eqx.tree_at(lambda x: x.stiffness, tip_law(), gain)
    law = C.Sampled(law, 0.02) if kind == "sampled" else law
    return jm.simulate(system, state, TS[:3], control=law, engine=engine, adjoint=adjoint, **FINE)


@PLANT_LAWS
@pytest.mark.slow
def test_laws_that_need_the_plant_run_compiled(kind):
    """All steps, as XLA makes them."""
    compiled, plain = (off_track(kind, jnp.array(100.0), engine) for engine in (None, jm.XLA()))
    assert (
        compiled.stats["compiled_steps"] == compiled.stats["num_accepted_steps"] and not plain.stats["compiled_steps"]
    )
    np.testing.assert_allclose(compiled.q, plain.q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(compiled.u, plain.u, rtol=1e-9, atol=1e-9)


@PLANT_LAWS
@pytest.mark.slow
def test_derivatives_of_compiled_laws_that_need_the_plant(kind):
    """By a gain, in both modes, as of XLA's steps."""
    last = lambda *options: lambda gain: off_track(kind, gain, *options).q[-1]
    slope, gain = jax.jacrev(last())(jnp.array(100.0)), jnp.array(100.0)
    assert np.abs(slope).max() > 1e-7
    np.testing.assert_allclose(slope, jax.jacfwd(last(None, dfx.ForwardMode()))(gain), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(slope, jax.jacrev(last(jm.XLA()))(gain), rtol=1e-9, atol=1e-13)


@pytest.mark.slow
def test_what_a_law_could_not_do_is_told_along_a_motion():
    """Nothing is missed; with one motor alone, what the other would have had to do."""
    system, *_ = circle()
    found = jm.output.commands(system, tracked(), tip_law())
    np.testing.assert_allclose(found.u, tracked().u, rtol=0, atol=1e-9)
    assert np.all(found.missed < 1e-10) and np.all(found.actuation > 1e-2) and np.all(found.chart > 1e-2)
    lame = C.Track(tip_law().target, tip_law().reference, 100.0, 20.0, joints=MOTORS, limits=(1.0, 0.0))
    found = jm.output.commands(system, tracked(), lame)
    assert np.all(found.missed > 1e-2) and np.all(found.u[:, 1] == 0) and np.all(found.actuation < 1e-9)


@pytest.mark.slow
def test_an_integral_takes_up_what_the_model_does_not_know():
    """The error to 1e-3 without one stays, with one vanishes as e⃛ + 20 ë + 100 ė + 150 e = 0 says."""
    system, state, path, tip = circle()
    heavy = fivebar()[0].replace("lower1", mass=1.6).build()
    still = lambda t: path(0.0 * t)
    ends = []
    for integral in (None, 150.0):
        law = C.Track(tip, still, 100.0, 20.0, integral, joints=MOTORS, model=system)
        run = jm.simulate(heavy, state, jnp.array([4.0]), control=law, max_steps=2048)
        ends.append(np.linalg.norm(jm.position(heavy, run, "lower1.end")[0] - path(0.0)))
    assert ends[0] > 3e-3 and ends[1] < 1e-3 * ends[0]


@pytest.mark.slow
def test_gravity_is_compensated():
    """A mechanism that is held stays; feedback adds to that."""
    system, state, *_ = circle()
    hold = C.GravityCompensation(MOTORS)
    run = jm.simulate(system, state, TS, control=hold, **FINE)
    np.testing.assert_allclose(run.q - state.q, 0, atol=1e-12)
    target = jnp.stack([jm.coordinate(system, state, name) for name in MOTORS])
    both = C.Sum(hold, C.PD(MOTORS, 20.0, 2.0, target))
    kicked = jm.assemble(system, state.q, {"base1": 0.5})
    run = jm.simulate(system, kicked, jnp.array([6.0]), control=both, max_steps=2048)
    np.testing.assert_allclose(run.q[0], state.q, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="must act at the same joints"):
        C.Sum(hold, C.PD("base1", 1.0, 1.0))


@pytest.mark.slow
def test_a_thousand_loops_at_once():
    """Sampled, noisy, saturated; each row is its own run."""
    system, state, *_ = circle()
    target = jnp.stack([jm.coordinate(system, state, name) for name in MOTORS])

    def end(gain, key):
        law = C.Saturated(C.PID(MOTORS, gain, 0.1 * gain, target + 0.2, integral=gain), 8.0)
        law = C.Sampled(C.Noisy(law, key, 1e-3, 1e-2), 0.02)
        run = jm.simulate(
            system, state, TS[:3], control=law, stepsize_controller=dfx.ConstantStepSize(), dt0=0.02, throw=False
        )
        return run.q[-1], run.u, run.result

    gains, keys = jnp.linspace(10.0, 30.0, 1000), jax.random.split(jax.random.key(0), 1000)
    q, u, result = jax.jit(jax.vmap(end))(gains, keys)
    assert bool(jnp.all(result == jm.RESULTS.successful)) and np.abs(u).max() == 8.0
    one = jax.jit(end)
    for i in (0, 500, 999):
        np.testing.assert_allclose(one(gains[i], keys[i])[0], q[i], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_rows_are_dropped_while_a_lock_acts():
    """What is left of the output is tracked on; without that a lock leaves a compromise, which is told."""
    _, system = fivebar()
    state = jm.assemble(system, START)
    begin = jnp.stack([jm.coordinate(system, state, name) for name in MOTORS])
    angles = lambda t: begin + jnp.array([0.3, -0.2]) * jnp.sin(3 * t)
    law = C.Track(MOTORS, angles, 100.0, 20.0, joints=MOTORS, dropped={"lock": [1]})
    events = [jm.Lock("base2", at=0.2, name="lock")]
    run = jm.simulate(system, state, TS, control=law, events=events, **FINE)
    off = jm.coordinate(system, run, "base1") - jax.vmap(angles)(TS)[:, 0]
    speed = 0.9 - jm.rate(system, state, "base1")
    before = TS * np.exp(-10 * TS) * -speed
    np.testing.assert_allclose(off[:2], before[:2], rtol=0, atol=1e-9)
    # From the lock on by the same law, with the velocity that it left.
    e0 = jm.coordinate(system, run.state(2), "base1") - angles(TS[2])[0]
    v0 = jm.rate(system, run.state(2), "base1") - jax.jvp(angles, (TS[2],), (1.0,))[1][0]
    late = TS[2:] - TS[2]
    np.testing.assert_allclose(off[2:], np.exp(-10 * late) * (e0 + (v0 + 10 * e0) * late), rtol=0, atol=1e-9)
    assert float(run.events.t[0]) == 0.2 and np.abs(off[3]) > 1e-6


# Forces


MIDDLE, RADIUS = np.array([0.5, 0.1]), 0.3


def pushed(motion):
    """A force along the wall's normal and one along the wall."""
    out = motion.position("two.end") - MIDDLE
    out = jnp.where(motion.params["flat"], jnp.array([0.0, 1.0]), out / jnp.linalg.norm(out))
    push, side = motion.params["push"], motion.params["side"]
    return jnp.stack([push * out[0] - side * out[1], push * out[1] + side * out[0], 0.0])


@functools.cache
def built(push, side, flat):
    """An arm, its tip free."""
    link = lambda name, mass: P.Body(name, mass, 0.02, com=(0.25, 0), points={"end": P.frame((0.5, 0))})
    return P.Mechanism(
        [link("one", 1.0), link("two", 0.8)],
        [P.Revolute("shoulder", "ground", "one"), P.Revolute("elbow", "one.end", "two")],
        forces=[P.Force("push", "two.end", pushed)],
        actuators=[P.Motor("motor 1", "shoulder"), P.Motor("motor 2", "elbow")],
        params={"push": push, "side": side, "flat": float(flat)},
    ).build()


def tip(t, q, p):
    return built(0.0, 0.0, False).joints.motion(t, q, jnp.zeros(2), p).position("two.end")


def round_wall(t, q, p):
    return jnp.linalg.norm(tip(t, q, p) - MIDDLE) - RADIUS


def along_round(t, q, p):
    return jnp.arctan2(*(tip(t, q, p) - MIDDLE)[::-1])


def flat_wall(t, q, p):
    return tip(t, q, p)[1] - 0.4


def along_flat(t, q, p):
    return tip(t, q, p)[0]


def arm(push=0.0, side=0.0, flat=False):
    """An arm whose tip slides on a round or flat wall, pushed along the wall's normal or along it."""
    built(0.0, 0.0, False)  # what `tip` reads is built before anything is traced
    wall = jm.Holonomic("wall", flat_wall if flat else round_wall)
    return built(push, side, flat).with_constraints((wall,), (1,)), along_flat if flat else along_round


class Swing(eqx.Module):
    """Back and forth."""

    begin: jax.Array
    amplitude: float

    def __call__(self, t):
        return self.begin - self.amplitude * (1 - jnp.cos(3 * t))


def wall_law(flat, reference=10.0, amplitude=0.1, stiffness=100.0, damping=20.0, **gains):
    """Feedback of motion and force, by a model that knows nothing of pushes."""
    system, along = arm(flat=flat)
    state = jm.assemble(system, [-0.2, 1.7])
    swing = Swing(along(state.t, state.q, system.params), jnp.asarray(amplitude))
    motion = C.Track(along, swing, stiffness, damping, model=system)
    return state, C.TrackForce(motion, C.Multipliers("wall"), reference, **gains)


def force_errors(system, run, reference=10.0):
    return reference - jm.reactions(system, run).multipliers["wall"][:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("flat", [True, False])
def test_a_force_error_decays_as_its_law_says(flat):
    """(1 + G_F) ė + G_I e = 0 under a constant normal force that the model does not know; the motion does not feel it."""
    state, law = wall_law(flat, gain=1.0, integral=8.0)
    plant, along = arm(2.0, flat=flat)
    run = jm.simulate(plant, state, TS, control=law, **FINE)
    np.testing.assert_allclose(force_errors(plant, run), np.exp(-4 * TS), rtol=0, atol=1e-10)
    angle = jax.vmap(lambda q: along(run.ts[0], q, plant.params))(run.q)
    np.testing.assert_allclose(angle, jax.vmap(law.motion.reference)(TS), rtol=0, atol=1e-9)


@pytest.mark.slow
def test_a_tangential_force_makes_a_disturbance_that_turns():
    """(1 + G_F) e + G_I ∫e + δ = 0 at each instant, δ the part of the reaction that the model does not know."""
    state, law = wall_law(True, gain=1.0, integral=8.0)
    plant, _ = arm(side=2.0, flat=True)
    run = jm.simulate(plant, state, TS, control=law, **FINE)
    answer = lambda system, state, u: C.Plant.at(system, state).respond(u).multipliers[0]
    model = arm(flat=True)[0]
    states = [run.state(i) for i in range(len(TS))]
    delta = np.array([answer(plant, s, u) - answer(model, s, u) for s, u in zip(states, run.u, strict=True)])
    np.testing.assert_allclose(2 * force_errors(plant, run) + 8 * run.z[1][:, 0] + delta, 0, atol=1e-12)
    assert np.ptp(delta) > 1e-2


@pytest.mark.slow
def test_the_reference_of_a_force_does_not_change_the_motion():
    """In continuous time; under a hold it does by O(h)."""
    plant, _ = arm(2.0)
    state, _ = wall_law(False)
    law = lambda y: wall_law(False, y, gain=1.0, integral=8.0)[1]
    runs = [jm.simulate(plant, state, TS, control=law(y), **FINE).q for y in (10.0, 60.0)]
    np.testing.assert_allclose(runs[0], runs[1], rtol=0, atol=1e-12)
    changes = []
    for period in (0.01, 0.005):
        held = lambda y, period=period: C.Sampled(law(y), period)
        runs = [jm.simulate(plant, state, TS, control=held(y), **{**FINE, "dt0": period}).q[-1] for y in (10.0, 60.0)]
        changes.append(np.abs(runs[0] - runs[1]).max())
    assert 1e-6 < changes[1] < changes[0] and 1.8 < changes[0] / changes[1] < 2.2


@pytest.mark.slow
def test_a_sampled_force_is_stable_at_any_gain():
    """The disturbance is fed back: e decays by 1 − h G_I/(1 + G_F) per sample where the normal force is constant and nothing moves."""
    plant, _ = arm(2.0)
    state, law = wall_law(False, amplitude=0.0, stiffness=25.0, damping=10.0, gain=20.0, integral=84.0)
    ts = jnp.arange(0.05, 0.6, 0.1)
    run = jm.simulate(plant, state, ts, control=C.Sampled(law, 0.1), **{**FINE, "dt0": 0.05})
    errors = force_errors(plant, run)
    # The first sample sees the disturbance under no input at all.
    np.testing.assert_allclose(errors[1:], errors[:1] * 0.6 ** np.arange(1, 6), rtol=0, atol=1e-8)


@pytest.mark.slow
def test_a_filtered_force_obeys_its_equation():
    """τ z̈ + (1 + G_F) ż + G_I z = −δ of a measured force, δ = −2 N: by its matrix."""
    plant, _ = arm(2.0)
    state, law = wall_law(False, gain=5.0, integral=8.0, filter=0.05)
    run = jm.simulate(plant, state, TS, control=law, **FINE)
    matrix = np.array([[0, 1], [-8 / 0.05, -6 / 0.05]])
    rest = np.array([2.0 / 8, 0])
    exact = np.array([rest - jax.scipy.linalg.expm(t * matrix) @ rest for t in TS])
    measured = force_errors(plant, run) + 5 * run.z[2][:, 0] + 8 * run.z[1][:, 0]
    np.testing.assert_allclose(measured, 2.0, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.stack([run.z[1][:, 0], run.z[2][:, 0]], 1), exact, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_what_cannot_be_commanded_is_refused_by_name():
    system, state, path, tip = circle()
    with pytest.raises(ValueError, match=r"no more rows than there are freedoms.*3 outputs for 2 freedoms"):
        jm.simulate(system, state, TS, control=C.Track([*MOTORS, "elbow1"], 0.0, 1.0, 1.0, joints=MOTORS))
    one = C.Track("base1", 0.0, 25.0, 10.0, joints=MOTORS)
    with pytest.warns(UserWarning, match=r"At the start: 1 freedom without output"):
        jm.simulate(system, state, TS[:2], control=one, **FINE)
    lame = C.Track(tip, path, 1.0, 2.0, joints=["base1"])
    told = C.Sum(lame, C.GravityCompensation("base1")).check(
        system.acting_at(lame.acts_at), state, jm.formulation.KKT()
    )
    assert told[0].startswith("At the start: No actuator acts on the motion of")
    assert tuple(C.controllability(system.acting_at(MOTORS), state).potencies) == tuple(MOTORS)
    with pytest.raises(TypeError, match="`state` must hold known numbers"):
        jax.eval_shape(lambda state: C.controllability(system, state).rank, state)
    state, law = wall_law(False)
    weak = C.TrackForce(C.Track(law.motion.target, 0.0, 1.0, 1.0, limits=(1.0, 0.0)), law.forces, 10.0)
    with pytest.raises(ValueError, match="The actuators cannot command 'wall' beside the motion"):
        jm.simulate(arm()[0], state, TS, control=weak)
    with pytest.raises(ValueError, match="must be a constraint out of 'wall', but is 'floor'"):
        jm.simulate(arm()[0], state, TS, control=C.TrackForce(law.motion, C.Multipliers("floor"), 10.0))


def test_samples_too_far_apart_are_warned_of():
    """2/G_D and 2 G_D/G_P, one by one and inside of wrappers; coth(h/2τ) of a filtered force; h G_I/(1 + G_F) = 2."""
    law = tip_law()
    with pytest.warns(UserWarning, match=r"must be below 2/G_D and 2 G_D/G_P, 0.1 s") as caught:
        C.Sampled(C.Saturated(C.Sum(law, C.GravityCompensation(MOTORS)), 10.0), 0.105)
    assert caught[0].filename == __file__
    _, force = wall_law(False, gain=5.0, filter=0.01)
    with pytest.warns(UserWarning, match=r"G_F must be below coth\(h/2τ\) = 1.3"):
        C.Sampled(force, 0.02)
    _, force = wall_law(False, gain=1.0, integral=50.0)
    with pytest.warns(UserWarning, match=r"h G_I/\(1 \+ G_F\) must be below 2, but is 2.25"):
        C.Sampled(force, 0.09)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        C.Sampled(law, 0.095)
        C.Sampled(force, 0.07)


# At one instant: a mass of 2 kg along a wall and of 1 kg across it, pushed along both


@functools.cache
def walled(copies=1, actuation=((1.0, 0.0), (0.0, 1.0))):
    walls = [jm.Holonomic(name, lambda t, q, p: q[1]) for name in ("wall", "again")[:copies]]
    system = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: jnp.diag(jnp.array([2.0, 1.0])),
        force=lambda t, q, v, p: -p * q[:1] * jnp.array([1.0, 0.0]) + jnp.array([0.0, -3.0]),
        constraints=walls,
        actuation=lambda t, q, p: jnp.array(actuation),
        params=8.0,
    )
    return system, jm.assemble(system, [0.5, 0.0], [0.3, 0.0])


@functools.cache
def at_wall():
    return C.Plant.at(*walled())


def test_the_acceleration_is_that_of_the_law_with_an_integral():
    """2 ẍ = u − 8 x with ẍ = G_P e + G_D ė + G_I ∫e, e = 0.7 − x; matrices as gains do the same."""
    plant, error = at_wall(), 0.7 - 0.5
    for integral in (4.0, [[4.0]]):
        law = C.Track("x", 0.7, 9.0, 6.0, integral)
        z = law.init(plant.system)
        assert z.shape == (1,)
        found = law.command(plant, z + 0.25)
        np.testing.assert_allclose(found.vdot, [9.0 * error - 6.0 * 0.3 + 4.0 * 0.25, 0.0], atol=1e-13)
        np.testing.assert_allclose(found.u[0], 2 * found.vdot[0] + 8.0 * 0.5, atol=1e-12)
        np.testing.assert_allclose(law.rate(plant, z, None), [error], atol=1e-15)


def test_an_input_beside_the_motion_stays_at_the_preferred_one():
    law = C.Track("x", 0.7, 9.0, 6.0, limits=(10.0, 2.0), preferred=(50.0, 1.5))
    found = law.command(at_wall())
    np.testing.assert_allclose(found.u, [2 * (9.0 * 0.2 - 6.0 * 0.3) + 4.0, 1.5], atol=1e-12)
    with pytest.raises(ValueError, match=r"`preferred` must be .*, nu = 2, but has shape \(3,\)"):
        C.Track("x", 0.7, 9.0, 6.0, preferred=(1.0, 1.0, 1.0)).command(at_wall())


def test_rows_of_an_output_are_dropped_while_a_constraint_acts():
    """The second of two rows says the opposite of the first; of a lock that is not there none is dropped."""
    opposite = lambda t, q, p: jnp.stack([q[0], -q[0]])
    law = lambda name: C.Track(opposite, jnp.array([0.7, 0.7]), 9.0, 6.0, dropped={name: [1]})
    np.testing.assert_allclose(law("wall").command(at_wall()).vdot[0], 9.0 * 0.2 - 6.0 * 0.3, atol=1e-13)
    # Both rows: the mean of two demands, 9 (0.7 − 0.5) and −9 (0.7 + 0.5).
    np.testing.assert_allclose(law("lock").command(at_wall()).vdot[0], (9.0 * 0.2 - 9.0 * 1.2) / 2 - 1.8, atol=1e-12)
    released = jm.assemble(walled()[0], [0.5, 0.0], [0.3, 0.0], inactive=["wall"])
    rows = law("wall").evaluate(C.Plant.at(walled()[0], released))[1]
    np.testing.assert_array_equal(rows.jacobian, [[1.0, 0.0], [-1.0, 0.0]])


def test_more_outputs_than_freedoms_are_refused_and_others_told_of():
    system, state = walled()
    with pytest.raises(ValueError, match=r"no more rows than there are freedoms\. There are 2 outputs for 1 freedom"):
        C.Track(["x", "y"], 0.0, 1.0, 1.0).check(system, state)
    assert C.Track("x", 0.0, 1.0, 1.0).check(system, state) == []
    told = C.Sum(C.Track("y", 0.0, 1.0, 1.0)).check(system, state)
    assert told == ["At the start: The outputs do not determine the motion of x, or not independently."]


@pytest.mark.parametrize("gains", [([[9.0]], 6.0), (9.0, [[6.0]])])
def test_of_gains_that_are_matrices_no_longest_period_is_known(gains):
    assert C.Track("x", 0.7, 9.0, 6.0).check_period(1.0) and C.Track("x", 0.7, *gains).check_period(1.0) == []


def pole(mass, actuation=((1.0,), (0.0,))):
    """A cart with a pole, or two masses in its place."""
    mass, actuation = jnp.array(mass), jnp.array(actuation)
    system = jm.System(("cart", "pole"), mass=lambda t, q, p: mass, actuation=lambda t, q, p: actuation)
    return system, jm.assemble(system)


def test_places_where_an_actuator_would_help():
    """By the share of a push there that no input can give: 1/2 with coupled masses 2, 1 and 1, 0 at the input itself."""
    found = C.controllability(*pole([[2.0, 1.0], [1.0, 1.0]]))
    assert (found.freedoms, found.rank, found.controllable) == (2, 1, False)
    np.testing.assert_allclose([found.shares[name] for name in ("cart", "pole")], [0.0, 0.5], atol=1e-14)
    assert found.remedy == ("pole",) and found.outputs is None
    lines = str(found).splitlines()
    assert lines[2:6] == [
        "  input             moves by",
        "  u0                1.00",
        "  place             would help by",
        "  cart              0.00",
    ]
    assert lines[-1] == "  No actuator acts on the motion of pole; 1 more actuator at pole would be enough."


def test_joints_may_be_too_few_to_help():
    """An actuator at the one joint there is would not move what is loose."""
    bodies = [P.Body("held", 1.0, 0.1), P.Body("loose", 1.0, 0.1)]
    system = P.Mechanism(bodies, [P.Revolute("pin", "ground", "held")]).build()
    found = C.controllability(system, jm.as_state(system, jnp.zeros(4)))
    assert (found.freedoms, found.rank, found.remedy) == (4, 0, ()) and set(found.shares) == {"pin"}
    assert found.verdicts == ("No actuator acts on 4 freedoms.",)


def test_what_outputs_do_not_tell():
    system, state = pole(np.eye(2), np.eye(2))
    told = lambda *output: C.controllability(system, state, output=output).verdicts
    assert told("cart", "pole") == ()
    assert told("cart") == ("1 freedom without output, in the motion of pole, will move by itself, perhaps unstably.",)
    assert told("cart", "cart") == ("The outputs do not determine the motion of pole, or not independently.",)
    assert told("cart", "cart", "pole") == (
        "There are 3 outputs for 2 freedoms: they can be met together by chance only.",
    )


# Forces at one instant: λ = 3 − u_y of the wall


def answer(u):
    return at_wall().respond(jnp.asarray(u))


def test_a_force_with_its_integral_is_solved_for_in_one_instant():
    """e = y_d − λ of λ = y_d + G_F e + G_I ζ: e = −G_I ζ/(1 + G_F); the motion is that of its own law."""
    plant, motion = at_wall(), C.Track("x", 0.7, 9.0, 6.0)
    law = C.TrackForce(motion, C.Multipliers("wall"), 10.0, gain=3.0, integral=8.0)
    assert law.init(plant.system)[2] is None
    u = law.output(plant, ((), jnp.array([0.5]), None))
    np.testing.assert_allclose(answer(u).multipliers, [10.0 + 1.0], atol=1e-12)
    np.testing.assert_allclose(u[0], motion.command(plant).u[0], atol=1e-12)
    rate = law.rate(plant, ((), jnp.array([0.5]), None), answer(u))
    np.testing.assert_allclose(rate[1], [-1.0], atol=1e-12)


def test_a_filtered_force_and_its_state_at_one_instant():
    """y_c = y_d + G_F f + G_I ζ, ζ̇ = f, τ ḟ = e − f; a sample is Euler's step of these."""
    plant, z = at_wall(), (jnp.array([0.1]), jnp.array([0.5]), jnp.array([0.2]))
    law = C.TrackForce(C.Track("x", 0.7, 9.0, 6.0, 4.0), C.Multipliers("wall"), lambda t: 10.0, 3.0, 8.0, filter=0.05)
    assert [x.shape for x in law.init(plant.system)] == [(1,)] * 3
    u = law.output(plant, z)
    np.testing.assert_allclose(answer(u).multipliers, [10.0 + 3.0 * 0.2 + 8.0 * 0.5], atol=1e-12)
    before = answer([0.0, 1.0])
    sampled, after = law.sample(plant, z, before, jnp.array(0.01))
    np.testing.assert_allclose(sampled, u, atol=1e-13)
    rate = [0.7 - 0.5, 0.2, (10.0 - 2.0 - 0.2) / 0.05]
    np.testing.assert_allclose(jnp.concatenate(after), jnp.concatenate(z) + 0.01 * np.array(rate), atol=1e-12)


def test_a_reaction_is_read_along_directions():
    """The reaction (0, λ) across and along the wall, that of the wall by itself too."""
    plant, both = at_wall(), lambda t, q, p: jnp.array([[0.0, 1.0], [1.0, 0.0]])
    whole, one = C.ReactionAlong(both, ("normal", "along")), C.ConstraintForce("wall", both)
    assert whole.labels(plant.system) == ("normal", "along") and one.labels(plant.system) == ("wall 0", "wall 1")
    assert C.ReactionAlong(both).labels(plant.system) == ("reaction 0", "reaction 1")
    for forces in (whole, one):
        np.testing.assert_allclose(forces.read(answer([7.0, -2.0])), [5.0, 0.0], atol=1e-13)
        np.testing.assert_array_equal(forces.weights(plant), [[1.0], [0.0]])
    with pytest.raises(ValueError, match="`names` must name each of 2 directions, but names 1"):
        C.ReactionAlong(both, ("normal",)).labels(plant.system)


def test_what_cannot_be_commanded_of_a_wall():
    lame, wall = walled(actuation=((1.0,), (0.0,))), C.Multipliers("wall")
    found = C.analyse_forces(*lame, wall)
    assert not found.commandable and (found.spare, found.rank, found.beyond) == (0, 0, {"wall": 1.0})
    with pytest.raises(
        ValueError, match=r"`forces` must be forces that can be commanded\. The actuators cannot command 'wall'"
    ):
        C.TrackForce(C.Track("x", 0.7, 9.0, 6.0), wall, 10.0).check(*lame)


def test_what_two_walls_carry_is_not_determined():
    twice = C.analyse_forces(*walled(2), C.Multipliers("wall"))
    np.testing.assert_allclose(twice.ambiguous["wall"], 0.5**0.5)
    assert str(twice).splitlines()[-1] == (
        "  A rigid model does not determine 'wall': redundant rows share the load; 'wall' and 'again' trade theirs."
    )


def test_a_force_is_undefined_where_its_rows_are_degenerate():
    """Where two lines cross the motion goes on along one of them, and at rest it is not determined.

    Undefined is also what a degenerate row follows from, with its copy.
    """
    rows = {"cross": lambda q: q[0] * q[1] + q[2], "flat": lambda q: q[2], "copy": lambda q: 3 * q[2]}
    rows |= {"apart": lambda q: q[3], "again": lambda q: 2 * q[3]}
    crossing = jm.System(
        ("x", "y", "z", "w"), mass=lambda t, q, p: jnp.eye(4), actuation=lambda t, q, p: jnp.eye(4),
        constraints=[jm.Holonomic(name, lambda t, q, p, row=row: row(q)) for name, row in rows.items()],
    )  # fmt: skip
    at = lambda v: jm.assemble(crossing, jnp.zeros(4), [*v, 0.0, 0.0], length=1.0)
    found = C.analyse_forces(crossing, at([1.0, 0.0]), C.Multipliers(*rows))
    assert found.undefined == ("cross", "flat", "copy")
    assert "The multipliers 'cross', 'flat' and 'copy' are undefined at this pose" in str(found)
    assert C.controllability(crossing, at([0.0, 0.0])).verdicts[0].startswith("The motion is not determined at this")
