"""Design: dimensions from what a mechanism should do, and what their tolerances do to it."""

import dataclasses
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.design.cycle import Cycle, poses_over
from jaxmb.design.dynamics import joint_forces, multipliers
from jaxmb.design.optimise import _obstacles
from jaxmb.design.problem import driven, evaluated, failure, prepare
from jaxmb.design.search import _initial, _reopened, _step, _tallied
from jaxmb.design.tolerances import Tolerances
from jaxmb.linalg import determinant

D, P, Parameter = jm.design, jm.planar, jm.fit.Parameter
TURN = np.linspace(0.0, 2 * np.pi, 13)[:12]
CIRCLE = np.stack([np.cos(TURN), np.sin(TURN)], axis=1)
SIZES = {"crank.length": 1.0, "coupler.length": 3.0, "rocker.length": 2.5, "coupler.points.p.y": 1.0, "points.d.x": 3.0}
START = {"A": 0.0, "B": 0.9, "D": 2.0}


def crank():
    """One body that turns: the smallest mechanism with a path."""
    return P.Mechanism(
        [P.Body.rod("crank", 2.0, 1.0)],
        [P.Revolute("A", "ground.a", "crank.a")],
        gravity=(0.0, -10.0),
        points={"a": (0.0, 0.0)},
    )


def four_bar(**sizes):
    """A crank-rocker; sizes as in `SIZES`, with underscores for dots."""
    value = lambda name: sizes.get(name.replace(".", "_"), SIZES[name])
    bodies = [
        P.Body.rod("crank", 1.0, value("crank.length")),
        P.Body.rod("coupler", 1.0, value("coupler.length"), points={"p": (1.5, value("coupler.points.p.y"))}),
        P.Body.rod("rocker", 1.0, value("rocker.length")),
    ]
    ends = [("ground", "crank.a"), ("crank.b", "coupler.a"), ("coupler.b", "rocker.b"), ("ground.d", "rocker.a")]
    joints = [P.Revolute(name, *markers) for name, markers in zip("ABCD", ends, strict=True)]
    return P.Mechanism(bodies, joints, gravity=(0.0, -9.81), points={"d": (value("points.d.x"), 0.0)})


def variables(*names, **options):
    return [Parameter(name, **options) for name in names or SIZES]


RADIUS = D.Goal("tip", D.Path("crank.b"), 2.0 * CIRCLE)
LENGTH = [Parameter("crank.length", min_value=0.1, max_value=5.0)]


@pytest.fixture(scope="module")
def found():
    """A crank that is made twice as long."""
    return D.optimise(crank(), LENGTH, RADIUS, over={"A": TURN})


@pytest.fixture(scope="module")
def at_four_bar():
    """The outputs that are cheap to compile, at the nominal four-bar."""
    goals = [
        D.Goal("path", D.Path("coupler.p"), 0.0),
        D.Goal("angle", D.TransmissionAngle("crank.b", "coupler.b", "ground.d"), 0.0),
        D.Goal("rocker", D.Coordinate("D"), 0.0),
        D.Goal("still", D.Dwell("D", (1.0, 2.5)), 0.0),
    ]
    return prepare(four_bar(), variables(), goals, Cycle.of({"A": TURN}, 1.5), START)


# What is found


@pytest.mark.slow
def test_a_path_gives_the_length(found):
    assert abs(found.values["crank.length"] - 2.0) < 1e-9 and found.cost < 1e-18
    assert bool(found.result == jm.RESULTS.successful) and found.nominal["crank.length"] == 1.0
    # The mechanism itself is not driven, and its mass properties follow the length.
    rod = found.mechanism.elements["crank"]
    assert not found.mechanism.drivers and abs(rod.inertia - 2.0 * 2.0**2 / 12) < 1e-9
    np.testing.assert_allclose(found.after.values["tip"], 2.0 * CIRCLE, atol=1e-9)
    np.testing.assert_allclose(found.before.values["tip"], CIRCLE, atol=1e-12)
    assert jnp.max(jnp.abs(jm.residuals(found.after.system, found.after.states).position)) < 1e-12


def test_a_design_prints_as_a_table_and_shows_itself(found):
    text = str(found)
    assert "crank.length  2      1" in text and "converged" in text and "largest difference from the target" in text
    assert "crank.length" in found._repr_html_()


