"""Curves of motion: ranges, dead centres, branch points, coupler curves, against closed forms and in any unit."""

import dataclasses
import functools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bricard_joints import bricard_joints
from mechanisms import three_cranks

import jaxmb as jm
from jaxmb.kinematics import trace
from jaxmb.kinematics.branches import _common_zeros
from jaxmb.kinematics.curve import CurveEvent
from jaxmb.kinematics.path import CurvePoint, TracedMechanism, coordinate_of, release_input
from jaxmb.kinematics.trace import _follow, _join_walks, _limits, _trace, _Walk

P = jm.planar
JOINTS = [
    P.Revolute("A", "ground", "crank.a"),
    P.Revolute("B", "crank.b", "coupler.a"),
    P.Revolute("C", "coupler.b", "rocker.b"),
    P.Revolute("D", "ground.d", "rocker.a"),
]


def four_bar(crank, coupler, rocker, ground, unit=1.0, drivers=(), joints=()):
    """Lengths in `unit` metres."""
    lengths = {"crank": crank, "coupler": coupler, "rocker": rocker}
    bodies = [P.Body.rod(name, 1.0, length * unit) for name, length in lengths.items()]
    return P.Mechanism(bodies, [*JOINTS, *joints], drivers, points={"d": (ground * unit, 0.0)})


def pose_of(crank, coupler, rocker, ground, angle, side=1.0):
    """Angles of coupler against crank and of the rocker, by the intersection of two circles."""
    tip = crank * np.array([np.cos(angle), np.sin(angle)])
    gap = np.array([ground, 0.0]) - tip
    far = np.linalg.norm(gap)
    corner = np.arccos((coupler**2 + far**2 - rocker**2) / (2 * coupler * far))
    turn = np.arctan2(gap[1], gap[0]) + side * corner
    end = tip + coupler * np.array([np.cos(turn), np.sin(turn)])
    return {"A": angle, "B": turn - angle, "D": np.arctan2(end[1], end[0] - ground)}


@functools.cache
def traced(lengths, angle, unit=1.0, side=1.0, watch=("D",)):
    system = four_bar(*lengths, unit).build()
    state = jm.assemble(system, pose_of(*lengths, angle, side))
    return system, jm.trace_motion(system, state, "A", watch=watch)


GRASHOF, TRIPLE, PARALLELOGRAM = (1.0, 3.0, 2.5, 3.2), (2.0, 1.5, 2.2, 4.0), (1.0, 2.0, 1.0, 2.0)
UNITS = pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])


def poses(system, state):
    return jax.vmap(lambda q: system.joints.poses(q, system.params))(state.q)


@pytest.mark.slow_except("1000.0")
@UNITS
def test_a_crank_turns_fully_and_returns_to_its_start(unit):
    system, curve = traced(GRASHOF, 1.0, unit)
    places = np.asarray(poses(system, curve.states))
    scale = np.array([[1, 1, unit], [1, 1, unit], [1, 1, 1]])
    assert curve.closed and curve.start == 0
    np.testing.assert_allclose(places[-1] / scale, places[0] / scale, atol=1e-10)
    np.testing.assert_allclose(curve.values["A"][-1] - curve.values["A"][0], 2 * np.pi, atol=1e-10)
    assert not curve.of_kind("dead centre") and not curve.of_kind("branch point")
    assert np.abs(np.asarray(jm.residuals(system, curve.states).position)).max() < 1e-11
    assert np.abs(np.diff(np.asarray(curve.values["A"]))).max() < 0.2
    terms = jm.evaluate(system, jax.tree.map(lambda x: x[7], curve.states))
    rows = np.linalg.solve(np.linalg.cholesky(terms.mass), (terms.jacobian / terms.scale[:, None]).T)
    np.testing.assert_allclose(curve.gap[7], np.linalg.svd(rows, compute_uv=False)[-1], rtol=1e-9)


@pytest.mark.slow_except("1000.0")
@UNITS
def test_a_part_of_a_turn_is_followed_both_ways_from_the_start(unit):
    """Poses from the least angle to the largest, with velocities that way; the start may be one of the two."""
    system, turn = traced(GRASHOF, 1.0, unit)
    state = jm.assemble(system, pose_of(*GRASHOF, 1.0))
    part = jm.trace_motion(system, state, "A", watch=("D",), between=(0.4, 1.5))
    angles = np.asarray(part.values["A"])
    assert part.ends == ("limit", "limit") and 0 < part.start < len(angles) - 1
    np.testing.assert_allclose(angles[[0, part.start, -1]], [0.4, 1.0, 1.5], atol=1e-7)
    steps = np.diff(angles)
    assert (steps > 0).all() and steps.max() < 0.03 and (np.asarray(jm.rate(system, part.states, "A")) > 0).all()
    exact = [pose_of(*GRASHOF, angle)["D"] for angle in angles]
    np.testing.assert_allclose(part.values["D"], exact, atol=1e-9)
    least = float(turn.values["A"][0]) + 1e-14  # the start is at the limit but for rounding
    for between, start in (((least, 1.5), 0), ((0.4, least), -1)):
        begun = jm.trace_motion(system, state, "A", watch=("D",), between=between)
        assert begun.ends == ("limit", "limit") and begun.start == start % len(begun.gap)
        np.testing.assert_allclose(
            begun.values["A"][jnp.array([0, begun.start, -1])], [between[0], 1.0, between[1]], atol=1e-7
        )
        assert (np.diff(np.asarray(begun.values["A"])) > 1e-6).all()  # each pose once


