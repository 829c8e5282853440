"""What acts in joints, and which of it is determined."""

import functools
import json
import pathlib
import warnings

import andrews_joints
import equinox as eqx
import fourbar_model
import governor
import jax
import jax.numpy as jnp
import nfourbar_joints
import numpy as np
import puma
import pytest
import rolling_disk
import stewart
from bricard_joints import bricard_joints
from mobile_robot import mobile_robot

import jaxmb as jm
from jaxmb.reaction.uniqueness import _evaluate

P, S = jm.planar, jm.spatial
G = 9.81
DATA = pathlib.Path(__file__).parent / "data"


def at(system, q=None, v=None):
    """A state that is consistent already."""
    q = system.guess if q is None else jnp.asarray(q)
    v = jnp.zeros(system.nv) if v is None else jnp.asarray(v)
    return jm.as_state(system, q, v)


@eqx.filter_jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0, 0))
def along(system, t, q, v):
    return jm.as_state(system, q, v, t=t)


# The mobile robot


@pytest.fixture(scope="module")
def robot():
    """The system in absolute coordinates and states along the reference motion."""
    reference = np.load(DATA / "mobile_robot.npz")
    system = mobile_robot().build("absolute")
    index = np.linspace(0, len(reference["t"]) - 1, 101).astype(int)
    t, q, v = (jnp.asarray(reference[name][index]) for name in ("t", "q", "v"))
    return system, along(system, t, q, v)


@pytest.mark.slow
def test_mobile_robot_is_unique_where_its_source_says(robot):
    system, states = robot
    expected = json.loads((DATA / "mobile_robot.json").read_text())["unique_reaction"]
    expected["steering"] = expected.pop("drv")
    for i in range(101):
        report = jm.analyse_reactions(system, jax.tree.map(lambda x, i=i: x[i], states))
        assert (report.rank, report.redundancy) == (20, 2)
        assert {name: verdict.unique for name, verdict in report.groups.items()} == expected
        for verdict in report.groups.values():
            assert set(verdict.methods.values()) == {verdict.unique}
        assert report.clusters == (("B", "C", "W1", "W2", "W3", "W4"),)
    assert not report.groups["B"].components["fy"] and report.groups["B"].components["fx"]


@pytest.mark.slow
def test_eliminations_agree_in_what_is_unique(robot):
    """Rows {6, 21}, {18, 21}, {19, 21}, counted from one in the order of the source, are dependent."""
    system, states = robot
    found = []
    for rows in ((5, 20), (17, 20), (18, 20)):
        formulation = jm.formulation.Elimination(rows)
        solved = jm.reactions(system, states, formulation=formulation)
        found.append((solved, {name: solved.forces[name] for name in system.rows}))
    unique = jm.analyse_reactions(system, jax.tree.map(lambda x: x[30], states)).unique
    size = max(float(jnp.abs(found[0][0].multipliers[name]).max()) for name in unique)
    for solved, forces in found[1:]:
        np.testing.assert_allclose(solved.vdot, found[0][0].vdot, atol=1e-9)
        for name in unique:
            np.testing.assert_allclose(forces[name], found[0][1][name], atol=1e-8 * size)
    spread = {
        name: max(float(jnp.abs(f[name] - found[0][1][name]).max()) for _, f in found[1:]) for name in ("B", "W3")
    }
    largest = {name: max(float(jnp.abs(f[name]).max()) for _, f in found) for name in spread}
    assert all(spread[name] > 0.01 * largest[name] for name in spread)


# Known cases


def door(hinges=2):
    places = np.linspace(0.3, 1.7, hinges)
    joints = [S.Revolute(f"hinge{i}", ("ground", (0, 0, z)), ("door", (-0.4, 0, z - 1))) for i, z in enumerate(places)]
    body = S.Body.box("door", 20.0, (0.8, 0.04, 2.0), position=(0.4, 0, 1.0))
    return S.Mechanism([body], joints, gravity=(0, 0, -G))


def table(places):
    foot = lambda place, z: jnp.append(jnp.asarray(place), z)
    legs = [S.PointOnPlane(f"leg{i}", ("ground", foot(p, 0.0)), ("top", foot(p, -1.0))) for i, p in enumerate(places)]
    return S.Mechanism([S.Body.box("top", 10.0, (1.0, 1.0, 0.05), position=(0, 0, 1))], legs, gravity=(0, 0, -G))


