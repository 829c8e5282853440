"""A law that holds in metres holds in millimetres: decisions and motions do not depend on units, or on strangers."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import nfourbar
import numpy as np
import parallelogram
import pytest
import slider_crank
from systems import driven_cart, fourbar, lagrangian_fourbar, moving_line, pendulum, sleigh, top, unconstrained
from units import STRANGERS, UNITS, in_units, replaced, sizes, with_stranger

import jaxmb as jm
from jaxmb.simulation.step_size import default_controller, sizes_of_run
from jaxmb.system import Values, with_rate

XYA = (True, True, False)
# System, start, end, and which coordinates and velocities are lengths.
CASES = {
    "pendulum": (*pendulum(), 1.0, (True, True), None),
    "pendulum, 4 copies": (*pendulum(4), 1.0, (True, True), None),
    "four-bar": (*fourbar(3), 0.6, (False,) * 3, None),
    "four-bar, Lagrangian": (*lagrangian_fourbar(), 0.6, (False,) * 3, None),
    "top": (*top(2), 0.6, (True,) * 3 + (False,) * 4, (True,) * 3 + (False,) * 3),
    "moving line": (*moving_line(), 1.0, (True, True), None),
    "sleigh": (*sleigh(3), 1.0, XYA, None),
    "driven cart": (*driven_cart(), 0.6, (True, True, False, False), None),
    "unconstrained": (*unconstrained(), 1.0, (False, False), None),
    "slider-crank": (slider_crank.slider_crank(), ([0.3, 2 * np.pi - 0.6], [5.0, -10.0]), 0.6, (False, False), None),
    "N-four-bar": (
        nfourbar.nfourbar(2),
        nfourbar.pose(2, jnp.array(0.4), jnp.array(-4.0)),
        0.3,
        XYA * 5,
        None,
    ),
    "parallelogram": (
        parallelogram.parallelogram(),
        parallelogram.pose(jnp.array(0.4), jnp.array(-4.0)),
        0.3,
        XYA * 4,
        None,
    ),
}


QUICK = ("pendulum, 4 copies", "sleigh", "slider-crank")


@eqx.filter_jit
@functools.partial(jax.vmap, in_axes=(None, None, None, 0, None))
def runs(system, q, v, units, end):
    """Positions in the first units, number of steps, ranks and success, for all units at once."""
    system = replaced(system, units["params"])
    state = jm.assemble(system, q * units["q"], v * units["v"])
    solution = jm.simulate(system, state, jnp.linspace(0.3, 1, 3) * end * units["time"], throw=False)
    ranks = solution.stats["lowest_rank"], solution.stats["highest_rank"]
    return solution.q / units["q"], solution.stats["num_steps"], ranks, solution.result == jm.RESULTS.successful


def same(found, tolerance=1e-8):
    """All rows are like the first: rank decisions, steps to a tenth, positions relative to the largest."""
    q, steps, ranks, successful = found
    assert bool(jnp.all(successful))
    for rank in ranks:
        assert bool(jnp.all(rank == rank[0]))
    np.testing.assert_allclose(steps, steps[0], rtol=0.1)
    np.testing.assert_allclose(q, jnp.broadcast_to(q[0], q.shape), atol=tolerance * float(jnp.abs(q[0]).max()))


@pytest.mark.slow_except("pendulum, 4 copies")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_units_change_nothing(name):
    """Lengths × 1e±6, 1e±3, masses × 1e±9, times × 1e±3, and all at once."""
    system, (q, v), end, lengths, velocity_lengths = CASES[name]
    velocity_lengths = lengths if velocity_lengths is None else velocity_lengths
    given = jnp.asarray(UNITS)
    units = {
        "q": jax.vmap(lambda unit: sizes(lengths, unit[0]))(given),
        "v": jax.vmap(lambda unit: sizes(velocity_lengths, unit[0]) / unit[2])(given),
        "time": given[:, 2],
        "params": given,
    }
    same(runs(in_units(system, lengths, velocity_lengths), jnp.asarray(q), jnp.asarray(v), units, end))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum, 4 copies", pytest.param("four-bar", marks=pytest.mark.slow)])
def test_strangers_change_nothing(name):
    """An unconnected pendulum of 1e±9 kg, so long that it does not ask for shorter steps by its own motion."""
    system, (q, v), end, *_ = CASES[name]
    given, n = jnp.asarray(STRANGERS), system.nq
    start = jnp.concatenate([jnp.asarray(q), jnp.array([1.0, 0.0])])
    unit = lambda params: jnp.concatenate([jnp.ones(n), params[1:], params[1:]])
    units = {"q": jax.vmap(unit)(given), "v": jax.vmap(unit)(given), "time": jnp.ones(len(given)), "params": given}
    velocity = jnp.concatenate([jnp.asarray(v), jnp.zeros(2)])
    positions, *rest = runs(with_stranger(system), start, velocity, units, end)
    same((positions[..., :n], *rest))


def planar_fourbar(masses, cut=None, unit=1.0):
    """With its loop cut, or in absolute coordinates."""
    P = jm.planar
    lengths = {"crank": 0.4 * unit, "coupler": 0.9 * unit, "rocker": 0.8 * unit}
    rods = [P.Body.rod(name, mass=m, length=lengths[name]) for name, m in zip(lengths, masses, strict=True)]
    joints = [
        P.Revolute("A", "ground", "crank.a"),
        P.Revolute("B", "crank.b", "coupler.a"),
        P.Revolute("C", "coupler.b", "rocker.a"),
        P.Revolute("D", "rocker.b", ("ground", (unit, 0.0))),
    ]
    mechanism = P.Mechanism(rods, joints, gravity=(0.0, -9.81 * unit))
    return mechanism.build("absolute") if cut is None else mechanism.build(cut=[cut])


# From where on, from a thousandth to a billionth, the mass of a body that the loop carries along, or that carries the loop, has ceased to count.
LIGHT, HEAVY = (1e-6, 1e-7, 1e-8, 1e-9), (1e6, 1e7, 1e8, 1e9)


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["B", "C", "D"])
def test_a_light_or_heavy_link_of_a_loop_is_no_singular_pose(cut):
    """Each body × 1e±9: regular steps, as many to a tenth, and the motion of the limit to within the ratio of the masses."""
    # A closed pose, since where a guess beside it is moved to depends on the masses; and one from which a heavy rocker does not swing to the end
    # of its range, where it throws light links about the faster the heavier it is.
    equal = planar_fourbar((1.0, 1.0, 1.0), "D")
    closed = jm.assemble(equal, {"A": 0.42, "B": -1.3, "C": -1.4}, hold=["A"])
    start = {name: float(jm.coordinate(equal, closed, name)) for name in "ABCD"}

    @eqx.filter_jit
    @jax.vmap
    def run(masses):
        system = planar_fourbar(masses, cut)
        state = jm.assemble(system, {name: value for name, value in start.items() if name != cut})
        solution = jm.simulate(system, state, jnp.array([0.25, 0.5]), throw=False)
        drift = jm.energy(system, solution).balance - jm.energy(system, state).balance
        kinetic = jm.energy(system, solution).kinetic
        pin = jm.position(system, solution, "coupler.b")
        stats = solution.stats
        regular = stats["compiled_steps"] == stats["num_accepted_steps"]
        return (solution.result == jm.RESULTS.successful) & regular, solution.stats["num_steps"], pin, drift / kinetic

    ratios = np.array([*LIGHT, *HEAVY])
    masses = np.ones((3, len(ratios), 3))
    for body in range(3):
        masses[body, :, body] = ratios
    successful, steps, pins, drift = (
        np.asarray(x).reshape(6, 4, *x.shape[1:]) for x in run(jnp.asarray(masses.reshape(-1, 3)))
    )
    assert successful.all()
    np.testing.assert_allclose(steps, np.broadcast_to(steps[:, -1:], steps.shape), rtol=0.1, atol=1)
    ratio = np.minimum(ratios, 1 / ratios).reshape(2, 4)
    off = np.abs(pins - pins[:, -1:]).max((2, 3)).reshape(3, 2, 4)
    assert (off <= 10 * ratio + 1e-8).all()
    assert (np.abs(drift) <= 1e-7).all()


@pytest.mark.parametrize("body", range(3))
def test_lengths_belong_to_the_geometry(body):
    """A body a billion times as heavy as the others, or as light, chooses other lines along which they are read, and no more."""
    pose = jnp.array([0.42, -2.36, 1.57])
    reach = lambda ratio: jm.as_state(planar_fourbar(np.where(np.arange(3) == body, ratio, 1.0), "B"), pose).scale.reach
    for ratio in (1e-9, 1e9):
        assert np.all(np.abs(np.log(reach(ratio) / reach(1.0))) < np.log(6))


def test_the_sizes_of_a_run_with_a_light_link_know_no_unit_of_length():
    """In units 1,024 times as small all are the same but for powers of two."""
    found = []
    for unit in (1.0, 1024.0):
        lengths = np.tile([unit, unit, 1.0], 3)
        system = planar_fourbar((1.0, 1e-10, 1.0), unit=unit)
        state = jm.as_state(system, lengths * [0.2, 0.1, 0.42, 0.8, 0.3, 0.15, 1.1, 0.4, 1.3])
        by = jax.jit(lambda state, system=system: sizes_of_run(system, state, jnp.array(2.0), Values.of(system, state)))
        scale, sizes = by(state)
        found.append([scale.rate, sizes.q / lengths, sizes.v / lengths, sizes.work / unit**2])
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.slow
def test_the_mass_of_one_body_changes_no_decision():
    """Of the four-bar's coupler × 1e±6: the motion is another one, but as exact."""
    system, (q, v), end, *_ = CASES["four-bar"]

    @eqx.filter_jit
    @jax.vmap
    def run(factor):
        changed = system.with_params({**system.params, "m": system.params["m"] * jnp.array([1.0, factor, 1.0])})
        state = jm.assemble(changed, jnp.asarray(q), jnp.asarray(v))
        solution = jm.simulate(changed, state, jnp.array([end]), throw=False)
        energy = jm.energy(changed, solution)
        drift = (energy.total - energy.work)[0] - jm.energy(changed, state).total
        return solution.result == jm.RESULTS.successful, solution.stats["lowest_rank"], drift / energy.kinetic[0]

    successful, rank, drift = run(jnp.array([1e-6, 1e-3, 1.0, 1e3, 1e6]))
    assert bool(jnp.all(successful)) and bool(jnp.all(rank == 2))
    assert bool(jnp.all(jnp.abs(drift) <= jnp.array([1e-8, 1e-8, 1e-8, 1e-8, 1e-6])))  # the heavy one falls fast