@pytest.mark.slow_except("1000.0")
@UNITS
def test_a_rocker_reaches_as_far_as_the_law_of_cosines_says(unit):
    _, curve = traced(GRASHOF, 1.0, unit)
    a, b, c, d = GRASHOF  # the rocker turns back where crank and coupler are in line
    exact = [np.pi - np.arccos((d**2 + c**2 - reach**2) / (2 * d * c)) for reach in (b + a, b - a)]
    np.testing.assert_allclose(curve.ranges["D"], exact, atol=1e-9)
    assert [event.name for event in curve.of_kind("limit position")] == ["D", "D"]


@pytest.mark.slow_except("1000.0")
@UNITS
def test_dead_centres_of_a_triple_rocker_are_those_of_the_law_of_cosines(unit):
    system, curve = traced(TRIPLE, 0.5, unit)
    a, b, c, d = TRIPLE  # coupler and rocker in line
    exact = np.arccos((a**2 + d**2 - (b + c) ** 2) / (2 * a * d))
    found = curve.of_kind("dead centre")
    assert curve.closed and len(found) == 2
    np.testing.assert_allclose([event.values["A"] for event in found], [exact, -exact], atol=1e-9)
    np.testing.assert_allclose(curve.ranges["A"], (-exact, exact), atol=1e-9)
    tip = a * np.array([np.cos(exact), np.sin(exact)]) - np.array([d, 0.0])
    np.testing.assert_allclose(found[0].values["D"], np.arctan2(tip[1], tip[0]), atol=1e-9)
    np.testing.assert_allclose(
        jm.rate(system, found[0].state, "A") / jm.rate(system, found[0].state, "D"), 0, atol=1e-9
    )
    assert f"dead centre of A at pose {found[0].index}: A = {exact:.9g}" in str(curve)


@pytest.mark.slow_except("0.001")
@UNITS
@pytest.mark.slow
def test_a_parallelogram_may_become_an_antiparallelogram_where_it_is_flat(unit):
    system, curve = traced(PARALLELOGRAM, 0.8, unit)
    np.testing.assert_allclose(curve.values["A"], curve.values["D"], atol=1e-7)  # it stays one
    flat = curve.of_kind("branch point")
    np.testing.assert_allclose([event.values["A"] for event in flat], [np.pi, 2 * np.pi], atol=1e-7)
    assert flat[0].branches.t.shape == (2,)
    ratios = []
    for i in range(2):
        start = jax.tree.map(lambda x, i=i: x[i], flat[0].branches)
        branch = jm.trace_motion(system, start, "A", watch=("D",))
        assert branch.closed and branch.events[0].index == 0
        ratios.append(float(jm.rate(system, start, "D") / jm.rate(system, start, "A")))
        middle = len(branch.gap) // 4
        crank, rocker = (np.asarray(branch.values[name]) for name in ("A", "D"))
        turned = np.unwrap(rocker) - rocker[0], crank - crank[0]
        if ratios[-1] > 0:
            np.testing.assert_allclose(*turned, atol=1e-7)
        else:  # tan(A/2) tan(D/2) = −(d − a)/(d + a) of an antiparallelogram, here seen from its folded pose
            product = np.tan(crank[middle] / 2) / np.tan(rocker[middle] / 2)
            np.testing.assert_allclose(abs(product), 3.0 if abs(product) > 1 else 1 / 3, rtol=1e-9)
    np.testing.assert_allclose(sorted(ratios), [-1 / 3, 1.0], atol=1e-7)


def test_branches_that_nearly_meet_are_followed_each_by_itself():
    """Of lengths 1, 2, 3 and 4 − e a crank goes round where e > 0 and swings where e < 0, as far as the law of cosines says; for e = 0 branches meet at each turn."""
    for e in (1e-4, -1e-4):
        ground = 4.0 - e
        _, curve = traced((1.0, 2.0, 3.0, ground), 0.8)
        lowest, highest = (np.pi - np.arccos(min(1, (9 + ground**2 - r**2) / (6 * ground))) for r in (3.0, 1.0))
        turn = np.arccos(max(-1, (1 + ground**2 - 25) / (2 * ground)))
        assert curve.closed and not curve.of_kind("branch point")
        np.testing.assert_allclose(curve.ranges["D"], [lowest, highest if e > 0 else 2 * np.pi - lowest], atol=1e-10)
        np.testing.assert_allclose(np.ptp(curve.values["A"]), 2 * turn, atol=1e-10)
    _, curve = traced((1.0, 2.0, 3.0, 4.0), 0.8)
    met = [event.values["A"] / np.pi for event in curve.of_kind("branch point")]
    assert curve.closed and not curve.of_kind("dead centre")
    np.testing.assert_allclose(met, [1.0, 3.0], atol=1e-8)


