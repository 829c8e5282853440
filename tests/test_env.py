"""Environments of learning control: pure, lane by lane, through failures, ends and new starts; gymnasium; ready-made tasks."""

import copy
import functools
import re
import sys
import types

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.env.tasks import stewart_balancing

LANES, LENGTH = 3, 5


@functools.cache
def pushed():
    """A point on a rod that is stated twice, pushed by two inputs."""
    return jm.System(
        ("x", "y"),
        mass=lambda t, q, p: p["m"] * jnp.eye(2),
        potential=lambda t, q, p: p["m"] * 9.81 * q[1],
        constraints=[jm.Holonomic(f"rod {k}", lambda t, q, p, k=k: 10.0**k * (q @ q - 1)) for k in range(2)],
        actuation=lambda t, q, p: jnp.eye(2),
        params={"m": 2.0, "goal": 0.5},
    )


def observe(system, state):
    return jnp.concatenate([state.q, state.v, system.params["goal"][None]])


def reward(system, state, action):
    return {"near": -((state.q[0] - system.params["goal"]) ** 2), "effort": -0.01 * action @ action}


def draw(rng, system):
    return system.with_params({"m": jax.random.uniform(rng, minval=1.0, maxval=3.0), "goal": jax.random.uniform(rng)})


@functools.cache
def start():
    return jm.assemble(pushed(), [-0.8, -0.6])


def fast(system, state):
    return state.v[0] > 0.6  # more than gravity alone makes of it in an episode


def environment(**options):
    step = jm.stepper(pushed(), start(), 0.02, solver=dfx.Midpoint())
    options = {"randomise": draw, "spread": 0.1, "episode_length": LENGTH, "done": fast} | options
    return jm.env.Environment(step, observe, reward, (20.0, 5.0), **options)


@pytest.fixture(scope="module")
def env():
    return environment()


@pytest.fixture(scope="module")
def starts(env):
    return jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), LANES))


@pytest.fixture(scope="module")
def step(env):
    return jax.jit(jax.vmap(env.step))


def lane(tree, k):
    return jax.tree.map(lambda x: x[k], tree)


def same(a, b, tol=0.0):
    """Whether all numbers of two states are the same, NaN where the other is."""
    plain = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.allclose(plain(x), plain(y), rtol=0, atol=tol, equal_nan=True) for x, y in pairs)


def test_starts_follow_from_keys_and_satisfy_the_constraints(env, starts):
    assert same(starts, jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), LANES)))
    assert np.ptp(starts.data.q[:, 0]) > 1e-2 and np.ptp(starts.info["system"].params["m"]) > 0.1
    assert np.abs(jm.residuals(env.stepper.system, starts.data).position).max() < 1e-12
    assert (starts.reward == 0).all() and (starts.done == 0).all() and (starts.info["steps"] == 0).all()
    assert (starts.info["result"] == jm.RESULTS.successful).all()
    assert (starts.obs[:, 4] == starts.info["system"].params["goal"]).all()


def test_steps_are_those_of_the_stepper(env, starts, step):
    actions = jnp.array([[0.5, -0.2], [3.0, -9.0], [0.0, 0.0]])
    after = step(starts, actions)
    assert same(after, step(starts, actions))
    for k, u in enumerate(([10.0, -1.0], [20.0, -5.0], [0.0, 0.0])):  # cut off and scaled
        alone = lane(starts, k)
        own = eqx.tree_at(lambda s: s.system, env.stepper, alone.info["system"])(alone.data, jnp.array(u))
        assert np.allclose(own.q, after.data.q[k], rtol=0, atol=1e-13) and np.allclose(
            own.v, after.data.v[k], rtol=0, atol=1e-12
        )
    assert np.allclose(after.reward, sum(after.metrics.values()), rtol=0, atol=1e-15)
    assert np.allclose(after.metrics["effort"], [-0.01 * 0.29, -0.02, 0.0], rtol=0, atol=1e-15)


