"""Bodies without mass that constraints hold, against connections that keep a distance; and those that nothing holds."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.formulation import formulation_at
from jaxmb.linalg.rank import LIGHT, _inertia_beside

P, S = jm.planar, jm.spatial
TS = jnp.array([0.1, 0.2])
regular_metric = jax.jit(jm.linalg.regular_metric)  # one program, not some fifty of one operation each


def fourbar(unit, coupler="body", mass=0.0):
    """A coupler of two lengths that is a body, nothing, or a distance that stays."""
    bodies = [P.Body.rod("crank", 1.0, 0.4 * unit), P.Body.rod("rocker", 2.0, 0.7 * unit)]
    joints = [P.Revolute("O", "ground", "crank.a"), P.Revolute("C", ("ground", (0.9 * unit, 0.0)), "rocker.a")]
    if coupler == "distance":
        joints.append(P.Distance("B", "crank.b", "rocker.b", unit))
    else:
        bodies.append(P.Body("coupler", mass, mass * unit**2, points={"end": (unit, 0.0)}))
        joints.append(P.Revolute("A", "crank.b", "coupler"))
    if coupler == "body":
        joints.append(P.Revolute("B", "coupler.end", "rocker.b"))
    return P.Mechanism(bodies, joints, gravity=(0.0, -9.81 * unit)).build()


def crank(unit, rod="body"):
    """A crank that drives a slider by a rod in space, between a ball and a cardan joint, two balls, or as a distance that stays."""
    cube = lambda name, mass, **more: S.Body(name, mass, (0.1 * unit**2,) * 3, **more)
    bodies = [cube("crank", 1.0, com=(0.1 * unit, 0, 0), points={"end": (0.3 * unit, 0, 0)}), cube("slider", 2.0)]
    guide = S.Prismatic("guide", ("ground", (1.2 * unit, 0, 0.1 * unit)), "slider", axis=(1, 0, 0))
    joints = [S.Revolute("O", "ground", "crank"), guide]
    if rod == "distance":
        joints.append(S.Distance("B", "crank.end", "slider", unit))
    else:
        bodies.append(S.Body("rod", 0.0, (0.0, 0.0, 0.0), points={"end": (unit, 0, 0)}))
        cardan = S.Universal("B", "rod.end", "slider", axis=(0, 1, 0), axis_b=(0, 0, 1))
        joints += [
            S.Spherical("A", "crank.end", "rod"),
            cardan if rod == "body" else S.Spherical("B", "rod.end", "slider"),
        ]
    return S.Mechanism(bodies, joints, gravity=(0, -9.81 * unit, 0)).build()


def moving(system):
    # Of the two places of a slider the one beside zero, whatever else the system has for a guess.
    near = {name: 0.0 for name in system.coordinates if name == "guide"}
    return jm.assemble(system, {"O": 1.0} | near, {"O": 1.0}, hold=["O"], hold_velocity=["O"])


def outcome(system, state):
    """What every function that solves for an acceleration gives of the coordinate O."""
    at = system.velocities.index("O")
    jump = jm.transition(system, state, impulse=jnp.eye(system.nv)[at], activate=[])
    return {
        "acceleration": jm.reactions(system, state).vdot[at],
        "impulse": jump.after.v[at],
        "motion": jm.simulate(system, state, TS).q[:, at],
        "stiffness": jm.linearise(system, jm.as_state(system, state.q), independent=["O"]).A,
        "torque": jm.statics(system, state, hold=["O"]).efforts["O"],
        "freedom": float(jm.diagnose(system, state).freedom),
    }


@pytest.mark.parametrize("make", [fourbar, pytest.param(crank, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_link_without_mass_in_a_loop_accelerates_like_a_distance_that_stays(make):
    found = []
    for unit, link in ((1.0, "body"), (1000.0, "body"), (1.0, "distance")):
        system = make(unit, link)
        found.append(jm.reactions(system, moving(system)).vdot[system.velocities.index("O")])
    np.testing.assert_allclose(found[1:], found[:1] * 2, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1000.0])
@pytest.mark.parametrize("make", [fourbar, crank])
def test_a_link_without_mass_in_a_loop_is_a_distance_that_stays(make, unit):
    found, expected = (outcome(s, moving(s)) for s in (make(unit), make(unit, "distance")))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-12, err_msg=name)


@pytest.mark.slow
def test_what_has_no_inertia_is_named():
    system = fourbar(1.0)
    state = moving(system)
    report = jm.diagnose(system, state)
    assert report.massless == ("A",) and "without inertia         A: held by constraints" in str(report)
    asked = r"`mass` must be positive definite for `GaussProjection`.*along 'A' \(without inertia: 'coupler'\).*`formulation=KKT\(\)`"
    for fn in (jm.reactions, jm.diagnose, jm.linearise, lambda *s, **k: jm.simulate(*s, TS, **k)):
        with pytest.raises(ValueError, match=asked):
            fn(system, state, formulation=jm.formulation.GaussProjection())
    # Inside of `jit` the numbers of the system are known, the state is not.
    inside = jax.jit(lambda state: jm.reactions(system, state).vdot)(state)
    np.testing.assert_allclose(inside, jm.reactions(system, state, formulation=jm.formulation.KKT()).vdot, rtol=1e-12)
    assert jm.diagnose(fourbar(1.0, mass=1e-3), state).massless == ()


@pytest.mark.parametrize(
    "make, link, body",
    [(fourbar, "open", "coupler"), pytest.param(crank, "balls", "rod", marks=pytest.mark.slow)],
)
def test_what_has_no_inertia_and_is_not_held_is_refused_by_name(make, link, body):
    system = make(1.0, link)
    drawn = jm.as_state(system, system.guess)
    refused = f"along 'A.*there is no inertia, and no constraint holds it. Give mass and inertia of '{body}'"
    for fn in (
        lambda: jm.assemble(system),
        lambda: jm.simulate(system, drawn, TS),
        lambda: jm.reactions(system, drawn),
        lambda: jm.joint_reactions(system, drawn),
        lambda: jm.linearise(system, drawn),
        lambda: jm.transition(system, drawn, lock=["O"]),
        lambda: jm.diagnose(system, drawn),
        lambda: jm.statics(system, drawn, hold=["O"]),
    ):
        with pytest.raises(ValueError, match=refused):
            fn()


@pytest.mark.slow
def test_physical_reactions_of_a_coordinate_without_mass():
    """A mass that pulls another along by a rope; the massless middle is tied to both."""
    rows = [jm.Holonomic("left", lambda t, q, p: q[1] - q[0]), jm.Holonomic("right", lambda t, q, p: q[2] - q[1])]
    mass = lambda t, q, p: jnp.diag(jnp.array([2.0, 0.0, 1.0]))
    system = jm.System(3, mass=mass, force=lambda t, q, v, p: jnp.array([6.0, 0.0, 0.0]), constraints=rows)
    state = jm.assemble(system, [0.0, 0.0, 0.0])
    ways = {"left": lambda t, q, p: q[1] - q[0], "right": lambda t, q, p: q[2] - q[1]}
    for scheme in ("metric", "square", "direct"):
        found = jm.physical_reactions(system, state, ways, scheme=scheme)
        np.testing.assert_allclose(list(found.values()), [2.0, 2.0], rtol=1e-12)


def chain(hinges, cross=0.0):
    """A body that hangs on hinges about z, x and y in turn that meet in one point, with links without mass between; and their names."""
    axes = ((0, 0, 1), (1, 0, 0), (0, 1, 0))[:hinges]
    rod = S.Body("rod", 2.0, (0.3, 0.2, 0.4), (0.1, 0.02, -0.2), points={"tip": (0.3, 0.2, 0.1)})
    links = [S.Body(f"link{i}", cross, (cross,) * 3) for i in range(hinges - 1)]
    ends = ["ground", *(link.name for link in links), "rod"]
    joints = [S.Revolute(f"h{i}", *ends[i : i + 2], axis=axis) for i, axis in enumerate(axes)]
    return S.Mechanism([*links, rod], joints, gravity=(1.0, -9.81, 2.0))


@pytest.mark.slow
@pytest.mark.parametrize("hinges, ball", [(2, S.Universal), (3, S.Spherical)])
@pytest.mark.parametrize("method", [None, jm.formulation.KKT()], ids=["default", "KKT"])
def test_hinges_that_meet_in_a_point_through_links_without_mass_are_one_joint(hinges, ball, method):
    """Accelerations and reactions of a universal joint, or of a ball with angles as coordinates."""
    mechanism = chain(hinges)
    system = mechanism.build()
    state = jm.as_state(system, [0.3, -0.7, 0.4][:hinges], [0.5, -1.2, 0.8][:hinges])
    alone = S.Mechanism(mechanism.bodies[-1:], [ball("joint", "ground", "rod")], gravity=mechanism.gravity).build()
    there = jm.convert(state, system, alone)
    for place in ("rod", "rod.tip"):
        found, expected = (jm.acceleration(*at, place, formulation=method) for at in ((system, state), (alone, there)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    expected = jm.joint_reaction(alone, there, "joint")
    for i in range(hinges):
        found = jm.joint_reaction(system, state, f"h{i}", formulation=method)
        np.testing.assert_allclose(found.force, expected.force, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.torque, expected.torque, rtol=0, atol=1e-10)


def test_rows_are_sized_by_the_masses_nearest_to_them():
    """M + m Σ DᵀD of differences D, by rows in any units: a chain of one mass and three velocities without, and two more that rounding alone ties to it."""
    m, units = 3.0, np.array([1e-17, 1.0, 40.0, 1e6])
    ends = np.array([[1, -1, 0, 0, 0, 0], [0, 1, -1, 0, 0, 0], [0, 0, 1, -1, 0, 0], [1e-17, 0, 0, 0, 1, -1]])
    mass = np.diag([m, 0, 0, 0, 0, 0])
    metric = lambda mass: regular_metric(jnp.asarray(mass), jnp.asarray(units[:, None] * ends))
    weights = m * np.array(
        [1, 1, 1, 0.5]
    )  # a row without any mass by the largest inertia that there is, in both its entries
    np.testing.assert_allclose(metric(mass), mass + ends.T @ np.diag(weights) @ ends, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(metric(1e-3 * mass), 1e-3 * metric(mass), rtol=1e-13, atol=1e-17)
    # Far above rounding an entry ties, however small: by 1e-9 of it the row is sized by the mass.
    tied = np.where(ends == 1e-17, 1e-9, ends)
    found = jm.linalg.regular_metric(jnp.asarray(mass), jnp.asarray(units[:, None] * tied))
    np.testing.assert_allclose(found, mass + tied.T @ np.diag([m, m, m, m * 1e18]) @ tied, rtol=1e-9)
    # A row that vanishes at a pose has no part in the sizes of the others.
    lost = regular_metric(jnp.asarray(mass), jnp.asarray(np.append(units[:, None] * ends, np.zeros((1, 6)), 0)))
    np.testing.assert_allclose(lost, metric(mass), rtol=1e-14, atol=1e-14)
    for unit in (1e-20, 1e20):
        regular = unit * (np.eye(6) + 0.5)
        np.testing.assert_array_equal(metric(regular), regular)
    # A direction that has no more than the smallest inertia that counts, beside those of its velocities, takes part in no metric of its own.
    regular = np.eye(6)
    for part, counts in ((0.7, False), (1.4, True)):
        regular[:2, :2] = [[1, np.sqrt(1 - part * LIGHT)], [np.sqrt(1 - part * LIGHT), 1]]
        assert np.array_equal(metric(regular), regular) == counts


def test_sizes_of_rows_are_handed_on_across_three_velocities_without_mass():
    """a_k x_k = b_k x_k+1 makes x_k+1 as heavy as M (b/a)², and its row is sized by that; a row beyond by the largest inertia that there is."""
    m, a, b = 3.0, np.array([2.0, 3.0, 5.0, 0.5, 4.0]), np.array([0.7, 1.1, 1.5, 0.3, 2.0])
    heavy = m * np.cumprod(np.append(1, (b / a)[:3] ** 2))
    sizes = np.append(a[:3] ** 2 / heavy[:3], (a**2 + b**2)[3:] / heavy.max())
    rows = np.pad(np.diag(a), ((0, 0), (0, 1))) - np.pad(np.diag(b), ((0, 0), (1, 0)))
    mass = np.diag([m, 0, 0, 0, 0, 0])
    expected = mass + rows.T @ np.diag(1 / sizes) @ rows
    np.testing.assert_allclose(regular_metric(jnp.asarray(mass), jnp.asarray(rows)), expected, rtol=1e-13)


def slider(*cardan, more=()):
    """A crank that drives a slider by a rod, with a ball at one end and a cardan joint at the other."""
    bodies = [
        S.Body(name, mass, (0.1,) * 3, com, points={"end": (length, 0, 0)})
        for name, mass, com, length in (
            ("crank", 1.0, (0.1, 0, 0), 0.3),
            ("rod", 0.5, (0.4, 0.1, 0), 1.0),
            ("slider", 2.0, (0, 0, 0), 1.0),
        )
    ]
    guide = S.Prismatic("guide", ("ground", (1.2, 0, 0.1)), "slider", axis=(1, 0, 0))
    joints = [S.Revolute("O", "ground", "crank"), guide, S.Spherical("A", "crank.end", "rod"), *cardan]
    return S.Mechanism([*bodies, *more], joints, gravity=(0, -9.81, 0))


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["B", "C"])
def test_a_link_without_mass_that_a_loop_is_cut_at_is_half_a_cardan_joint(cut):
    """On either side of the cut, with the masses of the tree singular: `KKT` is taken, and all reactions are those of `Universal`."""
    cross = S.Body("cross", 0.0, (0.0, 0.0, 0.0))
    hinges = S.Revolute("B", "rod.end", "cross", axis=(0, 1, 0)), S.Revolute("C", "cross", "slider", axis=(0, 0, 1))
    whole = slider(S.Universal("B", "rod.end", "slider", axis=(0, 1, 0), axis_b=(0, 0, 1)))
    system, whole = slider(*hinges, more=[cross]).build(cut=[cut]), whole.build(cut=["B"])
    states = moving(system), jm.convert(moving(system), system, whole)
    found, expected = (jm.joint_reactions(*at) for at in zip((system, whole), states, strict=True))
    for name in expected:
        np.testing.assert_allclose(found[name].force, expected[name].force, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found[name].torque, expected[name].torque, rtol=0, atol=1e-10)
    rates = [jm.reactions(*at).vdot[at[0].velocities.index("O")] for at in zip((system, whole), states, strict=True)]
    np.testing.assert_allclose(*rates, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "axis, q, along", [((0, 0, 1), [0.1, 0.2], "'h0' and 'h1'"), ((0, 1, 0), [0.1, np.pi / 2, 0.2], "'h0' and 'h2'")]
)
def test_hinges_along_one_line_are_refused_by_name(axis, q, along):
    """Two on one axis at all poses, three in the pose in which the first and the last have one."""
    mechanism = chain(len(q))
    if len(q) == 2:
        mechanism = mechanism.replace("h1", axis=axis, axis_b=axis)
    system = mechanism.build()
    state = jm.as_state(system, q, [0.1] * len(q))
    for method in (None, jm.formulation.KKT()):
        with pytest.raises(
            ValueError,
            match=f"along {along} there is no inertia, and no constraint holds it. Give mass and inertia of 'link0'",
        ):
            jm.reactions(system, state, formulation=method)


def test_the_inertia_beside_a_velocity_is_the_largest_one_that_its_rows_move_with_it():
    """M_kk (C_ij/C_ik)² over entries that take part, in any units of rows and masses, where M_kk is larger as it stands too; a row that vanishes and a velocity in no row have none."""
    rng = np.random.default_rng(0)
    takes_part = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [1, 0, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
    entries = np.where(
        takes_part, rng.uniform(0.5, 1.0, (4, 5)), 1e-5 * (np.arange(4) < 3)[:, None] * (np.arange(5) < 4)
    )
    inertia = np.array([2.0, 0.0, 1e-9, 3.0, 7.0])
    for orders, unit, least in ((0.0, 1.0, 0.05), (0.0, 1e8, 0.05), (6.0, 1.0, 1.0)):
        entries[0, 1] = least
        rows, units = (10.0 ** rng.uniform(-orders, orders, k) for k in (4, 5))
        squared = (rows[:, None] * entries / units) ** 2
        own = unit * inertia / units**2
        found = _inertia_beside(jnp.asarray(own), jnp.asarray(squared))
        expected = np.zeros(5)
        for i, j, k in itertools.product(range(4), range(5), range(5)):
            if takes_part[i, j] and takes_part[i, k] and np.sqrt(LIGHT) * own[k] > own[j]:
                expected[j] = max(expected[j], own[k] * squared[i, j] / squared[i, k])
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    # An entry takes part from a hundredth of the others on.
    for x, beside in ((0.0101, 0.0101**-2), (0.0099, 0.0)):
        found = _inertia_beside(jnp.array([1.0, 0.0]), jnp.array([[1.0, x], [x, 1.0]]) ** 2)
        np.testing.assert_allclose(found, [0.0, beside], rtol=1e-12)
    # An entry that is rounding in the metric beside one without inertia takes no part, however small the largest inertia is.
    for unit in (1e-30, 1.0, 1e30):
        assert not _inertia_beside(jnp.array([unit, 0.0]), jnp.array([[1e-16, 1.0]])).any()


@pytest.mark.parametrize("x", [0.0, 1e-12, 1e-9, 1e-7, 1e-5])
def test_beside_an_entry_that_vanishes_no_inertia_looks_small(x):
    """Of a particle on a rod that hangs but for x."""
    rod = jm.Holonomic("rod", lambda t, q, p: q @ q - 1)
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[rod])
    state = jm.assemble(system, [x, -1.0], [1.0, 0.0])
    np.testing.assert_array_equal(regular_metric(jnp.eye(2), 2 * state.q[None]), np.eye(2))
    # A body at the end of the rod, in metres and in millimetres.
    for unit in (1.0, 1e3):
        mass, row = jnp.diag(jnp.array([1.0, 1.0, 4 * unit**2])), jnp.array([[x, -1.0, 0.3 * unit]])
        np.testing.assert_array_equal(regular_metric(mass, row), mass)
    np.testing.assert_allclose(jm.reactions(system, state).reaction, [-x, 1.0], atol=1e-12)


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_an_entry_that_is_rounding_in_the_metric_of_the_masses_makes_no_inertia_small(unit):
    """A rod of 6 m that stands upright on a rail, where the lever is cos 90°, in metres and in millimetres."""
    length = 3.0 * unit
    rail = jm.Holonomic("rail", lambda t, q, p: q[1] - length * jnp.sin(q[2]))
    mass = jnp.diag(jnp.array([1.0, 1.0, length**2 / 3]))
    system = jm.System(3, mass=lambda t, q, p: mass, constraints=[rail])
    scale, beside = (jm.as_state(system, [0.0, length, np.pi / 2 - x]).scale for x in (0.0, 1e-3))
    np.testing.assert_allclose(scale.row, beside.row, rtol=1e-3)
    np.testing.assert_allclose(scale.reach, beside.reach, rtol=1e-2)
    assert 1 < scale.row[0] < 2


def slider_crank(mass, unit):
    """In absolute coordinates, its rod of any mass."""
    length = {"crank": 0.3 * unit, "rod": 0.9 * unit}
    bodies = [P.Body.rod(name, {"crank": 1.0, "rod": mass}[name], length[name]) for name in length]
    bodies.append(P.Body("slider", 0.5, 0.005 * unit**2))
    joints = [P.Revolute("O", "ground", "crank.a"), P.Revolute("A", "crank.b", "rod.a")]
    joints += [P.Revolute("B", "rod.b", "slider"), P.Prismatic("guide", "ground", "slider", axis=(1.0, 0.0))]
    return P.Mechanism(bodies, joints, gravity=(0.0, -9.81 * unit)).build(coordinates="absolute")


def slider_crank_pose(unit):
    """At 0.7 rad of the crank; bodies are placed by their ends."""
    elbow = 0.3 * np.array([np.cos(0.7), np.sin(0.7)])
    rod = -np.arcsin(elbow[1] / 0.9)
    places = [0.0, 0.0, *elbow, elbow[0] + 0.9 * np.cos(rod), 0.0]
    return np.insert(unit * np.array(places), [2, 4, 6], [0.7, rod, 0.0])


def test_lengths_do_not_grow_as_a_body_becomes_light():
    """Else lines along which rows are measured carry it away from its neighbours before these have turned."""
    for mass, unit in ((1e-3, 1.0), (1e-7, 1.0), (1e-9, 1e3), (1e-14, 1.0)):
        reach = jm.as_state(slider_crank(mass, unit), slider_crank_pose(unit)).scale.reach
        lengths = reach / np.where(np.arange(9) % 3 < 2, unit, 1)
        assert np.all((lengths > 0.1) & (lengths < 10)), lengths


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_a_light_rod_takes_no_more_steps_than_a_heavy_one(unit):
    places, steps = [], []
    for mass in (1e-3, 1e-7, 1e-9, 1e-11, 1e-14):
        system = slider_crank(mass, unit)
        sol = jm.simulate(system, jm.assemble(system, slider_crank_pose(unit)), jnp.linspace(0, 0.5, 3))
        assert sol.result == jm.RESULTS.successful
        places.append(jm.position(system, sol, "slider")[:, 0] / unit)
        steps.append(int(sol.stats["num_steps"]))
    np.testing.assert_allclose(places[1:-1], places[-1:] * 3, atol=2e-7)
    assert max(steps) < 1.2 * steps[0], steps


def test_rounding_in_place_of_an_inertia_gives_no_row_a_size():
    """The rows of an oblique hinge of a slender rod in the metric of M, in all units."""
    (across, arm), values = np.random.default_rng(3).normal(size=(2, 3)), []
    across = np.stack([across, np.cross(across, arm)])
    for unit in (1e-3, 1.0, 1e3):
        rows = jnp.block([[jnp.eye(3), unit * np.cross(np.eye(3), arm)], [jnp.zeros((2, 3)), across]])
        for rounding in (0.0, 3e-17, -2e-17, 1e-13):
            mass = jnp.diag(jnp.array([1.0, 1.0, 1.0, unit**2, unit**2, rounding * unit**2]))
            metric = regular_metric(mass, rows)
            scaled = jm.linalg.metric_rows(metric, rows, jm.linalg.row_norms(metric, rows))
            values.append(np.linalg.svd(scaled, compute_uv=False))
    np.testing.assert_allclose(values[1:], values[:1] * 11, rtol=1e-9)
    assert values[0][-1] > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_the_hinge_of_a_slender_rod_bears_what_newton_and_euler_say(unit):
    oblique = np.array([0.7, 0.4, -0.5, 0.2]) / np.linalg.norm([0.7, 0.4, -0.5, 0.2])
    rod = S.Body("rod", 2.0, shape=S.Rod(0.5 * unit))
    hinge = S.Revolute(
        "hinge", ("ground", (0.3 * unit, 0.2 * unit, 5.0 * unit)), ("rod", S.frame((0, 0, 0), oblique)), (0.3, 1.0, 0.2)
    )
    gravity = np.array([0.0, 0.0, -9.81 * unit])
    system = S.Mechanism([rod], [hinge], gravity=gravity).build()
    state = jm.assemble(system, {"hinge": 0.4}, {"hinge": 2.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the reaction of one hinge is determined
        found = jm.joint_reaction(system, state, "hinge")
    arm = np.asarray(jm.position(system, state, "rod.centre") - found.point)
    linear = np.asarray(jm.acceleration(system, state, "rod.centre"))
    force = 2.0 * (linear - gravity)
    np.testing.assert_allclose(found.force, force, rtol=1e-12)
    # Of the points r = s e, 0 < s < l, all in the direction of the centre: ∫ r × a dm = 4/3 m (c × a_c).
    torque = np.cross(arm, 2.0 * (4 / 3 * linear - gravity))
    np.testing.assert_allclose(found.torque, torque, rtol=0, atol=1e-12 * np.linalg.norm(torque))
    assert not jm.diagnose(system, state).shared


def test_the_formulation_is_one_that_takes_what_has_no_inertia_and_one_that_does_not_is_refused():
    """Two that move together, of which one has a mass."""
    both = jm.Holonomic("both", lambda t, q, p: q[0] - q[1])
    system = jm.System(2, mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 0.0])), constraints=[both])
    state = jm.as_state(system, jnp.zeros(2), length=1.0)
    assert isinstance(formulation_at(None, system, state), jm.formulation.KKT)
    partition = jm.formulation.CoordinatePartition()
    assert formulation_at(partition, system, state) is partition
    with pytest.raises(ValueError, match="must be positive definite for `GaussProjection`, but is singular along 'q1'"):
        formulation_at(jm.formulation.GaussProjection(), system, state)


def test_without_any_mass_what_is_driven_moves_and_bears_its_load():
    """The reaction of y = x²/2 − t and x = t to a force, λ = −C⁻ᵀF; along x alone there is neither mass nor driver."""
    rows = lambda t, q, p: jnp.stack([q[0] - t, 1e3 * (q[1] - q[0] ** 2 / 2 + t)])
    load = lambda t, q, v, p: jnp.array([2.0, -3.0])
    drives = jm.Holonomic("drives", rows)
    system = jm.System(2, mass=lambda t, q, p: jnp.zeros((2, 2)), force=load, constraints=[drives])
    run = jm.simulate(system, jm.assemble(system, [0.0, 0.0]), jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(run.q, [[0.5, -0.375], [1.0, -0.5]], rtol=0, atol=1e-12)
    found = jm.reactions(system, run).multipliers["drives"]
    np.testing.assert_allclose(found, [[-2 + 3 * 0.5, 3e-3], [-2 + 3 * 1.0, 3e-3]], rtol=1e-12)
    across = jm.System(
        2, mass=lambda t, q, p: jnp.zeros((2, 2)), constraints=[jm.Holonomic("drive", lambda t, q, p: q[1:] - t)]
    )
    with pytest.raises(ValueError, match=r"along 'q0' there is no inertia, and no constraint holds it"):
        jm.assemble(across, [0.0, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1.0, 1000.0])
@pytest.mark.parametrize("build", ["relative", "absolute"])
def test_a_mechanism_without_any_mass_moves_as_driven_and_bears_its_loads(build, unit):
    """The angle of the rocker by circles, the torque of the driver by virtual power: there was no size without a mass."""
    links = {"crank": (0.4, 1.2), "coupler": (0.9, 0.0), "rocker": (0.8, -1.5)}
    bodies = [P.Body(name, 0.0, 0.0, points={"end": (length * unit, 0.0)}) for name, (length, _) in links.items()]
    joints = [
        P.Revolute("A", "ground", "crank"),
        P.Revolute("B", "crank.end", "coupler"),
        P.Revolute("C", "coupler.end", "rocker"),
        P.Revolute("D", "rocker.end", ("ground", (unit, 0.0))),
    ]
    drive = P.Driver("drive", "A", lambda t, p: 1.2 + 0.5 * t)
    load = P.Load("load", ("coupler", (0.45 * unit, 0.0)), (0.0, -10.0))
    mechanism = P.Mechanism(bodies, joints, [drive], [load])
    start = jm.assemble(mechanism.build(), {"A": 1.2, "B": -1.3, "C": -1.4})
    system = mechanism.build(build)
    state = jm.convert(start, mechanism.build(), system)
    run = jm.simulate(system, state, jnp.array([0.0, 1.0]))
    angle = 1.2 + 0.5 * run.ts
    end = 0.4 * np.stack([np.cos(angle), np.sin(angle)], 1)
    across = np.array([1.0, 0.0]) - end
    distance = np.linalg.norm(across, axis=1)
    along = (0.9**2 - 0.8**2 + distance**2) / (2 * distance)
    left = np.stack([-across[:, 1], across[:, 0]], 1)
    joint = end + (along * across.T + np.sqrt(0.9**2 - along**2) * left.T).T / distance[:, None]
    np.testing.assert_allclose(jm.position(system, run, "coupler.end") / unit, joint, rtol=0, atol=1e-12)
    sinking = -jm.velocity(system, run, ("coupler", (0.45 * unit, 0.0)))[:, 1]
    torque = jm.reactions(system, run).multipliers["drive"]
    np.testing.assert_allclose(0.5 * torque, -10.0 * sinking, rtol=1e-11)
    found = jm.diagnose(system, state)
    assert (found.freedom, found.freedom_undriven) == (0, 1)
    if build == "absolute":
        assert jm.check(system, run)["energy balance"].verdict == "not asked"


def test_an_angle_on_which_a_row_depends_by_rounding_gives_that_row_no_size():
    """Of a pin and a blade at the origin of a body with inertia and without mass, in mm: rounding of the lever is 1e-13 beside cosines."""
    mass = np.diag([1.0, 1.0, 1e5, 0.0, 0.0, 1e4])
    rows = np.array(
        [[1.0, 0.0, -90.0, -1.0, 0.0, 0.0], [0.0, 1.0, 280.0, 0.0, -1.0, 0.0], [0.0, 0.0, 0.0, -0.4, 0.9, 0.0]]
    )
    rounded = rows + np.outer([1.0, 1.0, 1.0], [0, 0, 0, 0, 0, 2.8e-14])
    expected = regular_metric(jnp.asarray(mass), jnp.asarray(rows))
    np.testing.assert_allclose(
        regular_metric(jnp.asarray(mass), jnp.asarray(rounded)), expected, rtol=1e-12, atol=1e-10
    )
    np.testing.assert_array_less(1e-3, np.linalg.eigvalsh(expected))


@pytest.mark.slow
@pytest.mark.parametrize(("inertia", "at"), [(0.0, 0.0), (0.1, 0.2)], ids=["two points", "a body"])
def test_a_blade_whose_mass_is_nothing_beside_its_inertia_is_assembled_in_metres_and_in_millimetres(inertia, at):
    """The blade's row has no mass, and the angle of its body acts on it by rounding only, which is 1e-14 of lengths in mm."""

    def assembled(unit):
        place = lambda x, y: (x * unit, y * unit)
        sled = P.Body("sled", mass=1.0, inertia=inertia * unit**2, position=place(0.2, 0.1), angle=0.3)
        skate = P.Body("skate", mass=0.0, inertia=0.01 * unit**2, position=place(0.6 + at, 0.31 + at), angle=0.4)
        joints = [P.Revolute("pin", ("sled", place(0.4, 0.1)), ("skate", place(at, 0.0))), P.KnifeEdge("edge", "skate")]
        system = P.Mechanism([sled, skate], joints).build("absolute")
        state = jm.assemble(system, v={"sled.x": 0.5 * unit, "sled.angle": 1.0})
        assert jnp.abs(jm.residuals(system, state).position).max() < 1e-13
        assert jnp.abs(jm.residuals(system, state).velocity).max() < 1e-12
        sizes = np.array([unit, unit, 1.0] * 2)
        return state.q / sizes, state.v / sizes

    for large, small in zip(assembled(1.0), assembled(1e3), strict=True):
        np.testing.assert_allclose(large, small, rtol=1e-9, atol=1e-12)
