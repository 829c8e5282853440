# %% [markdown]
# # Joints that lock and come loose
#
# An arm of three links swings on three hinges.
# A latch locks the second hinge at 0.4 s.
# The latch holds 2000 N m, and comes loose when it has to bear more.
# What happens to the other links at these instants?

# %%
import jax
import jax.numpy as jnp
import numpy as np
from locking import pendulum
from matplotlib import pyplot as plt

import jaxmb as jm

jax.config.update("jax_enable_x64", True)
system = pendulum()
state = jm.assemble(system, jnp.full(3, np.pi / 6))
axes = jm.plot.draw(system, state)

# %% [markdown]
# ## Define the events
#
# An event happens at a time, or when a function of the motion rises above zero.
# The lock keeps the angle that the hinge has at 0.4 s.
# The release happens when the torque of the lock rises above its strength.

# %%
STRENGTH = 2000.0  # N m
lock = jm.Lock("q2", at=0.4)
release = jm.Release("lock q2", when=lambda t, q, v, reaction, p: jnp.abs(reaction["lock q2"][0]) - STRENGTH)
sol = jm.simulate(system, state, jnp.linspace(0.0, 1.0, 201), events=[lock, release], max_events=2)
print(sol.events)
assert int(sol.events.count) == 2

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for i, name in enumerate(system.velocities):
    ax.plot(sol.ts, sol.v[:, i], label=name)
for time in sol.events.t:
    ax.axvline(time, color="0.7", linestyle="--")
ax.set(xlabel="t in s", ylabel="rate in rad/s")
legend = ax.legend()

# %% [markdown]
# The rate of hinge 2 drops to zero at once, and those of the others jump with it.
# At the release nothing jumps: the latch just ceases to hold.
#
# ## Why the others jump
#
# The blow, an impulse, acts in hinge 2 and nowhere else.
# So the momenta that belong to hinges 1 and 3 are the same before and after.

# %%
before, after = sol.events.before, sol.events.after
mass = system.mass(before.t[0], before.q[0])
change = np.asarray(mass @ (after.v[0] - before.v[0]))
print("rates before:", np.round(before.v[0], 3), "rad/s")
print("rates after: ", np.round(after.v[0], 3) + 0.0, "rad/s")
print("blow in hinge 2:", round(float(change[1]), 2), "N m s")
print("momenta of the others kept:", np.abs(change[[0, 2]]).max() < 1e-9)
assert np.abs(change[[0, 2]]).max() < 1e-9 and abs(after.v[0, 1]) < 1e-12
assert np.allclose(before.v[1], after.v[1], atol=1e-12)

# %% [markdown]
# It is easy to do this wrongly.
# If you set one rate to zero and leave the others as they are, the arm gains momentum from nowhere.

# %%
naive = np.asarray(mass @ (before.v[0].at[1].set(0.0) - before.v[0]))
print("momenta of hinges 1 and 3 would change by", naive[[0, 2]].round(1), "N m s")
assert np.abs(naive[[0, 2]]).min() > 1

# %% [markdown]
# ## The load of the latch
#
# While it holds, the latch bears a torque, which is the multiplier of its constraint.
# It grows until the latch comes loose.

# %%
load = np.abs(jm.reactions(system, sol).multipliers["lock q2"][:, 0])
held = np.asarray((sol.ts >= sol.events.t[0]) & (sol.ts < sol.events.t[1]))
print(f"the latch holds from {float(sol.events.t[0]):.3f} s to {float(sol.events.t[1]):.3f} s")
print(f"largest torque at a saved time: {load[held].max():.0f} N m")
assert 0.9 * STRENGTH < load[held].max() <= STRENGTH and load[~held].max() < 1e-9
assert np.ptp(np.asarray(sol.q)[held, 1]) < 1e-9

# %% [markdown]
# ## What this showed
#
# The blow of a locking joint acts on the whole mechanism, not only on its own axis.
# The momenta of the directions that stay free show whether a jump is right.
# An event may depend on a load, and the run finds the instant by itself.