def test_directions_at_which_quadratic_forms_vanish():
    """(x + y)(x − y), x y, and in space x² + y² = 2 z² with x = ± y, and x² = y² = z² = w²; none, and a continuum."""
    found = lambda *forms: np.abs(_common_zeros(np.array(forms, float)))
    cone, planes = np.diag([1.0, 1.0, -2.0]), np.diag([1.0, -1.0, 0.0])
    for unit in (3.0, 1e-9):
        np.testing.assert_allclose(found(unit * np.diag([1.0, -1.0])), np.full((2, 2), np.sqrt(0.5)), atol=1e-9)
    np.testing.assert_allclose(np.sort(found([[0, 1], [1, 0]]), axis=0), [[0, 0], [1, 1]], atol=1e-9)
    np.testing.assert_allclose(found(cone, planes), np.full((4, 3), np.sqrt(1 / 3)), atol=1e-9)
    all_alike = found(*(np.diag([*row, -1.0]) for row in np.eye(3)))
    np.testing.assert_allclose(all_alike, np.full((8, 4), 0.5), atol=1e-9)
    assert not any(len(found(form)) for form in (np.eye(2), np.diag([1.0, 0.3]), np.zeros((2, 2)), cone))


def six_bar():
    """Two parallelograms with a crank in common; each may fold over where it is flat."""
    lengths = {"left": 1.0, "near": 2.0, "middle": 1.0, "far": 3.0, "right": 1.0}
    joints = [
        P.Revolute("A", "ground", "left.a"),
        P.Revolute("B", "left.b", "near.a"),
        P.Revolute("C", "near.b", "middle.b"),
        P.Revolute("D", "ground.d", "middle.a"),
        P.Revolute("E", "middle.b", "far.a"),
        P.Revolute("F", "far.b", "right.b"),
        P.Revolute("G", "ground.g", "right.a"),
    ]
    bodies = [P.Body.rod(name, 1.0, length) for name, length in lengths.items()]
    return P.Mechanism(bodies, joints, points={"d": (2.0, 0.0), "g": (5.0, 0.0)}).build()


@pytest.mark.slow
def test_four_branches_of_a_six_bar_meet_where_it_is_flat():
    """Each loop goes on as a parallelogram, or with the slope −(d − a)/(d + a) of an antiparallelogram."""
    system = six_bar()
    angles = dict.fromkeys("ADG", np.pi) | dict.fromkeys("BE", -np.pi)
    met = jm.kinematics.branches(system, jm.as_state(system, [angles[name] for name in system.coordinates]))
    a, d, g = (np.asarray(jm.rate(system, met, name)) for name in "ADG")
    exact = [(x, y) for x in (-1 / 3, 1.0) for y in (-1 / 2, 1.0)]
    np.testing.assert_allclose(sorted(zip(np.round(d / a, 9), g / d, strict=True)), exact, atol=1e-9)


@pytest.mark.slow
def test_the_branches_of_a_six_bar_are_found_on_the_way_and_followed():
    system = six_bar()
    state = jm.assemble(system, {"A": 2.0, "B": -2.0, "D": 2.0, "E": -2.0, "G": 2.0})
    curve = jm.trace_motion(system, state, "A", watch=("D", "G"), between=(1.0, 4.0))
    (flat,) = curve.of_kind("branch point")
    np.testing.assert_allclose([flat.values[name] for name in "ADG"], np.pi, atol=1e-7)
    assert flat.branches.t.shape == (4,)
    for i in range(4):
        start = jax.tree.map(lambda x, i=i: x[i], flat.branches)
        branch = jm.trace_motion(system, start, "A", watch=("D", "G"), between=(1.0, 4.0))
        a, d, g = (np.tan(np.asarray(branch.values[name])[1:-1] / 2) for name in "ADG")
        moving = np.abs(np.asarray(branch.values["A"])[1:-1] - np.pi) > 0.1
        # tan(D/2) = tan(A/2), or −(d + a)/(d − a) tan(A/2), all along
        for ratio, folded in (((d / a)[moving], -3.0), ((g / d)[moving], -2.0)):
            np.testing.assert_allclose(ratio, folded if ratio[0] < 0 else 1.0, rtol=1e-6)


def test_a_coupler_curve_is_that_of_intersecting_circles():
    system, curve = traced(GRASHOF, 1.0)
    path = jm.position(system, curve.states, ("coupler", (1.2, 0.7)))
    exact = []
    for angle in np.asarray(curve.values["A"]):
        found = pose_of(*GRASHOF, angle)
        turn = found["A"] + found["B"]
        arm = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) @ [1.2, 0.7]
        exact.append(np.array([np.cos(angle), np.sin(angle)]) + arm)
    np.testing.assert_allclose(path, np.array(exact), atol=1e-9)


def test_the_transmission_angle_follows_from_the_diagonal():
    system, curve = traced(GRASHOF, 1.0)
    found = jm.angle_between(system, curve.states, "coupler.a", "coupler.b", "rocker.a")
    a, b, c, d = GRASHOF
    diagonal = a**2 + d**2 - 2 * a * d * np.cos(np.asarray(curve.values["A"]))
    np.testing.assert_allclose(found, np.arccos((b**2 + c**2 - diagonal) / (2 * b * c)), atol=1e-9)


@pytest.mark.slow
def test_a_driver_lets_go_of_the_input_and_limits_end_the_curve():
    lengths, motor = GRASHOF, P.Driver("motor", "A", lambda t, p: 1.0 + 3.0 * t)
    system = four_bar(*lengths, drivers=[motor]).build()
    state = jm.assemble(system, pose_of(*lengths, 1.0))
    found = [jm.trace_motion(system, state, name, between=(0.5, 2.0)) for name in ("motor", "A")]
    for curve in found:
        assert curve.ends == ("limit", "limit") and 0 < curve.start < len(curve.gap) - 1
        np.testing.assert_allclose(curve.values["A"][jnp.array([0, curve.start, -1])], [0.5, 1.0, 2.0], atol=1e-10)
        assert (np.diff(np.asarray(curve.values["A"])) > 0).all()
        assert (np.asarray(jm.rate(system, curve.states, "A")) > 0).all()  # velocities lead along the curve


