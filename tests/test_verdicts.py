"""What is wrong reaches the user: results of all outputs, refused times, batches with a bad row, saved states of batches."""

import contextlib
import dataclasses
import importlib
import warnings
from types import SimpleNamespace

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mobile_robot import build
from systems import contradictory, pendulum

import jaxmb as jm
from jaxmb.formulation.base import contradiction
from jaxmb.foundations.result import announce
from jaxmb.kinematics.rows import Rows
from jaxmb.simulation.phase import Phases

R = jm.RESULTS
P = jm.planar


def are(result, *members):
    return all(bool(jax.tree.map(lambda x, i=i: x[i], result) == member) for i, member in enumerate(members))


# Reactions, wrenches, accelerations of places


CROSS = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("cross", lambda t, q, p: q[0] * q[1])])


def test_a_result_is_announced_with_its_words_and_where():
    announce(R.successful)
    assert repr(R.successful).endswith("RESULTS<successful>") and "`control` returns" in R[R.nonfinite]
    announce(jax.vmap(lambda ok: R.where(ok, R.successful, R.nonfinite))(jnp.array([True, True])))
    with pytest.raises(RuntimeError, match=r"`KKT` needs that on null\(C\) only\.$"):
        announce(jax.jit(lambda: R.where(False, R.successful, R.nonfinite))())
    with pytest.raises(RuntimeError, match=r"This happens at index 1 of the motion\.$"):
        announce(jax.vmap(lambda ok: R.where(ok, R.successful, R.unfit_choice))(jnp.array([True, False, False])))


@pytest.mark.slow
def test_reactions_tell_what_they_cannot_find():
    """A particle on one of two lines, at rest on their crossing, and nowhere."""
    q, v = jnp.array([[1.0, 0.0], [0.0, 0.0], [jnp.nan, 0.0]]), jnp.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    states = jax.vmap(lambda q, v: jm.as_state(CROSS, q, v))(q, v)
    flagged = jm.reactions(CROSS, states, throw=False)
    assert are(flagged.result, R.successful, R.undetermined_motion, R.nonfinite)
    np.testing.assert_allclose(flagged.vdot[0], 0, atol=1e-12)
    with pytest.raises(RuntimeError, match=r"motion is not determined.* This happens at index 1 of the motion"):
        jm.reactions(CROSS, states)
    with pytest.raises(RuntimeError, match=r"are singular too, change a length\.$"):
        jm.reactions(CROSS, jax.tree.map(lambda x: x[1], states))
    inside = jax.jit(jax.vmap(lambda s: jm.reactions(CROSS, s).result))(states)
    assert are(inside, R.successful, R.undetermined_motion, R.nonfinite)
    disagreeing = contradictory()
    with pytest.raises(RuntimeError, match="The constraints contradict each other"):
        jm.reactions(disagreeing, jm.assemble(disagreeing))


ROD = jm.System(
    2,
    mass=lambda t, q, p: jnp.eye(2),
    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - p**2)],
    params=jnp.array(1.0),
)


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_a_state_off_its_constraints_has_no_reaction(unit):
    system = ROD.with_params(jnp.array(unit))
    q, v = unit * jnp.array([0.6, 0.8]), unit * jnp.array([-0.8, 0.6])
    drifted, off = 1 + 1e-4, 1 + 1e-3
    states = jax.vmap(lambda q, v: jm.as_state(system, q, v))(
        jnp.stack([q, drifted * q, off * q, q]), jnp.stack([v, v, v, v + 1e-3 * q])
    )
    flagged = jm.reactions(system, states, throw=False)
    assert are(flagged.result, R.successful, R.successful, R.inconsistent_state, R.inconsistent_state)
    with pytest.raises(RuntimeError, match=r"violates its constraints .* This happens at index 2 of the motion\.$"):
        jm.reactions(system, states)
    # Which reactions are determined is a question of the pose alone.
    for i, refused in enumerate((False, False, True, False)):
        state = jax.tree.map(lambda x, i=i: x[i], states)
        with pytest.raises(RuntimeError, match="violates its constraints") if refused else contextlib.nullcontext():
            assert jm.analyse_reactions(system, state).unique == ("rod",)


