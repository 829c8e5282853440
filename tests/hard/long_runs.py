"""long runs: 100 s by default steps, and a million constant ones: the constraints, the energy, and memory."""

import dataclasses
import pathlib
import re
from collections.abc import Callable

import andrews_joints
import andrews_model
import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import rolling_disk
from nfourbar_joints import nfourbar, turning

import jaxmb as jm
from hard.row import cpu_time, none_of

STEPS = 1_000_000
SECONDS = 100.0
SAVED = 101
CLOSED = 1e-12  # of residuals of positions
TURNED = 4 * np.finfo(float).eps  # of the largest angle: what rounding leaves of a place after thousands of turns
ORDER = 5  # of the default method
ROUNDING = 1e-11  # of the energy over a million steps
MEMORY = 8  # MiB that a run may take, however long


@dataclasses.dataclass
class Case:
    """What moves, from a start, and a constant step whose error shows."""

    build: Callable
    step: float


def double_fourbar():
    """It passes its flat pose, where two rows are lost, several times a second."""
    system = nfourbar(2).build(cut=["right0", "right1"])
    return system, turning(system, 2, -1.0)


def hanging_fourbar():
    """The same, swinging below its feet."""
    system = nfourbar(2, -np.pi / 3).build(cut=["right0", "right1"])
    return system, turning(system, 2, -1.0)


def squeezer():
    """Andrews' mechanism without its motor, whose speed would grow for ever."""
    mechanism = andrews_joints.squeezer({**andrews_model.PARAMS, "mom": 0.0})
    system = mechanism.build(cut=("plate pin", "upper pin", "lower pin"))
    speed = {"hold_velocity": ["beta"], "v": {"beta": 30.0}}
    return system, jm.assemble(system, andrews_joints.GUESS, hold=["beta"], **speed)


def chain():
    """Four links in space between two ball joints on the ground."""
    S, length = jm.spatial, 0.4
    ends, bodies = [np.zeros(3)], []
    for i, angle in enumerate((1.0, 0.3, -0.3, -1.0)):
        along = np.array([np.cos(angle), 0.0, -np.sin(angle)])
        turn = np.stack([along, [0.0, 1.0, 0.0], np.cross(along, [0.0, 1.0, 0.0])], axis=1)
        points = {"a": (-length / 2, 0.0, 0.0), "b": (length / 2, 0.0, 0.0)}
        place = {"position": ends[-1] + length / 2 * along, "orientation": turn}
        bodies.append(S.Body.box(f"link{i}", mass=1.0, size=(length, 0.05, 0.1), points=points, **place))
        ends.append(ends[-1] + length * along)
    joints = [S.Spherical("first", "ground", "link0.a"), S.Spherical("last", ("ground", ends[-1]), "link3.b")]
    joints += [S.Universal(f"pin{i}", f"link{i}.b", f"link{i + 1}.a") for i in range(3)]
    system = S.Mechanism(bodies, joints, gravity=(0.0, 0.0, -9.81)).build()
    return system, jm.assemble(system, v=np.random.default_rng(0).normal(size=system.nv))


def disk():
    system = rolling_disk.rolling_disk().build()
    return system, rolling_disk.start(system)


CASES = {
    "hanging double four-bar": Case(hanging_fourbar, 2e-3),
    "Andrews' squeezer": Case(squeezer, 5e-5),
    "chain in space": Case(chain, 2e-3),
    "rolling disk": Case(disk, 4e-3),
}
ADAPTIVE = {"double four-bar": double_fourbar} | {name: case.build for name, case in CASES.items()}


def drift(system, solution):
    """The largest change of the energy balance, relative to the largest kinetic energy."""
    energy = jm.energy(system, solution)
    return float(np.abs(energy.balance - energy.balance[0]).max() / np.abs(energy.kinetic).max())


def open_by(system, solution):
    """Residuals of positions in units of what is allowed."""
    allowed = max(CLOSED, TURNED * float(np.abs(solution.q).max()))
    return float(np.abs(jm.residuals(system, solution).position).max()) / allowed


def memory(field):
    """What the process has, "VmRSS", or at most had since the mark was reset, "VmHWM", in MiB."""
    return int(re.search(rf"{field}:\s*(\d+)", pathlib.Path("/proc/self/status").read_text()).group(1)) / 1024


def constant(case, count):
    """Runs of `count` steps and of half as many twice as long, and what memory the first took, a tenth of it having been run before."""
    system, state = case.build()
    steady = {"stepsize_controller": dfx.ConstantStepSize(), "max_steps": count + SAVED, "throw": False}
    run = jax.jit(lambda step, end: jm.simulate(system, state, jnp.linspace(0.0, end, SAVED), dt0=step, **steady))
    end = case.step * count
    jax.block_until_ready(run(case.step, end / 10))
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the mark is what the process has now
    before = memory("VmRSS")
    fine = jax.block_until_ready(run(case.step, end))
    return system, fine, run(2 * case.step, end), memory("VmHWM") - before


def figures(share, seed):
    """The row's figures. A share has fewer steps."""
    result, general, opened, failed, drifts, fuller = [], 0, 0, 0, 0, 0
    count = max(1000, round(STEPS * share))
    with cpu_time(result):
        for name, case in CASES.items():
            system, fine, coarse, taken = constant(case, count)
            failed += int(fine.result != jm.RESULTS.successful)
            steps = int(fine.stats["compiled_steps"])
            general += steps < count
            apart, small, large = open_by(system, fine), drift(system, fine), drift(system, coarse)
            kept = small <= max(large / 2 ** (ORDER - 1), ROUNDING)
            opened, drifts, fuller = opened + (not apart <= 1), drifts + (not kept), fuller + (taken > MEMORY)
            print(
                f"long_runs {name}: {steps:,} compiled steps of {case.step:g} s, residual {apart:.2g} of what is allowed, "
                f"energy {small:.1e}, {large:.1e} by steps twice as long, {taken:.1f} MiB",
                flush=True,
            )
        for name, build in ADAPTIVE.items():
            system, state = build()
            times = np.linspace(0.0, SECONDS, SAVED)
            found = jm.simulate(system, state, times, max_steps=STEPS, throw=False)
            failed += int(found.result != jm.RESULTS.successful)
            apart, small = open_by(system, found), drift(system, found)
            opened += not apart <= 1
            steps = int(found.stats["num_accepted_steps"])
            print(
                f"long_runs {name}: {SECONDS:g} s, {steps:,} steps, residual {apart:.2g} of what is allowed, energy {small:.1e}",
                flush=True,
            )
        cases = len(CASES) + len(ADAPTIVE)
        none = lambda what, number, cases: none_of("long runs", what, number, cases)
        result += [
            none(f"runs of {SECONDS:g} s, and of {count:,} constant steps, that fail", failed, cases),
            none(f"residual of positions beyond {CLOSED:g}, or beyond the rounding of angles", opened, cases),
            none(f"energy of constant steps not better by {2 ** (ORDER - 1)} at half the length", drifts, len(CASES)),
            none(f"runs of constant steps that take more than {MEMORY} MiB on the way", fuller, len(CASES)),
            none("runs of constant steps of which some were not compiled", general, len(CASES)),
        ]
    return result
