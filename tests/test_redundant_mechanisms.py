"""Random planar mechanisms with redundant rows: 64 of three kinds, ten seconds each."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parallelogram import parallelogram
from systems import GRAVITY, fourbar

import jaxmb as jm


def platform(seed):
    """The three-crank parallelogram with random feet, masses and start; one crank too many."""
    rng = np.random.default_rng(seed)
    feet = rng.normal(size=(3, 2))
    feet -= feet[0]
    angle, rate = rng.uniform(-np.pi, np.pi), rng.normal()
    length = rng.uniform(0.5, 1.5)
    arm = length * np.array([np.cos(angle), np.sin(angle)])
    speed = rate * np.array([-arm[1], arm[0]])
    params = {
        "l": length,
        "m": rng.uniform(0.5, 2),
        "M": rng.uniform(1, 5),
        "J": rng.uniform(0.1, 1),
        "g": GRAVITY,
        "feet": feet,
        "centre": rng.normal(size=2),
    }
    q = np.concatenate([np.column_stack([feet + arm / 2, np.full(3, angle)]).ravel(), arm, [0.0]])
    v = np.concatenate([np.tile([*speed / 2, rate], 3), speed, [0.0]])
    return params, q, v


def linkage(seed):
    """Blajer's four-bar with other lengths and masses, its loop closed three times in other units."""
    rng = np.random.default_rng(seed)
    lengths = np.array([0.4, 0.9, 0.8]) * rng.uniform(0.9, 1.1, 3)
    params = {"l": lengths, "m": rng.uniform(0.5, 2, 3), "d": 0.0}
    return params, np.array([0.3, 1.1, 1.7]), rng.normal(size=3)


def guided(t, q, p):
    """Crank, rod and a block that two points and its angle guide: one row too many."""
    crank, rod, block = q[:3], q[3:6], q[6:]
    along = lambda body, s: body[:2] + s * jnp.stack([jnp.cos(body[2]), jnp.sin(body[2])])
    half, other = p["l"] / 2, p["r"] / 2
    return jnp.concatenate(
        [
            along(crank, -half),
            along(crank, half) - along(rod, -other),
            along(rod, other) - block[:2],
            along(block, 0.1)[1:],
            along(block, -0.2)[1:],
            jnp.sin(block[2:]),
        ]
    )


def crank_and_block():
    """The system of `guided`."""

    def mass(t, q, p):
        inertia = jnp.stack([p["l"] ** 2 * p["m"] / 12, p["r"] ** 2 / 12, jnp.asarray(0.05)])
        first = jnp.stack([p["m"], jnp.asarray(1.0), jnp.asarray(2.0)])
        return jnp.diag(jnp.stack([first, first, inertia], axis=1).ravel())

    return jm.System(
        9,
        mass=mass,
        potential=lambda t, q, p: p["g"] * (p["m"] * q[1] + q[4] + 2.0 * q[7]),
        constraints=[jm.Holonomic("joints", guided)],
        params={"l": 0.4, "r": 1.0, "m": 1.0, "g": GRAVITY},
    )


def crank(seed):
    """Random lengths, mass and start."""
    rng = np.random.default_rng(seed)
    params = {"l": rng.uniform(0.3, 0.5), "r": rng.uniform(0.9, 1.2), "m": rng.uniform(0.5, 2), "g": GRAVITY}
    angle = rng.uniform(-np.pi, np.pi)
    tip = params["l"] * np.array([np.cos(angle), np.sin(angle)])
    tilt = -np.arcsin(tip[1] / params["r"])
    end = tip + params["r"] * np.array([np.cos(tilt), np.sin(tilt)])
    q = np.concatenate([tip / 2, [angle], (tip + end) / 2, [tilt], end, [0.0]])
    return params, q, rng.normal(size=9)


def platform_end(factor, params, q, v):
    """The coordinates after 10 s from the one equation that is left: l²(m + M) α'' = −g l (3 m/2 + M) cos α."""
    mass, length = factor * params["m"], params["l"]
    rate = params["g"] / length * (1.5 * mass + params["M"]) / (mass + params["M"])
    angle = dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, args: jnp.stack([y[1], -rate * jnp.cos(y[0])])),
        dfx.Dopri8(),
        0.0,
        10.0,
        None,
        jnp.stack([q[2], v[2]]),
        stepsize_controller=dfx.PIDController(rtol=1e-12, atol=1e-12),
    ).ys[0, 0]
    arm = length * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    cranks = jnp.concatenate([params["feet"] + arm / 2, jnp.full((3, 1), angle)], axis=1)
    return jnp.concatenate([cranks.ravel(), arm, jnp.zeros(1)])


