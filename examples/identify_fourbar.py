"""Inertias and friction of a four-bar from noisy encoders: what can be found, and what cannot.

The records come from another engine, MuJoCo (tests/data/make_fourbar_encoder.py): crank and rocker of a four-bar, released, spun and
driven by a known torque; here with 1 % noise. Of its twelve numbers only eight combinations affect the motion, as
`identifiability` shows before anything is fitted. So four are taken from other measurements, the bodies are weighed and the coupler is
balanced, and eight are estimated. The crank turns several times and the first guess is up to 30 % off: the records are cut
into windows (multiple shooting).
"""

import pathlib
import time

import diffrax as dfx
import jax
import numpy as np

import jaxmb as jm

jax.config.update("jax_enable_x64", True)
P, F, C = jm.planar, jm.fit, jm.records.Column
FILE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "fourbar_encoder.npz"
DATA = dict(np.load(FILE))
NOISE, SEED = 0.01, 0
BODIES, HINGES = ("crank", "coupler", "rocker"), "ABD"
KEYS = {"mass": "masses", "com.x": "centres", "inertia": "inertias"}
TRUTH = {f"{b}.{field}": x for field, key in KEYS.items() for b, x in zip(BODIES, DATA[key], strict=True)}
TRUTH |= {f"friction {j}.damping": x for j, x in zip(HINGES, DATA["damping"], strict=True)}


# Far below the noise.
RUN = dict(stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8))
WEIGHED = ("crank.mass", "coupler.mass", "rocker.mass", "coupler.com.x")


def mechanism(values):
    """The four-bar with values by name."""
    bodies = [
        P.Body(b, values[f"{b}.mass"], values[f"{b}.inertia"], (values[f"{b}.com.x"], 0.0), {"end": (length, 0.0)})
        for b, length in zip(BODIES, DATA["lengths"], strict=True)
    ]
    joints = [
        P.Revolute("A", "ground", "crank"),
        P.Revolute("B", "crank.end", "coupler"),
        P.Revolute("D", "ground.D", "rocker"),
        P.Revolute("C", "coupler.end", "rocker.end"),
    ]
    friction = [P.JointSpring(f"friction {j}", j, damping=values[f"friction {j}.damping"]) for j in HINGES]
    return P.Mechanism(
        bodies,
        joints,
        forces=friction,
        actuators=[P.Motor("motor", "A")],
        gravity=(0.0, -DATA["gravity"]),
        points={"D": (DATA["ground"], 0.0)},
    )


def experiments(system, windows=16, every=2):
    """The first three records, with noise."""
    rng, found = np.random.default_rng(SEED), []
    for i, name in enumerate(DATA["experiments"][:3]):
        columns = {
            "A": C("crank", "rad", index=i),
            "D": C("rocker", "rad", index=i),
            "tau": C("torque", "N m", index=i),
        }
        record = jm.records.read(FILE, columns, time="t").every(every)
        (a, b, d), (wa, wb, wd) = DATA["theta_0"][i], DATA["omega_0"][i]
        pose, speed = {"A": a, "B": b - a, "D": d}, {"A": wa, "B": wb - wa, "D": wd}
        start = jm.assemble(system, pose, speed, hold=["A"], hold_velocity=["A"])
        signals = []
        for joint in "AD":
            sigma = NOISE * np.std(record[joint])
            signals.append(F.Signal(joint, record[joint] + sigma * rng.normal(size=len(record)), sigma))
        torque = jm.control.Recorded(record.t, record["tau"])
        found.append(F.Experiment(record.t, start, signals, control=torque, windows=windows, name=str(name)))
    return found


def main():
    clock = time.perf_counter()
    rng = np.random.default_rng(1)
    far = {name: x * (1 + rng.uniform(-0.3, 0.3)) for name, x in TRUTH.items()}
    guess = mechanism(far | {name: TRUTH[name] for name in WEIGHED})
    records = experiments(guess.build())
    every = F.identifiability(guess, [F.Parameter(name) for name in TRUTH], records, **RUN)
    print(every, end="\n\n")
    assert len(every.null) == 4

    parameters = [F.Parameter(name, min_value=0.0, frozen=name in WEIGHED) for name in TRUTH]
    first = time.perf_counter()
    fit = F.identify(guess, parameters, records, **RUN)
    print(fit)
    print(f"{time.perf_counter() - first:.0f} s for the fit, compilation included")
    assert bool(fit.result == jm.RESULTS.successful) and not len(fit.identifiability.null)
    errors = fit.standard_errors()
    for name, error in errors.items():
        off = float(fit.estimates[name]) - TRUTH[name]
        print(f"{name:20} off by {100 * off / TRUTH[name]:6.2f} %, standard error {100 * error / TRUTH[name]:6.2f} %")
        assert abs(off) < 4 * error
    print(f"{time.perf_counter() - clock:.0f} s in all")
    return fit


if __name__ == "__main__":
    main()
