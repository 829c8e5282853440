"""Numbers of a triple pendulum from its measured swings, in absolute coordinates with the joints as constraints.

    python benchmarks/identify_triple_pendulum.py TriplePendulumDataForParameterEstimation.mat [--quick] [--json FILE]

The record is that of Kaheman, Fasel, Bramburger, Strom, Kutz and Brunton (arXiv 2205.06231; github.com/dynamicslab/MultiArm-Pendulum,
folder ParameterEstimation/TriplePendulum, MIT licence): free swings at 1 kHz with the cart clamped, cut into 22 segments of 1.54 s
for identification and four for validation. Angles are absolute and zero upright; here x points up, so that they are those of the bodies.

Fourteen numbers are asked for: masses, centres of mass, moments of inertia, two lengths and three viscous frictions. Free swings
show ten combinations of them, see the first table: the scale of all masses changes nothing, nor does, for each arm, mass that moves
such that the moments of the motion keep. Four numbers are therefore kept as published: of each arm one, and one for the scale; which
they are changes no motion, as long as no other one ends at a bound. (With the masses and the third centre of mass kept the
first moment of inertia ends at its bound, which means nothing.) All others start 10 to 20 % off. What is fitted are the angles, each
tenth sample of ten segments, with σ = 1 mrad. Residuals are larger than the noise of the encoders, and one sample's tells the next one's,
since the model errs: intervals are too narrow for that reason.

Three fits: "found" with starts that are looked for too; "found, starts as sampled" with the first angles, and the rates there that the
authors smoothed; and "found, dry friction" with starts looked for, and Coulomb friction in the joints besides.

Validation: root of the mean square over the samples of a segment, for each arm; of four segments the median (the mean of the second and
third). Three ways to start a segment, the same for the published numbers and for those found here: "first sample" as sampled, which
is how the published figure comes about; "first 0.3 s" from the state that fits the first 0.3 s best, all that follows is predicted;
"whole" from the state that fits the whole segment best, which leaves the error of the model.
"""

import argparse
import dataclasses
import json
import os
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.io

import jaxmb as jm

P, fit = jm.planar, jm.fit

# As published, in m, kg and s: EstimatedParameters_TriplePendulum.mat of the source.
PUBLISHED = {
    "arm1.mass": 0.258171998,
    "arm2.mass": 0.279427783,
    "arm3.mass": 0.118624232,
    "arm1.com.x": 0.159999928,
    "arm2.com.x": 0.202939213,
    "arm3.com.x": 0.183708742,
    "arm1.length": 0.172799737,
    "arm2.length": 0.2287,
    "arm1.inertia": 1.00043469e-4,
    "arm2.inertia": 3.14159516e-4,
    "arm3.inertia": 1.68739037e-4,
    "friction1.viscous": 1.47709548e-3,
    "friction2.viscous": 2.59576628e-4,
    "friction3.viscous": 1.0e-5,
}
GRAVITY = 9.80834384
# Speed in rad/s beyond which dry friction is nearly constant.
SPEED = 0.1
KEPT = ("arm1.inertia", "arm2.mass", "arm3.mass", "arm3.com.x")
ARMS = ("arm1", "arm2", "arm3")
ANGLES = tuple(f"{arm}.angle" for arm in ARMS)
SIGMA = 1e-3


def mechanism(numbers):
    """Three arms, each with its frame in its upper joint and x along it."""
    bodies = [
        P.Body(
            arm,
            numbers[f"{arm}.mass"],
            numbers[f"{arm}.inertia"],
            com=(numbers[f"{arm}.com.x"], 0.0),
            points={"top": (0.0, 0.0), "end": (numbers.get(f"{arm}.length", 0.0), 0.0)},
        )
        for arm in ARMS
    ]
    places = ("ground", "arm1.end", "arm2.end")
    joints = [P.Revolute(f"joint{i + 1}", at, f"{ARMS[i]}.top") for i, at in enumerate(places)]
    frictions = [
        P.JointFriction(f"friction{i}", f"joint{i}", viscous=numbers[f"friction{i}.viscous"], speed=SPEED)
        for i in (1, 2, 3)
    ]
    return P.Mechanism(bodies, joints, forces=frictions, gravity=(-GRAVITY, 0.0))


def absolute(model):
    return model.build("absolute")


def relative(model):
    return model.build()


def with_length(arm):
    """A modifier that moves the lower joint of an arm."""
    index = ARMS.index(arm)
    return lambda model, value: eqx.tree_at(
        lambda m: m.bodies[index].points["end"], model, model.bodies[index].points["end"].at[0, 2].set(value)
    )


LENGTHS = {f"{arm}.length": with_length(arm) for arm in ("arm1", "arm2")}


def unchanged(model, value):
    return model


class Angle(eqx.Module):
    """The angle of an arm in joint coordinates."""

    arm: int = eqx.field(static=True)

    def __call__(self, system, motion):
        """It over time."""
        return jnp.sum(motion.q[..., : self.arm + 1], axis=-1)