@pytest.mark.slow
def test_derivatives_in_other_units():
    """Of the end of a pendulum by its length and its start, reverse, to 1e-8 of those in the first units."""
    system, (q, v), end, lengths, _ = CASES["pendulum, 4 copies"]
    changed = in_units(system, lengths)

    @jax.jit
    @jax.vmap
    def derivative(units):
        def end_of(length, speed):
            here = changed.with_params(({**system.params, "l": length}, units))
            state = jm.assemble(here, jnp.asarray(q) * units[0], speed * jnp.asarray(v) * units[0] / units[2])
            return jm.simulate(here, state, jnp.array([end]) * units[2]).q[0, 0] / units[0]

        return jnp.stack(jax.grad(end_of, argnums=(0, 1))(jnp.array(1.0), jnp.array(1.0)))

    found = derivative(jnp.asarray(UNITS))
    np.testing.assert_allclose(found, jnp.broadcast_to(found[0], found.shape), rtol=1e-8)


@pytest.mark.slow
def test_a_parallelogram_of_small_rods_passes_its_flat_pose():
    """In absolute coordinates from the builder; time goes with the root of the length."""
    space = jm.planar

    def angles(size):
        rod = lambda name, length: space.Body.rod(name, mass=1.0, length=length * size)
        joints = [
            space.Revolute("A", "ground", "crank.a"),
            space.Revolute("B", "crank.b", "coupler.a"),
            space.Revolute("C", "coupler.b", "rocker.b"),
            space.Revolute("D", ("ground", (2.0 * size, 0.0)), "rocker.a"),
        ]
        bodies = [rod("crank", 1.0), rod("coupler", 2.0), rod("rocker", 1.0)]
        mechanism = space.Mechanism(bodies, joints, gravity=(0.0, -9.81))
        tree = mechanism.build()
        rate = -4.0 / size**0.5
        start = jm.assemble(tree, {"A": 0.4, "B": -0.4, "D": 0.4}, {"A": rate, "B": -rate, "D": rate})
        system = mechanism.build("absolute")
        state = jm.convert(start, tree, system)
        solution = jm.simulate(system, state, jnp.linspace(0.1, 0.3, 3) * size**0.5)
        return jnp.stack([jm.coordinate(system, solution, name) for name in "AD"])

    expected = angles(1.0)
    np.testing.assert_allclose(expected[0], expected[1], atol=1e-7)
    for size in (1e-2, 1e-3, 1e-6):
        np.testing.assert_allclose(angles(size), expected, atol=1e-7)


