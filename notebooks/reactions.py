# %% [markdown]
# # Which bearing load can be trusted?
#
# A platform stands on three parallel uprights.
# Two would be enough to carry and to guide it.
# The third one makes the linkage over-constrained: it moves all the same, because its lengths fit.
# No rigid model determines all loads of its bearings then, and a program that prints them makes an arbitrary choice.

# %%
import jax
import numpy as np

import jaxmb as jm

jax.config.update("jax_enable_x64", True)
P = jm.planar

# %% [markdown]
# The feet of the uprights are at 0, 1 and 2 m.
# Each upright is 1 m long and leans by 60 degrees from the horizontal.

# %%
lean = np.pi / 3
head = np.array([np.cos(lean), np.sin(lean)])
uprights = [P.Body.rod(f"up{i}", 1.0, 1.0, position=(float(i), 0.0), angle=lean) for i in range(3)]
platform = P.Body.rod("platform", 4.0, 2.0, position=head, points={"middle": (1.0, 0.0)})
feet = [P.Revolute(f"foot{i}", ("ground", (float(i), 0.0)), f"up{i}.a") for i in range(3)]
places = ("platform.a", "platform.middle", "platform.b")
heads = [P.Revolute(f"head{i}", f"up{i}.b", place) for i, place in enumerate(places)]
system = P.Mechanism([*uprights, platform], feet + heads, gravity=(0.0, -9.81)).build("absolute")
state = jm.assemble(system)

# %% [markdown]
# ## Count
#
# `diagnose` counts the constraints, and how many of them are independent.

# %%
diagnosis = jm.diagnose(system, state)
print(f"{system.m} constraints, of which {diagnosis.rank} are independent, for {system.nv} velocities")
assert (system.m, diagnosis.rank, system.nv) == (12, 11, 12)

# %% [markdown]
# Twelve velocities less eleven independent constraints leave one freedom, as expected.
# One constraint of twelve is redundant.
# So there is one way to change the loads without changing the motion.
#
# ## Ask which loads are unique

# %%
report = jm.analyse_reactions(system, state)
print(report)
axes = jm.plot.draw(system, state, report=report)

# %% [markdown]
# The loads of all joints depend on each other.
# The last column says which components are not determined, in the axes of the joint's second body.
# For a foot this is the upright, and its fx is the force along it.
# For a head it is the platform.
#
# ## Two programs, two answers, one motion
#
# We imitate two programs that leave out different constraints.
# The first one ignores that foot 0 is held vertically, the second one ignores that foot 1 is.
# Both may do so: the other constraints imply the one that is left out.


# %%
def loads(row):
    """Accelerations and forces in the feet, one constraint being left out."""
    values = jm.reactions(system, state, formulation=jm.formulation.Elimination((row,)))
    return values.vdot, np.array([values.multipliers[f"foot{i}"] for i in range(3)])


(first_motion, first), (second_motion, second) = loads(1), loads(3)
print("vertical force in the feet, in N")
print("  without foot 0:", first[:, 1].round(2) + 0.0)
print("  without foot 1:", second[:, 1].round(2) + 0.0)
print("the accelerations agree:", np.allclose(first_motion, second_motion, atol=1e-9))
assert np.allclose(first_motion, second_motion, atol=1e-9) and np.abs(first - second).max() > 10

# %% [markdown]
# The motion is the same, and the bearing of foot 1 carries 54 N or nothing.
# So use neither number to choose a bearing.
#
# ## What can be trusted
#
# The sum can: the ground carries the whole mechanism, however it shares the load.
# So can the force across an upright, which turns it.

# %%
across = np.array([-head[1], head[0]])
print("sum of the forces:", first.sum(axis=0).round(2), "and", second.sum(axis=0).round(2), "N")
print("across the uprights:", (first @ across).round(2), "and", (second @ across).round(2), "N")
assert np.allclose(first.sum(axis=0), second.sum(axis=0)) and np.allclose(first @ across, second @ across)

# %% [markdown]
# ## What a designer does about it
#
# Without the middle upright's head nothing is redundant, and every load is determined.
# Alternatively, make the bearings elastic; then the stiffest one carries most.

# %%
lighter = P.Mechanism([*uprights, platform], [*feet, heads[0], heads[2]], gravity=(0.0, -9.81)).build("absolute")
report = jm.analyse_reactions(lighter, jm.assemble(lighter))
determined = [name for name, group in report.groups.items() if group.unique]
print("determined:", *determined)
assert determined == ["foot0", "foot1", "foot2", "head0", "head2"]

# %% [markdown]
# ## What this showed
#
# The motion of an over-constrained linkage is unique, and some of its bearing loads are not.
# `analyse_reactions` says which ones, before anybody trusts a number.
# Sums, and forces in the directions of motion, remain reliable.
