# %% [markdown]
# # A thousand motions, and their gradients
#
# A run is a function of numbers.
# So JAX can evaluate it for a thousand rows of numbers in one call, and differentiate it.
# We compute how far the rocker of a four-bar swings, and on what that depends.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt
from sweep_fourbar import summary, swing

import jaxmb as jm

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## A thousand variants
#
# Each row has a length of the coupler, an angle of the crank at the start, and a damping.
# `swing` releases one four-bar for a second, and `summary` returns how far its rocker has swung.

# %%
random = np.random.default_rng(0)
low, high = np.array([0.8, 0.2, 0.0]), np.array([1.0, 1.2, 0.5])
rows = dict(zip(("coupler", "start", "damping"), random.uniform(low, high, (1000, 3)).T, strict=True))
results = jax.jit(jax.vmap(summary), compiler_options=jm.compiler_options())(rows)
good = np.asarray(results["result"] == jm.RESULTS.successful)
print(good.sum(), "of 1000 runs ended well")
print(f"the rocker swings by {float(results['swing'].min()):.2f} to {float(results['swing'].max()):.2f} rad")
assert good.all() and results["balance"].max() < 1e-5

# %%
figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
dots = ax.scatter(rows["start"], results["swing"], 6, rows["damping"])
ax.set(xlabel="angle of the crank at the start in rad", ylabel="swing of the rocker in rad")
bar = figure.colorbar(dots, label="damping in N m s")

# %% [markdown]
# ## A thousand gradients
#
# Where is the rocker after a second, and how does that depend on the three numbers?
# `grad` differentiates one run, `vmap` does it for all of them, `jit` makes one program of it.


# %%
def end(row):
    """The rocker's angle after a second."""
    return swing(row)[1].q[-1].sum()


slopes = jax.jit(jax.vmap(jax.grad(end)))(rows)
print({name: x.shape for name, x in slopes.items()})
assert all(bool(jnp.isfinite(x).all()) for x in slopes.values())

# %% [markdown]
# Check a derivative before you use it.
# We change the coupler's length in the first row by a small step in both directions, and run again.

# %%
STEP = 1e-4  # m
row = {name: jnp.asarray(values[0]) for name, values in rows.items()}
ends = jax.jit(jax.vmap(end))
sides = ends({name: jnp.stack([x, x]) + (name == "coupler") * jnp.array([-STEP, STEP]) for name, x in row.items()})
difference, slope = float(sides[1] - sides[0]) / (2 * STEP), float(slopes["coupler"][0])
print(f"by the coupler: {slope:.3f} rad/m from the gradient, {difference:.3f} rad/m from two runs")
assert abs(slope - difference) < 1e-3 * abs(slope)

# %% [markdown]
# ## What the gradients are good for
#
# No coupler is made exactly.
# For a tolerance of 1 mm, the slopes say how far the rocker may be off, for all variants at once.

# %%
off = 1e-3 * np.abs(np.asarray(slopes["coupler"]))
best, worst = int(off.argmin()), int(off.argmax())
print(f"off by {1e3 * np.median(off):.1f} mrad in the middle, by {1e3 * off[worst]:.1f} mrad at worst")
print("worst for", {name: round(float(x[worst]), 3) for name, x in rows.items()})
assert off[best] < off[worst] / 10

# %% [markdown]
# ## What this showed
#
# `vmap` turns one motion into a thousand, in one call.
# `grad` differentiates each of them, with its loop closed at every step.
# For each variant the gradient tells what it is sensitive to, before anything is built.
