"""Assembly from far away: no guess fails from which SciPy's least squares close the mechanism."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

import jaxmb as jm
from jaxmb.kinematics import Guess, solve_guess

P, S = jm.planar, jm.spatial


def sixbar(unit=1.0):
    """Stephenson's: a dyad with a slider on the coupler of a four-bar; lengths in m / `unit`."""
    rod = lambda name, length: P.Body.rod(name, mass=1.0, length=unit * length)
    at = lambda x, y: (unit * x, unit * y)
    solid = lambda name, **where: P.Body(name, 1.0, 0.1 * unit**2, **where)
    coupler = solid("coupler", com=at(0.4, 0.1), points={"a": at(0.0, 0.0), "b": at(0.9, 0.0), "p": at(0.5, 0.4)})
    bodies = [rod("crank", 0.3), coupler, rod("rocker", 0.7), rod("link", 0.7), solid("slider")]
    pairs = "ground crank.a, crank.b coupler.a, coupler.b rocker.b, rocker.a ground.d, coupler.p link.a, link.b slider"
    joints = [P.Revolute(name, *pair.split()) for name, pair in zip("ABCDEF", pairs.split(", "), strict=True)]
    joints.append(P.Prismatic("G", ("ground", at(0.2, 0.9)), "slider"))
    return P.Mechanism(bodies, joints, points={"d": at(1.0, 0.0)}).build(cut=["C", "F"])


def closed_by_a_weld():
    """A planar five-bar in space with a ball in its chain, closed in all six directions."""
    lengths = (0.5, 0.7, 0.2, 0.6, 0.5)
    bodies = [S.Body(n, 1.0, (0.1, 0.1, 0.1), (0.1, 0.0, 0.0)) for n in "abcde"]
    ends = {n: (n, (x, 0.0, 0.0)) for n, x in zip("abcde", lengths, strict=True)}
    joints = [S.Revolute("A", "ground", "a"), S.Revolute("B", ends["a"], "b"), S.Spherical("C", ends["b"], "c")]
    joints += [S.Revolute("E", ("ground", (1.0, 0.0, 0.0)), "e"), S.Revolute("D", ends["e"], "d")]
    return S.Mechanism(bodies, [*joints, S.Fixed("weld", ends["c"], ends["d"])]).build(cut=["weld"])


def closed_by_a_hinge():
    """A four-bar in space, all of its hinges along z."""
    bodies = [
        S.Body(n, 1.0, (0.1, 0.1, 0.1), points={"e": (x, 0.0, 0.0)})
        for n, x in zip("abc", (0.4, 0.9, 0.8), strict=True)
    ]
    joints = [S.Revolute("A", "ground", "a"), S.Revolute("B", "a.e", "b"), S.Revolute("C", "b.e", "c")]
    return S.Mechanism(bodies, [*joints, S.Revolute("D", "c.e", ("ground", (1.0, 0.0, 0.0)))]).build(cut=["D"])


@functools.cache
def made(name):
    return {"six-bar": sixbar, "weld": closed_by_a_weld, "hinge": closed_by_a_hinge}[name]()


def guesses(system, count):
    rng = np.random.default_rng(3)
    q = np.asarray(system.guess) + rng.uniform(-np.pi, np.pi, (count, system.nq))
    return np.stack([np.asarray(system.normalise(jnp.asarray(x))) for x in q])


def gaps(system):
    """Position gaps and rotation vectors of the joints that close loops, by poses of bodies alone."""
    joints = system.joints
    groups = joints.constraint_groups
    frames = [(ties.kind.__name__, ties, system.params.frames[ties.group].of(ties.entries)) for ties in groups]
    poses = jax.jit(lambda q: joints.poses(system.normalise(q), system.params))

    def residual(q):
        at, found = np.asarray(poses(jnp.asarray(q))), []
        for kind, ties, frame in frames:
            for a, b, fa, fb in zip(ties.a, ties.b, np.asarray(frame.a), np.asarray(frame.b), strict=True):
                x = np.linalg.inv(at[a] @ fa) @ at[b] @ fb
                found.append(x[:-1, -1])
                if kind == "Fixed":
                    found.append(Rotation.from_matrix(x[:3, :3]).as_rotvec())
                elif kind == "Revolute" and len(x) == 4:
                    across = np.hypot(*x[:2, 2])
                    found.append(np.arctan2(across, x[2, 2]) / max(across, 1e-300) * x[:2, 2])
        found = np.concatenate(found)
        return np.append(found, np.zeros(max(0, len(q) - len(found))))

    return residual