@pytest.mark.slow_except("0.001")
@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_a_cam_of_small_lift_is_no_straight_line(unit):
    """Its row is nearly all the follower's: what sways beside that is not linear over any distance."""
    lift = lambda angle: 0.01 * unit * (1 - jnp.cos(angle))
    cam = jm.System(
        ("angle", "lift"),
        mass=lambda t, q, p: jnp.diag(jnp.array([0.01, 0.2 / unit**2])),
        potential=lambda t, q, p: 2500.0 * (q[1] / unit + 0.01) ** 2,
        constraints=[jm.Holonomic("cam", lambda t, q, p: q[1] - lift(q[0]))],
    )
    state = jm.assemble(cam, {"angle": 0.0}, {"angle": 50.0}, hold_velocity=["angle"])
    assert float(jnp.max(state.scale.reach * jnp.array([1.0, 1 / unit]))) < 1e4
    solution = jm.simulate(cam, state, jnp.linspace(0.0, 0.2, 3))
    assert float(jnp.abs(jm.energy(cam, solution).balance).max()) < 1e-4


GUIDES = {
    "curved": lambda x: jnp.maximum(x, 0.0) ** 2,
    "a lift between two dwells": lambda x: jnp.clip(x, 0.0, 1.0) ** 2 * (3 - 2 * jnp.clip(x, 0.0, 1.0)),
}