@pytest.mark.slow
def test_three_cranks_meet_their_branches_though_rows_are_redundant():
    system = three_cranks().build()
    state = jm.assemble(system, {"A": 1.2, "B": 1.2, "C": 1.2, "D": -1.2})
    curve = jm.trace_motion(system, state, "A")
    assert curve.closed
    # A second mode would have all three antiparallel, which a rigid top does not allow: one branch only.
    assert [event.branches.t.shape[0] for event in curve.of_kind("branch point")] == [1, 1]


@pytest.mark.slow
def test_bricards_linkage_of_a_cube_folds_by_two_thirds_of_a_half_turn_either_way():
    system = bricard_joints().build()
    curve = jm.trace_motion(system, jm.assemble(system), "hinge1", watch=["hinge2"])
    assert curve.closed and not curve.of_kind("branch point")
    np.testing.assert_allclose(curve.ranges["hinge1"], (-np.pi / 6, 7 * np.pi / 6), atol=1e-9)
    np.testing.assert_allclose(curve.ranges["hinge2"], (-np.pi / 6, 7 * np.pi / 6), atol=1e-9)


@pytest.mark.slow
def test_open_curves_of_functions_and_isolated_poses():
    line = jm.System(1, mass=lambda t, q, p: jnp.eye(1))
    curve = jm.trace_motion(line, jm.assemble(line, [2.0]), "q0", between=(0.0, 10.0))
    assert curve.ends == ("limit", "limit") and curve.ranges["q0"] == pytest.approx((0.0, 10.0), abs=1e-9)
    short = jm.trace_motion(line, jm.assemble(line, [2.0]), "q0", max_points=3)
    assert short.ends == ("unfinished", "unfinished") and len(short.gap) == 5
    dot = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        constraints=[jm.Holonomic("dot", lambda t, q, p: q[0] ** 2 + q[1] ** 2)],
    )
    assert jm.kinematics.branches(dot, jm.as_state(dot, [0.0, 0.0], length=1.0)).t.shape == (0,)


def test_where_a_line_meets_a_plane_of_motions_no_branches_are_told_apart():
    """x z = y z = 0: the line x = y = 0 and the plane z = 0."""
    both = jm.Holonomic("both", lambda t, q, p: q[:2] * q[2])
    system = jm.System(("x", "y", "z"), mass=lambda t, q, p: jnp.eye(3), constraints=[both])
    met = jm.kinematics.branches(system, jm.as_state(system, jnp.zeros(3), length=1.0))
    assert met.t.shape == (0,)
    event = CurveEvent("branch point", "", 7, met, {"z": jnp.zeros(())}, met)
    assert str(event) == "branch point, of more than one freedom at pose 7: z = 0"


def test_a_step_turns_by_no_more_than_twenty_degrees():
    """Of length L along the tangent of the unit circle, and back to it, it turns by arctan L."""
    circle = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("c", lambda t, q, p: q @ q - 1)])
    watched, numbers = (coordinate_of(circle, "q0")[0],), (jnp.array([-np.inf, np.inf]), jnp.ones(()))
    state = jm.as_state(circle, [1.0, 0.0])
    path = TracedMechanism(circle, jm.formulation.GaussProjection(), state.t, state.scale, watched, (False,), *numbers)
    advance = jax.jit(lambda length: path.advance(path.point(state.q, jnp.array([0.0, 3.0]), jnp.ones(1)), length))
    for length, fine in ((0.3, True), (0.36, True), (0.37, False)):
        end, good, turned = advance(length)
        np.testing.assert_allclose(
            [*end.q, turned], [*np.array([1, length]) / np.hypot(1, length), np.arctan(length)], rtol=1e-12
        )
        assert bool(good) == fine


def test_a_step_along_a_line_does_not_turn_whatever_the_metric():
    """The cosine of its angle is one but for rounding, which may lead beyond."""
    system = jm.System(1, mass=lambda t, q, p: p[None, None], params=1.0)
    (watch, _), numbers = coordinate_of(system, "q0"), (jnp.array([-np.inf, np.inf]), jnp.ones(()))
    state = jm.as_state(system, [0.0])

    @jax.jit
    @jax.vmap
    def turned(mass):
        own = system.with_params(mass), jm.formulation.GaussProjection(), state.t, state.scale
        path = TracedMechanism(*own, (watch,), (False,), *numbers)
        return path.advance(path.point(state.q, jnp.ones(1), jnp.zeros(1)), jnp.asarray(0.3))[1:]

    good, angles = turned(jnp.asarray(np.random.default_rng(0).uniform(0.1, 10.0, 1000)))
    assert good.all() and (angles < 1e-7).all()


def place(value=0.5, rate=1.0, closing=1.0, image=(0.0, 0.0), image_rate=(2.0, 0.0)):
    """A point of a curve by what its events depend on; the start of it looks like (1, 2). A second coordinate is no input."""
    x, one, still = jnp.asarray(value, float), jnp.ones(1), jnp.full(2, 2.0)
    values, rates, image = jnp.stack([x, x + 7]), jnp.stack([jnp.asarray(rate, float), one[0]]), jnp.array(image)
    return CurvePoint(
        q=x[None], v=one, metric=jnp.eye(1), values=values, rates=rates, steepest=still, gap=x,
        closing=jnp.asarray(closing, float), image=image + jnp.array([1.0, 2.0]), image_rate=jnp.array(image_rate),
    )  # fmt: skip