def test_a_design_is_drawn(found):
    pytest.importorskip("matplotlib").use("Agg")
    figure = jm.plot.design(found)
    assert [ax.get_title() for ax in figure.axes] == ["tip"]
    assert len(figure.axes[0].lines) == 3
    with pytest.raises(TypeError, match="`figure` must be a figure"):
        jm.plot.design(found, "page")


def test_goals_of_any_shape_are_drawn_with_their_targets_and_limits(found):
    """A path that has no target, values over the input, and a number."""
    plt = pytest.importorskip("matplotlib.pyplot")
    goals = (
        D.Goal("free", D.Path("crank.b"), low=-9.0),
        D.Goal("turn", D.Coordinate("A"), 2.0, high=np.linspace(7.0, 8.0, 12)),
        D.Goal("stroke", D.Stroke("A"), low=1.0),
    )
    one = dict(zip(("free", "turn", "stroke"), (CIRCLE, TURN, 3.0), strict=True))
    outcomes = [
        dataclasses.replace(found.after, values={name: jnp.asarray(k * x) for name, x in one.items()}) for k in (1, 2)
    ]
    drawn = dataclasses.replace(found, goals=goals, before=outcomes[0], after=outcomes[1])
    own = plt.figure()
    assert jm.plot.design(drawn, own) is own
    lines = [{line.get_label(): line.get_xydata() for line in ax.lines} for ax in own.axes]
    assert [[*x] for x in lines] == [["before", "after"], ["before", "after", "wanted", "largest"], ["before", "after", "least"]]  # fmt: skip
    np.testing.assert_allclose(lines[0]["after"], 2 * CIRCLE)
    np.testing.assert_allclose(lines[1]["after"], np.stack([TURN, 2 * TURN], axis=1))
    np.testing.assert_allclose(lines[1]["wanted"][:, 1], 2.0)
    np.testing.assert_allclose(lines[1]["largest"][:, 1], np.linspace(7.0, 8.0, 12))
    np.testing.assert_allclose([lines[2][name] for name in lines[2]], [[[0.0, 3.0]], [[0.0, 6.0]], [[0.0, 1.0]]])
    assert [ax.get_xlabel() for ax in own.axes] == ["x in m", "A", "number"]
    plt.close(own)


def test_a_limit_is_kept_exactly_and_a_bound_holds():
    low = D.Goal("reach", D.Coordinate("A"), high=7.0)
    high = D.Goal("right", lambda system, states: jm.position(system, states, "crank.b")[:, 0], high=1.5)
    kept = D.optimise(crank(), LENGTH, [RADIUS, low, high], over={"A": TURN})
    assert abs(kept.values["crank.length"] - 1.5) < 1e-7 and kept.excess < 1e-7
    assert bool(kept.result == jm.RESULTS.successful) and "at its limit 1.5" in str(kept)
    narrow = [Parameter("crank.length", min_value=0.1, max_value=1.2)]
    held = D.optimise(crank(), narrow, [RADIUS, low, high], over={"A": TURN})
    assert held.at_bound == ("crank.length",) and abs(held.values["crank.length"] - 1.2) < 1e-12


def test_a_search_that_was_interrupted_goes_on_bit_by_bit(tmp_path, found):
    file, arguments = tmp_path / "search", (crank(), LENGTH, RADIUS)
    first = D.optimise(*arguments, over={"A": TURN}, max_iterations=2, checkpoint=file)
    assert bool(first.result == jm.RESULTS.search_unfinished)
    rest = []
    second = D.optimise(*arguments, over={"A": TURN}, checkpoint=file, progress=rest.append)
    assert second.iterations == found.iterations and rest[0].iteration == 3 and rest[-1].done
    assert second.values["crank.length"] == found.values["crank.length"]
    with pytest.raises(ValueError, match="`checkpoint` must name a file of this search"):
        D.optimise(crank(), LENGTH, D.Goal("tip", D.Path("crank.b"), 3.0 * CIRCLE), over={"A": TURN}, checkpoint=file)


@pytest.mark.slow
def test_the_input_may_be_a_driver_of_the_mechanism(found):
    driven = crank().joined(drivers=[P.Driver("motor", "A", lambda t, p: 3.0 * t)])
    by_time = D.optimise(driven, LENGTH, RADIUS, over=TURN / 3.0)
    assert by_time.label == "t" and abs(by_time.values["crank.length"] - 2.0) < 1e-9