@pytest.mark.parametrize("name", GUIDES)
def test_a_row_that_is_constant_up_to_a_bend_has_sizes_of_where_it_bends(name):
    """A guide that is straight here and curved further on: up to there nothing has changed, not even by rounding."""
    guide, unit = GUIDES[name], 1e-3
    system = jm.System(
        ("x", "y"),
        mass=lambda t, q, p: jnp.eye(2),
        constraints=[jm.Holonomic("guide", lambda t, q, p: q[1] - unit * guide(q[0] / unit))],
    )
    for x in -unit * jnp.linspace(0.1, 3.0, 30):
        scale = jm.as_state(system, jnp.stack([x, jnp.zeros(())])).scale
        assert 1 <= scale.row[0] < 10 and 0.02 * unit < scale.span[0] < 10 * unit, (x, scale.row, scale.span)


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_rows_that_never_change_have_the_sizes_of_what_moves_by_them(unit):
    """Those of a wheel and of a slope on which it rolls: far out rounding turns them, and sizes were those of that distance."""
    P, radius = jm.planar, 0.3 * unit
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    wheel = P.Body("wheel", 2.0, 0.1 * unit**2, position=0.7 * unit * turn[:, 0] + radius * turn[:, 1], angle=0.4)
    slope = P.frame((0.0, 0.0), turn)
    system = P.Mechanism([wheel], [P.RollingWheel("contact", ("ground", slope), "wheel", radius)]).build()
    scale = jm.assemble(system).scale
    assert np.all((scale.span > 0.1 * unit) & (scale.span < 10 * unit)), scale.span


