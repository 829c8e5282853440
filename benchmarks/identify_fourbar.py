"""Eight numbers of a four-bar from noisy encoders: MuJoCo with finite differences beside jaxmb, in one run.

    python benchmarks/identify_fourbar.py

The job is that of examples/identify_fourbar.py: three records of 2 s at 100 Hz, crank and rocker angle with 1 % noise, torque and
starts known; four of the twelve numbers are known, eight are looked for, up to 30 % or 5 % off at first. Both get the same
samples, the same σ, the same first guesses and bounds, from zero to ten times the first guess, and both look for the ratios to
the first guess.

MuJoCo: the model of tests/data/make_fourbar_encoder.py with numbers set in place, integrated by `mujoco.rollout` with RK4 and
steps of 1 ms, all models of a Jacobian side by side on all cores; the loop is closed by a soft `connect`. "model error" is, by
record, what these and the torque's straight lines do to the angles with the true numbers, beside records made with far smaller
steps, a far stiffer loop and the torque itself; nearly all of it, in the third, is the straight lines, which jaxmb gets too. The
torque, straight between samples for both, is held at its value in the middle of each step. The search is
`mujoco.minimize.least_squares`, which `mujoco.sysid` calls by default, with its defaults but for the number of iterations; its
Jacobian is by forward differences of 1.5e-8. (`mujoco.sysid` itself is not called.) Records are run as a whole from their start;
neither tool of MuJoCo cuts them into windows, so "MuJoCo" stands beside jaxmb with one window as well as with 16.

jaxmb: `identify` with variable steps (rtol 1e-6), exact closure of the loop and derivatives of the runs. The first call includes
compilation, which MuJoCo does not need, so that its two times are one; "later" is another call with the same shapes. The programs
of the first rows serve the last ones too: there nothing is compiled anew.

Columns: "own" is the root of the mean square of the samples' residuals, in σ, as the search sees them, from the start of each
window; "one run" the same from the start of each record, by MuJoCo's model for all, which is what can be compared; near 1 is
noise. Errors are relative to the true numbers. An iteration of jaxmb is an evaluation with its Jacobian, one of MuJoCo a step
that was taken; it makes nine evaluations or more. Not shown: other steps, other solvers of either; other records. The records are
MuJoCo's own, made with its RK4.
"""

import functools
import os
import pathlib
import sys
import time

import mujoco
import mujoco.minimize
import mujoco.rollout
import numpy as np

import jaxmb as jm

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "data")]  # first: the example has this file's name

import identify_fourbar as example  # noqa: E402
import make_fourbar_encoder as source  # noqa: E402

F = jm.fit
STEP, STIFFNESS = 1e-3, 1e5  # in s and 1/s²
WIDEST, MOST = 10.0, 100  # upper bound over the first guess; iterations
FREE = [name for name in example.TRUTH if name not in example.WEIGHED]
SHOWN = ("crank.com.x", "rocker.com.x", "friction A.damping")


class Rollouts:
    """Residuals of MuJoCo's runs, in σ, for columns of the free numbers over a first guess."""

    def __init__(self, records, guess):
        self.guess = guess
        self.ts = np.asarray(records[0].ts)
        self.per_sample = round((self.ts[1] - self.ts[0]) / STEP)
        middles = (np.arange((len(self.ts) - 1) * self.per_sample) + 0.5) * STEP
        self.measured = np.array([[s.values for s in e.signals] for e in records])  # (record, signal, sample)
        self.sigma = np.array([[s.sigma for s in e.signals] for e in records])[..., None]
        self.torque = np.array([np.interp(middles, e.control.ts, e.control.values[:, 0]) for e in records])
        model, relative = self.model({}), np.array([[1, 0, 0], [-1, 1, 0], [0, 0, 1]])
        self.starts = []
        for i in range(len(records)):
            data = mujoco.MjData(model)
            data.qpos[:], data.qvel[:] = relative @ example.DATA["theta_0"][i], relative @ example.DATA["omega_0"][i]
            state = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS))
            mujoco.mj_getState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
            self.starts.append(state)
        self.datas = [mujoco.MjData(model) for _ in range(os.cpu_count())]
        self.pool = mujoco.rollout.Rollout(nthread=len(self.datas))

    def model(self, values):
        """MuJoCo's model with values by name, the true ones where there are none."""
        values = example.TRUTH | values
        model = mujoco.MjModel.from_xml_string(source.xml(STEP, STIFFNESS))
        for body in example.BODIES:
            model.body(body).mass = values[f"{body}.mass"]
            model.body(body).ipos = (values[f"{body}.com.x"], 0.0, 0.0)
            model.body(body).inertia = values[f"{body}.inertia"]
        model.dof_damping[:] = [values[f"friction {joint}.damping"] for joint in example.HINGES]
        mujoco.mj_setConst(model, mujoco.MjData(model))
        return model

    def angles(self, models):
        """(model, record, signal, sample)."""
        count, records = len(models), len(self.starts)
        states, _ = self.pool.rollout(
            [model for model in models for _ in range(records)],
            self.datas,
            np.array(self.starts * count),
            np.tile(self.torque, (count, 1))[..., None],
        )
        first = np.array(self.starts)[None, :, None]
        kept = states[:, self.per_sample - 1 :: self.per_sample].reshape(count, records, -1, states.shape[-1])
        kept = np.concatenate([np.broadcast_to(first, (count, *first.shape[1:])), kept], axis=2)
        return np.moveaxis(kept[..., [1, 3]], -1, 2)  # after the time: crank, coupler, rocker

    def __call__(self, columns):
        """(residual, column)."""
        models = [self.model({n: x * self.guess[n] for n, x in zip(FREE, column, strict=True)}) for column in columns.T]
        return ((self.angles(models) - self.measured) / self.sigma).reshape(len(models), -1).T