def test_velocities_of_what_was_at_rest_are_not_judged():
    """Nothing tells how fast a mechanism goes that rested without forces where its sizes were measured."""
    q = jnp.array([0.6, 0.8])
    states = jax.vmap(lambda v: dataclasses.replace(jm.as_state(ROD, q), v=v * q))(jnp.array([0.0, 1e-200, 1e-9]))
    assert are(jm.reactions(ROD, states).result, R.successful, R.successful, R.successful)


@pytest.mark.slow
def test_a_run_that_starts_and_ends_at_rest_has_reactions_without_correction_too():
    """From its start nothing tells how fast it will go: its driver starts at 1 s and stops at 2 s."""
    drive = lambda t: jnp.cos(jnp.pi * jnp.clip(t - 1.0, 0.0, 1.0))
    system = jm.System(
        1, mass=lambda t, q, p: 2.0 * jnp.eye(1), constraints=[jm.Holonomic("drive", lambda t, q, p: q - drive(t))]
    )
    sol = jm.simulate(system, jm.assemble(system, [1.0]), jnp.linspace(0.0, 3.0, 13), drift=jm.NoDrift())
    assert 1e-13 < float(jnp.abs(jm.residuals(system, sol).velocity[-1, 0])) < 1e-6
    force = -2 * jnp.pi**2 * jnp.cos(jnp.pi * (sol.ts - 1)) * ((sol.ts > 1) & (sol.ts < 2))
    for motion in (sol, sol.state(jnp.arange(13))):
        found = jm.reactions(system, motion).multipliers["drive"][:, 0]
        inside = (sol.ts != 1) & (sol.ts != 2)  # there it jumps
        np.testing.assert_allclose(found[inside], force[inside], atol=1e-9)


def test_warnings_name_the_joints_that_share_a_reaction(monkeypatch):
    """What runs that failed say of reactions is doubted by nobody."""
    wrench = importlib.import_module("jaxmb.output.wrench")
    groups = {name: SimpleNamespace(unique=name == "hook") for name in ("left", "hook", "right", "base", "lone")}
    clusters = dict.fromkeys(("left", "right", "base"), ("left", "right", "base")) | {"lone": ()}
    report = SimpleNamespace(groups=groups, cluster_of=clusters.get)
    monkeypatch.setattr(wrench, "analyse_reactions", lambda system, state, rank_tol: report)
    state = jm.as_state(CROSS, jnp.zeros(2), length=1.0)
    for joints, expected in (
        (
            ("left", "hook", "lone"),
            [
                "The reaction in 'left' is not determined by a rigid model: it may be changed together with 'right' and 'base'",
                "The reaction in 'lone' is not determined by a rigid model: it may be changed",
            ],
        ),
        (
            ("left", "hook", "right"),
            [
                "The reactions in 'left' and 'right' are not determined by a rigid model: they may be changed together with 'base'"
            ],
        ),
        (
            ("left", "right", "base"),
            [
                "The reactions in 'left', 'right' and 'base' are not determined by a rigid model: they may be changed together"
            ],
        ),
    ):
        with pytest.warns(UserWarning, match="not determined by a rigid model") as told:
            wrench._warn(CROSS, state, joints, R.successful, 1e-8)
        assert [str(warning.message).partition(" without")[0] for warning in told] == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrench._warn(CROSS, state, ("left",), R.nonfinite, 1e-8)


@pytest.mark.slow
def test_balance_is_no_contradiction():
    """A stop that holds against a force: v̇ of its row is rounding, as is what the row is off by."""
    mass = jnp.array([[2.0, 1.0], [1.0, 1.0]])
    stop = jm.Holonomic("stop", lambda t, q, p: q[0] - 1.0)
    system = jm.System(2, mass=lambda t, q, p: mass, force=lambda t, q, v, p: jnp.array([1.0, 0.0]), constraints=[stop])
    states = jax.vmap(lambda y: jm.assemble(system, jnp.array([1.0, y])))(jnp.linspace(0.0, 1.0, 20))
    found = jm.reactions(system, states)
    np.testing.assert_allclose(found.multipliers["stop"], -1.0, atol=1e-12)