def test_what_turns_to_and_fro_beside_a_row_that_grows_is_no_bend():
    """A slider on a turning arm, held by a rod: C grows with the slide and turns with the arm, for some lengths by just less than a bend, at any distance."""

    def rod(t, q, p):
        c, s = jnp.cos(q[0]), jnp.sin(q[0])
        end = jnp.array([[c, -s], [s, c]]) @ (p["arm"] + q[1] * p["axis"]) - p["foot"]
        return (end @ end - 1) / 2

    rng, count = np.random.default_rng(0), 200
    axis = rng.normal(size=(count, 2))
    lengths = {
        "arm": rng.uniform(-1, 1, (count, 2)),
        "axis": axis / np.linalg.norm(axis, axis=1, keepdims=True),
        "foot": rng.uniform(-2, 2, (count, 2)),
        "mass": np.stack([10 ** rng.uniform(-1, 1.5, count), np.ones(count)], axis=1),
    }
    system = jm.System(
        ("turn", "slide"),
        mass=lambda t, q, p: jnp.diag(p["mass"]),
        constraints=[jm.Holonomic("rod", rod)],
        params=jax.tree.map(lambda x: x[0], lengths),
    )
    state = jax.jit(jax.vmap(lambda p: jm.as_state(system.with_params(p), jnp.array([0.3, 0.01]))))(lengths)
    assert float(jnp.max(state.scale.reach)) < 100


def test_what_rows_do_not_size_has_the_size_of_how_far_it_gets():
    """Of particles of 1, 1/4 and 9 kg that of 1/4 kg rests: it is as far reaching as the farthest of the others in the metric of M."""
    mass = jnp.diag(jnp.array([1.0, 0.25, 9.0]))
    force = lambda t, q, v, p: jnp.stack([0.0, 0.0, 18.0 * p["unit"] - p["k"] * q[2]])
    # A coordinate without a rate at this pose, like the first one of a quaternion at rest, is of size one.
    rate = lambda q, v, p: jnp.append(v, q[3] * v[0])
    names = dict(coordinates=4, velocities=["u", "v", "w"])
    system = jm.System(mass=lambda t, q, p: mass, force=force, rate=rate, params={"k": 0.0, "unit": 1.0}, **names)

    @jax.jit
    def sized(params):
        state = jm.as_state(system, jnp.zeros(4), jnp.array([1.0, 0.0, 0.0]) * params["unit"])
        own = system.with_params(params)
        scale, by = sizes_of_run(own, state, jnp.array(2.0), Values.of(own, state))
        return scale.rate, by

    for unit, stiffness, reach in (
        (1.0, 0.0, [2.0, 24.0, 4.0]),  # |v| τ, F τ²/(2 M) = 4 with τ = 2, and 3 · 4 by √(1/4)
        (1.0, 9.0, [2.0, 6.0, 1.0]),  # the force of 9 kg changes within τ = 1/ω = 1; 3 · 1 by √(1/4)
        (1e-9, 9.0, [2.0, 6.0, 1.0]),
        (1.0, 36.0, [2.0, 4.0, 0.25]),  # within 1/2; the first one gets farther than the third by √M
    ):
        quickest, by = sized({"k": stiffness, "unit": unit})
        np.testing.assert_allclose(by.q, [*(unit * np.array(reach)), 1.0], rtol=1e-14)
        # The quickest from rest, √(v̇/ℓ), is faster than v/ℓ and than once in the run.
        rates = np.sqrt(2 / reach[2]) * np.array([1, *(unit * np.array(reach))])
        np.testing.assert_allclose([quickest, *by.v], rates, rtol=1e-14)
        # Work has the size of the kinetic energy then.
        np.testing.assert_allclose(by.work, 0.5 * np.array([1.0, 0.25, 9.0]) @ rates[1:] ** 2, rtol=1e-14)