def test_a_lane_is_a_run_by_itself(env, starts, step):
    actions = jnp.full((LANES, 2), 0.3)
    assert same(lane(step(starts, actions), 1), jax.jit(env.step)(lane(starts, 1), actions[1]), 1e-12)


def test_an_action_that_is_not_finite_ends_its_lane_alone(starts, step):
    actions = jnp.full((LANES, 2), 0.3)
    good, bad = step(starts, actions), step(starts, actions.at[1, 0].set(jnp.nan))
    for k in (0, 2):
        assert same(lane(good, k), lane(bad, k))
    over = lane(bad, 1)
    assert over.done == 1 and over.reward == 0 and over.info["truncation"] == 0
    assert over.info["result"] == jm.RESULTS.nonfinite and np.isnan(over.data.q).all()
    assert (over.obs == starts.obs[1]).all() and over.metrics["near"] == 0
    later = lane(step(bad, actions), 1)  # nothing but a reset brings it back
    assert later.done == 1 and (later.obs == starts.obs[1]).all() and later.info["result"] != jm.RESULTS.successful


@pytest.mark.parametrize(
    ("info", "obs", "text"),
    [
        (("rng",), 5, "with 'system' and 'steps' in `info`, but is without"),
        (("rng", "system", "steps", "truncation"), 3, r"which observes 5 numbers, but has observed shape \(3,\)"),
    ],
)
def test_a_state_of_another_environment_is_refused(env, starts, info, obs, text):
    own = lane(starts, 0)
    other = own.replace(info={name: own.info[name] for name in info}, obs=jnp.zeros(obs))
    with pytest.raises(ValueError, match=f"`state` must be one of this environment, {text}"):
        jax.eval_shape(env.step, other, jnp.zeros(2))


def returned(env, starts, gain, spoilt=None):
    """The mean return of all lanes under a linear policy; in lane 1 the action of one step may be spoilt."""

    def one(state, k):
        action = jnp.tanh(gain * state.obs[:2])
        after = env.step(state, jnp.where(k == spoilt, jnp.nan, action) if spoilt is not None else action)
        return after, after.reward

    alone = lambda state: jax.lax.scan(one, state, jnp.arange(LENGTH))[1].sum()
    return jax.vmap(alone)(starts).mean()


def test_the_gradient_of_the_return_is_that_of_its_values(env, starts):
    value = jax.jit(lambda gain: returned(env, starts, gain))
    slope, h = jax.jit(jax.grad(value))(0.4), 1e-5
    assert abs((value(0.4 + h) - value(0.4 - h)) / (2 * h) - slope) < 1e-8 < abs(slope)


@pytest.mark.slow
def test_a_lane_that_is_over_does_not_spoil_the_gradient(env, starts):
    value = lambda gain, spoilt: returned(env, starts, gain, spoilt)
    short, slope = jax.jit(jax.value_and_grad(value))(0.4, 3)
    h = 1e-5
    found = (jax.jit(value)(0.4 + h, 3) - jax.jit(value)(0.4 - h, 3)) / (2 * h)
    assert short != value(0.4, LENGTH + 1) and abs(found - slope) < 1e-8 < abs(slope)


def test_an_episode_ends_by_time_or_by_its_own_end(starts, step):
    for action, last in ((jnp.zeros(2), LENGTH), (jnp.array([1.0, 0.0]), None)):
        states = [starts]
        while states[-1].done[0] == 0:
            states.append(step(states[-1], jnp.broadcast_to(action, (LANES, 2))))
        end, count = lane(states[-1], 0), len(states) - 1
        assert end.info["steps"] == count and (count == LENGTH) >= (last == LENGTH)
        assert (end.data.v[0] > 0.6) == (last is None)
        assert end.info["truncation"] == (last == LENGTH)


def test_without_a_length_nothing_counts():
    env = environment(episode_length=None, randomise=None)
    assert set(jax.eval_shape(env.reset, jax.random.key(0)).info) == {"rng", "result"}


