"""random gradients: end states of random mechanisms with events, brakes, laws and records, along random directions: both modes, and differences."""

import dataclasses
import traceback

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm
from hard.built import Units, formulation_of, measured, mechanism_of, poses_of
from hard.gradients import DIFFERENCES, MODES, TIGHT
from hard.random_mechanisms import drawn
from hard.reference import corrected_velocity
from hard.row import Figure, cpu_time
from hard.topologies import TOPOLOGIES
from jaxmb.mechanism import linkage_of

DRAWS = 48
END = 1.0
STEPS = 2e-3, 5e-4  # of differences: one of them may straddle a kink, such as where a brake holds or just does not
ROWS = 2  # of a batch


def nothing(joint, force, x):
    return {}


def lock(joint, force, x):
    return {"events": [jm.Lock(joint, at=0.4)]}


def guard(joint, force, x):
    return {"events": [jm.Lock(joint, when=lambda t, q, v, reaction, p: t - 0.4 * x)]}


def release(joint, force, x):
    free = jm.Release("held", when=lambda t, q, v, reaction, p: t - 0.6 * x)
    return {"events": [jm.Lock(joint, at=0.2, name="held"), free]}


def brake(joint, force, x):
    return {"events": [jm.Brake(joint, 3 * force * x, at=0.2)]}


def law(joint, force, x):
    return {"control": lambda t, q, v, p: force * x * jnp.array([jnp.sin(3 * t) - 0.5 * v[0]])}


def sampled(joint, force, x):
    return {"control": jm.control.Sampled(law(joint, force, x)["control"], period=0.13)}


def recorded(joint, force, x):
    return {"control": jm.control.Recorded(np.linspace(0, END, 6), force * x * np.array([0.3, 1, -0.5, -1, 0.8, 0.1]))}


KINDS = (nothing, lock, guard, release, brake, law, sampled, recorded)
DRIVEN = (law, sampled, recorded)


def problem(topology, draw, seed, kind):
    """A number of the end state, by factors of the first body's mass, of gravity, a spring, the start's speed and what the kind takes."""
    rng = np.random.default_rng([seed, draw])
    start = dataclasses.replace(drawn(topology, draw, seed), units=Units())
    case, model = start.case, start.model
    driven = {joint for joint, _ in case.drives}
    hinges = (i for i, c in enumerate(case.connections) if c.kind in ("Revolute", "Prismatic") and i not in driven)
    hinge = next(hinges, None)
    kind = nothing if hinge is None else kind
    system = mechanism_of(case, motor=hinge if kind in DRIVEN else None).build()
    other = corrected_velocity(model, 0.0, start.y, case.speed * rng.normal(size=model.n * len(model.columns)))
    poses, rates = poses_of(case, model, start.y, start.u)
    q, v = measured(system, poses, rates)
    along = measured(system, *poses_of(case, model, start.y, other))[1] - v  # rows of the constraints do not see it
    weights, force = rng.normal(size=(len(case.links), *poses.shape[1:])), 0.5 * case.links[0].mass

    def number(x, adjoint=None, engine=None):
        p = system.params
        p = eqx.tree_at(lambda p: (p.inertia, p.gravity), p, (p.inertia.at[0].multiply(x[0]), p.gravity * x[1]))
        if p.forces:
            p = eqx.tree_at(lambda p: p.forces[0].stiffness, p, p.forces[0].stiffness * x[2])
        own = system.with_params(p)
        options = {**kind(f"j{hinge}", force, x[4]), "adjoint": adjoint, "engine": engine, "throw": False}
        options |= {"stepsize_controller": TIGHT, "formulation": formulation_of(case)}
        solution = jm.simulate(own, jm.as_state(own, q, v + (x[3] - 1) * along), jnp.array([END]), **options)
        end = linkage_of(own).poses(solution.q[-1], own.params)[1:]
        return jnp.sum(end * weights), solution.result == jm.RESULTS.successful

    return number, kind


def derivatives(number, x, along, engine):
    """Along a direction: reverse, forward and both differences (R,) each, of the size of the gradient, and whether all runs came to their end."""
    over = lambda fn: jax.jit(jax.vmap(fn), compiler_options=jm.compiler_options())
    gradient, done = over(jax.grad(lambda x: number(x, None, engine), has_aux=True))(x)
    slope = lambda x: jax.jvp(lambda x: number(x, dfx.ForwardMode(), engine)[0], (x,), (along,))[1]
    forward = over(slope)(x)
    moves = np.array([k * h for h in STEPS for k in (1, -1, 2, -2)])
    values, all_done = over(lambda x: number(x, None, engine))(np.concatenate([x + m * along for m in moves]))
    ahead, behind, far, back = np.moveaxis(np.reshape(values, (len(STEPS), 4, len(x))), 1, 0)
    differences = (8 * (ahead - behind) - (far - back)) / (12 * np.array(STEPS)[:, None])
    done = np.asarray(done) & np.reshape(all_done, (-1, len(x))).all(axis=0)
    size = np.linalg.norm(gradient, axis=1)
    return np.stack([gradient @ along, forward, *differences]) / size, done


def figures(share, seed):
    """The row's figures."""
    result, worst, apart, wrong, told, raised, cases = [], 0.0, 0.0, [0, 0], 0, 0, 0
    names = list(TOPOLOGIES)
    with cpu_time(result):
        for draw in range(max(1, round(DRAWS * share))):
            topology, engine = names[draw % len(names)], jm.XLA() if draw % 10 == 9 else None
            rng = np.random.default_rng([seed, draw, 1])
            x, along = 1 + 0.1 * rng.uniform(-1, 1, (ROWS, 5)), rng.normal(size=5)
            number, kind = problem(topology, draw, seed, KINDS[(draw + draw // len(names)) % len(KINDS)])
            what = f"gradients {draw} {topology} {kind.__name__}{' by XLA' if engine else ''}"
            cases += ROWS
            try:
                (back, forward, *differences), done = derivatives(number, x, along / np.linalg.norm(along), engine)
            except Exception:
                print(f"{what}: {traceback.format_exc(limit=-1)}", flush=True)
                raised += ROWS
                continue
            modes = np.abs(back - forward)[done]
            steps = np.min([np.abs(forward - d) for d in differences], axis=0)[done]
            told += int((~done).sum())
            worst, apart = max(worst, modes.max(initial=0)), max(apart, steps.max(initial=0))
            # What is not a number is no agreement.
            wrong[0] += int((~(modes <= MODES)).sum())
            wrong[1] += int((~(steps <= DIFFERENCES)).sum())
            print(f"{what}: modes {modes}, differences {steps}, done {done}", flush=True)
        row, of = "random gradients", "gradients of random mechanisms, 8 kinds of events and inputs"
        known = cases - told - raised
        result += [
            Figure(row, f"{of}, that raise an error", "0", f"{raised}", cases, raised == 0),
            Figure(row, "runs told to have failed", "any", f"{told}", cases, True),
            Figure(row, f"both modes apart by more than {MODES:g}", "0", f"{wrong[0]} (largest {worst:.1e})", known, wrong[0] == 0),
            Figure(row, f"gradient and differences apart by more than {DIFFERENCES:g}", "0", f"{wrong[1]} (largest {apart:.1e})", known, wrong[1] == 0),
        ]  # fmt: skip
    return result