def test_what_moves_by_forces_that_cancel_has_a_size_above_their_rounding():
    """Of two coupled coordinates one hardly moves: ε^(1/4) |Rᵀ| |R| |F|, R M Rᵀ = I. A particle by itself that moves as little has the size of that."""
    mass, acceleration = np.array([[2.0, 0.9, 0.0], [0.9, 0.5, 0.0], [0.0, 0.0, 1.0]]), np.array([1.0, 1e-9, 1e-9])
    force = mass @ acceleration
    system = jm.System(3, mass=lambda t, q, p: jnp.asarray(mass), force=lambda t, q, v, p: jnp.asarray(force))
    state = jm.as_state(system, jnp.zeros(3))
    sizes = jax.jit(lambda state: sizes_of_run(system, state, jnp.array(3.0), Values.of(system, state))[1].q)(state)
    root = np.abs(np.linalg.inv(np.linalg.cholesky(mass)))
    least = np.finfo(float).eps ** 0.25 * (root.T @ root @ force)[1]
    np.testing.assert_allclose(sizes, 4.5 * np.array([1.0, least, 1e-9]), rtol=1e-9)


def test_a_force_tells_no_time_of_what_moves_by_rounding():
    """Up to ε^(3/4) of the fastest in the metric of M: that on the second of two particles changes by the way of the first, within 1 s."""
    force = lambda t, q, v, p: 1e-11 * jnp.stack([0.0, 1.0 - q[0]])
    system = jm.System(2, mass=lambda t, q, p: jnp.diag(jnp.array([4.0, 1.0])), force=force)

    @jax.jit
    def sizes(second):
        state = jm.as_state(system, jnp.zeros(2), jnp.stack([1.0, second]))
        return sizes_of_run(system, state, jnp.array(2.0), Values.of(system, state))[1].q

    for second, size in ((0.0, 2e-11), (3e-12, 2.6e-11), (1e-11, 1.5e-11)):
        np.testing.assert_allclose(sizes(jnp.asarray(second)), [2.0, size], rtol=1e-12)


@pytest.mark.slow
def test_a_chain_falls_from_a_straight_line():
    """Its links turn by a quarter of those before them: beyond some ten they do so by less than the rounding of the first one."""
    P, count = jm.planar, 20
    links = [P.Body.rod(f"link{i}", 1.0, 0.1, position=(0.1 * i, 0.0)) for i in range(count)]
    ends = [("ground", (0.0, 0.0)), *(f"link{i}.b" for i in range(count))]
    pins = [P.Revolute(f"pin{i}", ends[i], f"link{i}.a") for i in range(count)]
    system = P.Mechanism(links, pins, gravity=(0.0, -9.81)).build()
    run = jm.simulate(system, jm.assemble(system), jnp.array([0.05]))
    assert int(run.stats["num_steps"]) < 100
    assert abs(float(jm.energy(system, run).balance[-1])) < 1e-9