@pytest.mark.slow
def test_starts_from_a_range_are_drawn_and_told():
    """As an argument of a program, which brings mappings back in another order, and as a constant of one."""
    env = environment(spread={"y": 0.0, "x": (-0.9, -0.7)}, randomise=None)
    starts = [jax.jit(lambda env, rng: env.reset(rng))(env, jax.random.key(1)), jax.jit(env.reset)(jax.random.key(1))]
    assert starts[0].data.q.tolist() == starts[1].data.q.tolist() and -0.9 < starts[0].data.q[0] < -0.7
    told = environment(spread={"x": (2.0, 3.0)}).reset(jax.random.key(0))
    assert told.done == 1 and told.info["result"] == jm.RESULTS.no_assembly and np.isfinite(told.obs).all()
    with pytest.raises(ValueError, match="`spread` must have for 'x' a number that is not negative"):
        environment(spread={"x": -0.1})


@pytest.mark.slow
@pytest.mark.parametrize("task", ["delta_tracking", "five_bar_hopper"])
def test_tasks_in_float32(task):
    """As Brax trains them, without x64: a fifth of an episode with small actions, and new starts."""
    with jax.enable_x64(False):
        auto = jm.env.AutoReset(jm.env.make(task, episode_length=30))
        starts = jax.jit(jax.vmap(auto.reset))(jax.random.split(jax.random.PRNGKey(0), LANES))
        actions = 0.1 * jax.random.normal(jax.random.PRNGKey(1), (50, LANES, auto.action_size))

        def play(state, action):
            after = jax.vmap(auto.step)(state, action)
            return after, (after.info["result"] == jm.RESULTS.successful, after.done, after.reward)

        end, (good, done, reward) = jax.jit(lambda state: jax.lax.scan(play, state, actions))(starts)
    floats = [x for x in jax.tree.leaves(end) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in floats} == {jnp.dtype("float32")}
    assert good.all() and done.any(axis=0).all() and np.isfinite(reward).all() and np.isfinite(end.obs).all()


@pytest.mark.slow
def test_the_next_episode_starts_anew(env):
    auto = jm.env.AutoReset(env)
    assert (auto.action_size, auto.observation_size) == (2, 5)
    assert str(auto.env).startswith("Environment: 5 observed numbers, 2 actions\n  stepper        Stepper (dt ")
    state, step = (
        jax.jit(jax.vmap(auto.reset))(jax.random.split(jax.random.key(0), LANES)),
        jax.jit(jax.vmap(auto.step)),
    )
    bare = jax.jit(jax.vmap(env.step))
    before = state
    for k in range(1, LENGTH + 2):
        actions = jnp.zeros((LANES, 2)).at[1, 0].set(jnp.nan if k == 2 else 0.0)
        plain = bare(before, actions)
        state = step(before, actions)
        over = np.array(state.done) > 0
        assert over.tolist() == [k == LENGTH, k == 2, k == LENGTH]
        assert np.isfinite(state.obs).all() and np.isfinite(state.data.q).all()
        assert (state.info["final_obs"][~over] == state.obs[~over]).all()
        assert (state.info["final_obs"] == plain.obs).all() and (state.reward == plain.reward).all()
        fresh = state.info["system"].params["m"] != before.info["system"].params["m"]
        assert fresh.tolist() == over.tolist()
        steps = [k if k <= LENGTH else k - LENGTH, k if k <= 2 else k - 2, k if k <= LENGTH else k - LENGTH]
        assert state.info["steps"].tolist() == steps
        # Sums over the episode to here, of one that is over too: as Brax's training reads them.
        begun = np.array(before.done) == 0
        for name, of_step in {"sum_reward": plain.reward, "length": np.ones(LANES), **plain.metrics}.items():
            sums = before.info["episode_metrics"][name] * begun + of_step
            assert (state.info["episode_metrics"][name] == sums).all()
        assert state.info["episode_metrics"]["length"].tolist() == steps
        assert (state.info["episode_done"] == state.done).all()
        before = state
    assert np.unique(np.array(state.info["system"].params["m"])).size == LANES