def test_what_happens_between_two_poses_of_a_curve():
    """What stands still but for rounding has no sense; a limit belongs to the range; the start is met close by and with its direction."""
    begun = place()
    passing = {"image": (-0.1, 0.3)}, {"image": (0.05, 0.3), "image_rate": (1.0, 0.0)}
    met = [{**x, "image": (x["image"][0], 0.17)} for x in passing]
    skew = lambda x, y: (met[0], {**met[1], "image_rate": (x, y)})
    cases = [
        (({}, {}), ""),
        (({}, {"rate": -1.0}), "turns"),
        (({}, {"rate": 3e-12}), ""),
        (({}, {"rate": 2e-12}), "turns"),
        (({"rate": -1e-12}, {"rate": 1.0}), ""),
        (({"closing": -1.0}, {"closing": 1.0}), "branch"),
        (({"closing": -1.0}, {"closing": 0.0}), "branch"),
        (({"closing": -1.0}, {"closing": -0.5}), ""),
        (({"closing": 0.0}, {"closing": 1.0}), ""),
        (({}, {"value": 1.0}), ""),
        (({"value": 1.0}, {"value": 1.001}), "limit"),
        (({"value": 0.0}, {"value": -0.001}), "limit"),
        (({"value": 1.001}, {"value": 1.002}), ""),
        (met, "closed"),
        (passing, ""),
        (({"image": (-0.1, 0.0)}, {"image": (0.0, 0.0)}), "closed"),
        (({"image": (0.0, 0.0)}, {"image": (0.1, 0.0)}), ""),
        (({"image": (-0.2, 0.0)}, {"image": (-0.1, 0.0)}), ""),
        (skew(7.2, 7.0), "closed"),
        (skew(6.8, 7.2), ""),
    ]
    path = SimpleNamespace(limits=jnp.array([0.0, 1.0]))
    pairs = [[place(**x) for x in pair] for pair, _ in cases]
    many = [jax.tree.map(lambda *x: jnp.stack(x), *points) for points in zip(*pairs, strict=True)]
    found = jax.vmap(lambda at, trial: TracedMechanism.events(path, begun, at, trial))(*many)
    names = np.array(["turns", "turns too", "branch", "limit", "closed"])
    assert [" ".join(names[row]) for row in np.asarray(found)] == [what for _, what in cases]


def test_a_step_along_a_curve_is_as_long_as_its_fastest_coordinate_allows():
    """Those without a size count only where there are no rows; nor is it more than a twentieth of the input's range."""
    at = dataclasses.replace(place(), v=jnp.array([1.0, -100.0, 0.2]), metric=jnp.eye(3), rates=jnp.array([-2.0, 50.0]))

    def longest(limits, m):
        scale, system = SimpleNamespace(reach=jnp.array([5.0, 0.0, 0.5])), SimpleNamespace(m=m)
        path = SimpleNamespace(scale=scale, system=system, limits=jnp.array(limits), step=jnp.asarray(0.25))
        return float(TracedMechanism.longest_step(path, at))

    found = [longest(*x) for x in (((-np.inf, np.inf), 1), ((-np.inf, np.inf), 0), ((0.5, 1.0), 1))]
    np.testing.assert_allclose(found, [0.25 / 0.4, 0.25 / 100, 0.5 / 20 / 2], rtol=1e-14)


def test_angles_along_a_curve_are_in_the_turn_closest_to_the_last_values():
    """However many turns that is; slopes are those along the tangent of unit length in the metric of M."""
    circle = jm.Holonomic("circle", lambda t, q, p: q @ q - 1)
    system = jm.System(2, mass=lambda t, q, p: 4 * jnp.eye(2), constraints=[circle])
    watched = (lambda t, q, p: jnp.arctan2(q[1], q[0])), (lambda t, q, p: q[0])
    state = jm.as_state(system, jnp.array([0.6, 0.8]), length=1.0)
    limits, more = jnp.array([-jnp.inf, jnp.inf]), jnp.array(0.25)
    traced = TracedMechanism(
        system, jm.formulation.GaussProjection(), state.t, state.scale, watched, (True, False), limits, more
    )
    point = jax.jit(lambda last: traced.point(state.q, jnp.array([-8.0, 6.0]), last))
    angle = np.arctan2(0.8, 0.6)
    for turns in (0, 1, 3, -4):
        for off in (-3.0, 3.0):
            found = point(jnp.array([angle + 2 * np.pi * turns + off, 99.0]))
            np.testing.assert_allclose(found.values, [angle + 2 * np.pi * turns, 0.6], rtol=1e-14)
    np.testing.assert_allclose([*found.v, *found.rates, *found.steepest], [-0.4, 0.3, 0.5, -0.4, 0.5, 0.5], rtol=1e-12)