def test_a_copy_that_is_off_by_rounding_contradicts_nothing_however_fast_a_uniform_motion_is():
    sum_of = lambda t, q, p: jnp.array([q[0] + q[1], q[0] + q[1] + 1e-17 * (q[0] - q[1]) ** 2])
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("twice", sum_of)])

    @jax.jit
    @jax.vmap
    def verdict(speed):
        state = jm.as_state(system, jnp.array([1.0, -1.0]), speed * jnp.array([3.0, -3.0]), length=1.0)
        return jm.formulation.GaussProjection().acceleration(jm.evaluate(system, state)).result

    assert jnp.all(verdict(jnp.array([1e-6, 1.0, 1e6])) == R.successful)


def test_a_row_in_use_that_is_lost_must_hold_as_well():
    """A copy of another row, of which it was decided elsewhere that it is independent."""
    rows, ones = jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.ones(2)

    @jax.jit
    def result(apart):
        gamma = jnp.stack([1.0, 1.0 + apart])
        terms = jm.system.Terms(jnp.eye(2), ones, rows, 0 * ones, gamma, ones)
        return jm.formulation.GaussProjection().acceleration(terms, jnp.ones(2, bool)).result

    assert bool(result(0.0) == R.successful) and bool(result(1e-3) == R.contradictory_constraints)


@pytest.mark.slow
def test_uniform_motion_is_no_contradiction():
    """Without forces and without turning, accelerations are rounding, and so is what redundant rows disagree by."""
    system, state = build("absolute")
    off = np.random.default_rng(0).standard_normal(system.nv) * 1e-15
    state = dataclasses.replace(state, v=state.v + off)
    result = jm.formulation.Elimination((5, 20)).acceleration(jm.evaluate(system, state)).result
    assert result == jm.RESULTS.successful


@pytest.mark.slow
def test_wrenches_and_accelerations_carry_the_verdict():
    """A door whose two motors on one hinge agree at t = 0 only."""
    door = P.Mechanism(
        [P.Body.rod("rod", 1.0, 1.0)],
        [P.Revolute("O", "ground", "rod.a")],
        [P.Driver("slow", "O", lambda t, p: t**2), P.Driver("fast", "O", lambda t, p: 2 * t**2)],
    ).build()
    state = jm.assemble(door)
    for wrong in (
        lambda: jm.joint_reaction(door, state, "O"),
        lambda: jm.joint_reactions(door, state),
        lambda: jm.acceleration(door, state, "rod"),
    ):
        with pytest.raises(RuntimeError, match="The constraints contradict each other"):
            wrong()
    wrench = jm.joint_reaction(door, state, "O", throw=False)
    assert bool(wrench.result == R.contradictory_constraints)
    assert np.isnan(jm.acceleration(door, state, "rod", throw=False)).all()
    with pytest.raises(RuntimeError, match="The constraints contradict each other"):
        jm.physical_reactions(door, state, {"turn": lambda t, q, p: q[0]})


@pytest.mark.slow
def test_friction_by_loads_refuses_events_and_says_what_to_do():
    rod = P.Mechanism(
        [P.Body.rod("rod", 1.0, 1.0)],
        [P.Revolute("O", "ground", "rod.a")],
        forces=[P.BearingFriction("friction", "O", 0.2, 0.01)],
    ).build()
    state = jm.assemble(rod)
    with pytest.raises(
        ValueError,
        match=r"`events` must be empty where friction grows with the load of a joint \('O'\).*`JointFriction`",
    ):
        jm.simulate(rod, state, [1.0], events=[jm.Lock("O", at=0.5)])
    locked = jm.transition(rod, state, lock=["O"]).after
    with pytest.raises(ValueError, match="`state` must have no mode where friction grows with the load of a joint"):
        jm.simulate(rod, locked, [1.0])


# Starts


def test_a_failure_in_the_first_step_is_one_of_the_start():
    """Of the first phase that took a step, and so are the rows."""
    rows = jax.vmap(lambda in_use: Rows.independent(in_use, float))(jnp.eye(3, dtype=bool))
    for failed, steps, at_start, phase in (
        ([False, True, False], [0, 1, 0], True, 1),
        ([True, True, False], [0, 2, 0], False, 1),
        ([False, False, True], [3, 0, 1], False, 0),
    ):
        stats = {"num_steps": jnp.array(steps)}
        phases = SimpleNamespace(failed=jnp.array(failed), stats=stats, accepted=SimpleNamespace(rows=rows))
        found, of = Phases.of_start(phases)
        assert bool(found) == at_start and bool(of.in_use[phase])