def successes(system, q):
    """Of assembly and of Levenberg and Marquardt in MINPACK."""
    ours = [bool(jnp.isfinite(jm.assemble(system, x, throw=False).q).all()) for x in q]
    residual = gaps(system)
    ends = [least_squares(residual, x, method="lm", xtol=1e-12, ftol=1e-12, gtol=1e-12).x for x in q]
    return np.array(ours), np.array([np.abs(residual(x)).max() < 1e-7 for x in ends])


@pytest.mark.slow_except("hinge")
@pytest.mark.parametrize("name", ["six-bar", "weld", "hinge"])
def test_no_fewer_guesses_lead_to_a_pose_than_by_least_squares(name):
    system = made(name)
    ours, others = successes(system, guesses(system, 6))
    assert others.any()
    assert not (others & ~ours).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["six-bar", "weld", "hinge"])
def test_no_fewer_of_many_guesses_lead_to_a_pose_than_by_least_squares(name):
    system = made(name)
    ours, others = successes(system, guesses(system, 70))
    assert ours.sum() >= others.sum() > 0


def missing_guess(system):
    """One from which the iterations alone lead to no pose."""
    return next(q for q in guesses(system, 40) if not near(system, q))


def near(system, q):
    guess = Guess(jnp.zeros(()), jnp.asarray(q), jnp.zeros(system.nv), concrete=True)
    return not bool(solve_guess(system, guess).missed)


@pytest.mark.slow
def test_a_search_within_a_program_finds_the_same_pose_with_the_projection_as_derivative():
    """dq/dguess = I − C⁺C in the metric of M, at the pose that was found."""
    system = made("six-bar")
    guess = missing_guess(system)
    state = jm.assemble(system, guess)
    run = lambda q: jm.assemble(system, q, throw=False).q
    found, slope = jax.jit(lambda q: (run(q), jax.jacfwd(run)(q)))(jnp.asarray(guess))
    np.testing.assert_allclose(found, state.q, atol=1e-9)
    terms = jm.evaluate(system, state)
    mass, rows = np.asarray(terms.mass), np.asarray(terms.jacobian)
    across = np.linalg.solve(mass, rows.T)
    np.testing.assert_allclose(slope, np.eye(system.nv) - across @ np.linalg.solve(rows @ across, rows), atol=1e-6)


@pytest.mark.slow
def test_held_coordinates_stay_held_in_a_search():
    system = made("six-bar")
    for guess in guesses(system, 6):
        state = jm.assemble(system, guess, hold=["A"], throw=False)
        assert not bool(jnp.isfinite(state.q).all()) or float(state.q[0]) == guess[0]


@pytest.mark.slow
def test_a_joint_the_wrong_way_round_is_turned():
    """A hinge drawn with its axis reversed: half a turn of the chain about its length brings it right."""
    bodies = [S.Body(n, 1.0, (0.1, 0.1, 0.1), points={"e": (1.0, 0.0, 0.0)}) for n in "ab"]
    joints = [S.Spherical("A", "ground", "a"), S.Spherical("B", "a.e", "b")]
    system = S.Mechanism(bodies, [*joints, S.Revolute("C", "b.e", ("ground", (1.2, 0.0, 0.0)))]).build(cut=["C"])
    names = list(system.coordinates)
    guess = np.array(system.guess)
    guess[[names.index("A.qw"), names.index("A.qz")]] = np.cos(0.46), np.sin(0.46)
    guess[[names.index("B.qw"), names.index("B.qx"), names.index("B.qy")]] = 0.0, np.cos(0.9), np.sin(0.9)
    state = jm.assemble(system, guess)
    assert float(system.joints.alignment(state.q, system.params)["C"]) > 0.999