def test_a_walk_begins_along_the_velocity_or_the_way_the_input_grows(monkeypatch):
    """Of a particle on a circle in the metric of M, by its x; at a dead centre either way; and where two lines cross, where no way is known at rest."""
    zero, none = jnp.zeros(()), jnp.zeros((1, 5), bool)
    stays = lambda path, start, count: _Walk(
        start, zero, start, zero, (start, none[0]), jnp.array(0), jnp.array(0), start, none
    )
    monkeypatch.setattr(trace, "_follow", stays)

    curve = jm.Holonomic("curve", lambda t, q, p: p * q[0] * q[1] + (1 - p) * (q @ q - 1))
    system = jm.System(2, mass=lambda t, q, p: jnp.diag(jnp.array([4.0, 1.0])), constraints=[curve], params=0.0)
    scale = jm.as_state(system, jnp.array([0.6, 0.8]), length=1.0).scale
    watched, numbers = (
        tuple(coordinate_of(system, name)[0] for name in ("q0", "q1")),
        (jnp.array([-jnp.inf, jnp.inf]), jnp.ones(())),
    )
    path = TracedMechanism(system, jm.formulation.GaussProjection(), zero, scale, watched, (False,) * 2, *numbers)

    @jax.jit
    def found(q, v, way, crossing):
        own = dataclasses.replace(path, system=system.with_params(crossing))
        walk, freedom, fits = _trace.__wrapped__(own, jm.State(zero, q, v, scale), way, 1)
        return walk.at.v, walk.at.closing, freedom, fits

    still = np.zeros(2)
    circle = lambda q, v=still, way=1.0: found(*map(jnp.array, (q, v, way, 0.0)))
    tangent = np.array([0.8, -0.6]) / np.sqrt(4 * 0.8**2 + 0.6**2)
    for way in (1.0, -1.0):
        v, closing, freedom, fits = circle((0.6, 0.8), still, way)
        np.testing.assert_allclose(v, way * tangent, rtol=1e-12)
        assert freedom.tolist() == [1, 1] and fits and closing != 1
        np.testing.assert_allclose(circle((0.6, 0.8), -3 * tangent, way)[0], -way * tangent, rtol=1e-12)
    across = np.array([0.6 / 4, 0.8]) / np.sqrt(0.6**2 / 4 + 0.8**2)  # M⁻¹C, of unit length too
    for part, known in ((0.95, True), (1.05, False)):
        v, *_, fits = circle((0.6, 0.8), tangent + part * across)
        assert fits == known and abs(v @ np.array([0.6, 0.8])) < 1e-12
    for angle in (1e-3, -1e-3):
        np.testing.assert_allclose(
            circle((np.cos(angle), np.sin(angle)))[0], [abs(np.sin(angle)), -np.sign(angle)], rtol=1e-5
        )
    np.testing.assert_allclose(abs(circle((1.0, 0.0))[0]), [0.0, 1.0], atol=1e-12)
    for v, known in ((still, False), ((1.0, 0.0), True)):
        _, closing, freedom, fits = found(still, jnp.array(v), 1.0, 1.0)
        assert freedom.tolist() == [2, 1] and fits == known and closing == 1


class Line(TracedMechanism):
    """A curve along which steps are refused from 2 on, which turns fast up to 0.2, and on which something happens at `what`."""

    what: jax.Array

    def longest_step(self, at):
        return self.step

    def advance(self, at, length):
        end = at.values[0] + length
        return place(end), end < 2, jnp.where(at.values[0] < 0.2, 4 * length, 0.0)

    def events(self, start, at, trial):
        return (at.values[0] < self.what) & (trial.values[0] >= self.what)


def test_a_curve_is_walked_along_by_steps_that_fit_its_turns_up_to_where_something_happens():
    """Lengths by what turns, halved or doubled at most; events to a part of 1e-12 of a step; steps that lead nowhere end it."""

    @jax.jit
    @jax.vmap
    def walked(what, begin, rate):
        path = Line(*[None] * 4, (None,) * 2, (False,) * 2, jnp.array([0.0, 9.0]), jnp.asarray(0.1), what)
        walk = _follow(path, place(begin, rate), 80)
        return walk.points.values[:, 0], walk.happened, walk.count, walk.status

    begin, rate = [0.0, 0.0, 0.0, 0.0, 1.0, 9 - 1.5e-10, 9 - 3e-10, 5e-11], [1.0] * 5 + [2.0] * 2 + [-1.0]
    whats = np.full((8, 5), np.inf)
    whats[np.arange(4), 1 + np.arange(4)] = 0.93
    values, happened, counts, status = (np.asarray(x) for x in walked(*map(jnp.array, (whats, begin, rate))))
    steps = [0.1, 0.05]  # turned by 0.4 and 0.2 where 0.1 is aimed at
    expected = np.cumsum([0.0, *steps, *[0.025] * 3, 0.05, *[0.1] * 6])
    np.testing.assert_allclose(values[0][: len(expected)], expected, atol=1e-12)
    for k, ends in enumerate((False, False, True, True)):
        at = int(np.flatnonzero(happened[k].any(axis=1))[0])
        assert np.flatnonzero(happened[k][at]).tolist() == [k + 1] and happened[k].sum() == 1
        assert 0 <= values[k][at] - 0.93 <= 2e-13 and (status[k], int(counts[k]) == at) == (
            (2, 1)[k - 2] if ends else 3,
            ends,
        )
        assert (np.diff(values[k][: counts[k] + 1]) > 0).all()
    assert 0 < 2 - values[0][counts[0]] < 4e-8 and status[4] == 3 and not happened[4].any()
    np.testing.assert_allclose(np.diff(values[4])[:9], 0.1, rtol=1e-12)
    assert status[5:].tolist() == [2, 3, 2] and not counts[5:].any()  # at a limit that the way leads beyond