# Transitions


PULLED = jm.System(
    2,
    mass=lambda t, q, p: jnp.eye(2),
    constraints=[
        jm.Pfaffian("one", lambda t, q, v, p: v[0] - 1.0),
        jm.Pfaffian("two", lambda t, q, v, p: p["speed"] * v[0] - 2.0),
    ],
    params={"speed": 1.0},
)


@pytest.mark.slow_except("full")
@pytest.mark.parametrize("method", ["full", "projected", "minimal"])
@pytest.mark.slow
def test_a_transition_onto_two_speeds_is_refused(method):
    state = jm.assemble(PULLED, v=[1.0, 0.3], inactive=["one", "two"])
    state = jm.transition(PULLED, state, activate=["one"]).after
    with pytest.raises(RuntimeError, match="where constraints begin to act no velocity, satisfies all rows"):
        jm.transition(PULLED, state, activate=["two"], method=method)
    both = jax.vmap(lambda s: jm.transition(PULLED.with_params({"speed": s}), state, activate=["two"], method=method))
    assert are(both(jnp.array([1.0, 2.0])).result, R.contradictory_constraints, R.successful)


def test_a_position_that_does_not_fit_is_flagged_where_nothing_is_raised():
    state = jm.assemble(CROSS, [1.0, 1.0], inactive=["cross"])
    jump = jm.transition(CROSS, state, activate=["cross"], throw=False)
    assert bool(jump.result == R.position_mismatch) and jump.regular is None


@pytest.mark.slow
def test_a_run_ends_where_events_leave_no_velocity():
    state = jm.assemble(PULLED, v=[1.0, 0.3], inactive=["two"])
    events, ts = [jm.Activate("two", at=0.5)], jnp.array([0.4, 0.6])
    solution = jm.simulate(PULLED, state, ts, events=events, max_events=2, throw=False)
    assert bool(solution.result == R.contradictory_constraints)
    assert np.isfinite(solution.q[0]).all() and np.isnan(solution.q[1]).all()
    with pytest.raises(RuntimeError, match="where constraints begin to act no velocity"):
        jm.simulate(PULLED, state, ts, events=events, max_events=2)


@pytest.mark.slow
def test_a_start_without_acceleration_is_named_in_a_run_with_events_too():
    system = contradictory()
    state = jm.assemble(system, [0.0, 0.0])
    with pytest.raises(ValueError, match="Constraint 'fast' must not contradict others"):
        jm.simulate(system, state, [0.1], events=[jm.Lock("q1", at=0.05)])


@pytest.mark.slow
def test_a_failed_correction_names_its_constraint_in_a_run_with_events():
    system, (q, v) = pendulum()
    state, events = jm.assemble(system, q, v), [jm.Lock("x", at=50.0)]
    coarse = {"dt0": 0.7, "stepsize_controller": dfx.ConstantStepSize(), "drift": jm.Projection(iterations=1)}
    with pytest.raises(
        RuntimeError, match=r"Furthest off is constraint 'rod', by .* relative to the size of the mechanism"
    ):
        jm.simulate(system, state, [7.0], events=events, max_events=1, **coarse)


# Times


FREE = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: t - q)