@functools.cache
def on_a_rail(**options):
    """A cart of 2 kg that is pushed by 4 N times the action, in steps of 0.5 s, and should be where it starts on average."""
    cart = jm.System(("x",), mass=lambda t, q, p: 2 * jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
    step = jm.stepper(cart, jm.assemble(cart), 0.5, solver=dfx.Midpoint())
    seen = lambda system, state: jnp.concatenate([state.q, state.v])
    near = lambda system, state, action: {"near": -(state.q[0] ** 2)}
    return jm.env.AutoReset(jm.env.Environment(step, seen, near, 4.0, spread=0.1, **options))


def test_an_episode_of_two_steps_is_followed_by_the_next():
    """Under a push of 2 N: from x₀ to x₀ + 1/8 and x₀ + 1/2, with the sums of both, and then from a new start."""
    auto = on_a_rail(episode_length=2)
    assert (auto.action_size, auto.observation_size) == (1, 2) and copy.copy(auto).dt == 0.5
    assert not hasattr(auto, "__array__")
    start, step = auto.reset(jax.random.key(3)), jax.jit(auto.step)
    x, sums, state = float(start.data.q[0]), 0.0, start
    assert start.info["episode_done"] == 0 and not any(jax.tree.leaves(start.info["episode_metrics"]))
    for k, far in ((1, 1 / 8), (2, 1 / 2), (1, 1 / 8)):
        state = step(state, jnp.array([0.5]))
        end, told = state.info["final_obs"], state.info["episode_metrics"]
        sums += -((x + far) ** 2)
        np.testing.assert_allclose(end, [x + far, 0.5 * k], atol=1e-14)
        np.testing.assert_allclose([told["near"], told["sum_reward"], told["length"]], [sums, sums, k], atol=1e-14)
        assert state.info["steps"] == k and state.done == state.info["episode_done"] == (k == 2)
        if k == 2:
            x, sums = float(state.data.q[0]), 0.0
            assert state.obs.tolist() == [x, float(state.data.v[0])] and x not in (start.data.q[0], end[0])
            assert state.info["truncation"] == 1 and state.data.t == 0
            np.testing.assert_allclose(state.obs, 0, atol=0.5)
        else:
            assert state.obs.tolist() == end.tolist()


def test_episodes_without_a_length_count_nothing_that_follows():
    auto = on_a_rail(episode_length=None, done=fast)
    start = jax.eval_shape(auto.reset, jax.random.key(0))
    after = jax.eval_shape(auto.step, start, jnp.zeros(1))
    assert set(after.info) == set(start.info) == {"rng", "result", "final_obs", "episode_metrics", "episode_done"}


def test_wrappers_of_brax_find_what_they_expect(starts):
    """Brax's `EpisodeWrapper` in short: raw keys, entries that are added to `info`, and `replace` in a scan."""
    env = environment(episode_length=None)
    rng = jax.random.PRNGKey(0)
    assert jax.eval_shape(env.reset, rng).info["rng"].shape == rng.shape and env.unwrapped is env
    state = starts.replace(info={name: starts.info[name] for name in ("rng", "result", "system")})
    state.info["steps"] = jnp.zeros(LANES)
    state.info.update(first_state=state.data)

    @jax.jit
    def step(state, action):
        one = lambda state, _: ((after := jax.vmap(env.step)(state, action)), after.reward)
        state, rewards = jax.lax.scan(one, state, (), 2)
        state.info["steps"] += 2
        return state.replace(reward=rewards.sum(0), done=jnp.where(state.info["steps"] >= 4, 1.0, state.done))

    for done in (0, 1):
        state = step(state, jnp.zeros((LANES, 2)))
        assert state.done.tolist() == [done] * LANES


def small():
    return environment(randomise=None)


@pytest.mark.parametrize(
    ("make_it", "error", "text"),
    [
        (lambda: jax.eval_shape(small().step, jax.eval_shape(small().reset, jax.random.key(0)), jnp.zeros(3)), ValueError, r"`action`, one number for each input, must have shape \(2,\)"),
        (lambda: environment(lower=(-1.0, 9.0)), ValueError, "`upper` must be above `lower`"),
        (lambda: jm.env.Environment(small().stepper, observe, reward, 0.0), ValueError, "`upper` must be positive where no `lower` is given, but is 0"),
        (lambda: environment(lower=-jnp.inf), ValueError, "`lower` must be finite"),
        (lambda: environment(lower=jnp.zeros(3)), ValueError, r"`lower` must be a number or have shape \(2,\)"),
        (lambda: environment(episode_length=0), ValueError, "`episode_length` of Environment must be a positive integer"),
        (lambda: environment(done=lambda system, state: state.q > 0), ValueError, "`done` must return one truth value"),
        (lambda: environment().reset(3), TypeError, "`rng` must be a key of `jax.random`, but is 3"),
        (lambda: environment(randomise=lambda rng, system: 1).reset(jax.random.key(0)), TypeError, "return a System"),
        (
            lambda: environment(randomise=lambda rng, s: jm.System(2, mass=lambda t, q, p: jnp.eye(2))).reset(jax.random.key(0)),
            ValueError,
            "other coordinates, rows or inputs",
        ),
        (lambda: jm.env.make("nothing"), ValueError, "`name` must be one of 'delta_tracking'"),
    ],
)  # fmt: skip
def test_wrong_arguments(make_it, error, text):
    with pytest.raises(error, match=text):
        make_it()


@pytest.mark.parametrize(
    ("observe", "reward", "text"),
    [
        (lambda system, state: state.q[0], reward, r"`observe` must return an array \(n,\)"),
        (lambda system, state: state, reward, r"`observe` must return an array \(n,\), but returns a State"),
        (observe, lambda system, state, action: {"a": action}, r"of shape \(2,\) as 'a'"),
        (observe, lambda system, state, action: None, "`reward` must return numbers, but returns a NoneType"),
        (
            observe,
            lambda system, state, action: 1.0 if state.q[0] > 0 else 0.0,
            "`reward` must compute with `jax.numpy` alone",
        ),
    ],
)
def test_what_functions_return_is_looked_at(env, observe, reward, text):
    with pytest.raises((TypeError, ValueError), match=text):
        jm.env.Environment(env.stepper, observe, reward, 1.0)


def test_steps_without_inputs_are_refused():
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1))
    step = jm.stepper(system, jm.assemble(system, [0.0]), 0.1)
    with pytest.raises(ValueError, match="system without actuators"):
        jm.env.Environment(step, lambda system, state: state.q, lambda system, state, action: 0.0, 1.0)