def loop_of_hinges():
    """A four-bar in the x-y plane whose four hinges are spatial."""
    corners = np.array([[0, 0, 0], [0.2, 0.5, 0], [0.9, 0.7, 0], [1.0, 0, 0]], float)
    bodies, joints = [], []
    for i in range(3):
        centre = (corners[i] + corners[i + 1]) / 2
        bodies.append(S.Body(f"bar{i}", 1.0, (0.01, 0.02, 0.02), position=centre))
    for i, corner in enumerate(corners):
        ends = []
        for name, k in ((f"bar{i - 1}", i - 1), (f"bar{i}", i)):
            inside = 0 <= k < 3
            centre = (corners[k] + corners[k + 1]) / 2 if inside else np.zeros(3)
            ends.append((name if inside else "ground", tuple(corner - centre)))
        joints.append(S.Revolute(f"hinge{i}", *ends))
    return S.Mechanism(bodies, joints, gravity=(0, -G, 0))


SQUARE = [(0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5), (0.5, -0.5)]


@pytest.mark.slow
def test_door_on_two_hinges():
    system = door().build()
    state = at(system)
    report = jm.analyse_reactions(system, state)
    assert report.redundancy == 5 and report.unique == ()
    open_components = {"fx", "fy", "fz", "tx", "ty"}
    for verdict in report.groups.values():
        assert {c for c, unique in verdict.components.items() if not unique} == open_components
    assert report.clusters == (("hinge0", "hinge1"),)
    with pytest.warns(UserWarning, match="'hinge0' is not determined .* together with 'hinge1'") as caught:
        lower = jm.joint_reaction(system, state, "hinge0")
    assert caught[0].filename == __file__
    upper = jm.joint_reaction(system, state, "hinge1", warn=False)
    np.testing.assert_allclose(lower.force + upper.force, [0.0, 0.0, 20.0 * G], atol=1e-10)
    moment = sum(np.cross(w.point, w.force) + w.torque for w in (lower, upper))
    np.testing.assert_allclose(moment, np.cross([0.4, 0, 1.0], [0, 0, 20.0 * G]), atol=1e-10)


@pytest.mark.slow
def test_four_bar_of_spatial_hinges():
    system = loop_of_hinges().build()
    report = jm.analyse_reactions(system, at(system))
    assert report.redundancy == 3
    for verdict in report.groups.values():
        assert verdict.components == {"fx": True, "fy": True, "fz": False, "tx": False, "ty": False, "tz": True}


@pytest.mark.slow
def test_bricard_has_no_component_that_is_unique():
    for coordinates in ("absolute", "relative"):
        system = bricard_joints().build(coordinates)
        report = jm.analyse_reactions(system, at(system))
        assert (report.rows, report.redundancy) == (30, 1)
        joints = [v.components for v in report.groups.values()]
        assert sum(not unique for components in joints for unique in components.values()) == 30