class Beside(Line):
    """A curve that passes by another one at 0.5: longer steps than 0.02 end on that, which is what happens."""

    def advance(self, at, length):
        end = at.values[0] + length
        over = (at.values[0] < 0.5) & (end >= 0.5) & (length > 0.02)
        return place(end, image=(0.0, jnp.where(over, self.what, 0.0))), end < 2, 0.1

    def events(self, start, at, trial):
        return jnp.zeros(5, bool).at[0].set(trial.image[1] > at.image[1])


def test_steps_are_shorter_where_they_go_over_to_what_passes_close_by():
    """From 1e-5 of a step apart on in what a pose looks like, which is 2e-6 here; nearer to it the curve is the same."""

    @jax.jit
    @jax.vmap
    def walked(apart):
        path = Beside(*[None] * 4, (None,) * 2, (False,) * 2, jnp.array([0.0, 9.0]), jnp.asarray(0.1), apart)
        walk = _follow(path, place(0.45), 5)
        return walk.points.values[:, 0], walk.happened

    values, happened = map(np.asarray, walked(jnp.array([1.8e-6, 2.2e-6])))
    np.testing.assert_allclose(values, [[0.45, 0.5, 0.6, 0.7, 0.8], [0.45, 0.5, 0.525, 0.55, 0.575]], atol=1e-12)
    assert np.argwhere(happened).tolist() == [[0, 1, 0]]


@functools.cache
def line_walk(which, at, room=80):
    """A walk from 0.1 on which one of all that may happen does."""
    what = jnp.full(5, np.inf) if which is None else jnp.full(5, np.inf).at[which].set(at)
    path = Line(*[None] * 4, (None,) * 2, (False,) * 2, jnp.array([0.0, 9.0]), jnp.asarray(0.1), what)
    return path, jax.jit(lambda: _follow(path, place(0.1), room))()


def test_a_walk_has_room_for_so_many_points():
    walk = line_walk(None, None, 4)[1]
    assert (int(walk.count), int(walk.status)) == (3, 0)
    np.testing.assert_allclose(walk.points.values[:, 0], [0.1, 0.2, 0.25, 0.35], rtol=1e-12)


def test_a_curve_is_joined_of_a_walk_back_and_one_ahead():
    """In the order of the way ahead, each pose once; of a closed one what happens at the start is told there and not again where it ends."""
    state = jm.as_state(jm.System(1, mass=lambda t, q, p: jnp.eye(1)), [0.1])
    (path, back), (_, ahead), (_, whole) = line_walk(3, 0.3), line_walk(0, 0.93), line_walk(4, 0.93)
    curve = _join_walks(state, path, ("in", "out"), [back, ahead])
    n, m = int(back.count), int(ahead.count)
    x = np.asarray(curve.values["in"])
    assert curve.ends == ("limit", "stuck") and not curve.closed and curve.start == n and len(x) == n + m + 1
    np.testing.assert_array_equal(x[: n + 1], np.asarray(back.points.values)[n::-1, 0])
    np.testing.assert_array_equal(x[n:], np.asarray(ahead.points.values)[: m + 1, 0])
    np.testing.assert_array_equal(curve.values["out"], x + 7)
    np.testing.assert_array_equal(curve.states.v[:, 0], np.where(np.arange(n + m + 1) < n, -1, 1))
    np.testing.assert_array_equal(curve.states.q[:, 0], x)
    (event,) = curve.events
    assert (event.kind, event.name, event.values["in"]) == ("dead centre", "in", x[event.index]) and event.index > n
    assert float(event.state.q[0]) == event.values["in"] and event.branches is None
    closed = _join_walks(state, path, ("in", "out"), [whole])
    assert closed.closed and closed.start == 0 and len(closed.gap) == int(whole.count) + 1 and not closed.events
    end = int(whole.count)
    turns = eqx.tree_at(
        lambda w: (w.points.rates, w.happened),
        whole,
        (whole.points.rates.at[0, 1].set(1e-13), whole.happened.at[end - 2 : end + 1, 1].set(True)),
    )
    found = _join_walks(state, path, ("in", "out"), [turns]).events
    again = [("limit position", "out", index) for index in (0, end - 2)]
    assert [(event.kind, event.name, event.index) for event in found] == again
    never = eqx.tree_at(lambda w: w.points.rates, whole, whole.points.rates.at[:, 1].set(1e-13))
    assert not _join_walks(state, path, ("in", "out"), [never]).events


def test_a_start_may_be_at_a_limit_but_for_rounding():
    """A billionth of the range, or of the value where the range has no end; the limit is where the start is then."""
    state = jm.as_state(jm.System(1, mass=lambda t, q, p: jnp.eye(1)), [0.5])

    class At(Line):
        def read(self, q):
            return q

    def limits(low, high):
        path = At(*[None] * 4, (None,), (False,), jnp.array([low, high]), jnp.asarray(0.1), None)
        return _limits(path, state).tolist()

    assert limits(0.0, 1.0) == [0.0, 1.0] and limits(-np.inf, np.inf) == [-np.inf, np.inf]
    assert limits(0.5 + 4e-10, 1.0) == [0.5, 1.0] and limits(0.5 + 4e-10, np.inf) == [0.5, np.inf]
    assert limits(0.5 + 6e-10, 2.0) == [0.5, 2.0] and limits(-1.0, 0.5 - 1e-9) == [-1.0, 0.5]
    for between in ((0.5 + 6e-10, 1.0), (0.5 + 6e-10, np.inf), (0.5, 0.5), (-1.0, 0.5 - 2e-9), (0.6, 0.4)):
        with pytest.raises(ValueError, match=r"with that of the start, 0\.5, between them"):
            limits(*between)