READ = tuple(Angle(i) for i in range(3))


def parameters(start, kept=()):
    """All fourteen with the values where the search starts.

    Inertias stay above 0.01 kg cm²: at zero the mass matrix of an arm in absolute coordinates is singular.
    """
    return [
        fit.Parameter(
            name,
            value,
            1e-6 if name.endswith("inertia") else 0.0,
            modifier=LENGTHS.get(name),
            frozen=name in kept,
            scale=PUBLISHED["friction2.viscous"] if name.startswith("friction") else None,
        )
        for name, value in start.items()
    ]


DRY = tuple(fit.Parameter(f"friction{i}.coulomb", 0.0, 0.0, scale=1e-3) for i in (1, 2, 3))


def assembled(system, first):
    """The state of a sample (6,): angles and rates of the arms."""
    if system.coordinates[0] == "joint1":
        return jm.assemble(system, jnp.diff(first[:3], prepend=0.0), jnp.diff(first[3:], prepend=0.0))
    q, v = (dict(zip(ANGLES, x, strict=True)) for x in (first[:3], first[3:]))
    return jm.assemble(system, q, v, hold=ANGLES, hold_velocity=ANGLES)


def experiment(name, system, segment, each, until=np.inf, fit_start=True):
    """A segment, of whose samples those after a time do not count."""
    ts, record = segment
    part = slice(0, None, each)
    read = READ if system.coordinates[0] == "joint1" else ANGLES
    signals = [
        fit.Signal(of, np.where(ts[part] <= until, record[i, part], np.nan), SIGMA, name=ANGLES[i])
        for i, of in enumerate(read)
    ]
    return fit.Experiment(ts[part], assembled(system, record[:, 0]), signals, fit_start=fit_start, name=name)


def segments(file, kind):
    """Times from zero (T,), and angles and rates (6, T), of each segment."""
    record = scipy.io.loadmat(file)
    pairs = zip(record[f"Time_{kind}"].ravel(), record[f"Y_{kind}"].ravel(), strict=True)
    return [(ts.ravel() - ts.ravel()[0], np.asarray(y, float)) for ts, y in pairs]


def clocked(call):
    start = time.perf_counter()
    found = jax.block_until_ready(call())
    return found, time.perf_counter() - start


def predictor(build, parts):
    """From a model to errors (4, T, 3) of the angles when every segment starts from its first sample; NaN beyond its end."""
    longest = max(ts.shape[0] for ts, _ in parts)
    padded = [np.pad(ts, (0, longest - ts.shape[0]), mode="edge") for ts, _ in parts]
    angles = [np.pad(y[:3], ((0, 0), (0, longest - y.shape[1])), constant_values=np.nan) for _, y in parts]

    def one(model, ts, first):
        system = build(model)
        motion = jm.simulate(system, assembled(system, first), ts, throw=False)
        if system.coordinates[0] == "joint1":
            return jnp.cumsum(motion.q, axis=-1)
        return motion.q[:, jnp.array([system.coordinates.index(name) for name in ANGLES])]

    run = jax.jit(jax.vmap(one, in_axes=(None, 0, 0)), compiler_options=jm.compiler_options())
    times, firsts = jnp.asarray(np.stack(padded)), jnp.asarray(np.stack([y[:, 0] for _, y in parts]))
    return lambda model: np.asarray(run(model, times, firsts)) - np.swapaxes(np.stack(angles), 1, 2)


def rms(errors):
    """By segment and arm in mrad, from errors (S, T, 3)."""
    return 1e3 * np.sqrt(np.nanmean(np.asarray(errors) ** 2, axis=1))


def fitted_starts(model, build, parts, each, until):
    """Errors (S, T, 3) when each segment starts from the state that fits its samples until a time best; all others count in the errors."""
    system = build(model)
    whole = [experiment(f"v{i}", system, part, each) for i, part in enumerate(parts)]
    seen = [experiment(f"v{i}", system, part, each, until) for i, part in enumerate(parts)]
    # Nothing but starts is looked for, but a search wants one parameter.
    nothing = [fit.Parameter("nothing", 0.0, modifier=unchanged)]
    found = fit.identify(model, nothing, seen, build=build, rtol=1e-6)
    starts = []
    for e, (_, record) in zip(whole, parts, strict=True):
        values = [found.nuisances[f"{e.name}: start of {x}"] for x in start_labels(system)]
        starts.append(assembled(system, start_of(system, jnp.array(values), record[:, 0])))
    told = [dataclasses.replace(e, start=s) for e, s in zip(whole, starts, strict=True)]
    there = fit.identify(model, nothing, told, build=build, max_iterations=1)
    longest = max(e.ts.shape[0] for e in whole)
    errors = []
    for e in whole:
        parts_ = [there.signals[e.name][name] for name in ANGLES]
        off = np.concatenate([np.asarray(s.model - s.measured) for s in parts_], axis=1)
        errors.append(np.pad(off, ((0, longest - off.shape[0]), (0, 0)), constant_values=np.nan))
    return np.stack(errors)