# gymnasium


@pytest.mark.filterwarnings(
    "ignore:.*Box observation space:UserWarning", "ignore:.*alternative render modes:UserWarning"
)
def test_gymnasium_finds_nothing_wrong(env):
    checker = pytest.importorskip("gymnasium.utils.env_checker")
    wrapped = jm.env.to_gymnasium(env, seed=3)
    checker.check_env(wrapped)
    obs, _ = wrapped.reset(seed=5)
    state = jax.jit(env.reset)(jax.random.split(jax.random.key(5))[1])
    assert np.allclose(obs, state.obs, rtol=0, atol=1e-13)
    ends = [wrapped.step(np.zeros(2, np.float32))[2:4] for _ in range(LENGTH)]
    assert ends == [(False, k == LENGTH - 1) for k in range(LENGTH)]


def test_gymnasium_steps_many_lanes(env):
    pytest.importorskip("gymnasium")
    many = jm.env.to_gymnasium_vector(env, LANES, seed=1)
    first, _ = many.reset(seed=2)
    assert many.observation_space.contains(first) and np.unique(first[:, 0]).size == LANES
    again, infos = many.reset(seed=2)
    assert (again == first).all() and infos["result"].tolist() == [0] * LANES == (~infos["_result"]).tolist()
    for shape in ((LANES - 1, 2), (LANES,), (2, LANES)):
        with pytest.raises(
            ValueError, match=re.escape(f"`actions`, one row for each lane, must have shape {(LANES, 2)}")
        ):
            many.step(np.zeros(shape))
    actions = np.zeros((LANES, 2), np.float32)
    for k in range(1, LENGTH + 2):
        actions[1, 0] = np.nan if k == 2 else 0
        obs, rewards, terminated, truncated, infos = many.step(actions)
        assert terminated.tolist() == [False, k == 2, False]
        assert truncated.tolist() == [k == LENGTH, False, k == LENGTH]
        assert (rewards == 0).tolist() == [k == LENGTH + 1, k in (2, 3), k == LENGTH + 1]  # the step of a new start
        assert (infos["result"] != 0).tolist() == [False, k == 2, False] and np.isfinite(obs).all()
    assert (obs[[0, 2], 4] != first[[0, 2], 4]).all()
    assert (many.reset()[0] != obs).any(axis=1).all()  # without a seed it goes on