def test_a_front_is_that_of_two_radii():
    """½ Σ (L − 2)² + μ ½ Σ (L − 1)² is least at L = (2 + μ)/(1 + μ)."""
    pytest.importorskip("matplotlib").use("Agg")
    near = D.Goal("near", D.Path("crank.b"), CIRCLE)
    weights = np.array([0.1, 1.0, 3.0])
    front = D.pareto(crank(), LENGTH, [RADIUS, near], weights=weights, over={"A": TURN}, rtol=1e-15)
    lengths = np.array([float(design.values["crank.length"]) for design in front.designs])
    np.testing.assert_allclose(lengths, (2 + weights) / (1 + weights), atol=1e-7)
    np.testing.assert_allclose(front.costs, 6 * (lengths[:, None] - [2.0, 1.0]) ** 2, atol=1e-9)
    assert not front.dominated.any() and "Costs of 'tip' and 'near' by the weight of the latter" in str(front)
    worse = eqx.tree_at(lambda f: f.costs, front, front.costs.at[1].set(front.costs[0] + jnp.array([1.0, 0.0])))
    assert worse.dominated.tolist() == [False, True, False] and "dominated" in str(worse)
    line, mark = jm.plot.pareto(worse).axes[0].lines
    np.testing.assert_array_equal(line.get_xdata(), front.costs[::2, 0])
    np.testing.assert_array_equal(mark.get_xdata(), worse.costs[1:2, 0])


def test_a_front_has_two_goals_and_a_row_of_weights():
    given = dict(mechanism=crank(), variables=LENGTH, over={"A": TURN})
    with pytest.raises(ValueError, match="`goals` must hold two goals with a `target`, but holds 'tip'"):
        D.pareto(**given, goals=[RADIUS], weights=[1.0])
    with pytest.raises(ValueError, match=r"`weights` must have shape \(k,\), but has shape \(\)"):
        D.pareto(**given, goals=[RADIUS, D.Goal("near", D.Path("crank.b"), CIRCLE)], weights=1.0)


# What is refused, before anything is tried