@pytest.mark.slow
def test_lengths_in_millimetres_lead_to_the_same_pose():
    """Residuals are relative to their size all around, shifts to how far rows bend."""
    one, other = made("six-bar"), sixbar(1e3)
    shift = np.array([1e3 if name == "G" else 1.0 for name in one.coordinates])
    guess = missing_guess(one)
    found = jm.assemble(one, guess).q
    np.testing.assert_allclose(jm.assemble(other, shift * guess).q / shift, found, atol=1e-6)
    # So do angles of joints that close loops, beside residuals in either unit.
    aimed = lambda system: jm.assemble(system, {"A": 1.0, "C": 0.8, "F": -0.5}, hold=["A"]).q
    np.testing.assert_allclose(aimed(other) / shift, aimed(one), atol=1e-6)


def branches_of_a_hinge():
    """Both poses with A at 1.2 rad, and the angle of the joint that closes the loop at each."""
    system = made("hinge")
    poses = [jm.assemble(system, {"A": 1.2, "B": b, "C": c}, hold=["A"]) for b, c in ((-1.3, -1.4), (1.3, 1.4))]
    return system, [(np.asarray(state.q), float(jm.coordinate(system, state, "D"))) for state in poses]


def test_the_angle_of_the_joint_that_closes_a_loop_chooses_the_branch():
    """The pose is that of the branch whose cut joint is near the guess, to rounding, in a program too; no other number changes."""
    system, poses = branches_of_a_hinge()
    assert abs(poses[0][1] - poses[1][1]) > 1
    same = lambda one, other: np.testing.assert_allclose(np.exp(1j * np.asarray(one)), np.exp(1j * other), atol=1e-9)
    close = jax.jit(lambda angle: jm.assemble(system, {"A": 1.2, "D": angle}, hold=["A"], throw=False).q)
    for q, angle in poses:
        same(jm.assemble(system, {"A": 1.2, "D": angle + 0.2}, hold=["A"]).q, q)
        same(close(angle - 0.2), q)


@pytest.mark.slow
def test_in_absolute_coordinates_joints_may_be_named():
    """Where no joint has coordinates of the system, all of them may be named."""
    rods = [P.Body.rod(name, mass=1.0, length=length) for name, length in zip("abc", (0.4, 0.9, 0.8), strict=True)]
    joints = [
        P.Revolute(name, *pair)
        for name, pair in {"A": ("ground", "a.a"), "B": ("a.b", "b.a"), "C": ("b.b", "c.a")}.items()
    ]
    system = P.Mechanism(rods, joints).build("absolute")
    state = jm.assemble(system, {"A": 0.5, "B": -1.0, "C": 2.0})
    for name, angle in {"A": 0.5, "B": -1.0, "C": 2.0}.items():
        np.testing.assert_allclose(jm.coordinate(system, state, name), angle, atol=1e-9)


def test_of_several_coordinates_of_a_joint_one_must_be_named():
    block = P.Mechanism([P.Body("block", 1.0, 0.1)], [P.PointOnLine("floor", "ground", "block")]).build("absolute")
    with pytest.raises(
        ValueError, match=r"'floor' has the coordinates x, angle, so that one must be named, such as 'floor\.x'"
    ):
        jm.coordinate(block, jm.assemble(block), "floor")


def test_joints_that_close_loops_are_not_held_nor_moved_by_name():
    system = made("hinge")
    with pytest.raises(
        ValueError,
        match=r"`hold` must hold .* Joint 'D' closes the loop of 'A', 'B', 'C' and 'D', .* name these, or `build",
    ):
        jm.assemble(system, hold=["D"])
    with pytest.raises(ValueError, match=r"`v` must hold .* Joint 'D' closes the loop"):
        jm.assemble(system, v={"D": 1.0})
    with pytest.raises(ValueError, match=r"Joint 'D' has the coordinates angle, but not 'x'"):
        jm.assemble(system, {"D.x": 0.3})
    with pytest.raises(ValueError, match=r"`q\['D'\]` must be a number, but has shape \(2,\)"):
        jm.assemble(system, {"D": [0.3, 0.4]})
