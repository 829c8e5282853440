"""Objects print as short tables, and show the same in notebooks."""

import dataclasses
import html

import jax
import jax.numpy as jnp
import pytest

import jaxmb as jm

P = jm.planar
MECHANISM = P.Mechanism(
    [P.Body.rod("rod", mass=1.0, length=1.0)], [P.Revolute("<pin>", "ground", "rod.a")], gravity=(0.0, -9.81)
)


@pytest.fixture(scope="module")
def run():
    system = MECHANISM.build()
    start = jm.assemble(system, [0.3])
    return system, start, jm.simulate(system, start, jnp.linspace(0.0, 1.0, 5))


def test_a_solution_prints_what_was_run_and_how_it_ended(run):
    lines = str(run[2]).splitlines()
    assert lines[0] == "Solution: 5 times from 0 to 1 s"
    accepted, rejected = (int(run[2].stats[f"num_{kind}_steps"]) for kind in ("accepted", "rejected"))
    assert [line.split(maxsplit=1) for line in lines[1:]] == [
        ["coordinates", "<pin>"],
        ["steps", f"{accepted} accepted, {rejected} rejected"],
        ["result", "successful"],
    ]


def test_a_batch_prints_how_many_runs_ended_how(run):
    system, start, _ = run
    starts = jax.vmap(lambda v: dataclasses.replace(start, v=v))(jnp.array([[0.0], [1.0], [jnp.nan]]))
    text = str(jax.vmap(lambda s: jm.simulate(system, s, [0.5], throw=False))(starts))
    assert (
        text.startswith("Solution of 3 runs: 1 time from 0.5 to 0.5 s") and "2 successful, 1 inconsistent_state" in text
    )


def test_a_traced_solution_prints_without_numbers(run):
    system, start, _ = run
    texts = []
    jax.eval_shape(
        lambda v: texts.append(str(jm.simulate(system, dataclasses.replace(start, v=v), [0.5], throw=False))), start.v
    )
    assert "Solution(" in texts[0]


def test_a_state_prints_its_numbers_and_what_acts(run):
    system, start, solution = run
    assert " ".join(str(start).split()) == "State at t = 0 s q 0.3 v 0"
    locked = jm.simulate(system, start, [0.5], events=[jm.Lock("<pin>", at=0.1)]).state(0)
    assert str(locked).splitlines()[-1].split(maxsplit=1) == ["rows", "1 of 1 act"]
    assert [line.split(maxsplit=1) for line in str(solution.states).splitlines()] == [
        ["5", "states, t from 0 to 1 s"],
        ["q", "(5, 1)"],
        ["v", "(5, 1)"],
    ]
    for shape in (jax.eval_shape(lambda: start), jax.eval_shape(lambda: solution)):
        assert "ShapeDtypeStruct(" in str(shape)  # no numbers are known


def test_energies_and_reactions_print_their_numbers_or_of_several_states_the_least_and_the_largest(run):
    energy = jm.output.Energy(
        *(jnp.array([x, jnp.nan, y]) for x, y in ((0, 3.5), (4, 0.25), (4, 3.75), (0, 0), (0, -0.25)))
    )
    assert [" ".join(line.split()) for line in str(energy).splitlines()] == [
        "Energy of 3 states, least to largest",
        "kinetic, J 0 to 3.5",
        "potential, J 0.25 to 4",
        "total, J 3.75 to 4",
        "work, J 0 to 0",
        "balance, J -0.25 to 0",
    ]
    numbers, result = jnp.arange(2.0), run[2].result
    reactions = jm.output.Reactions(numbers, numbers, {"bar": numbers, "motor": jnp.array(-7.0)}, {}, result)
    rows = ["Reactions", "vdot 0, 1", "reaction 0, 1", "multipliers bar 0, 1, motor -7"]
    assert [" ".join(line.split()) for line in str(reactions).splitlines()] == rows
    wrench = jm.output.Wrench(numbers, numbers[1:], numbers, result)
    assert " ".join(str(wrench).split()) == "Wrench force, N 0, 1 torque, N m 1 point, m 0, 1"
    assert "ShapeDtypeStruct(" in str(jax.eval_shape(lambda: wrench))


def test_what_is_made_of_parts_prints_their_numbers_and_names_a_line_each(run):
    system, start, _ = run
    spoken = lambda x: [" ".join(line.split()) for line in str(x).splitlines()]
    rod = ["Body 'rod'", "mass 1", "inertia 0.0833333", "com 0.5, 0", "points a, b, centre"]
    assert spoken(MECHANISM.bodies[0])[:5] == rod
    step = jm.stepper(system, start, 0.01, control=jm.control.PD(["<pin>"], 2.0, 0.1))
    assert spoken(step) == [
        "Stepper",
        "system System: 1 coordinate, 1 velocity, 0 constraint rows, 0 inputs",
        "state State at t = 0 s",
        "dt 0.01",
        "control PID (stiffness 2, damping 0.1)",
        "formulation GaussProjection (rank_tol 2.5e-07)",
        "drift Projection (iterations 3)",
        "solver Tsit5",
        "independent 0 of 0",
        "substeps 1",
        "throw False",
    ]
    assert spoken(jm.try_assemble(system))[1:3] == ["state State at t = 0 s", "result successful"]
    assert "push" in str(jm.Lock("<pin>", when=push)) and "ShapeDtypeStruct(" in str(jax.eval_shape(lambda: step))


def push(t, q, v, reaction, params):
    return q[0]


def test_notebooks_show_what_is_printed_with_names_escaped(run):
    system, start, solution = run
    for shown in (
        MECHANISM,
        *MECHANISM.elements.values(),
        system,
        start,
        solution,
        jm.diagnose(system, start),
        jm.analyse_reactions(system, start),
    ):
        text = shown._repr_html_()
        assert text.startswith("<pre") and html.unescape(text).endswith(f">{shown}</pre>") and "<pin>" not in text
    assert "&lt;pin&gt;" in system._repr_html_()


def test_a_player_is_the_page_in_a_frame(run, tmp_path):
    system, _, solution = run
    player = jm.plot.page(system, solution, tmp_path / "a.html", title='"Swing"')
    assert (tmp_path / "a.html").read_text() == player.html == jm.plot.page(system, solution, title='"Swing"').html
    frame = player._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and frame.count('"') == 4