@pytest.mark.slow_except("False")
@pytest.mark.parametrize("with_events", [False, True])
@pytest.mark.slow
def test_a_row_with_wrong_times_is_flagged_and_disturbs_no_other(with_events):
    """Rows: right; starts after its first time; a time that is no number; a start that is none; times that fall."""
    nan, start = jnp.nan, jm.assemble(FREE, [1.0], [0.5])
    begin = jnp.array([0.0, 0.5, 0.0, nan, 0.0, 0.1])
    ts = jnp.array([[0.2, 1.0], [0.2, 1.0], [0.2, nan], [0.2, 1.0], [1.0, 0.2], [0.2, 1.0]])
    events = [jm.Lock("q0", at=0.6)] if with_events else []

    @jax.jit
    @jax.vmap
    def run(t, ts):
        state = eqx.tree_at(lambda s: s.t, start, t)
        return jm.simulate(FREE, state, ts, events=events, max_events=1, throw=False)

    good, found = run(jnp.zeros(6).at[5].set(0.1), ts[:1].repeat(6, 0)), run(begin, ts)
    bad = [R.unfit_times] * 4
    assert are(found.result, R.successful, *bad, R.successful) and are(good.result, *[R.successful] * 6)
    np.testing.assert_array_equal(found.q[jnp.array([0, 5])], good.q[jnp.array([0, 5])])
    assert np.isnan(found.q[1:5]).all() and (found.stats["num_steps"][1:5] <= 1).all()
    np.testing.assert_array_equal(found.ts, ts)
    for t, times, message in (
        (0.5, ts[1], r"must not start before `state.t`, but does, by 0\.3 s"),
        (0.0, ts[2], "`ts`, and `state.t`, must be finite, but are not"),
        (0.0, ts[4], r"`ts` must increase, but falls by 0\.8 s"),
    ):
        with pytest.raises(ValueError, match=message):
            jm.simulate(FREE, eqx.tree_at(lambda s: s.t, start, jnp.array(t)), times, events=events)


@pytest.mark.slow
def test_an_event_before_the_start_is_flagged():
    state = eqx.tree_at(lambda s: s.t, jm.assemble(FREE), jnp.array(0.3))
    run = jax.jit(
        lambda at: jm.simulate(FREE, state, jnp.array([1.0]), events=[jm.Lock("q0", at=at)], throw=False).result
    )
    assert bool(run(0.2) == R.unfit_times) and bool(run(0.5) == R.successful)


@pytest.mark.slow
def test_states_of_a_batch_are_those_of_a_time():
    start, ts = jm.assemble(FREE, [1.0], [0.5]), jnp.array([0.1, 0.4, 1.0])
    run = lambda v: jm.simulate(FREE, eqx.tree_at(lambda s: s.v, start, v[None]), ts, events=[jm.Lock("q0", at=0.6)],
                                max_events=1)  # fmt: skip
    batch, single = jax.vmap(run)(jnp.array([0.5, 0.7])), run(jnp.array(0.7))
    for i in (0, -1, jnp.array(2)):
        for found, expected in zip(jax.tree.leaves(batch.state(i)), jax.tree.leaves(single.state(i)), strict=True):
            np.testing.assert_allclose(found[1], expected, atol=1e-12)
    assert batch.states.q.shape == (2, 3, 1) and batch.state(0).mode.active.shape == (2, 1)
    assert batch.state(jnp.array([0, 2])).q.shape == (2, 2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("with_events", [False, True])
def test_derivatives_with_respect_to_times_are_velocities(with_events):
    """Of the first, which is the start, of one in between, of that of an event and of the last; and of the start alone."""
    start = jm.assemble(FREE, [1.0], [0.5])
    events = (
        [jm.Release("lock q0", when=lambda t, q, v, reaction, p: t - 5.0), jm.Lock("q0", at=5.0)] if with_events else []
    )

    def run(ts):
        solution = jm.simulate(FREE, start, ts, events=events, max_events=1, stepsize_controller=TIGHT)
        found = solution.q[:, 0], solution.v[:, 0]
        return found, found

    for ts in (jnp.array([0.0, 0.3, 0.3, 0.7]), jnp.array([0.0])):
        (along, bend), (q, v) = jax.jit(jax.jacrev(run, has_aux=True))(ts)
        np.testing.assert_allclose(along, jnp.diag(v), atol=1e-7)
        np.testing.assert_allclose(bend, jnp.diag(ts - q), atol=1e-6)


TIGHT = dfx.PIDController(rtol=1e-11, atol=1e-12)


def test_by_how_much_rows_contradict_each_other_is_the_same_in_any_unit_of_time():
    """Each row relative to its own terms, or to a millionth of the largest row's."""
    rows, scale = jnp.array([[2.0, 0.0], [0.0, 1e-9]]), jnp.array([2.0, 1.0])
    for unit in (1e-9, 1.0):
        off = contradiction(rows, unit * jnp.array([6.0, 1e-9]), scale, unit * jnp.array([1.0, 2.0]), jnp.zeros(2))
        np.testing.assert_allclose(off, [2 / 4, 1e-9 / (1e-6 * 4)], rtol=1e-12)
