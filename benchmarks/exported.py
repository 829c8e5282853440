"""Steps of a four-bar in exported C beside the same steps by this library, and beside MuJoCo's, one lane on one core.

    python benchmarks/exported.py [--small | --full]

Needs a C compiler, `cc`, and for MuJoCo the extra `models`. The loop is closed by a ball, since MuJoCo has no other joint for it. The error is the largest difference
of coordinates at the end from those of the stepper, the gap by how much the loop is open there.
"""

import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable

import common
import diffrax as dfx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import jaxmb as jm

STEPS = {"small": 1_000, "default": 20_000, "full": 200_000}
DT, ROUNDS = 0.002, 5
S = jm.spatial
INTEGRATORS = {"MuJoCo, Euler": mujoco.mjtIntegrator.mjINT_EULER, "MuJoCo, RK4": mujoco.mjtIntegrator.mjINT_RK4}
MAIN = """#include <stdio.h>
#include "fourbar.h"

int main(void)
{{
    double q[] = {{{q}}}, v[] = {{{v}}};
    int failed = 0;
    for (int i = 0; i < {count}; ++i)
        failed += fourbar_step(i * FOURBAR_DT, FOURBAR_DT, q, v) != FOURBAR_OK;
    for (int i = 0; i < FOURBAR_NQ; ++i)
        printf("%.17g ", q[i]);
    return failed != 0;
}}
"""


def fourbar() -> S.Mechanism:
    """A four-bar that swings in a plane."""
    rod = lambda name, length: S.Body(
        name, 1.0, (1e-3, length**2 / 12, length**2 / 12), (length / 2, 0.0, 0.0), {"b": (length, 0.0, 0.0)}
    )
    bodies = [rod("crank", 0.4), rod("coupler", 0.9), rod("rocker", 0.8)]
    joints = [
        S.Revolute("A", "ground", "crank"),
        S.Revolute("B", "crank.b", "coupler"),
        S.Revolute("C", "coupler.b", "rocker"),
        S.Spherical("D", "rocker.b", ("ground", (1.0, 0.0, 0.0))),
    ]
    return S.Mechanism(bodies, joints, gravity=(0.0, -9.81, 0.0))


def by_mujoco(
    mechanism: S.Mechanism, state: jm.State, integrator: mujoco.mjtIntegrator, count: int
) -> Callable[[], np.ndarray]:
    """What makes so many steps of MuJoCo, and returns the coordinates and the gap of the loop."""
    model = mujoco.MjModel.from_xml_string(jm.models.to_mjcf(mechanism, cut=["D"]))
    model.opt.timestep, model.opt.integrator = DT, integrator
    q, v = np.asarray(state.q), np.asarray(state.v)

    def run() -> np.ndarray:
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_step(model, data, nstep=count)
        mujoco.mj_forward(model, data)
        return np.append(data.qpos, np.linalg.norm(data.site("D_a").xpos - data.site("D_b").xpos))

    return run


def compiled(step: jm.Stepper, folder: pathlib.Path, count: int) -> tuple[jm.export.CFiles, pathlib.Path]:
    """A program that makes so many steps and prints the coordinates."""
    assert step.state is not None
    files = jm.export.c(step, folder, "fourbar")
    numbers = lambda x: ", ".join(repr(float(value)) for value in x)
    main = MAIN.format(q=numbers(step.state.q), v=numbers(step.state.v), count=count)
    (folder / "main.c").write_text(main)
    command = ["cc", "-std=c99", "-O2", "-march=native", "-o", "main", "main.c", "fourbar.c", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return files, folder / "main"


def main() -> None:
    """A row for each candidate."""
    started, options = time.perf_counter(), common.arguments("exported", __doc__ or "")
    mechanism, count = fourbar(), STEPS[options.size]
    system = mechanism.build(cut=["D"])
    state = jm.assemble(system, {"A": 1.2, "B": -1.3, "C": -1.4}, hold=["A"])
    step = jm.stepper(system, state, DT)
    start = step.start()
    with tempfile.TemporaryDirectory() as name:
        files, program = compiled(step, pathlib.Path(name), count)
        in_c = lambda: np.array(subprocess.run([program], check=True, capture_output=True).stdout.split(), float)
        steps = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": DT, "max_steps": 2 * count}
        whole = jax.jit(lambda state: jm.simulate(system, state, DT * count * jnp.ones(1), **steps).q[-1])
        scan = jax.jit(lambda state: jax.lax.scan(lambda s, _: (step(s), None), state, length=count)[0].q)
        candidates = {
            "exported C": in_c,
            "a compiled run": lambda: whole(state),
            "the stepper in a scan": lambda: scan(start),
        }
        candidates |= {name: by_mujoco(mechanism, state, x, count) for name, x in INTEGRATORS.items()}
        timings = common.in_alternation(candidates, ROUNDS)
    reference, rows = np.asarray(timings["the stepper in a scan"].value), []
    gap = lambda q: float(jnp.linalg.norm(jm.residuals(system, jm.as_state(system, q)).position))
    for label, timing in timings.items():
        q = np.asarray(timing.value)
        error = float(np.abs(q[: system.nq] - reference).max())
        open_by = float(q[-1]) if label in INTEGRATORS else gap(q)
        rows.append({"candidate": label, "us_per_step": timing.minimum / count * 1e6, "error": error, "gap": open_by, **timing.row()})  # fmt: skip
    print(common.table(rows, ["candidate", "us_per_step", "error", "gap", "first_s"]))
    common.write(options.output, rows, started, options.size, steps=count, operations=files.operations)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