KINDS = {
    "platform": (parallelogram, platform, 22, 11, 0.0025, platform_end),
    "linkage": (lambda: fourbar(3)[0], linkage, 21, 2, 0.005, None),
    "crank": (crank_and_block, crank, 21, 8, 0.005, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_redundant_mechanisms(kind):
    """Residuals to 1e-12, energy to 1e-6 of its exchange, derivatives to 1e-6.

    Derivatives are compared with central differences; those of the platform, which passes singular poses, with those of its
    closed equation: the error of the constant steps depends on where they land, and differences would amplify that.
    """
    build, draw, count, rank, step, closed_form = KINDS[kind]
    system = build()
    params, q, v = jax.tree.map(
        lambda *x: jnp.stack([jnp.asarray(y, float) for y in x]), *(draw(i) for i in range(count))
    )

    def motion(factor, params, q, v):
        changed = eqx.tree_at(lambda s: s.params, system, params | {"m": factor * params["m"]})
        state = jm.assemble(changed, q, v)
        return changed, jm.simulate(
            changed,
            state,
            jnp.linspace(0.0, 10.0, 21),
            stepsize_controller=dfx.ConstantStepSize(),
            dt0=step,
            max_steps=4096,
            throw=False,
        )

    @jax.jit
    @jax.vmap
    def laws(params, q, v):
        changed, sol = motion(jnp.array(1.0), params, q, v)
        balance, off = jm.energy(changed, sol), jm.residuals(changed, sol)
        exchanged = jnp.maximum(jnp.ptp(balance.kinetic), 1)
        largest = jnp.maximum(jnp.abs(off.position).max(), jnp.abs(off.velocity).max())
        return jnp.abs(balance.balance).max() / exchanged, largest, sol.stats["lowest_rank"], sol.stats["highest_rank"]

    drift, residual, lowest, highest = laws(params, q, v)
    assert float(drift.max()) < 1e-6 and float(residual.max()) < 1e-12, (drift.max(), residual.max())
    assert set(np.asarray(lowest)) == set(np.asarray(highest)) == {rank}

    functional = lambda q: q @ jnp.cos(jnp.arange(q.shape[0]))
    end = lambda *start: functional(motion(*start)[1].q[-1])
    over = lambda fn: jax.jit(jax.vmap(fn, in_axes=(None, 0, 0, 0)))
    start = (params, q, v)
    gradient = over(jax.grad(end))(jnp.array(1.0), *start)
    if closed_form:
        exact = over(jax.grad(lambda *start: functional(closed_form(*start))))(jnp.array(1.0), *start)
    else:
        h = 1e-4
        at = {k: over(end)(jnp.array(1 + k * h), *start) for k in (-2, -1, 1, 2)}
        exact = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * h)
    np.testing.assert_allclose(gradient, exact, atol=1e-6 * max(1.0, float(jnp.abs(exact).max())))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Spherical", "Revolute"])
def test_a_loop_in_a_plane_of_space_runs_by_compiled_steps(kind):
    """Rows across the plane are exactly zero: they are left out, and spoil nothing."""
    S = jm.spatial
    rod = lambda name, length: S.Body(
        name, 1.0, (1e-3, length**2 / 12, length**2 / 12), (length / 2, 0.0, 0.0), {"b": (length, 0.0, 0.0)}
    )
    bodies = [rod("crank", 0.4), rod("coupler", 0.9), rod("rocker", 0.8)]
    ends = (("ground", "crank"), ("crank.b", "coupler"), ("coupler.b", "rocker"))
    joints = [S.Revolute(name, *pair) for name, pair in zip("ABC", ends, strict=True)]
    joints.append(getattr(S, kind)("D", "rocker.b", ("ground", (1.0, 0.0, 0.0))))
    system = S.Mechanism(bodies, joints, gravity=(0.0, -9.81, 0.0)).build(cut=["D"])
    state = jm.assemble(system, {"A": 1.2, "B": -1.3, "C": -1.4}, hold=["A"])
    solution = jm.simulate(system, state, [0.1])
    assert int(solution.stats["compiled_steps"]) == int(solution.stats["num_accepted_steps"])
    assert int(solution.stats["lowest_rank"]) == int(solution.stats["highest_rank"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("engine", [None, jm.XLA()], ids=["compiled", "XLA"])
def test_rows_are_chosen_anew_before_a_stage_comes_close_to_dependent_ones(engine):
    """Of a platform one row is redundant: those in use come close to being dependent where all together are not, which is no singular pose."""
    params, q, v = platform(0)
    system = eqx.tree_at(lambda s: s.params, parallelogram(), params)
    state, constant = jm.assemble(system, q, v), {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.0025}
    sol = jm.simulate(system, state, jnp.linspace(0.0, 10.0, 21), engine=engine, max_steps=4096, **constant)
    balance = jm.energy(system, sol)
    assert float(jnp.abs(balance.balance).max()) < 1e-9 * float(jnp.ptp(balance.kinetic))
