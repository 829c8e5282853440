"""A small network learns to balance a pole that stands on a closed chain, on a cart: sampled at 100 Hz, with noise of the sensors.

The head is carried by two equal legs that are hinged to the cart and tied by a rod: a closed loop, kept by the constraint of the rod,
with the cart's place and one angle as freedoms. The force on the cart is a linear feedback that barely balances the pole, plus the output of a
network. Costs of a batch of starts and noise keys are differentiated through all samples, and reduced by Adam.
"""

import pathlib
import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import jaxmb as jm

PERIOD, SAMPLES = 0.01, 200
LEG, HALF, CART, HEAD, SHANK = 0.8, 0.2, 1.0, 0.5, 0.1  # m, m, kg, kg, kg
NOISE = 0.01
GAINS = jnp.array([2.0, 4.0, 55.0, 14.0])  # of x, ẋ, angle and its rate


def balancer():
    """The cart, two legs with angles from the vertical, and the rod between their ends; each end has half of the head."""

    def ends(q):
        legs = jnp.stack([jnp.sin(q[1:]), jnp.cos(q[1:])], axis=1) * LEG
        return legs + jnp.array([[-HALF, 0.0], [HALF, 0.0]]) + jnp.stack([q[0], jnp.zeros_like(q[0])])

    def mass(t, q, p):
        rates = jax.jacobian(lambda q: ends(q).ravel())(q)
        cart = jnp.zeros((3, 3)).at[0, 0].set(CART)
        return cart + (HEAD / 2 + SHANK) * rates.T @ rates

    def rod(t, q, p):
        between = ends(q)[1] - ends(q)[0]
        return jnp.sqrt(between @ between) - 2 * HALF

    return jm.System(
        ("x", "a", "b"),
        mass=mass,
        potential=lambda t, q, p: 9.81 * (HEAD / 2 + SHANK) * ends(q)[:, 1].sum(),
        constraints=[jm.Holonomic("rod", rod)],
        actuation=lambda t, q, p: jnp.array([[1.0], [0.0], [0.0]]),
    )


class Policy(eqx.Module):
    """u(t, q, v, params): a linear feedback and a network, which starts as nothing."""

    network: eqx.nn.MLP

    def __init__(self, key):
        network = eqx.nn.MLP(4, 1, 16, 2, activation=jnp.tanh, key=key)
        last = lambda n: (n.layers[-1].weight, n.layers[-1].bias)
        self.network = eqx.tree_at(last, network, jax.tree.map(lambda x: 0.1 * x, last(network)))

    def __call__(self, t, q, v, params):
        """The force on the cart."""
        seen = jnp.stack([q[0], v[0], (q[1] + q[2]) / 2, (v[1] + v[2]) / 2])
        return (GAINS @ seen)[None] + 10.0 * self.network(seen)


def rollout(system, policy, start, key, ts):
    """A run from an angle and a place of the cart, with noise by its key."""
    x, angle = start
    state = jm.as_state(system, jnp.stack([x, angle, angle]), jnp.zeros(3))
    control = jm.control.Sampled(jm.control.Noisy(policy, key, q=NOISE, v=2 * NOISE), PERIOD)
    steps = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": PERIOD, "max_steps": 256, "solver": dfx.Midpoint()}
    return jm.simulate(system, state, ts, control=control, **steps)


def price(run):
    """Mean of place², angle², speed² and effort², weighted."""
    x, u = run.q[..., 0], run.u[..., 0]
    return jnp.mean(x**2 + run.q[..., 1] ** 2 + 0.05 * run.v[..., 0] ** 2 + 1e-4 * u**2)


def cost(policy, system, starts, keys, ts):
    """The mean price of a batch."""
    one = lambda start, key: price(rollout(system, policy, start, key, ts))
    return jnp.mean(jax.vmap(one)(starts, keys))


def batch(key, count=4):
    """Starts (count, 2) and keys."""
    one, two = jax.random.split(key)
    return jax.random.uniform(one, (count, 2), minval=-1.0) * jnp.array([0.6, 0.15]), jax.random.split(two, count)


def train(system, policy, ts, iterations):
    """The policy after some iterations of Adam."""
    optimiser = optax.adam(0.01)
    memory = optimiser.init(eqx.filter(policy, eqx.is_array))

    @eqx.filter_jit
    def step(policy, memory, starts, keys):
        value, slope = eqx.filter_value_and_grad(cost)(policy, system, starts, keys, ts)
        change, memory = optimiser.update(slope, memory)
        return eqx.apply_updates(policy, change), memory, value

    for i in range(iterations):
        begin = time.perf_counter()
        policy, memory, value = step(policy, memory, *batch(jax.random.key(i)))
        if i < 2:
            jax.block_until_ready(value)
            print(f"{('first', 'second')[i]} gradient through {SAMPLES} samples: {time.perf_counter() - begin:.1f} s")
    return policy


def draw(runs, path):
    """Place, angle and force before and after."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(3, 2, figsize=(11, 7.5), sharex=True, sharey="row", layout="constrained")
    for column, (name, run) in enumerate(runs.items()):
        for ax, values, label in zip(
            axes[:, column],
            (run.q[..., 0], run.q[..., 1], run.u[..., 0]),
            ("cart in m", "angle in rad", "force in N"),
            strict=True,
        ):
            ax.plot(run.ts[0], values.T, linewidth=1.0)
            ax.set_ylabel(label)
            ax.grid(alpha=0.3)
        axes[0, column].set_title(name)
        axes[2, column].set_xlabel("t in s")
    fig.savefig(path / "policy.png", dpi=120)
    plt.close(fig)


def main(iterations=150):
    system, before = balancer(), Policy(jax.random.key(0))
    ts = PERIOD * jnp.arange(1, SAMPLES + 1)
    after = train(system, before, ts, iterations)
    starts, keys = batch(jax.random.key(1000), 8)  # not among those of the training
    runs = eqx.filter_jit(jax.vmap(lambda p, s, k: rollout(system, p, s, k, ts), (None, 0, 0)))
    shown = {"linear feedback": runs(before, starts, keys), "with the network": runs(after, starts, keys)}
    values = [float(price(run)) for run in shown.values()]
    print(f"cost of 8 new runs: {values[0]:.4f} before, {values[1]:.4f} after {iterations} iterations")
    off = max(float(jnp.abs(jm.residuals(system, r).position).max()) for r in shown.values())
    print(f"residual of the rod {off:.1e} m")
    assert values[1] < 0.5 * values[0] and off < 1e-9
    pathlib.Path("output").mkdir(exist_ok=True)
    draw(shown, pathlib.Path("output"))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
