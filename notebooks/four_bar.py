# %% [markdown]
# # A four-bar linkage
#
# We build a mechanism, find a pose in which it fits together, let it fall, and look at it.
# You only need to know a little Python.

# %%
import jax
import jax.numpy as jnp

import jaxmb as jm

jax.config.update("jax_enable_x64", True)
P = jm.planar

# %% [markdown]
# ## Build
#
# A mechanism consists of bodies and joints.
# A rod of one kilogram and 0.3 metres has two ends, and they are called `a` and `b`.
# A joint names the two places that it connects.

# %%
bars = [P.Body.rod("crank", 1.0, 0.3), P.Body.rod("coupler", 2.0, 0.9), P.Body.rod("rocker", 1.5, 0.7)]
pins = [
    P.Revolute("A", "ground", "crank.a"),
    P.Revolute("B", "crank.b", "coupler.a"),
    P.Revolute("C", "coupler.b", "rocker.b"),
    P.Revolute("D", ("ground", (0.8, 0.0)), "rocker.a"),
]
system = P.Mechanism(bars, pins, gravity=(0.0, -9.81)).build()
print(system)

# %% [markdown]
# Three angles describe the mechanism, and the joint that closes the loop removes two of their three freedoms.
# One freedom is left.
#
# ## Assemble
#
# We want the crank at 1.2 radians, and only guess the other two angles.
# `assemble` holds the crank and moves the others until the loop is closed.

# %%
state = jm.assemble(system, {"A": 1.2, "B": -0.8, "D": 1.5}, hold=["A"])
gap = jnp.abs(jm.residuals(system, state).position).max()
print("the crank is at", round(float(jm.coordinate(system, state, "A")), 6), "rad")
print("the loop is closed to rounding:", bool(gap < 1e-12))
assert gap < 1e-12

# %%
axes = jm.plot.draw(system, state)

# %% [markdown]
# ## Run
#
# Now the linkage falls for three seconds.
# We ask for the state at 151 times.

# %%
sol = jm.simulate(system, state, jnp.linspace(0.0, 3.0, 151))
print("pin C after 3 s:", jm.position(system, sol, "coupler.b")[-1].round(3), "m")
assert bool(sol.result == jm.RESULTS.successful)

# %% [markdown]
# Is this motion right?
# No friction acts, so the energy must be conserved.
# The loop must stay closed, too.

# %%
energy = jm.energy(system, sol)
drift = float(jnp.ptp(energy.total) / jnp.ptp(energy.kinetic))
open_by = float(jnp.abs(jm.residuals(system, sol).position).max())
print("energy kept to 1 part in a million:", drift < 1e-6)
print("loop closed at all times:", open_by < 1e-12)
assert drift < 1e-6 and open_by < 1e-12

# %% [markdown]
# ## Look
#
# In a notebook the next cell plays the motion.
# Drag the time slider, let a point draw its path, or choose a curve.
# `jm.plot.page(system, sol, "motion.html")` writes it into a file for any browser, too.

# %%
player = jm.plot.page(system, sol, title="Four-bar linkage")
player

# %% [markdown]
# ## What this showed
#
# A mechanism is a list of bodies and a list of joints.
# A rough guess is enough for a pose that fits together exactly.
# A law that the integrator does not use, here conservation of energy, confirms a motion.