def test_what_has_no_inertia_moves_if_it_has_a_speed():
    """A marker beside a particle: it gets as far as its speed takes it, and at rest it is of size one."""
    beside = jm.Holonomic("beside", lambda t, q, p: q[1] - 3.0 * q[0])
    system = jm.System(2, mass=lambda t, q, p: jnp.diag(jnp.array([4.0, 0.0])), constraints=[beside])

    @jax.jit
    def sizes(v):
        state = jm.as_state(system, jnp.zeros(2), v)
        state = dataclasses.replace(state, scale=dataclasses.replace(state.scale, reach=jnp.zeros(2)))
        scale, sizes = sizes_of_run(system, state, jnp.array(2.0), Values.of(system, state))
        return jnp.stack([sizes.q, sizes.v / scale.rate])

    for v, size in (([0.5, 1.5], [1.0, 3.0]), ([0.0, 0.0], [1.0, 1.0]), ([0.5, 0.0], [1.0, 1.0])):
        np.testing.assert_allclose(sizes(jnp.array(v)), [size, size])


def test_tolerances_suit_the_precision():
    made = [default_controller(dtype) for dtype in (np.float64, np.float32)]
    assert [(one.rtol, one.atol) for one in made] == [(1e-8, 1e-10), (1e-4, 1e-6)]


def test_the_rate_of_a_run_is_at_least_one_motion_in_its_time():
    """Of a particle by how far it reaches; where no row tells that, in no time it is that of a metre, and at rest any. A force that is no number has none."""
    force = lambda t, q, v, p: p["force"][None]
    free = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=force, params={"force": 0.0})

    @jax.jit
    @jax.vmap
    def rate(v, time, reach, force):
        own = free.with_params({"force": force})
        state = jm.as_state(own, jnp.zeros(1), v[None], t=3.0)
        state = dataclasses.replace(state, scale=dataclasses.replace(state.scale, reach=reach[None]))
        return sizes_of_run(own, state, 3.0 + time, Values.of(own, state))[0].rate

    cases = {(0.0, 4.0, 0.0): 0.25, (0.0, 0.0, 0.0): 1.0, (0.2, 0.0, 0.0): 0.2, (0.2, 4.0, 0.0): 0.25}
    cases |= {(0.0, 0.5, 0.0): 2.0, (0.2, 0.0, 0.5): 0.4, (0.2, 4.0, 0.5): 0.4, (0.2, 4.0, 2.0): 0.25}
    of = lambda force: rate(*map(jnp.array, zip(*cases, strict=True)), jnp.full(len(cases), force))
    np.testing.assert_allclose(of(0.0), list(cases.values()), rtol=1e-14)
    np.testing.assert_array_equal(of(np.nan), [1 / time if time else 1 for _, time, _ in cases])


def test_the_rate_of_a_state_is_that_of_all_rows_whichever_act():
    """Of a point on a rod, which moves by it at Σ |q_k v_k|/Φ; without the rod too."""
    rod = jm.Holonomic("rod", lambda t, q, p: q @ q - 1)
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[rod])
    loose = jm.assemble(system, [0.6, 0.8], [-0.8, 0.6], inactive=["rod"])
    assert loose.mode.armed.shape == loose.mode.lock_values.shape == (0,)  # of no run, and without locks
    whole = with_rate(system, jm.as_state(system, loose.q, loose.v))
    np.testing.assert_allclose(loose.scale.rate, whole.scale.rate, rtol=1e-12)


def test_saved_times_have_no_part_in_the_sizes_of_a_run():
    """Where the time of the run gives them, as no row and no force tells how far a coordinate gets: the same steps to the last bit."""
    spring = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: -0.01 * q)
    state = jm.assemble(spring, [1.0], [1.0])
    few, many = (jm.simulate(spring, state, np.linspace(0.0, 2.0, count)) for count in (2, 101))
    assert int(few.stats["num_steps"]) == int(many.stats["num_steps"]) < 10
    assert few.stats["compiled_steps"] == few.stats["num_accepted_steps"]
    assert few.q[-1] == many.q[-1] and few.v[-1] == many.v[-1]


