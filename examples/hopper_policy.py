"""A small network learns to hop with a leg of five bars by the gradient of its reward through motors, loop and ground.

The task is one of `jm.env.TASKS`; each lane has masses and a friction of its own. Policy gradients from samples need no derivatives of the mechanics; here
`jax.grad` goes through a second of mechanics, 1,000 steps of the integrator with take-off and landing, and Adam improves the mean reward.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import jaxmb as jm

STEPS, LANES, SHORT = 40, 8, 0.22  # the last one in m


def act(network, state):
    """Both motors, as parts of their largest torque."""
    return jnp.tanh(network(state.obs))


def rollout(env, network, state):
    """All states of an episode; one that is over stays where it is."""

    def one(state, _):
        after = env.step(state, act(network, state))
        after = jax.tree.map(lambda old, new: jnp.where(state.done > 0, old, new), state, after)
        return after, after

    return jax.lax.scan(one, state, length=STEPS)[1]


def cost(network, env, starts):
    """The mean reward of all lanes and steps, negative, and that; nothing counts behind the end of an episode.

    The end itself has no derivative. A leg that gets short, which is what ends an episode, so costs something beforehand.
    """
    states = jax.vmap(lambda state: rollout(env, network, state))(starts)
    trunk, foot = states.obs[..., 0], states.obs[..., 11]
    short = jax.nn.relu(SHORT - (trunk - foot))
    reward = jnp.mean(states.reward * (1 - states.done))
    return 100 * jnp.mean(short * (1 - states.done)) - reward, reward


def main(iterations=150):
    env = jm.env.make("five_bar_hopper")
    reset = jax.jit(jax.vmap(env.reset))
    starts_of = lambda i: reset(jax.random.split(jax.random.key(i), LANES))
    network = eqx.nn.MLP(env.observation_size, env.action_size, 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.002))
    memory = optimiser.init(eqx.filter(network, eqx.is_array))

    @eqx.filter_jit
    def improve(network, memory, starts):
        (_, reward), slope = eqx.filter_value_and_grad(cost, has_aux=True)(network, env, starts)
        change, memory = optimiser.update(slope, memory)
        return eqx.apply_updates(network, change), memory, reward

    begin, values = time.perf_counter(), []
    for i in range(iterations):
        network, memory, reward = improve(network, memory, starts_of(i))
        values.append(float(reward))
    print(f"{iterations} gradients through {LANES} × {STEPS} steps: {time.perf_counter() - begin:.0f} s")
    starts = starts_of(1000)  # not among those of the training
    states = eqx.filter_jit(jax.vmap(lambda state: rollout(env, network, state)))(starts)
    # A leg that whips through its straight pose may do so too fast for steps of a millisecond: that step fails, and has no state.
    failed = int((states.info["result"] != jm.RESULTS.successful)[:, -1].sum())
    off = jnp.nanmax(jnp.abs(jm.residuals(env.stepper.system, states.data).position))
    air = jnp.mean(states.metrics["clearance"] > 0.2)  # the foot more than 2 cm above the ground
    reward, falls = jnp.mean(states.reward * (1 - states.done)), int(states.done[:, -1].sum())
    print(
        f"mean reward {values[0]:.2f} before, {reward:.2f} after; {falls} of {LANES} fall, {failed} by a step that failed"
    )
    print(f"in the air for {air:.0%} of the time; largest residual of the loop {off:.1e} m")
    assert reward > 1.15 * values[0] and air > 0.1 and off < 1e-10 and failed <= 2  # standing is worth 1.05


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