def test_gymnasium_steps_after_a_reset_only(env):
    error = pytest.importorskip("gymnasium.error")
    for wrapped in (jm.env.to_gymnasium(env), jm.env.to_gymnasium_vector(env, 2)):
        with pytest.raises(error.ResetNeeded, match="Call `reset` before `step`"):
            wrapped.step(np.zeros(2))


def test_without_gymnasium_the_extra_is_named(env, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    for make in (jm.env.to_gymnasium, lambda env: jm.env.to_gymnasium_vector(env, 2)):
        with pytest.raises(ImportError, match=r"jaxmb\[env\]"):
            make(env)


# Tasks

EACH = types.MappingProxyType({"delta_tracking": (18, 3), "excavator_digging": (14, 3), "five_bar_hopper": (14, 2), "stewart_balancing": (23, 6)})  # fmt: skip


@pytest.mark.slow_cases("stewart_balancing", "excavator_digging", "delta_tracking")
@pytest.mark.parametrize("name", jm.env.TASKS)
def test_a_task_has_its_sizes_and_a_step_keeps_the_structure_of_its_states(name):
    env = jm.env.make(name, episode_length=20)
    assert (env.observation_size, env.action_size) == EACH[name]
    start = jax.eval_shape(env.reset, jax.random.key(0))
    after = jax.eval_shape(env.step, start, jnp.zeros(env.action_size))
    assert start.obs.shape == (env.observation_size,)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), start, after))


@pytest.mark.slow
@pytest.mark.parametrize("name", jm.env.TASKS)
def test_a_task_runs_under_random_actions(name):
    env = jm.env.make(name, episode_length=20)
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 4))
    assert (state.done == 0).all() and np.ptp(state.obs, axis=0).min() >= 0 and np.ptp(state.obs, axis=0).max() > 1e-3

    def one(state, rng):
        after = env.step(state, 0.3 * jax.random.uniform(rng, (env.action_size,), minval=-1))
        return after, (after.reward, after.done, after.obs)

    alone = lambda state, rng: jax.lax.scan(one, state, jax.random.split(rng, 20))
    end, (rewards, done, obs) = jax.jit(jax.vmap(alone))(state, jax.random.split(jax.random.key(1), 4))
    assert np.isfinite(rewards).all() and np.isfinite(obs).all()
    assert (end.info["result"] == jm.RESULTS.successful).all()
    assert (end.info["truncation"] == 1).any() and (done[:, :10] == 0).all()
    assert (rewards[:, :10] > 0).all() and np.ptp(rewards[:, 9]) > 1e-4
    residual = jm.residuals(env.stepper.system, end.data).position
    assert np.abs(residual).max() < 1e-8