@pytest.mark.parametrize(
    "arguments, match",
    [
        (dict(variables=variables("crank.lenth")), "'crank.lenth' must name a number, but 'lenth'"),
        (dict(variables=[Parameter("crank.length", min_value=1.9, max_value=2.0)]), "'crank.length' must start within"),
        (dict(variables=variables("crank.length", "crank.length")), "`name` of parameters must hold different names"),
        (dict(variables=[Parameter("crank.length", frozen=True)]), "`variables` must hold one at least"),
        (dict(over={"Z": TURN}), "`over` must name a joint coordinate, but names 'Z'"),
        (dict(over=TURN), "`over` must drive all that moves, but with the drivers of the mechanism driven 1 degree of freedom left: name"),
        (dict(over={"A": [0.0, 1.0, 1.0]}), "`over` must hold finite values, two at least, and each other than"),
        (dict(over={"A": TURN, "B": TURN}), "`over` must name one input"),
        (dict(goals=[RADIUS, RADIUS]), "`goals` must hold goals of different names"),
        (dict(goals=D.Goal("tip", D.Path("crank.b"), CIRCLE[:5])), r"`target` of goal 'tip' must be a number, or have shape \(12, 2\)"),
        (dict(goals=D.Goal("odd", lambda s, x: jnp.nan * x.t, 0.0)), "Goal 'odd' must have finite values at the start"),
        (dict(goals=D.Goal("odd", lambda s, x: None, 0.0)), "`of` of goal 'odd' must return a number or an array, but returns a NoneType"),
        (dict(speed=0.0), "`speed` must be a number other than zero"),
        (dict(starts=4), "`starts` must be positive, and come with a `key`"),
        (dict(goals=D.Goal("gap", D.PathDeviation("crank.b", np.zeros((3, 3))), 0.0)), r"`through` must have shape \(k, 2\), but has shape \(3, 3\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(arguments, match):
    right = dict(variables=LENGTH, goals=RADIUS, over={"A": TURN})
    with pytest.raises((TypeError, ValueError), match=match):
        D.optimise(crank(), **(right | arguments))


def test_goals_are_refused_by_name():
    with pytest.raises(ValueError, match="Goal 'nothing' must have a `target`, or a limit"):
        D.Goal("nothing", D.Path("crank.b"))
    with pytest.raises(ValueError, match="`low` of goal 'room' must not be above `high`"):
        D.Goal("room", D.Path("crank.b"), low=2.0, high=1.0)
    with pytest.raises(ValueError, match=r"`through` must have shape \(k, 2\)"):
        D.PathDeviation("crank.b", np.zeros(3))
    with pytest.raises(ValueError, match=r"`between` must have shape \(2,\)"):
        D.Dwell("A", (0.0, 1.0, 2.0))


@pytest.mark.parametrize(
    "of, match",
    [
        (D.BearingLoad("Z"), "`joint` must be a joint out of 'A', but is 'Z'"),
        (D.Peak(D.BearingLoad("Z")), "`joint` must be a joint out of 'A', but is 'Z'"),
        (D.Effort("motor"), "`driver` must be a driver out of 'input', but is 'motor'"),
        (D.Path("crank.c"), "There is no point 'crank.c'; 'crank' has crank.a, crank.b"),
        (D.PathDeviation("crank.c", CIRCLE), "There is no point 'crank.c'"),
        (D.TransmissionAngle("ground.a", "rod.a", "crank.b"), "There is no body 'rod'; there are ground, crank"),
        (D.Coordinate("Z"), "There is no joint 'Z'; there are A"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_names_in_goals_are_refused_before_anything_is_compiled(of, match, monkeypatch):
    monkeypatch.setattr("jaxmb.design.problem.assemble", None)
    with pytest.raises(ValueError, match=match):
        D.optimise(crank(), LENGTH, D.Goal("goal", of, 0.0), over={"A": TURN})


def test_the_effort_is_that_of_the_driver_of_the_input():
    """Which the mechanism itself has not."""
    free, turned = crank().build(), driven(crank(), Cycle.of({"A": TURN}, 1.0)).build()
    for of in (D.Effort(), D.Peak(D.Effort())):
        assert of.check(turned) is None
        with pytest.raises(ValueError, match=r"`driver` must be a driver out of .*, but is 'input'"):
            of.check(free)
    assert D.Peak(lambda system, states: states.t).check(free) is None


def test_a_start_that_does_not_lead_through_is_refused(at_four_bar):
    short = four_bar(coupler_length=2.5, rocker_length=0.9)
    with pytest.raises(
        ValueError, match="`over` must be a way that the mechanism can go from its start, but loops do not close at A"
    ):
        D.optimise(short, variables(), at_four_bar.problem.goals, over={"A": TURN}, start=START, speed=1.5)


# Laws


def test_a_determinant_is_that_of_lapack():
    matrices = np.random.default_rng(0).normal(size=(20, 5, 5))
    matrices[0, 0, 0] = 0.0
    matrices[1, 3] = matrices[1, 2]
    matrices[2, :, 1] = 0.0  # no pivot
    found = jax.jit(jax.vmap(determinant))(matrices)
    np.testing.assert_allclose(found, np.linalg.det(matrices), rtol=1e-12, atol=1e-12)


def test_a_cycle_is_cut_into_steps_that_are_small_enough():
    cycle = Cycle.of({"A": [0.0, 3.0, 2.0]}, 2.0)
    ts = np.asarray(cycle.ts)
    np.testing.assert_allclose(ts[list(cycle.indices)] * 2.0, cycle.values)
    assert len(ts) == 61 and np.abs(np.diff(ts)).max() < 4.0 / 2.0 / 60 + 1e-12


def by_circles(lengths, angles):
    """The coupler's ends and its point by circles about its joints: a closed form."""
    a, b, c, height, d = lengths
    one = a * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gap = np.array([d, 0.0]) - one
    far = np.linalg.norm(gap, axis=1)
    turn = np.arctan2(gap[:, 1], gap[:, 0]) + np.arccos((b**2 + far**2 - c**2) / (2 * b * far))
    along = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return one + b * along, one + 1.5 * along + height * np.stack([-along[:, 1], along[:, 0]], axis=1)


def test_poses_are_those_of_circles(at_four_bar):
    path, angle, rocker, still = at_four_bar.outputs
    end, point = by_circles(list(SIZES.values()), TURN)
    np.testing.assert_allclose(path, point, atol=1e-12)
    turn = np.unwrap(np.arctan2(end[:, 1], end[:, 0] - 3.0))
    np.testing.assert_allclose(rocker, turn, atol=1e-12)
    inside = (TURN >= 1.0) & (TURN <= 2.5)
    np.testing.assert_allclose(still, np.where(inside, turn - turn[inside].mean(), 0.0), atol=1e-12)
    assert np.all(angle > 0) and np.all(angle <= np.pi / 2)
    np.testing.assert_allclose(
        np.cos(angle),
        np.abs(3.0**2 + 2.5**2 - np.sum((CIRCLE - [3.0, 0.0]) ** 2, axis=1)) / (2 * 3.0 * 2.5),
        atol=1e-12,
    )


def test_derivatives_by_dimensions_are_those_of_differences(at_four_bar):
    problem, y = at_four_bar.problem, at_four_bar.y
    check_outputs(problem, y, 1e-8)


def check_outputs(problem, y, bound, step=1e-4):
    """Derivatives of all outputs beside differences of fourth order."""

    def outputs(y):
        values = jnp.concatenate([jnp.ravel(x) for x in problem.outputs(y)[0]])
        return values, values

    both = jax.jit(jax.jacfwd(outputs, has_aux=True))
    exact = both(y)[0]
    for i, unit in enumerate(np.eye(y.shape[0])):
        at = lambda k, unit=unit: both(y + k * step * unit)[1]
        slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
        assert np.abs(exact[:, i] - slope).max() < bound * max(1.0, np.abs(slope).max()), problem.unknowns.labels[i]


@pytest.mark.slow_except("Stroke")
@pytest.mark.parametrize(
    "of",
    [
        D.PathDeviation("coupler.p", np.array([[1.3, 2.2], [-0.5, 1.8], [0.4, 1.0]])),
        D.Stroke("D"),
        D.Effort(),
        D.BearingLoad("C"),
        D.Peak(D.Effort()),
    ],
    ids=lambda of: type(of).__name__,
)
def test_derivatives_of_further_outputs_are_those_of_differences(of):
    # Of a squared distance across the path: along it the way is free.
    fn = (lambda system, states: jnp.sum(of(system, states) ** 2, axis=1)) if isinstance(of, D.PathDeviation) else of
    start = prepare(four_bar(), variables(), D.Goal("goal", fn, 0.0), Cycle.of({"A": TURN}, 1.5), START)
    check_outputs(start.problem, start.y, 1e-6)


@pytest.mark.slow
def test_forces_are_those_of_the_equations_of_motion():
    start = prepare(
        four_bar(), variables(), D.Goal("path", D.Path("coupler.p"), 0.0), Cycle.of({"A": TURN}, 4.0), START
    )
    system, states = start.problem.system(start.y), start.poses.states
    reactions = jm.reactions(system, states)
    efforts = jax.jit(multipliers)(system, states)
    np.testing.assert_allclose(efforts[:, system.rows["input"].start], reactions.multipliers["input"], atol=1e-9)
    wrenches = jm.joint_reactions(system, states, warn=False)
    for joint in "ABCD":
        forces = jax.jit(joint_forces, static_argnums=2)(system, states, joint)
        np.testing.assert_allclose(forces, wrenches[joint].force, atol=1e-9)


@pytest.mark.slow
def test_what_does_not_go_round_is_what_grashof_says():
    """By his rule a crank goes round where it, or the ground, is the shortest link and it and the longest are no longer than the two others."""
    start = prepare(
        four_bar(), variables(min_value=0.2, max_value=6.0), D.Goal("path", D.Path("coupler.p"), 0.0), Cycle.of({"A": np.linspace(0, 2 * np.pi, 61)}, 1.0), START
    )  # fmt: skip
    problem = start.problem
    draws = jax.random.uniform(jax.random.key(0), (400, 5), minval=0.4, maxval=1.9)
    poses = jax.jit(jax.vmap(lambda y: problem.poses(y)[1]))(draws)
    lengths = np.asarray(draws) * [1.0, 3.0, 2.5, 1.0, 3.0]
    links = np.sort(lengths[:, [0, 1, 2, 4]], axis=1)
    shortest = np.minimum(lengths[:, 0], lengths[:, 4]) == links[:, 0]
    margin = links[:, 1] + links[:, 2] - links[:, 0] - links[:, 3]
    complete = np.asarray(poses.complete)
    clear = np.abs(margin) > 0.02  # of a linkage that is just flat a step may hop over the pose
    assert (complete == (shortest & (margin > 0)))[clear].all() and 50 < complete.sum() < 350
    assert np.isnan(np.asarray(poses.states.q)[~complete]).all()


@pytest.mark.slow
def test_a_four_bar_is_found_again_from_its_path_with_and_without_timing():
    _, points = by_circles(list(SIZES.values()), TURN)
    guess = four_bar(crank_length=1.2, coupler_length=3.2, rocker_length=2.3, points_d_x=3.2)
    over = {"A": np.linspace(0.0, 2 * np.pi, 61)}
    for goal, inputs in (
        (D.Goal("path", D.Path("coupler.p"), points), {"A": TURN}),
        (D.Goal("gaps", D.PathDeviation("coupler.p", points), 0.0), over),
    ):
        design = D.optimise(guess, variables(), goal, over=inputs, start=START)
        assert max(abs(float(design.values[name] - size)) for name, size in SIZES.items()) < 1e-8


def test_starts_that_do_not_go_round_are_dropped_and_the_best_is_taken():
    _, points = by_circles(list(SIZES.values()), TURN)
    bounded = [Parameter(name, min_value=0.5 * size, max_value=2.0 * size) for name, size in SIZES.items()]
    goal = D.Goal("path", D.Path("coupler.p"), points)
    design = D.optimise(
        four_bar(crank_length=1.2), bounded, goal, over={"A": TURN}, start=START, starts=40, key=jax.random.key(3)
    )
    drawn, turning = design.starts
    assert drawn == 40 and 5 < turning < 35 and f"Of 40 starts {turning} go through" in str(design)
    assert max(abs(float(design.values[name] - size)) for name, size in SIZES.items()) < 1e-8


@pytest.mark.parametrize(
    ("closed", "oriented", "told"),
    [
        ([True, True, False, False], [True, True, False, True], "loops do not close at A = 2"),
        ([True, True, True, True], [True, True, True, False], "the branch changes at A = 3"),
        ([True, True, True, True], [False, True, True, True], "the first pose is on another branch"),
    ],
)
def test_the_first_pose_that_fails_is_told(at_four_bar, closed, oriented, told):
    cycle = dataclasses.replace(at_four_bar.problem.cycle, ts=jnp.arange(4.0) / 1.5)
    poses = dataclasses.replace(
        at_four_bar.poses, gaps=jnp.zeros(4), closed=jnp.array(closed), oriented=jnp.array(oriented)
    )
    assert failure(cycle, poses) == told and not bool(poses.complete)


def test_what_holds_steps_back_is_counted_where_it_is(at_four_bar):
    """With a coupler and a rocker that are too short loops open; with a crank of negative length they close on the other branch."""
    problem, y = at_four_bar.problem, at_four_bar.y
    none = jnp.zeros(problem.cycle.ts.shape, int)
    tried = lambda **sizes: _tallied(
        problem, y * jnp.array([sizes.get(x.split(".")[0], 1.0) for x in SIZES]), none, none
    )
    for counts, expected in ((tried(), (0, 0)), (tried(coupler=0.8, rocker=0.4), (1, 0)), (tried(rocker=-1.0), (0, 1))):
        assert tuple(int(x.sum()) for x in counts) == expected
    state = _initial(problem, y, 1)
    assert _obstacles(problem.cycle, state) == ()
    state = eqx.tree_at(lambda s: (s.open, s.changed), state, (none.at[5].set(2).at[9].set(1), none.at[7].set(1)))
    at = np.asarray(problem.cycle.ts * problem.cycle.speed)
    assert _obstacles(problem.cycle, state) == (
        f"3 steps shortened: loops would not close, most often at A = {at[5]:.4g}.",
        f"1 step shortened: the branch would change, most often at A = {at[7]:.4g}.",
    )


def test_a_search_of_shortened_steps_begins_anew_from_where_it_is(at_four_bar, monkeypatch):
    """As long as that makes the cost less; first poses are then sought from that of the present design."""
    problem, y = at_four_bar.problem, at_four_bar.y
    trial = y * jnp.array([1.0, 0.8, 0.4, 1.0, 1.0])

    def ended(cost):
        fields = lambda s: (s.cost, s.trial_cost, s.done)
        values = (jnp.array([cost]), jnp.array([jnp.inf]), jnp.array([True]))
        monkeypatch.setattr(
            sys.modules["jaxmb.design.search"], "_advance_one", lambda problem, s, *_: eqx.tree_at(fields, s, values)
        )

    ended(0.5)
    state = _initial(problem, y, 1)
    state = eqx.tree_at(lambda s: s.searches.trial, state, trial[None])
    limits = jnp.asarray(1e-8), jnp.asarray(50)
    after = _step(state, problem, *limits, 50)
    assert not bool(after.done) and int(after.shortened) == 0 and float(after.base) == 0.5
    assert int(after.open.sum()) == 1 and int(after.iterations) == 1
    np.testing.assert_array_equal(after.start.q, at_four_bar.poses.states.q[0])
    again = _step(eqx.tree_at(lambda s: s.searches.trial, after, trial[None]), problem, *limits, 50)
    assert bool(again.done) and int(again.shortened) == 1 and int(again.open.sum()) == 2
    # The present design does not go through its cycle from the other first pose: it is kept as it was found.
    search = sys.modules["jaxmb.design.search"]
    lost = eqx.tree_at(lambda s: s.reference, after, after.reference.at[0].multiply(-1))
    monkeypatch.setattr(search, "_nearer", lambda state, problem: lost)
    kept = _step(state, problem, *limits, 50)
    assert bool(kept.done) and float(kept.searches.cost[0]) == 0.5
    np.testing.assert_array_equal(kept.start.q, state.start.q)


def test_a_search_that_has_ended_is_not_opened_again(at_four_bar):
    state = _initial(at_four_bar.problem, at_four_bar.y, 1)
    finish = lambda result: eqx.tree_at(
        lambda s: (s.searches.result, s.searches.done, s.done),
        state,
        (jax.tree.map(lambda x: jnp.asarray(x)[None], result), jnp.array([True]), jnp.array(True)),
    )
    found, short = finish(jm.RESULTS.successful), finish(jm.RESULTS.search_unfinished)
    assert _reopened(found, 50) is found and _reopened(short, 0) is short
    assert not bool(_reopened(short, 50).done)


@pytest.mark.slow
def test_a_step_that_would_open_loops_is_shortened_and_the_report_says_so():
    wish = [
        D.Goal("crank", lambda system, states: jnp.linalg.norm(jm.position(system, states, "crank.b")[0]), 2.4),
        D.Goal("path", D.Path("coupler.p"), low=-100.0),
    ]
    design = D.optimise(
        four_bar(), variables("crank.length"), wish, over={"A": np.linspace(0.0, 2 * np.pi, 61)}, start=START
    )
    # Grashof: a + 3 ≤ 3 + 2.5 and a the shortest, or a + 3 ≤ 2.5 + 3: a crank longer than 2.5 swings.
    assert 1.0 < design.values["crank.length"] < 2.5
    assert design.obstacles or abs(design.values["crank.length"] - 2.4) < 1e-6


# Tolerances


def test_tolerances_of_a_crank_are_those_of_its_circle():
    """x = L cos θ + a: changes are cos θ and 1 times the tolerances; another call is no new program."""
    traced = []

    def right(system, states):
        traced.append(states)
        return jm.position(system, states, "crank.b")[:, 0]

    dimensions = [Parameter("crank.length", scale=1e-3), Parameter("points.a.x", scale=2e-3)]
    goal = [D.Goal("right", right, high=1.002), D.Goal("turn", D.Coordinate("A"), 0.0)]
    D.tolerances(crank(), dimensions, goal, over={"A": TURN}, samples=300)
    count = len(traced)
    report = D.tolerances(crank(), dimensions, goal, over={"A": TURN}, samples=4000)
    assert len(traced) == count
    exact = np.stack([1e-3 * np.cos(TURN), np.full(12, 2e-3)], axis=1)
    np.testing.assert_allclose(report.changes["right"], exact, atol=1e-12)
    np.testing.assert_allclose(report.worst_case["right"], np.abs(exact).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(report.root_sum_square["right"], np.linalg.norm(exact, axis=1), atol=1e-12)
    # Standard deviations of 4000 samples are known to 1/√8000, of which five are allowed.
    np.testing.assert_allclose(report.monte_carlo["right"], report.root_sum_square["right"], rtol=5 / np.sqrt(8000))
    assert report.closure == {} and report.failing == 0 and [*report.within] == ["right"]
    np.testing.assert_array_equal(report.changes["turn"], 0.0)  # it is the input
    # At θ = 0 the sum of both is 1.002 at most with a probability of Φ(0.002/σ), σ = √5 10⁻³/3.
    assert abs(report.within["right"] - 0.99635) < 5 * np.sqrt(0.99635 * 0.00365 / 4000)
    assert "root sum square" in str(report) and "points.a.x" in report._repr_html_()
    with pytest.raises(ValueError, match=r"`scale` of variable 'crank\.length' must be its tolerance"):
        D.tolerances(crank(), LENGTH, goal, over={"A": TURN})


def test_what_tolerances_do_is_printed():
    """Of two dimensions, one of which jams the mechanism, and a goal without limits; the largest of all values is told."""
    report = Tolerances(
        labels=("pin.y", "pin.x"),
        widths=jnp.array([1e-3, 2e-3]),
        nominal={"place": jnp.array([1.0, 2.0])},
        changes={"place": jnp.array([[3e-3, 4e-3], [0.0, -1e-3]])},
        closure={"high[0]": jnp.array([1e-3, 0.0]), "input": jnp.zeros(2)},
        samples={"place": jnp.array([[1.5, 2.0], [0.5, 2.0], [jnp.nan, jnp.nan]])},
        gaps=jnp.array([0.0, 1e-4, jnp.inf]),
        within={},
    )
    assert [line.split() for line in str(report).splitlines()[1:]] == [
        ["variable", "±", "place"],
        ["pin.y", "0.001", "0.003"],
        ["pin.x", "0.002", "0.004"],
        ["worst", "case", "0.007"],
        ["root", "sum", "square", "0.005"],
        ["Monte", "Carlo,", "3", "σ", "1.5"],
        ["Monte", "Carlo,", "largest", "0.5"],
        ["1", "of", "3", "samples", "do", "not", "go", "through", "the", "cycle"],
        ["Rows", "of", "constraints", "that", "stay", "open,", "in", "m", "or", "rad"],
        ["variable", "high[0]"],
        ["pin.y", "0.001"],
        ["pin.x", "closes"],
    ]
    np.testing.assert_allclose(report.sensitivities["place"], [[3.0, 2.0], [0.0, -0.5]])
    fine = eqx.tree_at(lambda r: r.closure["high[0]"], report, jnp.zeros(2))
    assert str(fine).splitlines()[-1] == "Loops close with each of these dimensions."


@pytest.mark.slow
def test_misalignments_of_a_mechanism_with_more_constraints_than_it_needs_are_named():
    """A plate on three cranks: one too long by δ opens the loop by δ cos of the rest; masses open none."""
    cranks = [P.Body.rod(f"crank{i}", 1.0, 0.5) for i in range(3)]
    plate = P.Body("plate", 2.0, 0.1, points={f"p{i}": (float(i), 0.0) for i in range(3)})
    grounds = [P.Revolute(f"A{i}", ("ground", (float(i), 0.0)), f"crank{i}.a") for i in range(3)]
    tops = [P.Revolute(f"B{i}", f"crank{i}.b", f"plate.p{i}") for i in range(3)]
    angles, width = np.linspace(0.3, 2.8, 9), 1e-4
    report = D.tolerances(
        P.Mechanism([*cranks, plate], [*grounds, *tops]),
        [Parameter("crank1.length", scale=width), Parameter("plate.mass", scale=width)],
        D.Goal("plate", D.Path("plate"), 0.0),
        over={"A0": angles},
        start={f"A{i}": 0.3 for i in range(3)},
        samples=100,
    )
    gaps = np.stack([np.asarray(x) for x in report.closure.values()])
    assert np.all(gaps[:, 1] == 0) and 0.1 * width < gaps[:, 0].max() < 2 * width
    # Both rows of both pins that close the loops, by name; the table leaves out the input, which no dimension opens.
    *rows, driver = report.closure
    assert [name[-3:] for name in rows] == 2 * ["[0]", "[1]"] and driver == "input"
    assert (
        "Rows of constraints that stay open" in str(report) and "closes" in str(report) and "input" not in str(report)
    )
    # What stays open is found by linear algebra alone, from the rows of each pose.
    assert float(jnp.median(report.gaps)) > 0


@pytest.mark.slow
def test_poses_do_not_depend_on_the_design_that_they_are_sought_from(at_four_bar):
    """From the nominal start, and from one nearby, another design takes the same poses."""
    problem = at_four_bar.problem
    other = prepare(four_bar(crank_length=1.1, rocker_length=2.6), variables(), problem.goals, problem.cycle, START)
    y = problem.unknowns.vector(other.problem.unknowns.nominal)
    moved = evaluated(problem, y)[1]
    assert bool(moved.complete)
    np.testing.assert_allclose(moved.states.q, other.poses.states.q, atol=1e-11)
    system = other.problem.system(other.y)
    again = poses_over(system, problem.cycle, problem.start, problem.reference)
    np.testing.assert_allclose(again.states.v, other.poses.states.v, atol=1e-10)
