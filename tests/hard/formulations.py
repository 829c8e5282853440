"""formulations: all formulations at random states of these mechanisms, light links and redundant rows included, against singular values in NumPy."""

import dataclasses

import jax
import numpy as np
import oracle
from systems import FORMULATIONS

import jaxmb as jm
from hard.built import measured, mechanism_of, poses_of
from hard.random_mechanisms import builds_of
from hard.reference import corrected_velocity
from hard.row import Figure, cpu_time, none_of
from hard.rows import model_of
from hard.topologies import TOPOLOGIES

DRAWS = 100  # of each mechanism; times its builds and all formulations
BOUND = 100 * np.finfo(float).eps  # times the condition of the rows and of M
SQUARED = ("Proximal",)  # of which that is squared
ROWS, VELOCITIES = 24, 24
ROUNDING = 1e-12  # of entries of C, where lengths are of the order of 1


def terms_of(name, draw, seed, build):
    """M, F, C, γ and the like at a random state."""
    rng = np.random.default_rng([seed, list(TOPOLOGIES).index(name), draw])
    case = TOPOLOGIES[name](rng).case
    model, y = model_of(case)
    u = corrected_velocity(model, 0.0, y, rng.normal(size=model.n * len(model.columns)))
    system = mechanism_of(case).build(build)
    state = jm.as_state(system, *measured(system, *poses_of(case, model, y, u)))
    return dataclasses.replace(jm.evaluate(system, state), nearby=None)


def padded(terms):
    """The arrays of a larger system's terms, so that one program serves all: bodies of mass 1 on which nothing acts, and rows that say nothing."""
    m, nv = terms.jacobian.shape
    fill = lambda x, *shape: np.pad(np.asarray(x), [(0, n - k) for n, k in zip(shape, np.shape(x), strict=True)])
    mass, scale = fill(terms.mass, VELOCITIES, VELOCITIES), fill(terms.scale, ROWS)
    mass[range(nv, VELOCITIES), range(nv, VELOCITIES)] = 1
    scale[m:] = 1
    holonomic = fill(np.broadcast_to(True if terms.holonomic is None else terms.holonomic, (m,)), ROWS)
    rows = fill(terms.jacobian, ROWS, VELOCITIES), fill(terms.offset, ROWS), fill(terms.gamma, ROWS)
    return jm.system.Terms(mass, fill(terms.force, VELOCITIES), *rows, scale, holonomic)


def error(terms, vdot, reaction, squared):
    """The largest of both errors in units of what is allowed, with the condition or its square."""
    mass, force, jacobian, gamma = (np.asarray(x) for x in (terms.mass, terms.force, terms.jacobian, terms.gamma))
    nv = len(force)
    # Of parallel hinges some rows are nothing but rounding: scaled by their own lengths they would say anything.
    says = np.abs(jacobian).max(axis=1, initial=0) > ROUNDING
    jacobian, gamma = jacobian[says], gamma[says]
    if not len(gamma):
        expected, forces, condition = np.linalg.solve(mass, force), 0 * force, np.linalg.cond(mass)
    else:
        expected, forces, _, _ = oracle.acceleration(mass, force, jacobian, gamma)
        condition = oracle.condition(mass, jacobian)
    size = np.linalg.norm(expected) + np.linalg.norm(np.linalg.solve(mass, force))
    off = np.linalg.norm(vdot[:nv] - expected), np.linalg.norm(reaction[:nv] - forces) / np.linalg.norm(mass)
    return max(off) / (BOUND * condition ** (1 + squared) * size)


def figures(share, seed):
    """The row's figures. Mechanisms with bodies without mass are left out: M must be positive definite for most formulations."""
    names = [name for name in TOPOLOGIES if "massless" not in name]
    names = names if share >= 0.1 else ["light_fourbar", "parallelogram", "rssr"]
    result, worst, told, wrong = [], 0.0, 0, 0
    with cpu_time(result):
        labels = [(n, k, b) for n in names for b in builds_of(n) for k in range(max(2, round(DRAWS * share)))]
        every = [terms_of(n, k, seed, b) for n, k, b in labels]
        batch = jax.tree.map(lambda *x: np.stack(x), *map(padded, every))
        for method, formulation in FORMULATIONS.items():
            found = jax.tree.map(np.asarray, jax.jit(jax.vmap(formulation.acceleration))(batch))
            for i, terms in enumerate(every):
                if found.result._value[i] != 0:
                    told += 1
                    print(f"formulations {method} {labels[i]}: told", flush=True)
                    continue
                one = error(terms, found.vdot[i], found.reaction[i], method in SQUARED)
                worst, wrong = max(worst, one), wrong + (not one <= 1)
                if not one <= 1:
                    print(f"formulations {method} {labels[i]}: {one:.1f} times the bound", flush=True)
        cases = len(every) * len(FORMULATIONS)
        none = lambda what, number: none_of("formulations", what, number, cases)
        result += [
            none(
                f"accelerations and reactions of {len(FORMULATIONS)} formulations, off by more than 100·cond·eps", wrong
            ),
            Figure("formulations", "largest error in units of that", "≤ 1", f"{worst:.2g}", cases, bool(worst <= 1)),
            none("told to have failed", told),
        ]
    return result
