"""The gains of a sampled law for motion and force, tuned on 64 scenarios at once: arms that slide along a round wall and press on it.

The arm of wall_control.py is sampled at 50 Hz by noisy sensors. Scenarios differ in the path along the wall, the initial error of the arm, the external push that the law assumes, and the
noise. Higher gains reduce errors faster, but feed noise back.
"""

import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from wall_control import FORCE, WALLS, arm

import jaxmb as jm

HAND = {"gain": 3.0, "integral": 12.0, "motion.stiffness": 36.0, "motion.damping": 12.0}
MOST = {"gain": 20.0, "integral": 400.0, "motion.stiffness": 2000.0, "motion.damping": 90.0}
PERIOD, TS = 0.02, jnp.linspace(0.04, 1.0, 25)
STEPS = {"solver": dfx.Midpoint(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": PERIOD, "max_steps": 64}
ALONG = WALLS["round"][1]


class Path(eqx.Module):
    """From a place along the wall to another one and back, in m."""

    first: jax.Array
    way: jax.Array
    rate: jax.Array

    def __call__(self, t):
        """Where the tip should be."""
        return self.first + self.way * (1 - jnp.cos(self.rate * t)) / 2


def scenarios(system, seed, count=64):
    """Runs with the gains set by hand."""
    random, found = np.random.default_rng(seed), []
    for i in range(count):
        state = jm.assemble(system, [-0.6, 1.2] + 0.15 * random.standard_normal(2))
        beside, way, rate = random.uniform([-0.02, -0.4, 2.0], [0.02, 0.4, 6.0])
        path = Path(ALONG(0.0, state.q, None) + beside, jnp.asarray(way), jnp.asarray(rate))
        model = system.with_params({"push": random.uniform(0.0, 16.0)})  # it is 8 N
        motion = jm.control.Track(ALONG, path, HAND["motion.stiffness"], HAND["motion.damping"], model=model)
        law = jm.control.TrackForce(motion, jm.control.Multipliers("wall"), FORCE, HAND["gain"], HAND["integral"])
        sampled = jm.control.Sampled(jm.control.Noisy(law, jax.random.key(1000 * seed + i), q=1e-4, v=2e-3), PERIOD)
        found.append(jm.fit.Experiment(TS, state, control=sampled, about=path, name=f"{seed}: {i}"))
    return found


def miss(system, solution, path):
    """Mean squares of the errors, those of the place over 1 cm and those of the force over 3 N."""
    place = jax.vmap(ALONG, (None, 0, None))(0.0, solution.q, None)
    force = jm.reactions(system, solution).multipliers["wall"][:, 0]
    return jnp.mean(((place - path(solution.ts)) / 0.01) ** 2) + jnp.mean(((force - FORCE) / 3.0) ** 2)


def main(steps=100):
    system = arm("round")

    def tune(experiments, steps, gains=HAND):
        parameters = [
            jm.fit.Parameter(f"control.controller.controller.{name}", gains[name], 0.0, MOST[name], scale=HAND[name])
            for name in HAND
        ]
        begin = time.perf_counter()
        found = jm.fit.tune(system, parameters, experiments, miss, steps=steps, optimiser=optax.adam(0.1), **STEPS)
        return found, time.perf_counter() - begin

    trained, new = scenarios(system, 0), scenarios(system, 1)
    before, first = tune(trained, 0)
    after, later = tune(trained, steps)
    gains = {name: after.estimates[f"control.controller.controller.{name}"] for name in HAND}
    print(f"{after}\nfirst call {first:.0f} s, {steps} steps for {len(trained)} scenarios in a later one {later:.0f} s")
    checked = [tune(new, 0, g)[0] for g in (HAND, gains)]
    for name, (old, now) in {"tuned for": (before, after), "new": checked}.items():
        costs = [np.array(list(x.costs.values())) for x in (old, now)]
        worse = int((costs[1] > costs[0]).sum())
        print(
            f"scenarios {name}: mean {costs[0].mean():.3g} → {costs[1].mean():.3g}, worst {costs[0].max():.3g} → {costs[1].max():.3g}, {worse} worse"
        )
        assert np.isfinite(costs).all() and costs[1].mean() < costs[0].mean() / 3
    assert later < 60 and not int(after.halved.sum())


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
