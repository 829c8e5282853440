"""The table of hard use (`make hard`): a small share of it by default, all of its rows when slow."""

import ast
import dataclasses
import datetime
import importlib.util
import pathlib

import numpy as np
import pytest
from hard import (
    batches,
    events,
    formulations,
    gradients,
    mutants,
    programs,
    random_events,
    reference,
)
from hard.__main__ import ROWS
from hard.built import Units, measured, mechanism_of, poses_of
from hard.covered import Covered
from hard.forks import forks
from hard.page import page
from hard.random_mechanisms import TIMES, attempt, drawn, figures, same_in_other_units
from hard.row import Figure
from hard.rows import model_of
from hard.topologies import TOPOLOGIES

import jaxmb as jm


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_loops_are_closed_as_they_are_drawn_and_jacobians_are_derivatives(name):
    """Of the reference: φ = 0, C u is the slope of φ, and Γ that of C u."""
    rng = np.random.default_rng(1)
    model, y = model_of(TOPOLOGIES[name](rng).case)
    u = rng.normal(size=model.n * len(model.columns))
    jacobian, drift, gamma, phi, positional = reference.rows_at(model, 0.0, y, u)
    assert np.abs(phi).max(initial=0) < 1e-14
    h = 1e-5
    sides = [reference.rows_at(model, k * h, y + k * h * reference.rates_of(model, y, u), u) for k in (1, -1)]
    slope = (sides[0][3] - sides[1][3]) / (2 * h)
    np.testing.assert_allclose((jacobian @ u + drift)[positional], slope[positional], atol=1e-7)
    bend = [side[0] @ u + side[1] for side in sides]
    np.testing.assert_allclose(-gamma, (bend[0] - bend[1]) / (2 * h), atol=1e-6)


@pytest.mark.parametrize("name", ["fourbar", pytest.param("spatial_tree", marks=pytest.mark.slow)])
def test_the_reference_keeps_its_energy(name):
    """Without dampers."""
    rng = np.random.default_rng(2)
    case = TOPOLOGIES[name](rng).case
    case.springs = [(*spring[:5], 0.0, spring[6]) for spring in case.springs]
    model, y = model_of(case)
    u = reference.corrected_velocity(model, 0.0, y, rng.normal(size=model.n * len(model.columns)))

    def energy(y, u):
        mass, _ = reference.forces(model, y, u)
        x, turn = model.poses(y)
        stretch = [
            (np.linalg.norm(x[b] + turn[b] @ s_b - x[a] - turn[a] @ s_a) - length, k)
            for a, b, s_a, s_b, k, _, length in model.springs
        ]
        return u @ mass @ u / 2 - model.mass @ (x[1:] @ model.gravity) + sum(k * d**2 / 2 for d, k in stretch)

    values = [energy(*state) for state in reference.motion(model, y, u, TIMES)]
    assert np.ptp(values) < 1e-9 and len(values) == len(TIMES)


def test_a_random_mechanism_is_right_and_a_wrong_one_is_seen():
    start = drawn("fourbar", 0, 0)
    found = attempt(start, "relative")
    assert found.verdict == "right" and 0 < found.error < 1e-7
    assert same_in_other_units(start, "relative") == ""
    start.case.links[1].mass *= 1 + 1e-4
    assert attempt(start, "relative").verdict == "wrong and successful"


@pytest.mark.slow
def test_a_light_link_beside_a_singular_pose_does_not_make_steps_creep():
    """Of a four-bar in space whose rows come near to being dependent, to 0.02 by lengths, and to less in the metric of M everywhere."""
    found = attempt(drawn("spatial_fourbar", 1, 0), "relative")
    assert found.verdict == "right" and found.error < 1e-6


@pytest.mark.slow
def test_the_reference_sees_a_pose_where_rows_become_dependent():
    """A parallelogram that folds flat within the run, and a four-bar that stays away from that."""
    seen = {}
    for name, draw in (("near_parallelogram", 0), ("fourbar", 0)):
        start = drawn(name, draw, 0)
        seen[name] = start.hard()[1]
    assert seen == {"near_parallelogram": True, "fourbar": False}


@pytest.mark.slow
def test_rows_in_rad_have_sizes_of_their_own_however_small_the_lengths_beside_them():
    """Hinges that are parallel in space: two rows of the joint that closes the loop are zero but for the rounding of cosines."""
    rng = np.random.default_rng(3)
    case = TOPOLOGIES["parallel_hinges"](rng).case
    model, y = model_of(case)
    u = reference.corrected_velocity(model, 0.0, y, rng.normal(size=18))
    for length in (1e-9, 1e-6, 1.0, 1e6):
        units = Units(length)
        system = mechanism_of(case, units).build()
        state = jm.as_state(system, *measured(system, *poses_of(case, model, y, u, units)))
        np.testing.assert_array_equal(state.scale.span[-2:], 1.0)
        off = jm.residuals(system, state)
        assert max(np.abs(x).max() for x in (off.position, off.velocity)) < 1e-13
        assert np.linalg.norm(state.scale.span[:2]) < 10 * length


