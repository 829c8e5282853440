"""Assembly from random guesses: how many lead to a pose on the constraints, beside SciPy's Levenberg and Marquardt from the same.

    python benchmarks/reach.py FOLDER [NAME …] [--count 200]

FOLDER holds public models, each in a folder of its name (see `MODELS`); NAME chooses among these and the mechanisms here. Angles of a guess are up to half a turn
from those of the model, other coordinates up to π lengths ℓ (`State.scale.reach`). Both solve φ/Φ = 0 with normalised quaternions; a pose counts
where that is below 1e-7 and no joint is the wrong way round.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import jaxmb as jm

ROOT = pathlib.Path(__file__).parent.parent
# Files, and how they are read.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "agility_cassie": ("cassie.xml", {}),
    "robotiq_2f85": ("2f85.xml", {"exclude": ["left_pad", "right_pad"]}),
    "toddlerbot_2xc": ("toddlerbot_2xc.xml", {"repair": True}),
    "dojo_fourbar": ("fourbar.urdf", {}),
    "gepetto_5bar_iso6d": ("robot.urdf", {}),
    "gepetto_delta": ("robot.urdf", {}),
}
CLOSED = 1e-7


def three_legs() -> jm.planar.Mechanism:
    """3-RRR: a platform of 0.2 m on three legs of two links of 0.4 m from a triangle of 0.6 m."""
    P = jm.planar
    corner = lambda i, size: (size * np.cos(2 * np.pi * i / 3), size * np.sin(2 * np.pi * i / 3))
    bodies = [P.Body("platform", 1.0, 0.02, points={f"p{i}": corner(i, 0.2) for i in range(3)})]
    joints = []
    for i in range(3):
        bodies += [P.Body.rod(f"upper{i}", 1.0, 0.4), P.Body.rod(f"lower{i}", 1.0, 0.4)]
        joints += [
            P.Revolute(f"foot{i}", ("ground", corner(i, 0.6)), f"upper{i}.a"),
            P.Revolute(f"knee{i}", f"upper{i}.b", f"lower{i}.a"),
            P.Revolute(f"head{i}", f"lower{i}.b", f"platform.p{i}"),
        ]
    return P.Mechanism(bodies, joints)


def own() -> dict[str, Callable[[], jm.System]]:
    sys.path += [str(ROOT / "examples"), str(ROOT / "tests")]
    import delta
    import stewart_model
    import test_reach

    return {
        "delta": lambda: delta.delta().build(),
        "stewart": lambda: stewart_model.stewart().build(),
        "3-RRR": lambda: three_legs().build(),
        "six-bar": test_reach.sixbar,
    }


def guesses(system: jm.System, count: int) -> np.ndarray:
    """Poses (count, nq) around that of the model."""
    start = jnp.asarray(system.guess)
    reach = jm.as_state(system, start).scale.reach
    rates = (None,) * system.nv if system.joints is None else system.joints.units[1]
    sizes = jnp.where(np.array([unit == "rad/s" for unit in rates]), 1.0, reach)
    draws = np.random.default_rng(5).uniform(-np.pi, np.pi, (count, system.nv))
    return np.asarray(jax.vmap(lambda x: system.normalise(start + system.qdot(start, sizes * x)))(jnp.asarray(draws)))


def by_least_squares(system: jm.System, count: int) -> Callable[[np.ndarray], bool]:
    """Whether MINPACK's Levenberg and Marquardt closes a guess, with exact derivatives."""
    span = jm.as_state(system, system.guess).scale.span

    @jax.jit
    def rows(q: jax.Array) -> jax.Array:
        q = system.normalise(q)
        found = [jnp.ravel(c.fn(jnp.zeros(()), q, system.params)) for c in system.constraints]
        rest = jnp.concatenate(found) / span
        return jnp.append(rest, jnp.zeros(max(0, system.nq - system.m)))

    slopes = jax.jit(jax.jacfwd(rows))
    joints = system.joints
    assert joints is not None
    turned = lambda q: joints.alignment(system.normalise(q), system.params).values()
    aligned = jax.jit(lambda q: jnp.stack([*turned(q), jnp.ones(())]))
    exact: Any = lambda x: np.asarray(slopes(x))

    def closes(x: np.ndarray) -> bool:
        q = least_squares(
            lambda x: np.asarray(rows(x)),
            x,
            jac=exact,
            method="lm",
            xtol=1e-12,
            ftol=1e-12,
            gtol=1e-12,
        ).x
        return bool(np.abs(rows(q)).max() < CLOSED and np.asarray(aligned(q)).min() > 0)

    return closes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=200)
    arguments = parser.parse_args()
    makers = own()
    for name, (file, options) in MODELS.items():
        if (arguments.folder / name).is_dir():
            makers[name] = lambda name=name, file=file, options=options: jm.load(
                arguments.folder / name / file, **options
            ).build()
    print(f"{'':20s} nv  rows  assemble  least squares  by these only   s and s a guess", flush=True)
    for name in arguments.names or makers:
        system = makers[name]()
        starts = guesses(system, arguments.count)
        clock = time.process_time()
        ours = np.array([bool(jnp.isfinite(jm.assemble(system, x, throw=False).q).all()) for x in starts])
        mine, clock = time.process_time() - clock, time.process_time()
        closes = by_least_squares(system, arguments.count)
        others = np.array([closes(x) for x in starts])
        theirs = time.process_time() - clock
        print(
            f"{name:20s} {system.nv:2d}  {system.m:3d}  {ours.sum():8d}  {others.sum():13d}  {(others & ~ours).sum():13d}"
            f"   {mine / arguments.count:.3f} {theirs / arguments.count:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
