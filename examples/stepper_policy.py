"""A small network learns to turn a slider-crank to a pose by the gradient through 120 steps of its mechanics.

Each step is a call, `state = step(state, u)`, in a loop that this script writes: it defines what the network sees, when it acts and what it
costs, and `jax.grad` goes through all of it. The starts are drawn on the constraints; Adam reduces the mean cost of a batch.
"""

import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import jaxmb as jm

DT, STEPS, TARGET = 0.01, 120, 1.2  # s, steps, rad


def slider_crank():
    """A crank with a motor, a rod and a block on a horizontal rail."""
    P = jm.planar
    return P.Mechanism(
        bodies=[P.Body.rod("crank", 1.0, 0.3), P.Body.rod("rod", 1.5, 0.8), P.Body("block", 0.8, 0.01)],
        joints=[
            P.Revolute("motor", "ground", "crank.a"),
            P.Revolute("knee", "crank.b", "rod.a"),
            P.Revolute("pin", "rod.b", "block"),
            P.Prismatic("rail", "ground", "block"),
        ],
        actuators=[P.Motor("drive", "motor")],
        gravity=(0.0, -9.81),
    ).build()


def act(network, state, crank):
    """The torque in N m: what is seen is the crank's angle, as a point on the circle, and its rate."""
    angle, rate = state.q[crank], state.v[crank]
    return 12.0 * jnp.tanh(network(jnp.stack([jnp.sin(angle - TARGET), jnp.cos(angle - TARGET), 0.2 * rate])))


def rollout(step, network, state, crank):
    """All states and inputs."""

    def one(state, _):
        u = act(network, state, crank)
        after = step(state, u)
        return after, (after, u)

    return jax.lax.scan(one, state, length=STEPS)[1]


def cost(network, step, starts, crank):
    """Mean of angle², rate² and torque², weighted."""
    states, u = jax.vmap(lambda state: rollout(step, network, state, crank))(starts)
    angle, rate = states.q[..., crank] - TARGET, states.v[..., crank]
    return jnp.mean(2 * (1 - jnp.cos(angle)) + 0.01 * rate**2) + 1e-4 * jnp.mean(u**2)


def main(iterations=60):
    system = slider_crank()
    crank = system.coordinates.index("motor")
    step = jm.stepper(system, jm.assemble(system, {"motor": 0.6}), DT, solver=dfx.Midpoint())
    draw = jax.jit(jax.vmap(lambda key: step.reset(key, {"motor": 0.3})))
    network = eqx.nn.MLP(3, 1, 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    optimiser = optax.adam(0.01)
    memory = optimiser.init(eqx.filter(network, eqx.is_array))

    @eqx.filter_jit
    def improve(network, memory, starts):
        value, slope = eqx.filter_value_and_grad(cost)(network, step, starts, crank)
        change, memory = optimiser.update(slope, memory)
        return eqx.apply_updates(network, change), memory, value

    begin, values = time.perf_counter(), []
    for i in range(iterations):
        network, memory, value = improve(network, memory, draw(jax.random.split(jax.random.key(i), 8)))
        values.append(float(value))
    print(f"{iterations} gradients through 8 × {STEPS} steps: {time.perf_counter() - begin:.0f} s")
    starts = draw(jax.random.split(jax.random.key(1000), 16))  # not among those of the training
    states, _ = eqx.filter_jit(jax.vmap(lambda state: rollout(step, network, state, crank)))(starts)
    off = jnp.abs(jm.residuals(system, states).position).max()
    last = jnp.abs(states.q[:, -1, crank] - TARGET).max()
    print(f"mean cost {values[0]:.3f} before, {values[-1]:.3f} after; the last angle is off by {last:.3f} rad at most")
    print(f"largest residual of the loop {off:.1e}")
    assert values[-1] < 0.4 * values[0] and last < 0.2 and off < 1e-10


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