def refused(match, *args, **more):
    with pytest.raises(ValueError, match=match):
        jm.trace_motion(*args, **more)


def test_what_cannot_be_followed_is_refused():
    system, curve = traced(PARALLELOGRAM, 0.8)
    flat = curve.of_kind("branch point")[0].state
    start = jax.tree.map(lambda x: x[0], curve.states)

    still = jm.as_state(system, flat.q)
    refused(
        "velocity along one of the branches that meet at its pose, where the mechanism has 2",
        system,
        still,
        "A",
        watch=("D",),
    )
    off = jm.as_state(system, start.q, jnp.array([1.0, 5.0, -1.0]))
    refused("must have a velocity along the curve, or none", system, off, "A", watch=("D",))
    refused("There is no joint 'Z'", system, start, "Z")
    refused("with that of the start, 0.8, between them, but is 1 and 2", system, start, "A", between=(1.0, 2.0))
    with pytest.raises(TypeError, match=r"`watch` must be a sequence, .*, but is 'D'"):
        jm.trace_motion(system, start, "A", watch="D")
    with pytest.raises(TypeError, match="must hold known numbers"):
        jax.jit(lambda s: jm.trace_motion(system, s, "A").gap)(start)


def test_an_input_is_let_go_of_and_what_is_none_is_refused():
    turn = P.Driver("turn", "A", lambda t, p: 0.8 + t)
    driven = four_bar(*PARALLELOGRAM, drivers=[turn]).build()
    for name in ("turn", "A"):
        stays, coordinate = release_input(driven, name)
        assert coordinate == "A" and np.flatnonzero(~stays).tolist() == list(range(driven.m))[driven.rows["turn"]]
    locked = dataclasses.replace(jm.assemble(driven, pose_of(*PARALLELOGRAM, 0.8), inactive=["turn"]))
    assert not release_input(driven.in_mode(locked.mode), "B")[0][driven.rows["turn"]].any()
    plane = jm.System(2, mass=lambda t, q, p: jnp.eye(2))
    with pytest.raises(ValueError, match="must hold coordinates out of 'q0' and 'q1', but hold 'x'"):
        coordinate_of(plane, "x")
    reach = P.DrivenDistance("reach", "ground", "coupler.b", lambda t, p: 2.0)
    with pytest.raises(ValueError, match="'reach' drives none: leave it out"):
        release_input(four_bar(*PARALLELOGRAM, drivers=[reach]).build(), "reach")
    disk = P.Body("wheel", 1.0, 0.1, position=(0.0, 0.2))
    wheel = P.Mechanism([disk], [P.RollingWheel("track", "ground", "wheel", 0.2)]).build()
    with pytest.raises(ValueError, match="but 'track rolling' constrain velocities"):
        release_input(wheel, "wheel.x")


def test_a_particle_has_one_branch_along_a_line_two_where_lines_cross_and_none_of_its_own_in_a_plane():
    """x (y + t) = 0, as it is at its time: the second line does not move along."""
    mass = lambda t, q, p: 4 * jnp.eye(len(q))
    lines = jm.System(2, mass=mass, constraints=[jm.Holonomic("lines", lambda t, q, p: q[0] * (q[1] + t))])
    found = lambda *q: abs(jm.kinematics.branches(lines, jm.assemble(lines, q, length=1.0)).v)
    np.testing.assert_allclose(found(1.0, 0.0), [[0.5, 0.0]], atol=1e-12)  # of unit length in the metric of M
    np.testing.assert_allclose(np.sort(found(0.0, 0.0), axis=0), [[0.0, 0.0], [0.5, 0.5]], atol=1e-9)
    plane = jm.System(2, mass=mass)
    assert jm.kinematics.branches(plane, jm.as_state(plane, [1.0, 0.0])).v.shape == (0, 2)


@pytest.mark.slow
def test_mechanisms_that_cannot_be_followed_are_refused():
    plane = jm.System(2, mass=lambda t, q, p: jnp.eye(2))
    refused("must hold coordinates out of 'q0' and 'q1', but hold 'x'", plane, jm.assemble(plane), "x")
    refused("must have one degree of freedom when 'q0' is not driven, but has 2", plane, jm.assemble(plane), "q0")
    reach = P.DrivenDistance("reach", "ground", "coupler.b", lambda t, p: 2.0)
    driven = four_bar(*PARALLELOGRAM, drivers=[reach]).build()
    refused(
        "'reach' drives none: leave it out",
        driven,
        jm.as_state(driven, jm.assemble(four_bar(*PARALLELOGRAM).build(), pose_of(*PARALLELOGRAM, 0.8)).q),
        "reach",
    )
    disk = P.Body("wheel", 1.0, 0.1, position=(0.0, 0.2))
    wheel = P.Mechanism([disk], [P.RollingWheel("track", "ground", "wheel", 0.2)]).build()
    refused("but 'track rolling' constrain velocities", wheel, jm.assemble(wheel), "wheel.x")