@pytest.mark.slow
def test_table_on_four_and_on_three_legs():
    four = table(SQUARE).build()
    report = jm.analyse_reactions(four, at(four))
    assert report.redundancy == 1 and report.unique == ()
    three = table(SQUARE[:3]).build()
    report = jm.analyse_reactions(three, at(three))
    assert report.redundancy == 0 and report.multipliers_unique
    assert report.unique == ("leg0", "leg1", "leg2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forces = [jm.joint_reaction(three, at(three), f"leg{i}").force[2] for i in range(3)]
    np.testing.assert_allclose(forces, 10.0 * G * np.array([0.5, 0.0, 0.5]), atol=1e-10)


def test_planar_parallelogram_off_its_flat_pose():
    bodies = [P.Body.rod("left", 1.0, 0.5, angle=1.0), P.Body.rod("right", 1.0, 0.5, position=(1.0, 0.0), angle=1.0)]
    tip = 0.5 * np.array([np.cos(1.0), np.sin(1.0)])
    bodies.append(P.Body.rod("top", 1.0, 1.0, position=tip))
    joints = [
        P.Revolute("A", "ground", "left.a"),
        P.Revolute("B", ("ground", (1.0, 0.0)), "right.a"),
        P.Revolute("C", "left.b", "top.a"),
        P.Revolute("D", "right.b", "top.b"),
    ]
    system = P.Mechanism(bodies, joints, gravity=(0.0, -G)).build()
    report = jm.analyse_reactions(system, at(system))
    assert report.redundancy == 0 and report.unique == ("A", "B", "C", "D")


# Laws


def rods(places, directions):
    """A plate in the plane on rods to the ground."""
    joints = [
        P.Distance(f"rod{i}", ("ground", p + d), ("plate", p), jnp.hypot(*d))
        for i, (p, d) in enumerate(zip(places, directions, strict=True))
    ]
    return P.Mechanism([P.Body("plate", 1.0, 0.2)], joints)


def edges(places, angles):
    """A plate on knife edges."""
    joints = [
        P.KnifeEdge(f"edge{i}", ("plate", p), axis=jnp.stack([jnp.cos(a), jnp.sin(a)]))
        for i, (p, a) in enumerate(zip(places, angles, strict=True))
    ]
    return P.Mechanism([P.Body("plate", 1.0, 0.2)], joints)


def random_numbers(kind, rng):
    """Numbers of a redundant mechanism, some of whose reactions are unique as a rule."""
    if kind == "table":
        return (rng.uniform(-1, 1, (4, 2)),)
    if kind == "rods":  # two parallel ones, perhaps in line and then redundant by themselves, and two others
        directions, places = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
        directions[2] = directions[1] * rng.uniform(0.5, 2)
        if rng.random() < 0.5:
            places[2] = places[1] + directions[1] * rng.uniform(0.5, 1)
        return places, directions
    places, angles = rng.normal(size=(3, 2)), rng.uniform(0, 3, 3)
    angles[1] = angles[0]  # two on one axle
    places[1] = places[0] + rng.normal() * np.array([-np.sin(angles[0]), np.cos(angles[0])])
    return places, angles


MAKE = {"table": table, "rods": rods, "edges": edges}


@eqx.filter_jit
def built(kind, numbers):
    """Built inside a compiled function, hundreds of mechanisms cost no more than their arithmetic."""
    return MAKE[kind](*numbers).build("absolute")


@pytest.mark.slow_except("rods")
@pytest.mark.parametrize("kind", ["table", "rods", "edges"])
@pytest.mark.slow
def test_verdicts_of_random_redundant_cases(kind):
    """QR, SVD and ranks agree, and unique is what random elements of null(Cᵀ) leave unchanged."""
    rng = np.random.default_rng(5)
    redundant = 0
    for _ in range(170):
        system = built(kind, tuple(jnp.asarray(x) for x in random_numbers(kind, rng)))
        state = at(system)
        report = jm.analyse_reactions(system, state)
        redundant += report.redundancy > 0
        rows, parts, maps = _evaluate(system, state)
        left = np.linalg.svd(rows)[0]
        change = left[:, report.rank :] @ rng.normal(size=(report.redundancy, 8))
        for name, verdict in report.groups.items():
            assert set(verdict.methods.values()) == {verdict.unique}, (kind, name)
            moved = np.abs(rows[parts[name]].T @ change[parts[name]]).max(initial=0)
            assert verdict.unique == (moved < 1e-6), (kind, name, moved)
            for component, ell in maps[name].items():
                moved = np.abs(ell @ change).max(initial=0) / max(np.linalg.norm(ell), 1e-300)
                assert verdict.components[component] == (moved < 1e-6), (kind, name, component)
    assert redundant > 100


# Values


def test_directions_that_leave_a_part_of_the_reaction_are_refused_with_its_size():
    """Of a weight on a table, pulled along it against a stop, the table carries 4 and the stop 3."""
    rows = [jm.Holonomic("table", lambda t, q, p: q[1:]), jm.Holonomic("stop", lambda t, q, p: q[:1])]
    weight = jm.System(
        2, mass=lambda t, q, p: 0.1 * jnp.eye(2), force=lambda t, q, v, p: -jnp.array([3.0, 4.0]), constraints=rows
    )
    state = jm.assemble(weight, [0.0, 0.0])
    ways = {"x": lambda t, q, p: q[0], "y": lambda t, q, p: q[1], "also x": lambda t, q, p: 2 * q[0]}
    some = lambda *names: {name: ways[name] for name in names}
    of = lambda directions, **more: list(jm.physical_reactions(weight, state, directions, **more).values())
    for scheme in ("metric", "square", "direct"):
        np.testing.assert_allclose(of(some("x", "y"), scheme=scheme), [3.0, 4.0], rtol=1e-12)
        with pytest.raises(ValueError, match=r"`directions` must span the reaction, but leaves 0.8 of it"):
            of(some("x"), scheme=scheme)
        assert np.isnan(of(some("x"), scheme=scheme, throw=False)).all()
        assert np.isnan(jax.jit(lambda scheme=scheme: of(some("x"), scheme=scheme))()).all()
        with pytest.raises(ValueError, match="must hold directions that are independent"):
            of(some("x", "also x"), scheme=scheme)
    for count, directions in ((0, {}), (3, ways)):
        with pytest.raises(ValueError, match=f"must hold between 1 and 2 directions.*but holds {count}"):
            of(directions)


@pytest.mark.slow
def test_physical_reactions_of_the_four_bar_equal_the_joint_wrench():
    """Its loop is closed at O₄, where the links press on the ground with f."""
    system = fourbar_model.fourbar()
    state = jm.assemble(system, [0.3, 1.1, 1.7], [1.0, 0.0, 0.0], hold=["a1"])
    end = lambda i: lambda t, q, p: -fourbar_model.loop(t, q, p)[i]
    found = [
        list(jm.physical_reactions(system, state, {"fx": end(0), "fy": end(1)}, scheme=scheme).values())
        for scheme in ("metric", "square", "direct")
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-12)

    sizes = zip(fourbar_model.MASSES, fourbar_model.LENGTHS, strict=True)
    bodies = [P.Body.rod(f"link{i}", mass, length) for i, (mass, length) in enumerate(sizes, 1)]
    ends = ["ground", "link1.a", "link1.b", "link2.a", "link2.b", "link3.a", "link3.b", ("ground", (1.0, 0.0))]
    joints = [P.Revolute(f"O{i + 1}", *ends[2 * i : 2 * i + 2]) for i in range(4)]
    mechanism = P.Mechanism(bodies, joints, gravity=(0.0, -fourbar_model.GRAVITY)).build(cut=["O4"])
    angles = jnp.array([np.pi / 2, 0.0, 0.0]) - state.q  # α is measured from +y towards +x
    wrench = jm.joint_reaction(mechanism, at(mechanism, angles, -state.v), "O4", on="ground")
    np.testing.assert_allclose(wrench.force, found[0], rtol=1e-10)
    np.testing.assert_allclose(wrench.torque, 0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["relative", "absolute"])
def test_every_body_is_in_balance_and_the_driver_does_the_work(coordinates):
    bodies = [
        P.Body("crank", 2.0, 0.05, com=(0.1, 0.02), points={"b": (0.3, 0.0)}),
        P.Body.rod("rod", 1.0, 0.8, position=(0.3, 0.1), angle=-0.3),
        P.Body("slider", 3.0, 0.1, position=(1.1, 0.0)),
    ]
    joints = [
        P.Revolute("O", "ground", "crank"),
        P.Revolute("A", "crank.b", "rod.a"),
        P.Revolute("B", "rod.b", "slider"),
        P.Prismatic("guide", "ground", "slider"),
    ]
    driver = P.Driver("motor", "O", lambda t, p: 0.4 + 2 * t + 0.3 * jnp.sin(3 * t))
    system = P.Mechanism(bodies, joints, [driver], gravity=(0.0, -G)).build(coordinates)
    solution = jm.simulate(system, jm.assemble(system), jnp.linspace(0.0, 2.0, 11))
    effort = jm.reactions(system, solution).multipliers["motor"]
    ends = {"crank": ["O", "A"], "rod": ["A", "B"], "slider": ["B", "guide"]}
    largest = 0.0
    for body in bodies:
        place = (body.name, body.com)
        centre = jm.position(system, solution, place)
        wrenches = [jm.joint_reaction(system, solution, joint, on=body.name) for joint in ends[body.name]]
        force = sum(w.force for w in wrenches) + body.mass * jnp.array([0.0, -G])
        arms = [w.point - centre for w in wrenches]
        moment = sum(
            a[:, 0] * w.force[:, 1] - a[:, 1] * w.force[:, 0] + w.torque[:, 0]
            for a, w in zip(arms, wrenches, strict=True)
        )
        moment = moment + (effort if body.name == "crank" else 0)
        largest = max(largest, *(float(jnp.abs(w.force).max()) for w in wrenches))
        other = (body.name, body.com + jnp.array([1.0, 0.0]))
        arm = jm.position(system, solution, other) - centre
        relative = jm.acceleration(system, solution, other) - jm.acceleration(system, solution, place)
        turning = arm[:, 0] * relative[:, 1] - arm[:, 1] * relative[:, 0]
        np.testing.assert_allclose(force, body.mass * jm.acceleration(system, solution, place), atol=1e-9 * largest)
        np.testing.assert_allclose(moment, body.inertia * turning, atol=1e-9 * largest)
    energy = jm.energy(system, solution)
    np.testing.assert_allclose(energy.total - energy.total[0], solution.work, atol=1e-6)


# Newton and Euler along the runs of the gallery


def _assembled(mechanism):
    system = mechanism.build()
    return mechanism, system, jm.assemble(system)


def _robot_along_reference():
    reference = np.load(DATA / "mobile_robot.npz")
    mechanism = mobile_robot()
    system = mechanism.build("absolute")
    index = np.linspace(0, len(reference["t"]) - 1, 12).astype(int)
    t, q, v = (jnp.asarray(reference[name][index]) for name in ("t", "q", "v"))
    return mechanism, system, along(system, t, q, v)


def _run(mechanism, system, state, end, **settings):
    return mechanism, system, jm.simulate(system, state, jnp.linspace(0.0, end, 12), **settings)


def _disk():
    mechanism = rolling_disk.rolling_disk()
    system = mechanism.build()
    return _run(mechanism, system, rolling_disk.start(system), 2.0)


def _puma():
    mechanism = puma.puma()
    system = mechanism.build()
    return _run(mechanism, system, puma.start(system), 1.0)


def _governor():
    mechanism = governor.governor()
    system = mechanism.build()
    return _run(mechanism, system, governor.start(system), 0.5)


def _squeezer():
    mechanism = andrews_joints.squeezer()
    return _run(*_assembled(mechanism), 0.02)


def _bricard():
    mechanism = bricard_joints()
    return _run(*_assembled(mechanism), 2.0)


def _fourbars():
    mechanism = nfourbar_joints.nfourbar(3)
    system = mechanism.build()
    return _run(
        mechanism, system, nfourbar_joints.turning(system, 3, 1.0), 0.6
    )  # before the flat pose, where λ is undefined


def _stewart():
    mechanism = stewart.stewart()
    return _run(*_assembled(mechanism), 2.0)


RUNS = {
    "mobile robot": _robot_along_reference,
    **{
        name: pytest.param(run, marks=pytest.mark.slow)
        for name, run in {
            "squeezer": _squeezer, "bricard": _bricard, "four-bars": _fourbars, "disk": _disk, "puma": _puma,
            "stewart": _stewart, "governor": _governor,
        }.items()
    },
}  # fmt: skip


@eqx.filter_jit
def _everything(system, motion):
    """Accelerations, turning and the wrench in each joint, about its point on the body of B."""
    solved = jm.reactions(system, motion)
    states = motion.states if isinstance(motion, jm.Solution) else motion

    def turning(state, vdot):
        spins = lambda q, v: {
            name: system.joints.motion(state.t, q, v, system.params).angular_velocity(name)
            for name in system.joints.bodies
        }
        return jax.jvp(spins, (state.q, state.v), (system.qdot(state.q, state.v), vdot))

    wrenches = jm.joint_reactions(system, motion)
    power = lambda state, vdot: jax.jvp(
        lambda t, q, v: sum(system.energies(t, q, v)),
        (state.t, state.q, state.v),
        (jnp.ones(()), system.qdot(state.q, state.v), vdot),
    )[1]
    return solved, jax.vmap(turning)(states, solved.vdot), wrenches, jax.vmap(power)(states, solved.vdot)


def _cross(a, b):
    a, b = (jnp.pad(x, [(0, 0), (0, 3 - x.shape[1])]) for x in (a, b))
    return jnp.cross(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS)
def test_bodies_of_the_gallery_are_in_balance(make):
    """Newton and Euler for every body: reactions, efforts of drivers, gravity, springs and loads."""
    mechanism, system, motion = make()
    solved, (spins, turning), wrenches, power = _everything(system, motion)
    dim, elements = len(mechanism.gravity), mechanism.elements
    acting = {body.name: [] for body in mechanism.bodies} | {"ground": []}  # force, torque and place
    for name, wrench in wrenches.items():
        acting[elements[name].b.body].append((wrench.force, wrench.torque, wrench.point))
        acting[elements[name].a.body].append((-wrench.force, -wrench.torque, wrench.point))
    largest = max(float(jnp.abs(w.force).max()) for w in wrenches.values())
    work = jnp.zeros_like(power)
    for driver in mechanism.drivers:  # along the axis of a slider
        joint = elements[driver.joint]
        assert type(joint).__name__ == "Prismatic"
        effort = solved.multipliers[driver.name][:, None]
        turned = jm.pose(system, motion, joint.a.body)[..., :dim, :dim] if joint.a.body != "ground" else jnp.eye(dim)
        axis = jnp.broadcast_to(turned @ (joint.axis / jnp.linalg.norm(joint.axis)), (len(power), dim))
        place = jm.position(system, motion, joint.b)
        acting[joint.b.body].append((effort * axis, jnp.zeros(1), place))
        acting[joint.a.body].append((-effort * axis, jnp.zeros(1), place))
        work = work + effort[:, 0] * jm.rate(system, motion, driver.joint)
        largest = max(largest, float(jnp.abs(effort).max()))
    for element in mechanism.forces:
        if isinstance(element, P.Load):
            torque = element.torque
            acting[element.at.body].append((jnp.zeros((1, dim)), torque, jnp.zeros((1, dim))))
        else:
            ends = [jm.position(system, motion, end) for end in (element.a, element.b)]
            pull = jm.force(system, motion, element.name)[:, None] * (ends[1] - ends[0])
            pull = pull / jnp.linalg.norm(ends[1] - ends[0], axis=1, keepdims=True)
            acting[element.a.body].append((pull, jnp.zeros(1), ends[0]))
            acting[element.b.body].append((-pull, jnp.zeros(1), ends[1]))
    for body in mechanism.bodies:
        spread = body.spread()  # ∫ x̃ x̃ᵀ dm with x̃ = (x, 1), point masses included
        mass, com = spread[-1, -1], spread[:-1, -1] / spread[-1, -1]
        about = spread[:-1, :-1] - mass * jnp.outer(com, com)
        place = (body.name, com)
        centre = jm.position(system, motion, place)
        force = mass * (mechanism.gravity - jm.acceleration(system, motion, place))
        spin, change = spins[body.name], turning[body.name]
        if dim == 3:
            inertia = jnp.trace(about) * jnp.eye(3) - about
            turned = jm.pose(system, motion, body.name)[:, :3, :3]
            inertia = turned @ inertia @ jnp.swapaxes(turned, 1, 2)
            momentum = (inertia @ spin[..., None])[..., 0]
            torque = -(inertia @ change[..., None])[..., 0] - jnp.cross(spin, momentum)
        else:
            torque = -jnp.trace(about) * change
        for f, m, at_ in acting[body.name]:
            force = force + f
            arm = _cross(at_ - centre, f)
            torque = torque + m + (arm if dim == 3 else arm[:, 2:])
        np.testing.assert_allclose(force, 0, atol=1e-9 * largest, err_msg=body.name)
        np.testing.assert_allclose(torque, 0, atol=1e-9 * largest, err_msg=body.name)
    if mechanism.drivers and not mechanism.forces:
        np.testing.assert_allclose(power, work, atol=1e-8 * max(1, float(jnp.abs(power).max())))


@pytest.mark.slow
def test_reaction_on_either_body_and_in_any_frame():
    mechanism = S.Mechanism(
        [
            S.Body.box("one", 1.0, (1.0, 0.1, 0.2), points={"a": (-0.5, 0, 0), "b": (0.5, 0, 0)}),
            S.Body.box("two", 2.0, (0.8, 0.2, 0.2), points={"a": (-0.4, 0, 0)}),
        ],
        [
            S.Revolute("O", "ground", "one.a", axis=(0.2, 1.0, 0.3)),
            S.Universal("A", "one.b", "two.a", axis=(0, 0, 1), axis_b=(0, 1, 0)),
        ],
        gravity=(0.0, 0.0, -G),
    )
    system = mechanism.build()
    state = at(system, [0.3, 0.5, -0.4], [1.0, -2.0, 0.5])
    on_two = jm.joint_reaction(system, state, "A")
    on_one = jm.joint_reaction(system, state, "A", on="one")
    np.testing.assert_allclose(on_two.force, -on_one.force, atol=1e-11)
    np.testing.assert_allclose(on_two.torque, -on_one.torque, atol=1e-11)  # both points coincide
    free = jm.convert(state, system, mechanism.build("absolute"))
    same = jm.joint_reaction(mechanism.build("absolute"), free, "A")
    np.testing.assert_allclose(same.force, on_two.force, atol=1e-9)
    np.testing.assert_allclose(same.torque, on_two.torque, atol=1e-9)
    body = jm.joint_reaction(system, state, "A", frame="body")
    turned = jm.pose(system, state, "two")[:3, :3]
    np.testing.assert_allclose(turned @ body.force, on_two.force, atol=1e-11)
    in_joint = jm.joint_reaction(system, state, "O", frame="joint")
    assert abs(float(in_joint.torque[2])) < 1e-10  # a hinge holds no torque about its axis
    ground = jm.joint_reaction(system, state, "O", on="ground")
    np.testing.assert_allclose(ground.force, -jm.joint_reaction(system, state, "O").force, atol=1e-11)


def test_wrong_arguments_are_named():
    system = door().build()
    state = at(system)
    for arguments, message in (
        ({"joint": "lock"}, "must be a joint out of 'hinge0' and 'hinge1', but is 'lock'"),
        (
            {"joint": "hinge0", "on": "wall"},
            "must be one of the bodies of joint 'hinge0', 'ground' and 'door', but is 'wall'",
        ),
        ({"joint": "hinge0", "frame": "moon"}, "must be 'world', 'body' or 'joint', but is 'moon'"),
    ):
        with pytest.raises(ValueError, match=message):
            jm.joint_reaction(system, state, **arguments)
    with pytest.raises(ValueError, match="must be 'qr', 'svd' or 'rank'"):
        jm.analyse_reactions(system, state, "lu")
    with pytest.raises(TypeError, match="`state` must hold known numbers"):
        jax.eval_shape(lambda state: jm.analyse_reactions(system, state).rank, state)
    with pytest.raises(ValueError, match="must be 'metric', 'square' or 'direct'"):
        jm.physical_reactions(system, state, {}, scheme="fast")
    with pytest.raises(ValueError, match="has leading axes"):
        jm.analyse_reactions(system, jax.tree.map(lambda x: x[None], state))


@pytest.mark.slow
def test_a_controller_at_joints_acts_in_absolute_coordinates_too():
    rod = jm.planar.Body.rod("rod", 2.0, 0.5)
    pivot = jm.planar.Revolute("O", "ground", "rod.a")
    law, forces = ([0.0, 1.0], [0.0, 8.0]), []
    for motor, joints in (((jm.planar.Motor("motor", "O"),), None), ((), "O")):
        system = jm.planar.Mechanism([rod], [pivot], actuators=motor, gravity=(0.0, -9.81)).build()
        state, ts = jm.assemble(system, {"O": 0.3}), jnp.linspace(0.0, 0.3, 4)
        solution = jm.simulate(system, state, ts, control=jm.control.Recorded(*law, joints=joints))
        forces.append(jm.joint_reaction(system, solution, "O").force)
    np.testing.assert_allclose(*forces, rtol=0, atol=1e-12)