def test_the_legs_of_the_platform_reach_from_feet_to_heads():
    bodies = {body.name: body for body in stewart_balancing.mechanism().bodies}
    assert len(bodies) == 2 + 2 * 6
    for i, (foot, head) in enumerate(zip(stewart_balancing.FEET, stewart_balancing.HEADS, strict=True)):
        bottom, top = (np.asarray(bodies[f"{part}{i}"].pose) for part in ("cylinder", "piston"))
        ends = bottom @ bodies[f"cylinder{i}"].points["a"], top @ bodies[f"piston{i}"].points["b"]
        np.testing.assert_allclose([end[:3, 3] for end in ends], [foot, head + np.array([0, 0, 0.8])], atol=1e-14)
        np.testing.assert_allclose(bottom[:3, :3] @ bottom[:3, :3].T, np.eye(3), atol=1e-14)


def test_legs_carry_the_weight_by_virtual_work():
    """The energy of a plate that is lifted level, by differences, divided by how much longer six legs get."""
    task = stewart_balancing
    out = np.linalg.norm((task.HEADS[0] - task.FEET[0])[:2])
    length = lambda h: np.hypot(out, h)

    def energy(h):
        rise = h / length(h)
        own = task.CYLINDER * task.BARREL / 2 * rise + task.PISTON * (h - task.ROD / 2 * rise)
        return task.G * ((task.PLATE + task.POLE) * h + 6 * own)

    h, d = task.HEIGHT, 1e-4
    slope = (energy(h + d) - energy(h - d)) / (6 * (length(h + d) - length(h - d)))
    np.testing.assert_allclose(task.weight(), slope, rtol=1e-7)


@pytest.mark.slow
def test_a_regulator_balances_the_pole_of_the_platform():
    """One of the linearised platform, by leg lengths and the pole's angles; the middle of the forces carries the weight to rounding."""
    env = jm.env.make("stewart_balancing", randomise=False, episode_length=150)
    system, rest = env.stepper.system, env.stepper.state
    middle = (env.lower + env.upper) / 2
    names = [*(f"leg{i}" for i in range(6)), "foot.first", "foot.second"]
    linear = jm.linearise(system, rest, u=middle, independent=names)
    assert np.abs(linear.residual).max() < 1e-12
    gain = jm.control.lqr(linear, dict.fromkeys(names, 100.0), 1e-3, period=env.stepper.dt).gain
    q, v = (np.array([own.index(name) for name in names]) for own in (system.coordinates, system.velocities))

    def one(state, _):
        off = jnp.concatenate([state.data.q[q] - rest.q[q], state.data.v[v]])
        after = env.step(state, -2 * gain @ off / (env.upper - env.lower))
        return after, (after.metrics["upright"], after.info["result"] == jm.RESULTS.successful)

    starts = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 3))
    _, (upright, well) = jax.jit(jax.vmap(lambda state: jax.lax.scan(one, state, length=150)))(starts)
    # The tip of the pole comes within a millimetre of the middle.
    assert well.all() and (upright[:, 0] < 0.99).any() and (upright[:, -1] > 1 - 1e-4).all()


@pytest.mark.slow
def test_observations_may_see_the_inputs_of_the_step():
    """As an accelerometer does: a force of 2 N on 2 kg along the rail of a free system."""
    free = jm.System(("x",), mass=lambda t, q, p: 2 * jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
    feel = lambda system, state, u: jm.reactions(system, state, u=u, throw=False).vdot
    felt = jm.env.Environment(
        jm.stepper(free, jm.assemble(free), 0.1), feel, lambda system, state, action: action[0], 4.0
    )
    assert felt.observation_size == 1
    state = felt.reset(jax.random.key(0))
    assert np.allclose(state.obs, 0.0) and np.allclose(felt.step(state, jnp.array([0.5])).obs, 1.0)