def test_the_page_says_what_is_missed():
    figure = Figure("R0", "what", "0", "1", 5, met=False)
    text = page([figure], 0.1, 3, "abc", datetime.date(2026, 1, 2))
    assert "share 0.1, seed 3. 1 of 1 figures miss their goals." in text
    assert "R0 | what | 0 | 1 | 5 | 0 | **no**" in text and "## How it is counted" in text


def test_all_rows_are_there():
    assert all(importlib.util.find_spec(f"hard.{module}") for module in ROWS.values())


@pytest.mark.slow
def test_a_run_with_a_brake_is_right_and_a_wrong_one_is_seen():
    start = random_events.drawn("planar_tree", 3, 0)
    assert start.kind == "brake" and random_events.attempt(start, "relative")[0] == "right"
    weaker = [dataclasses.replace(h, force=0.999 * h.force) for h in start.happenings]
    other = dataclasses.replace(start, happenings=weaker)
    assert random_events.attempt(other, "relative")[0] == "wrong and successful"


@pytest.mark.slow
@pytest.mark.parametrize("row", [formulations, gradients, batches, events, programs], ids=lambda row: row.__name__)
def test_rows(row):
    timing = "CPU time"
    assert not [figure for figure in row.figures(1.0, 0) if not figure.met and timing not in figure.what]


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", ["long_runs", "hostile_files", "killed", "surroundings", "random_gradients", "random_events"]
)
def test_a_tenth_of_dear_rows(row):
    assert all(figure.met for figure in importlib.import_module(f"hard.{row}").figures(0.1, 0))


@pytest.mark.slow
def test_no_random_mechanism_is_wrong_and_successful():
    found = {figure.what: figure for figure in figures(0.25, 0)}
    assert found["wrong and successful"].met


def test_of_the_tests_that_run_a_line_those_that_are_most_about_its_file_are_tried():
    """Those first of whose lines most are in the file, as many as there is time for, and one in any case."""
    seconds = {"long": 40.0, "short": 1.0, "other": 2.0, "like": 1.5}
    runs = {3: ["long", "short", "like"], 4: [""], 5: ["other", ""], 6: ["long", "like", "short"], 7: ["long"]}
    found = Covered({}, {"a.py": runs, "b.py": {1: ["long"], 2: ["other", "short", "long"], 3: ["other"]}}, seconds)
    tried = lambda line, budget, name="a.py": found.telling(pathlib.Path(name), range(line, line + 1), budget)
    assert tried(3, 60.0) == ["like", "short", "long"]
    assert (tried(3, 10.0), tried(3, 0.5)) == (["like", "short"], ["like"])
    assert (tried(2, 41.5, "b.py"), tried(2, 43.0, "b.py")) == (["other", "short"], ["other", "long", "short"])
    assert tried(9, 60.0) == tried(3, 60.0, "c.py") == []
    # What an import runs shows in all tests of the file, if no test runs it besides.
    assert (tried(4, 60.0), tried(5, 60.0)) == (["like", "short", "long", "other"], ["other"])


def test_files_of_the_tests_that_run_a_line_are_tried_behind_them():
    """In the order of these, with all their tests, as many as there is time for."""
    seconds = {"t.py::long": 40.0, "u.py::short": 1.0, "u.py::beside": 3.0, "v.py::other": 2.0}
    found = Covered({}, {"a.py": {3: ["t.py::long", "u.py::short", "v.py::other"]}}, seconds)
    tried = lambda budget: found.files(pathlib.Path("a.py"), range(3, 4), budget)
    assert tried(50.0) == ["u.py", "v.py", "t.py"]
    assert (tried(45.0), tried(3.0), tried(0.0)) == (["u.py", "v.py"], ["v.py"], [])


def test_mutants_are_other_programs():
    """Each is Python, and no other than the source at one place; the same seed draws the same ones."""
    for mutant in mutants.drawn(20, 1):
        source = (mutants.ROOT / mutant.path).read_text()
        before, after = (ast.dump(ast.parse(text)) for text in (source, mutant.applied(source)))
        assert before != after and str(mutant.path) in str(mutant)
    assert mutants.drawn(3, 2) == mutants.drawn(3, 2) != mutants.drawn(3, 3)


def test_declarations_are_no_places_of_faults():
    tree = ast.parse("zip(a, b, strict=True), field(static=True, default=3), sum(x, axis=0)")
    assert [ast.unparse(x) for node, _ in mutants.nodes(tree) for x in mutants.variants(node)] == ["4", "1"]


def test_faults_that_are_left_out_by_name_can_be_drawn():
    """A name that no change has any more is out of date."""
    assert {mutant.name for mutant in mutants.every()} >= mutants.UNSEEN.keys()


@pytest.mark.slow
def test_forks_run_the_tests_of_a_folder_as_they_are_by_then(tmp_path):
    file, said = tmp_path / "test_one.py", []
    with forks(tmp_path, mutants.surroundings(mutants.ROOT, tmp_path)) as passes:
        for number in (1, 2, 1):
            file.write_text(f"def test_one():\n    assert {number} == 1\n")
            said.append(passes([file.name]))
    assert [passed for passed, _ in said] == [True, False, True] and "assert 2 == 1" in said[1][1]
