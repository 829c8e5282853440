"""A thousand four-bars: how far the rocker swings and how fast the crank gets, by coupler, start and damping.

`jaxmb sweep examples/sweep_fourbar.toml` does the sweep alone, `--task 1 --tasks 4` a quarter of it; this script checks it
against direct runs.
"""

import pathlib
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
from fourbar_model import LENGTHS, MASSES, by_crank, fourbar

import jaxmb as jm


def swing(row):
    """The four-bar of one row, let go from rest."""
    lengths = jnp.array([LENGTHS[0], row["coupler"], LENGTHS[2]])
    params = {"l": lengths, "m": jnp.array(MASSES), "d": row["damping"]}
    q = jnp.concatenate([row["start"][None], by_crank(0.0, row["start"][None], params)])
    system = fourbar().with_params(params)
    return system, jm.simulate(system, jm.as_state(system, q), jnp.linspace(0.0, 1.0, 51), throw=False)


def summary(row):
    """What is kept of it."""
    system, solution = swing(row)
    rocker, crank = solution.q.sum(axis=1), solution.v[:, 0]
    balance = jnp.abs(jm.energy(system, solution).balance).max()
    return {"swing": jnp.ptp(rocker), "speed": jnp.abs(crank).max(), "balance": balance, "result": solution.result}


def main():
    folder = pathlib.Path("output/sweep_fourbar")
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.perf_counter()
    report = jm.sweep.read_described(pathlib.Path(__file__).with_suffix(".toml")).run(folder=folder)
    print(report)
    print(f"compiled and run in {time.perf_counter() - begin:.0f} s")
    assert report.rows == 1000 and report.verdicts == {"successful": 1000}

    data = jm.sweep.open(folder).load()
    print(f"energy balance {float(data.balance.max()):.0e} J")
    assert float(data.balance.max()) < 1e-5
    direct = jax.jit(summary, compiler_options=jm.compiler_options())
    for i in (0, 421, 999):
        row = {name: data[name].values[i] for name in ("coupler", "start", "damping")}
        for name, value in direct(row).items():
            if name != "result":
                assert np.allclose(data[name][i], value, rtol=1e-9, atol=1e-9), (i, name)
    widest = data.isel(row=int(data.swing.values.argmax()))
    print(
        f"the rocker swings furthest, {float(widest.swing):.3f} rad, with a coupler of {float(widest.coupler):.3f} m let go at "
        f"{float(widest.start):.2f} rad"
    )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
