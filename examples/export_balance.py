"""A pole balanced on the block of a slider-crank: the regulator and the mechanism in C, in less than 32 kB of code.

The only motor is on the crank. In jaxmb a linear-quadratic regulator balances the pole; regulator and mechanism are written in C, compiled with
warnings as errors, and the compiled program balances the pole as jaxmb does.
"""

import pathlib
import shutil
import subprocess

import diffrax as dfx
import equinox as eqx
import jax
import numpy as np

import jaxmb as jm

DT, STEPS, LIMIT = 0.005, 800, 32 * 1024  # s, steps, bytes

PROGRAM = """
#include "balance.h"
#include <stdio.h>

int main(void)
{
    double q[BALANCE_NQ] = {%s}, v[BALANCE_NV] = {%s}, u[BALANCE_NU];
    int k;
    for (k = 0; k <= %d; ++k) {
        const double t = k * BALANCE_DT;
        if (balance_inputs(t, q, v, u) != BALANCE_OK)
            return 1;
        if (k %% 100 == 0)
            printf("t = %%4.1f s   crank %%8.4f rad   pole %%8.4f rad   motor %%8.4f N m\\n", t, q[BALANCE_Q_TURN], q[BALANCE_Q_HINGE], u[BALANCE_U_DRIVE]);
        if (k < %d && balance_step(t, BALANCE_DT, q, v) != BALANCE_OK)
            return 1;
    }
    for (k = 0; k < BALANCE_NQ; ++k)
        printf("%%.15g ", q[k]);
    return 0;
}
"""


def slider_crank():
    """A crank with a motor, a rod, a block on a rail, and a pole hinged to the block."""
    P = jm.planar
    return P.Mechanism(
        bodies=[
            P.Body.rod("crank", 0.4, 0.2),
            P.Body.rod("rod", 0.5, 0.6),
            P.Body("block", 1.0, 0.01),
            P.Body.rod("pole", 0.3, 0.8),
        ],
        joints=[
            P.Revolute("turn", "ground", "crank.a"),
            P.Revolute("knee", "crank.b", "rod.a"),
            P.Revolute("pin", "rod.b", "block"),
            P.Prismatic("rail", "ground", "block"),
            P.Revolute("hinge", "block", "pole.a"),
        ],
        actuators=[P.Motor("drive", "turn")],
        gravity=(0.0, -9.81),
    ).build()


def written(folder, step):
    """The files in C, and the size of the code of a program that links what it needs of them."""
    print(jm.export.c(step, folder, "balance"))
    numbers = lambda x: ", ".join(repr(float(a)) for a in x)
    state = step.start()
    (folder / "main.c").write_text(PROGRAM % (numbers(state.q), numbers(state.v), STEPS, STEPS))
    flags = ["-std=c99", "-Os", "-Wall", "-Wextra", "-pedantic", "-Werror", "-ffunction-sections"]
    run = lambda *command: subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    run("cc", *flags, "-c", "balance.c", "main.c")
    run("cc", "-Wl,--gc-sections", "balance.o", "main.o", "-lm", "-o", "main")
    run("cc", *flags, "test_balance.c", "balance.o", "-lm", "-o", "test_balance")
    print(run("./test_balance").splitlines()[-1])
    sizes = [
        line.split() for line in run("size", "-A", "balance.o").splitlines() if line.startswith((".text", ".rodata"))
    ]
    unused = ("acceleration", "rates", "project")
    code = sum(int(size) for name, size, *_ in sizes if not name.endswith(tuple(f"balance_{x}" for x in unused)))
    return run("./main"), code


def main():
    if shutil.which("cc") is None:
        print("there is no C compiler")
        return
    system = slider_crank()
    rest = jm.equilibrium(system, {"turn": np.pi / 2, "hinge": np.pi / 2}, hold=["turn"])
    plant = jm.linearise(system, rest.state, u=rest.u, independent=["turn", "hinge"])
    regulator = jm.control.lqr(plant, {"turn": 5.0, "hinge": 50.0, "turn'": 1.0, "hinge'": 1.0}, {"drive": 1.0})
    pushed = jm.assemble(system, {"turn": np.pi / 2, "hinge": np.pi / 2 + np.deg2rad(5.0)}, hold=["turn", "hinge"])
    drift = jm.Projection(iterations=2)
    step = jm.stepper(system, pushed, DT, control=regulator.law, solver=dfx.Midpoint(), drift=drift)

    folder = pathlib.Path("output/balance_c")
    folder.parent.mkdir(exist_ok=True)
    printed, code = written(folder, step)
    *lines, last = printed.splitlines()
    print("\n".join(lines))
    end = eqx.filter_jit(lambda state: jax.lax.scan(lambda s, _: (step(s), None), state, length=STEPS)[0])(step.start())
    off = np.abs(np.array(last.split(), float) - np.asarray(end.q)).max()
    tilt = abs(float(end.q[system.coordinates.index("hinge")]) - float(rest.state.q[system.coordinates.index("hinge")]))
    print(
        f"controller and mechanism: {code:,} bytes of code; off by {off:.1e} from jaxmb after {STEPS} steps; tilt left {tilt:.1e} rad"
    )
    assert code <= LIMIT and off <= 1e-9 and tilt <= 1e-3


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