def test_an_angle_turns_by_a_radian_however_small_it_is():
    """A sleigh whose rotor is driven: at 1e-9 rad the driver's size was that, and of a start's speed across the edge nothing was seen."""
    P = jm.planar
    bodies = [P.Body("board", 1.0, 0.1, com=(0.2, 0.0)), P.Body("rotor", 0.5, 0.1)]
    joints = [P.Revolute("spin", "board", "rotor"), P.KnifeEdge("blade", "board")]
    driver = P.Driver("drive", "spin", lambda t, p: p["start"] + 0.7 * jnp.sin(t))
    for start in (0.0, 1e-12, 1e-9):
        system = P.Mechanism(bodies, joints, [driver], params={"start": start}).build()
        state = jm.assemble(system, v={"board.x": 1.0})
        assert state.scale.span[0] == 1.0
        scale, _ = sizes_of_run(system, state, jnp.array(1.0), Values.of(system, state))
        assert 1.0 < scale.rate < 10.0  # by what turns by rounding alone it was 3e5
        across = jm.as_state(system, state.q, state.v.at[1].add(1e-3))
        with pytest.raises(ValueError, match="'blade' is violated at the start"):
            jm.simulate(system, across, jnp.array([1.0]))


@pytest.mark.parametrize("x", [1e-17, 1.2e-16, -3e-15])
def test_coordinates_that_are_all_rounding_have_no_size(x):
    """As of cos(π/2): a distance of 1e-16 was the length of a driven slide, and rows were looked at over such distances only."""
    near = lambda system, q: jax.tree.leaves(jm.as_state(system, q).scale)
    slide = jm.System(1, mass=lambda t, q, p: jnp.eye(1), constraints=[jm.Holonomic("drive", lambda t, q, p: q - t)])
    for system, q in ((slide, [x]), (slider_crank.slider_crank(), [x, -2 * x])):
        for size, expected in zip(near(system, q), near(system, np.zeros(len(q))), strict=True):
            np.testing.assert_allclose(size, expected, rtol=1e-9)


def test_a_place_that_is_zero_but_for_rounding_has_no_size():
    """A rod pinned at its frame's origin: the rows of the pin never change, and had the size of what was left of the place."""
    P = jm.planar
    system = P.Mechanism([P.Body.rod("rod", 1.0, 1.0)], [P.Revolute("O", "ground", "rod.a")]).build("absolute")
    for left in (0.0, 7e-49, 7e-18):
        scale = jm.as_state(system, [0.0, left, 3.1], [0.0, 0.0, 1.0]).scale
        np.testing.assert_array_equal(scale.span, [1.0, 1.0])
        assert 0.1 < scale.rate < 10.0  # at 7e-49 m it was 3e24


def test_on_one_axis_that_is_askew_rounding_sizes_no_row():
    """A hinge, a slide, a screw and a sleeve of 1 mm about one axis: rows across it are rounding, and had sizes of 1e-17 to 1e-20 m."""
    S, axis, lead = jm.spatial, (1.0, 2.0, 3.0), 8e-6
    bodies = [S.Body(name, 1.0, (2e-8, 3e-8, 4e-8)) for name in ("spindle", "nut")]
    joints = [
        S.Revolute("hinge", "ground", "spindle", axis=axis),
        S.Prismatic("slide", "ground", "nut", axis=axis),
        S.Screw("screw", "spindle", "nut", pitch=2 * np.pi * lead, axis=axis),
        S.Cylindrical("sleeve", "spindle", "nut", axis=axis),
    ]
    span = jm.as_state(S.Mechanism(bodies, joints).build(cut=["screw", "sleeve"]), [0.0, 0.0]).scale.span
    angular = [2, 3, 7, 8]
    np.testing.assert_array_equal(span[np.array(angular)], 1.0)
    lengths = np.delete(span, angular)
    assert np.all((lengths > 0.1 * lead) & (lengths <= 1.0)), lengths
