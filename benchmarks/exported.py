"""Steps of a four-bar in exported C beside the same steps by this library, one lane on one core.

    python benchmarks/exported.py [--small | --full]

Needs a C compiler, `cc`. The error is the largest difference of coordinates at the end from those of the stepper.
"""

import pathlib
import subprocess
import tempfile
import time

import common
import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm

STEPS = {"small": 1_000, "default": 20_000, "full": 200_000}
DT, ROUNDS = 0.002, 5
P = jm.planar
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


def fourbar() -> jm.Stepper:
    """A four-bar of the builder that swings."""
    lengths = {"crank": 0.4, "coupler": 0.9, "rocker": 0.8}
    joints = [
        P.Revolute("A", "ground", "crank.a"),
        P.Revolute("B", "crank.b", "coupler.a"),
        P.Revolute("C", "coupler.b", "rocker.a"),
        P.Revolute("D", "rocker.b", ("ground", (1.0, 0.0))),
    ]
    rods = [P.Body.rod(name, mass=1.0, length=length) for name, length in lengths.items()]
    system = P.Mechanism(rods, joints, gravity=(0.0, -9.81)).build(cut=["D"])
    return jm.stepper(system, jm.assemble(system, {"A": 1.2, "B": -1.3, "C": -1.4}, hold=["A"]), DT)


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
    step, count = fourbar(), STEPS[options.size]
    start = step.start()
    with tempfile.TemporaryDirectory() as name:
        files, program = compiled(step, pathlib.Path(name), count)
        in_c = lambda: np.array(subprocess.run([program], check=True, capture_output=True).stdout.split(), float)
        steps = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": DT, "max_steps": 2 * count}
        whole = jax.jit(lambda state: jm.simulate(step.system, state, DT * count * jnp.ones(1), **steps).q[-1])
        scan = jax.jit(lambda state: jax.lax.scan(lambda s, _: (step(s), None), state, length=count)[0].q)
        candidates = {
            "exported C": in_c,
            "a compiled run": lambda: whole(step.state),
            "the stepper in a scan": lambda: scan(start),
        }
        timings = common.in_alternation(candidates, ROUNDS)
    reference, rows = np.asarray(timings["the stepper in a scan"].value), []
    for label, timing in timings.items():
        error = float(np.abs(np.asarray(timing.value) - reference).max())
        rows.append({"candidate": label, "us_per_step": timing.minimum / count * 1e6, "error": error, **timing.row()})
    print(common.table(rows, ["candidate", "us_per_step", "error", "first_s"]))
    common.write(options.output, rows, started, options.size, steps=count, operations=files.operations)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