def root_mean_square(r):
    return float(np.sqrt(np.mean(np.square(r))))


def by_mujoco(residuals):
    """Estimates, own residual and iterations."""
    bounds = [np.zeros(len(FREE)), np.full(len(FREE), WIDEST)]
    x, trace = mujoco.minimize.least_squares(np.ones(len(FREE)), residuals, bounds, verbose=0, max_iter=MOST)
    found = {name: ratio * residuals.guess[name] for name, ratio in zip(FREE, x, strict=True)}
    return found, root_mean_square(residuals(x[:, None])), len(trace) - 1


def by_jaxmb(guess, records):
    """Estimates, own residual and iterations."""
    bounds = {name: dict(min_value=0.0, max_value=WIDEST * guess[name]) for name in FREE}
    parameters = [F.Parameter(name, **bounds[name]) for name in FREE]
    fit = F.identify(example.mechanism(guess), parameters, records, max_iterations=MOST, **example.RUN)
    r = [np.ravel(signal.residual) for signals in fit.signals.values() for signal in signals.values()]
    return {n: float(fit.estimates[n]) for n in FREE}, root_mean_square(np.concatenate(r)), int(fit.iterations)


def main():
    print(
        f"{'':20} {'off by':>6} {'own':>7} {'one run':>8} {'error in %':>10} {'iterations':>10} {'first/s':>8} {'later/s':>8}"
    )
    for off in (0.3, 0.05):
        rng = np.random.default_rng(1)
        guess = {name: x * (1 + rng.uniform(-off, off)) for name, x in example.TRUTH.items()}
        guess |= {name: example.TRUTH[name] for name in example.WEIGHED}
        system = example.mechanism(guess).build()
        records = {windows: example.experiments(system, windows) for windows in (1, 16)}
        residuals = Rollouts(records[1], guess)
        if off == 0.3:
            exact = np.array([[example.DATA[k][i, ::2] for k in ("crank", "rocker")] for i in range(3)])
            wrong = abs(residuals.angles([residuals.model({})])[0] - exact)
            told = [f"record {i} {x.max():.0e}" for i, x in zip("123", wrong / residuals.sigma, strict=True)]
            print(f"model error in σ: {', '.join(told)}")
        jobs = {"MuJoCo": functools.partial(by_mujoco, residuals)}
        jobs |= {f"jaxmb, windows {n}": functools.partial(by_jaxmb, guess, records[n]) for n in records}
        for who, job in jobs.items():
            times = []
            for _ in range(1 if who == "MuJoCo" else 2):
                clock = time.perf_counter()
                found, own, iterations = job()
                times.append(time.perf_counter() - clock)
            ratios = np.array([found[n] / guess[n] for n in FREE])
            one = root_mean_square(residuals(ratios[:, None]))
            error = 100 * max(abs(found[n] / example.TRUTH[n] - 1) for n in SHOWN)
            print(
                f"{who:20} {off:6.0%} {own:7.3f} {one:8.3f} {error:10.2f} {iterations:10} {times[0]:8.1f} {times[-1]:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
