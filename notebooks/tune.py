# %% [markdown]
# # Tuning a controller
#
# A motor turns the crank of a four-bar linkage to an angle and holds it there.
# Its controller has two gains.
# By hand you would try a few values; here the gradient of the whole motion finds them.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from identify_fourbar import TRUTH, mechanism
from matplotlib import pyplot as plt

import jaxmb as jm

jax.config.update("jax_enable_x64", True)
F = jm.fit

# %% [markdown]
# ## The goal
#
# The crank should go to 1 rad.
# It starts at one of two angles, so that the gains are not tuned for one start only.

# %%
TARGET, TS = 1.0, np.linspace(0.0, 1.0, 51)
linkage = mechanism(TRUTH)
system = linkage.build()
starts = {x: jm.assemble(system, {"A": x, "B": -x, "D": 1.5}, hold=["A"]) for x in (0.5, 1.5)}
law = jm.control.PD(["A"], stiffness=1.0, damping=0.01, target=TARGET)


def run(law, start):
    """The motion with a law."""
    return jm.simulate(system, start, TS, control=law)


by_hand = {x: run(law, start) for x, start in starts.items()}
for x, sol in by_hand.items():
    print(f"from {x} rad to {float(sol.q[-1, 0]):.2f} rad, with at most {float(jnp.abs(sol.u).max()):.1f} N m")

# %% [markdown]
# The gains of our first try are too low.
# The weight of the bars pulls the crank half a radian down.
#
# ## Define the objective
#
# A good motion is near the target, without large torques.
# Both enter one number, in which 1 N m counts as much as 0.03 rad.


# %%
def miss(system, solution):
    """Mean squares of the distance from the target and of the torque."""
    return jnp.mean((solution.q[:, 0] - TARGET) ** 2) + 1e-3 * jnp.mean(solution.u**2)


unknown = [F.Parameter("control.stiffness", min_value=0.0), F.Parameter("control.damping", min_value=0.0)]
cases = [F.Experiment(TS, start, control=law, name=f"from {x}") for x, start in starts.items()]
tuned = F.tune(linkage, unknown, cases, miss, steps=60)
gains = {name: tuned.estimates[f"control.{name}"].item() for name in ("stiffness", "damping")}
print(f"cost {float(tuned.history[0]):.3f} with the first gains, {float(tuned.cost):.4f} with the tuned ones")
print({name: float(f"{value:.3g}") for name, value in gains.items()})
assert tuned.cost < 0.5 * tuned.history[0] and not sum(map(int, tuned.failures.values()))

# %% [markdown]
# ## Try it
#
# `tuned.control` is the old law with the new numbers.

# %%
better = {x: run(tuned.control, start) for x, start in starts.items()}
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for colour, x in zip(("C0", "C1"), starts, strict=True):
    ax.plot(TS, by_hand[x].q[:, 0], ":", color=colour, label=f"from {x} rad, first gains")
    ax.plot(TS, better[x].q[:, 0], color=colour, label=f"from {x} rad, tuned")
ax.axhline(TARGET, color="0.6", linewidth=0.8)
ax.set(xlabel="t in s", ylabel="angle of the crank in rad")
legend = ax.legend(fontsize=8)

# %% [markdown]
# Two cases are few, so we try a start that the search has not seen.

# %%
unseen = jm.assemble(system, {"A": 0.0, "B": 0.5, "D": 1.5}, hold=["A"])
costs = [float(miss(system, run(x, unseen))) for x in (law, tuned.control)]
print(f"from 0 rad: {costs[0]:.3f} with the first gains, {costs[1]:.3f} with the tuned ones")
assert costs[1] < 0.7 * costs[0]

# %% [markdown]
# ## What this showed
#
# Tuning needs an objective function and a few cases.
# Gradients through whole motions do the rest, and they include the constraints of the linkage.
# A case that was not used for tuning shows whether the gains are good in general.
