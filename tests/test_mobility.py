"""Degrees of freedom: by counting, and truly; which joints share redundant rows."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bricard_joints import bricard_joints
from mechanisms import three_cranks

import jaxmb as jm
from jaxmb.formulation import contradiction_tol
from jaxmb.foundations import Check
from jaxmb.kinematics import Rows, diagnosis
from jaxmb.kinematics.diagnosis import _Analysis, _connected, _dependent, _ranges, _shared, spectral_gap

P = jm.planar


def at(mechanism, coordinates="relative", angle=1.2):
    relative = mechanism.build()
    state = jm.assemble(relative, {"A": angle, "B": angle, "C": angle, "D": -angle})
    system = mechanism.build(coordinates)
    return system, jm.convert(state, relative, system)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["relative", "absolute"])
def test_a_third_crank_is_redundant(coordinates):
    found = jm.diagnose(*at(three_cranks(), coordinates))
    assert (found.freedom, found.freedom_nearby, found.freedom_counted, found.redundancy) == (1, 1, 0, 1)
    assert found.topology.bodies == 4 and found.topology.loops == 2 and found.topology.freedom == 0
    assert found.topology.joints == {"Revolute": ("A", "B", "C", "D", "E", "F")}
    assert found.shared == ((("A", "B", "C", "D", "E", "F"), 1),)
    assert "mechanism               4 bodies, 6 Revolute, 2 loops\n" in str(found)
    assert "the same by counting    0 (Grübler, Kutzbach)\n" in str(found)
    assert "shared by joints        A, B, C, D, E, F (1)\n" in str(found)


@pytest.mark.slow
def test_bricards_linkage_moves_though_counting_says_that_it_does_not():
    mechanism = bricard_joints()
    system = mechanism.build()
    found = jm.diagnose(system, jm.assemble(system))
    assert (found.freedom, found.freedom_nearby, found.freedom_counted) == (1, 1, 0)
    assert found.shared == ((tuple(f"hinge{i}" for i in range(1, 7)), 1),)
    assert "mobility      0 by counting; 1 independent loop" in str(mechanism)


@pytest.mark.slow
def test_a_driven_four_bar_has_no_freedom_left_and_nothing_redundant():
    bodies = [P.Body.rod(name, 1.0, length) for name, length in (("crank", 1.0), ("coupler", 3.0), ("rocker", 2.5))]
    joints = [
        P.Revolute("A", "ground", "crank.a"),
        P.Revolute("B", "crank.b", "coupler.a"),
        P.Revolute("C", "coupler.b", "rocker.b"),
        P.Revolute("D", "ground.d", "rocker.a"),
    ]
    motor = P.Driver("motor", "A", lambda t, p: 1.0 + t)
    mechanism = P.Mechanism(bodies, joints, [motor], points={"d": (3.2, 0.0)})
    system = mechanism.build()
    found = jm.diagnose(system, jm.assemble(system, {"A": 1.0, "B": -0.6, "D": 2.0}))
    assert (found.freedom, found.freedom_undriven, found.freedom_counted, found.topology.freedom) == (0, 1, 0, 1)
    assert found.shared == () and "shared" not in str(found)
    assert "the same by counting    0, 1 without drivers (Grübler, Kutzbach)" in str(found)
    assert "mobility      1 by counting, 0 with drivers; 1 independent loop" in str(mechanism)


def test_counting_knows_gears_wheels_and_bodies_apart():
    wheel = P.Body("wheel", shape=P.Disk(0.1), mass=1.0)
    bodies = [P.Body.rod("one", 1.0, 1.0), P.Body.rod("two", 1.0, 1.0), wheel]
    joints = [
        P.Revolute("A", "ground", "one.a"),
        P.Revolute("B", ("ground", (1.0, 0.0)), "two.a"),
        P.Gear("gear", ("A", "B"), ratio=-2.0),
        P.RollingWheel("track", "ground", "wheel", 0.1),
    ]
    system = P.Mechanism(bodies, joints).build()
    found = jm.diagnose(system, jm.as_state(system, system.guess))
    assert system.joints.topology.joints.keys() == {"Revolute", "RollingWheel", "Gear"}
    assert system.joints.topology.freedom == found.freedom_counted == 9 - 4 - 1 - 2
    assert system.joints.topology.loops == 0


def test_freedom_is_counted_with_and_without_drivers():
    bodies = [P.Body.rod(name, 1.0, 1.0) for name in ("one", "two")]
    joints = [P.Revolute("A", "ground", "one.a"), P.Revolute("B", "one.b", "two.a")]
    system = P.Mechanism(bodies, joints, [P.Driver("motor", "A", lambda t, p: 1.0 + t)]).build()
    found = jm.diagnose(system, jm.assemble(system))
    assert (found.freedom, found.freedom_undriven) == (1, 2)


def test_a_system_without_a_mechanism_has_numbers_only():
    rod = lambda t, q, p: q @ q - 1
    twice = [jm.Holonomic("rod", rod), jm.Holonomic("again", rod)]
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=twice)
    found = jm.diagnose(system, jm.assemble(system, [0.6, 0.8]))
    assert found.linear_algebra.startswith("dense: ") and f"  {'linear algebra':<24}dense: " in str(found)
    assert (found.freedom, found.freedom_counted, found.topology, found.shared) == (1, 0, None, ())
    assert not found.singular_around  # as regular as all poses are
    assert "mechanism" not in str(found)
    rows = [jm.Holonomic("one", lambda t, q, p: q[0]), jm.Holonomic("both", lambda t, q, p: q[0] + q[1])]
    skew = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=rows)
    found = jm.diagnose(skew, jm.as_state(skew, jnp.zeros(2), length=1.0))
    np.testing.assert_allclose(found.row_condition, 1 + np.sqrt(2))  # of rows at 45 degrees
    free = jm.diagnose(plane := jm.System(2, mass=lambda t, q, p: jnp.eye(2)), jm.as_state(plane, [0.6, 0.8]))
    assert (free.freedom, free.singular_values, free.gap, free.row_condition) == (2, (), (0.0, 0.0), 1.0)
    # Of what is not there nothing is told: all count of the independent rows, and without rows there are none.
    told = [str(x).partition("singular values")[2].partition("\n")[0].split() for x in (found, free)]
    assert [" ".join(words) for words in told] == [f"{found.gap[0]:.2g} counts, cut-off 2.5e-07", "none"]


# What is said of rows, from numbers alone


class Bodies(eqx.Module):
    """Rows of joints on two bodies, of which one follows from the others."""

    mass: jax.Array
    rows = property(lambda self: {"one": jnp.array([0, 2]), "two": jnp.array([1])})
    jacobian = property(lambda self: jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))

    def body_rows(self, system, state):
        return self


@pytest.mark.parametrize("unit", [1e-20, 1.0, 1e20])
def test_joints_share_the_same_rows_whatever_the_unit_of_mass(unit):
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2))
    system = eqx.tree_at(lambda system: system.joints, system, Bodies(unit * jnp.eye(2)), is_leaf=lambda x: x is None)
    scale = jm.system.Scale(*jnp.zeros((2, 0)), jnp.ones(2), jnp.zeros(0), jnp.ones(()))
    assert _shared(system, jm.State(jnp.zeros(()), *jnp.zeros((2, 2)), scale), 1e-7) == ((("one", "two"), 1),)


def test_rows_that_combinations_tie_together_are_groups():
    """Numbered within their constraints; a combination that is neither degenerate nor indeterminate here is of a redundant row."""
    linked = np.zeros((7, 7), bool)
    linked[[2, 2, 5, 5, 5], [0, 2, 4, 5, 6]] = True
    assert [group.tolist() for group in _connected(linked)] == [[0, 2], [4, 5, 6]]
    linked[6, [6, 0]] = True
    assert [group.tolist() for group in _connected(linked)] == [[0, 2, 4, 5, 6]]
    blank = [jm.Holonomic(name, lambda t, q, p, k=k: jnp.zeros(k)) for name, k in (("one", 3), ("two", 4))]
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=blank)
    combined = np.zeros((7, 7))
    combined[[2, 2, 5, 5, 6, 6], [0, 2, 4, 5, 4, 6]] = 1.0, -1.0, 0.5, 1.0, 2.0, 1.0
    combined[1, 3] = 1e-9  # rounding
    mask = lambda *rows: np.isin(np.arange(7), rows)
    rows = SimpleNamespace(degenerate=mask(5), indeterminate=mask(2))
    first, second = _dependent(system, _Analysis(rows, combined, *[None] * 6), 1e-7)
    assert (str(first), first.redundant, first.degenerate, first.indeterminate) == ("one[0, 2]", 0, 0, 1)
    assert (str(second), second.redundant, second.degenerate, second.indeterminate) == ("two[1–3]", 1, 1, 0)


def test_numbers_in_turn_are_ranges_and_singular_values_that_count_end_in_a_gap():
    assert _ranges((0, 1, 2, 3, 7, 9, 10)) == "0–3, 7, 9–10" and _ranges(()) == ""
    values = np.array([3.0, 2.0, 1e-9])
    assert [spectral_gap(values, rank) for rank in range(4)] == [(0.0, 3.0), (3.0, 2.0), (2.0, 1e-9), (1e-9, 0.0)]


def test_poses_around_are_a_twentieth_away_along_what_is_free_and_count_where_they_are_reached(monkeypatch):
    """Relative to how far each coordinate reaches; a pose is singular around where none of them has more independent rows."""
    row = jm.Holonomic("row", lambda t, q, p: 3.0 * q[0] - 3.0)
    system = jm.System(3, mass=lambda t, q, p: jnp.eye(3), constraints=[row])
    reach, jacobian, one = np.array([0.5, 2.0, 4.0]), np.array([[3.0, 0.0, 0.0]]), jnp.ones(1)
    sizes = jm.system.Scale(one, one, jnp.asarray(reach), one, one[0])
    state = jm.State(jnp.zeros(()), jnp.array([1.0, 2.0, 3.0]), jnp.zeros(3), sizes)
    guesses = []

    def found(*told):
        """Rank of each pose around, None where it is not reached."""
        ranks = [*told, *[None] * (8 - len(told))]
        analysed = [rank for rank in ranks if rank is not None]

        def solved(system, guess):
            guesses.append((guess.q - state.q) / reach)
            gap = 0.0 if ranks[(len(guesses) - 1) % 8] is not None else 1.0
            return SimpleNamespace(checks=(Check(jnp.array(gap), 0.5, "off"),), state=state)

        monkeypatch.setattr(diagnosis, "solve_guess", solved)
        rows = lambda *_: SimpleNamespace(rows=SimpleNamespace(rank=jnp.array(analysed.pop(0))))
        monkeypatch.setattr(diagnosis, "_analysis", rows)
        return diagnosis._singular_around(system, state, jm.formulation.GaussProjection(), jacobian, 1)

    assert [found(), found(1), found(0, 1, 1), found(1, 2, 1), found(None, 2)] == [False, True, True, False, False]
    steps = np.array(guesses)
    np.testing.assert_allclose(np.abs(steps).max(axis=1), 0.05, rtol=1e-12)
    np.testing.assert_allclose(steps[:, 0], 0, atol=1e-15)
    assert len(steps) == 5 * 8 and np.linalg.matrix_rank(steps[:8]) == 2


def test_a_diagnosis_counts_the_rows_that_act_and_tells_what_they_are_worth(monkeypatch):
    """Of five rows and four velocities: rank, freedom here and nearby, condition numbers, residuals; questions that cost something are asked only where they matter."""
    rows = [jm.Holonomic(name, lambda t, q, p, k=k: jnp.zeros(k)) for name, k in (("one", 2), ("two", 3))]
    system = jm.System(4, mass=lambda t, q, p: jnp.eye(4), constraints=rows)
    state = jm.State(jnp.array(0.7), *jnp.zeros((2, 4)), jm.system.Scale(*map(jnp.ones, (5, 5, 4, 5, ()))))
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    values, tol, asked = np.array([8.0, 4.0, 0.5, 0.0]), contradiction_tol(float), []
    monkeypatch.setattr(diagnosis, "_singular_around", lambda *given: asked.append(given[-1]) or True)
    monkeypatch.setattr(diagnosis, "_dependent", lambda *_: ())
    monkeypatch.setattr(diagnosis, "_shared", lambda *_: ((("hinge",), 1),))

    def told(rank, degenerate=0, indeterminate=0, undriven=None, active=None, at=state):
        mask = lambda k: jnp.arange(5) < k
        off = jnp.array([2 * tol, 0.5 * tol, 0.5 * tol, -3 * tol, 0.9 * tol])
        found = Rows(mask(rank), mask(degenerate), mask(indeterminate), jnp.array(rank), None, jnp.array(False), off)
        scaled = turn[:, :4] * values
        residuals = np.array([[0.0, -0.3, 0.2, 0.0, 0.0], [0.1, 0.0, 0.0, -0.2, 0.0]])
        mass = np.diag([1.0, 2.0, 50.0, 4.0])
        of = _Analysis(found, np.zeros((5, 5)), scaled, mass, np.zeros((5, 4)), *residuals, undriven)
        monkeypatch.setattr(diagnosis, "_analysis", lambda *_: of)
        return jm.diagnose(system, at)

    found = told(3)
    assert (found.coordinates, found.velocities, found.rows, found.t) == (4, 4, {"one": 2, "two": 3}, 0.7)
    assert (found.rank, found.rank_nearby, found.redundancy, found.freedom, found.freedom_nearby) == (3, 3, 2, 1, 1)
    assert (found.freedom_counted, found.freedom_undriven, found.singular_around) == (-1, None, False) and not asked
    assert (
        found.shared == ((("hinge",), 1),) and found.residual == (0.3, 0.2) and found.contradictions == {"one": 2 * tol}
    )
    np.testing.assert_allclose(found.singular_values, values, atol=1e-14)
    np.testing.assert_allclose([found.row_condition, found.mass_condition, found.gap[0]], [16.0, 50.0, 0.5], rtol=1e-12)
    found = told(1, 1, 2, undriven=np.array(1))
    assert (found.rank_nearby, found.freedom_nearby, found.freedom_undriven) == (4, 0, 3)
    assert found.singular_around and asked == [1] and found.row_condition == 1.0
    assert told(0).row_condition == 1.0
    none = jnp.zeros(0)
    mode = jm.system.Mode((), jnp.array([True, False, True, True, False]), none, none, jnp.zeros(0, bool))
    found = told(3, at=dataclasses.replace(state, mode=mode))
    assert (found.redundancy, found.freedom_counted, found.shared) == (0, 1, ())


def test_rows_that_the_same_joints_share_are_counted_together(monkeypatch):
    """Of two joints two groups of rows, forces and torques; of two others one."""
    names, parts = ("A", "B", "C"), (np.array([0, 1]), np.array([2, 3]), np.array([4, 5]))
    combined = np.zeros((6, 6))
    combined[2, [0, 2]], combined[3, [1, 3]], combined[5, [4, 5]] = (1, -1), (0.5, 1), (1, 1)
    monkeypatch.setattr(diagnosis, "_on_bodies", lambda *_: (names, parts, combined))
    arm = P.Body.rod("arm", 1.0, 1.0)
    system = P.Mechanism([arm], [P.Revolute("A", "ground", "arm.a")]).build()
    assert _shared(system, jm.as_state(system, [0.0]), 1e-7) == ((("A", "B"), 2), (("C",), 1))