def start_labels(system):
    names = ANGLES if system.coordinates[0] != "joint1" else ("joint1", "joint2", "joint3")
    return (*names, *(f"{name}'" for name in names))


def start_of(system, values, first):
    if system.coordinates[0] != "joint1":
        return values
    return jnp.concatenate([jnp.cumsum(values[:3]), jnp.cumsum(values[3:])])


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main():
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("file")
    arguments.add_argument("--json")
    arguments.add_argument("--quick", action="store_true", help="three segments instead of ten")
    arguments.add_argument("--coordinates", choices=("absolute", "relative"), default="absolute")
    arguments.add_argument("--each", type=int, default=10, help="which samples are fitted")
    given = arguments.parse_args()
    jax.config.update("jax_enable_x64", True)
    build = absolute if given.coordinates == "absolute" else relative
    identified, validation = segments(given.file, "id"), segments(given.file, "vad")
    chosen = np.linspace(0, len(identified) - 1, 3 if given.quick else 10).round().astype(int)
    figures = {"coordinates": given.coordinates, "segments": chosen.tolist(), "load": os.getloadavg()[0]}
    print(
        f"Triple pendulum in {given.coordinates} coordinates; segments {chosen.tolist()}; load {os.getloadavg()[0]:.1f}\n"
    )

    published = mechanism(PUBLISHED)
    random = np.random.default_rng(0)
    off = {name: 1 + random.choice([-1, 1]) * random.uniform(0.1, 0.2) for name in PUBLISHED}
    start = {name: x * (1 if name in KEPT else off[name]) for name, x in PUBLISHED.items()}
    model = mechanism(start)
    system = build(model)
    data = [experiment(f"s{i}", system, identified[i], given.each) for i in chosen]

    # What shows does not depend on the coordinates; those of the joints are quicker.
    joints = relative(model)
    one = experiment("s", joints, identified[chosen[0]], given.each)
    known, seconds = clocked(lambda: fit.identifiability(model, parameters(start), one, build=relative))
    print(f"What one segment tells, all fourteen free ({seconds:.0f} s):")
    for sentence in known.sentences():
        print("  " + sentence)
    figures |= {"told": known.sentences(), "singular_values": known.values.tolist(), "fits": {}}

    fits = {
        "found": (parameters(start, KEPT), True),
        "found, starts as sampled": (parameters(start, KEPT), False),
        "found, dry friction": ([*parameters(start, KEPT), *DRY], True),
    }
    sets = {"published": published, "where searches start": model}
    for name, (looked_for, fit_start) in fits.items():
        data = [experiment(f"s{i}", system, identified[i], given.each, fit_start=fit_start) for i in chosen]
        search = lambda looked_for=looked_for, data=data: fit.identify(model, looked_for, data, build=build)
        (found, first), (_, later) = clocked(search), clocked(search)
        lines = [line for line in str(found).splitlines() if "start of" not in line]
        print(f"\n{name}; first call {first:.1f} s, later call {later:.1f} s\n  " + "\n  ".join(lines), flush=True)
        sets[name] = found.model
        widths = {key: float(high - low) / 2 for key, (low, high) in found.intervals().items()}
        figures["fits"][name] = {
            "first_call_s": first,
            "later_call_s": later,
            "iterations": int(found.iterations),
            "converged": bool(found.result == jm.RESULTS.successful),
            "cost": float(found.cost),
            "samples": int(found.count),
            "estimates": {key: float(x) for key, x in found.estimates.items()},
            "half_widths_95": widths,
        }
    figures |= {"published": PUBLISHED, "start": start}

    print("\nNumbers found beside those published (kept: " + ", ".join(KEPT) + "):")
    rows = [("number", "published", "start", *fits)]
    for name, value in PUBLISHED.items():
        shown = [f"{figures['fits'][key]['estimates'][name]:.5g}" for key in fits]
        rows.append((name, f"{value:.5g}", f"{start[name]:.5g}", *shown))
    table(rows)

    ways = {
        "first sample": predictor(build, validation),
        "first 0.3 s": lambda model: fitted_starts(model, build, validation, given.each, 0.3),
        "whole": lambda model: fitted_starts(model, build, validation, given.each, np.inf),
    }
    print("\nValidation, RMS of the angles of arm 1, 2, 3 in mrad, the median of four segments and each segment:")
    rows = [("start", "numbers", "median", *(f"segment {i}" for i in range(len(validation))), "s")]
    figures["validation_mrad"] = {}
    for way, errors_of in ways.items():
        for name, numbers in sets.items():
            if name.startswith("where") and way != "first sample":
                continue
            errors, seconds = clocked(lambda errors_of=errors_of, numbers=numbers: errors_of(numbers))
            by_segment = rms(errors)
            figures["validation_mrad"][f"{way}, {name}"] = by_segment.tolist()
            shown = ["/".join(f"{x:.2f}" for x in row) for row in (np.median(by_segment, axis=0), *by_segment)]
            rows.append((way, name, *shown, f"{seconds:.1f}"))
    table(rows)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
