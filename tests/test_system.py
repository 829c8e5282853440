"""Evaluation of systems: every array against finite differences, and inertia against Lagrange's equations."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import SYSTEMS, TELLING, evaluated, make, pendulum, slow_but, states

import jaxmb as jm
from jaxmb.system import (
    AbstractJoints,
    BodyRows,
    MassInertia,
    Topology,
    check_state,
    jacobian_rate,
    position_residual,
    velocity_residual,
)


def central(fn, h=1e-6):
    return (fn(h) - fn(-h)) / (2 * h)


@pytest.mark.parametrize("name", slow_but(TELLING))
def test_terms_against_finite_differences(name):
    system, state = make(name)
    terms = jax.tree.map(lambda x: np.asarray(x[0]), evaluated(name))
    units = jnp.eye(system.nv)

    @jax.jit
    def differences(t, q, v):
        residual = lambda t, q, v: velocity_residual(system, t, q, v)
        qdot = system.qdot(q, v)

        def bend(e):
            moved = lambda h: jax.jacfwd(lambda v: residual(t, q + h * system.qdot(q, e), v))(v)
            return jacobian_rate(system, t, q, e, 0.0) - central(moved)

        return (
            residual(t, q, v),
            jax.vmap(lambda e: central(lambda h: residual(t, q, v + h * e), 1e-3), out_axes=1)(units),
            central(lambda h: residual(t + h, q + h * qdot, v)),
            central(lambda h: position_residual(system, t + h, q + h * qdot)),
            jax.vmap(bend)(units),
        )

    v = np.asarray(state.v)
    residual, columns, rate, speed, bends = map(np.asarray, differences(state.t, state.q, state.v))
    np.testing.assert_allclose(terms.jacobian, columns, atol=1e-9 * np.max(terms.scale, initial=1))
    error = (terms.jacobian @ v + terms.offset - residual) / terms.scale
    np.testing.assert_allclose(error, 0, atol=1e-15 * (1 + np.abs(v).max()))
    np.testing.assert_allclose((terms.gamma + rate) / terms.scale, 0, atol=1e-7)
    if all(isinstance(c, jm.Holonomic) for c in system.constraints):
        error = (residual - speed) / terms.scale  # rows have units from 1e-6 to 1e6
        np.testing.assert_allclose(error, 0, atol=1e-8)
    np.testing.assert_allclose(bends / terms.scale[:, None], 0, atol=1e-8)


@pytest.mark.parametrize("name", slow_but(TELLING, [n for n in SYSTEMS if "Lagrangian" not in n]))
def test_inertia_forces_against_lagrange(name):
    """Along any q(t): d/dt ∂T/∂v-like balance of energy, v·(inertia + potential forces + M v̇) = dE/dt − ∂L/∂t terms."""
    system, state = make(name)
    push = jnp.arange(1.0, system.nv + 1)

    @jax.jit
    def powers(t, q, v):
        def total(h):
            speed = v + h * push
            moved = q + h * system.qdot(q, v) + 0.5 * h**2 * jnp.zeros_like(q)
            return sum(system.energies(t + h, moved, speed))

        power = v @ (system.mass(t, q) @ push - system.intrinsic_force(t, q, v)) + system.explicit_power(t, q, v)
        return power, central(total)

    power, expected = powers(state.t, state.q, state.v)
    np.testing.assert_allclose(power, expected, rtol=1e-6, atol=1e-7)


def test_mass_is_the_second_derivative_of_kinetic_energy():
    for name in ("four-bar, 3 loops", "top, 2 pivots", "top, Lagrangian"):
        system, state = make(name)
        hessian = jax.jit(jax.hessian(lambda v: system.energies(state.t, state.q, v)[0]))(state.v)
        np.testing.assert_allclose(hessian, evaluated(name).mass[0], atol=1e-12)


@pytest.mark.parametrize("name", slow_but(("top",), ["four-bar", "top"]))
@pytest.mark.slow
def test_lagrangian_and_mass_matrix_agree(name):
    _, batch = states(name)
    other = SYSTEMS[name + ", Lagrangian"]()[0]
    lagrangian = jax.jit(jax.vmap(lambda s: dataclasses.replace(jm.evaluate(other, s), nearby=None)))(batch)
    values = lambda terms: (terms.mass, terms.force, terms.jacobian, terms.offset, terms.gamma)
    for a, b in zip(values(evaluated(name)), values(lagrangian), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-11)


def test_euler_equations():
    """A free body in body axes: J ω̇ = −ω × J ω."""
    system, state = make("top, 2 pivots")
    omega, inertia = state.v[3:], jnp.diag(system.params["J"])
    force = system.intrinsic_force(state.t, state.q, state.v)
    np.testing.assert_allclose(force[3:], -jnp.cross(omega, inertia @ omega), atol=1e-13)


def test_inputs_act_through_the_actuation():
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.eye(2),
        force=lambda t, q, v, p: -v,
        actuation=lambda t, q, p: jnp.array([[1.0, 0.0, q[1]], [0.0, 2.0, 0.0]]),
    )
    state = jm.assemble(system, [0.0, 3.0], [1.0, 0.0])
    assert system.nu == 3
    np.testing.assert_allclose(jm.evaluate(system, state, u=jnp.array([1.0, 1.0, 2.0])).force, [6.0, 2.0])


def test_callable_pytrees_keep_their_leaves():
    class Spring(eqx.Module):
        k: jax.Array

        def __call__(self, t, q, v, params):
            return -self.k * q

    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), force=Spring(jnp.array(3.0)))
    state = jm.assemble(system, [1.0, 2.0])
    slope = eqx.filter_grad(lambda s: jm.evaluate(s, state).force[1])(system)
    np.testing.assert_allclose(slope.force_fn.k, -2.0)


def test_numbers_become_arrays_and_functions_static():
    system, _ = pendulum()
    leaves = jax.tree.leaves(system)
    assert all(isinstance(x, jax.Array) for x in leaves)
    assert len(leaves) == len(system.params) + 1  # and the guess of a pose
    assert system.params["m"].dtype == jnp.float64
    key = jax.random.key(3)
    kept = jm.System(2, mass=mass2, params={"key": key, "used": True}).params
    assert kept["key"] is key and kept["used"] is True


def mass2(t, q, p):
    return jnp.eye(2)


ROD = jm.Holonomic("rod", lambda t, q, p: q @ q - 1)
BAD_SYSTEMS = {
    r"`mass` must be a function .* missing": lambda: jm.System(2),
    r"`mass` of System must be a function or None, but is 3": lambda: jm.System(2, mass=3),
    r"`mass` must return an array of shape \(2, 2\), but returns shape \(3, 3\)": lambda: jm.System(
        2, mass=lambda t, q, p: jnp.eye(3)
    ),
    r"`coordinates` must hold different names, but repeats 'x'": lambda: jm.System(("x", "x"), mass=mass2),
    r"`coordinates` of System must be a positive integer or a sequence, .*, but is 'xy'": lambda: jm.System(
        "xy", mass=mass2
    ),
    r"`coordinates` of System must be a positive integer or a sequence, .*, but is 0": lambda: jm.System(0, mass=mass2),
    r"`velocities` must be given": lambda: jm.System(2, mass=mass2, rate=lambda q, v, p: v),
    r"`velocities` must have as many entries as `coordinates` \(2\)": lambda: jm.System(2, mass=mass2, velocities=3),
    r"`rate` must return an array of shape \(2,\), but returns shape \(3,\)": lambda: jm.System(
        2, mass=lambda t, q, p: jnp.eye(3), velocities=3, rate=lambda q, v, p: v
    ),
    r"`potential` must return an array of shape \(\), but returns shape \(2,\)": lambda: jm.System(
        2, mass=mass2, potential=lambda t, q, p: q
    ),
    r"`force` must return an array of shape \(2,\), but returns shape \(1,\)": lambda: jm.System(
        2, mass=mass2, force=lambda t, q, v, p: v[:1]
    ),
    r"`force` must be callable .* raised KeyError: 'k'": lambda: jm.System(
        2, mass=mass2, force=lambda t, q, v, p: p["k"] * q, params={}
    ),
    r"`actuation` must return an array of shape \(2, nu\), but returns shape \(3,\)": lambda: jm.System(
        2, mass=mass2, actuation=lambda t, q, p: jnp.ones(3)
    ),
    r"`constraints` must hold different names, but repeats 'rod'": lambda: jm.System(
        2, mass=mass2, constraints=[ROD, ROD]
    ),
    r"`constraints\[0\]` must be a `Holonomic` or `Pfaffian` constraint": lambda: jm.System(
        2, mass=mass2, constraints=[lambda t, q, p: q]
    ),
    r"`fn of constraint 'wheel'` must return an array of shape \(k,\) or \(\), but returns shape \(2, 2\)": lambda: (
        jm.System(2, mass=mass2, constraints=[jm.Pfaffian("wheel", lambda t, q, v, p: jnp.outer(q, v))])
    ),
    r"`fn` of Pfaffian 'wheel' must be a function \(t, q, v, params\), but is a function \(t, q\)": lambda: jm.System(
        2, mass=mass2, constraints=[jm.Pfaffian("wheel", lambda t, q: q)]
    ),
    r"`lagrangian` must return an array of shape \(\), but returns shape \(2,\)": lambda: jm.System.from_lagrangian(
        lambda t, q, qdot, p: qdot, 2
    ),
    r"`mass` must return an array of shape \(2, 2\) of floating-point numbers, but returns int64 numbers": lambda: (
        jm.System(2, mass=lambda t, q, p: jnp.eye(2, dtype=int))
    ),
    r"`fn of constraint 'c'` must return an array .* of floating-point numbers, but returns int64 numbers": lambda: (
        jm.System(2, mass=mass2, constraints=[jm.Holonomic("c", lambda t, q, p: jnp.round(q).astype(int))])
    ),
    r"`mass` must return an array of shape \(2, 2\), but returns a list": lambda: jm.System(
        2, mass=lambda t, q, p: [[1.0, 0.0], [0.0, 1.0]]
    ),
    r"`force` must return an array of shape \(2,\), but returns a list": lambda: jm.System(
        2, mass=mass2, force=lambda t, q, v, p: [-v[0], 0.0]
    ),
    r"`fn of constraint 'c'` must return an array of shape \(k,\) or \(\), but returns a tuple": lambda: jm.System(
        2, mass=mass2, constraints=[jm.Holonomic("c", lambda t, q, p: (q[0], q[1]))]
    ),
    r"`potential` must return an array of shape \(\), but returns None": lambda: jm.System(
        2, mass=mass2, potential=lambda t, q, p: None
    ),
    r"`params\['name'\]` must be a number or an array of numbers, but is 'rod'": lambda: jm.System(
        2, mass=mass2, params={"name": "rod"}
    ),
    r"`params\['k'\]` must be a number or an array of numbers, but is '1'": lambda: jm.System(
        2, mass=mass2, params={"k": 1.0}
    ).with_params({"k": "1"}),
    r"`guess` must have shape \(2,\), but has shape \(3,\)": lambda: jm.System(2, mass=mass2, guess=np.zeros(3)),
    r"`coordinates` must be a number or a sequence of names, but is \(\)": lambda: jm.System((), mass=mass2),
    r"`parts` of constraint 'both' must count 2 rows, as `fn` returns, but counts 3": lambda: jm.System(
        2, mass=mass2, constraints=[jm.Holonomic("both", lambda t, q, p: q, parts={"x": 1, "y": 2})]
    ),
    r"`v` must have shape \(2,\), but has shape \(1,\)": lambda: jm.as_state(CART, np.zeros(2), np.zeros(1)),
    r"A controller with `joints` needs a system built from a mechanism": lambda: CART.acting_at(("x",)),
}


@pytest.mark.parametrize("message", BAD_SYSTEMS)
def test_messages_when_a_system_is_made(message):
    with pytest.raises((TypeError, ValueError), match=message):
        BAD_SYSTEMS[message]()


BAD_VALUES = {
    r"`mass` must return a symmetric matrix, but its asymmetry .* 0\.5": dict(
        mass=lambda t, q, p: jnp.array([[1.0, 0.5], [0.0, 1.0]])
    ),
    r"`mass` must be positive definite on the null space": dict(mass=lambda t, q, p: jnp.diag(jnp.array([1.0, -1.0]))),
    r"`mass` must be positive definite on the null space of the": dict(
        mass=lambda t, q, p: jnp.diag(jnp.array([0.0, 1.0])), constraints=[jm.Holonomic("y", lambda t, q, p: q[1])]
    ),
    r"`force` must give finite numbers": dict(mass=mass2, force=lambda t, q, v, p: v / 0.0),
    r"`potential` must give finite numbers": dict(mass=mass2, potential=lambda t, q, p: jnp.sqrt(q[0] - 10)),
    r"^Constraint 'log' must give finite numbers, but does not at t = 0\.$": dict(
        mass=mass2, constraints=[jm.Holonomic("log", lambda t, q, p: jnp.log(q[:1] - 10))]
    ),
    r"Constraint 'square' must be affine in v, but its second derivative in v, relative to its first, is 1": dict(
        mass=mass2, constraints=[jm.Pfaffian("square", lambda t, q, v, p: v[0] ** 2 + v[1])]
    ),
    r"Constraint 'cube' must be affine in v": dict(
        mass=mass2, constraints=[jm.Pfaffian("cube", lambda t, q, v, p: v[0] ** 3)]
    ),
    r"`rate` must be linear in v": dict(mass=mass2, velocities=2, rate=lambda q, v, p: v + 1),
    r"Constraint 'nothing' must restrict the motion, but a row of it": dict(
        mass=mass2, constraints=[jm.Holonomic("nothing", lambda t, q, p: jnp.stack([q[0], 0 * q[1]]))]
    ),
}


@pytest.mark.slow_cases(
    r"`mass` must be positive definite on the null space",
    r"`potential` must give finite numbers",
    r"Constraint 'cube' must be affine in v",
)
@pytest.mark.parametrize("message", BAD_VALUES)
def test_messages_when_a_state_is_assembled(message):
    system = jm.System(2, **BAD_VALUES[message])
    with pytest.raises(ValueError, match=message):
        jm.assemble(system, [0.0, 0.0])


CART = jm.System(2, mass=mass2, actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]))
REST = jm.as_state(CART, jnp.zeros(2))
BATCH = jax.tree.map(lambda x: jnp.stack([x] * 4), REST)
LONG = dataclasses.replace(REST, q=jnp.zeros(3), v=jnp.zeros(3))
USES = {
    "simulate": lambda state: jm.simulate(CART, state, [1.0]),
    "evaluate": lambda state: jm.evaluate(CART, state),
    "diagnose": lambda state: jm.diagnose(CART, state),
    "analyse_reactions": lambda state: jm.analyse_reactions(CART, state),
    "physical_reactions": lambda state: jm.physical_reactions(CART, state, {"x": lambda t, q, p: q[0]}),
    "transition": lambda state: jm.transition(CART, state, lock=["q0"]),
}


@pytest.mark.parametrize("use", USES)
def test_a_single_state_of_the_system_is_asked_for(use):
    with pytest.raises(
        ValueError, match=r"`state` must be a single state, but has leading axes \(4,\); use `jax.vmap`, or"
    ):
        USES[use](BATCH)
    with pytest.raises(
        ValueError, match=r"`state` must have coordinates of shape \(2,\), but has shape \(3,\); does it"
    ):
        USES[use](LONG)


def test_sizes_of_other_rows_are_refused():
    """Those of one row would stand for all: such as of a run with a lock, taken out of its solution."""
    other = jm.as_state(CART, jnp.zeros(CART.nq))
    more = jax.tree.map(lambda x: jnp.append(x, 1.0) if x.shape == (CART.m,) else x, other.scale)
    with pytest.raises(
        ValueError, match=rf"have sizes of {CART.m} constraint rows, but has those of {CART.m + 1}: ano"
    ):
        jm.evaluate(CART, jm.State(other.t, other.q, other.v, more))


def test_a_state_of_another_precision_is_refused():
    with jax.enable_x64(False):
        single = jm.as_state(CART, np.zeros(2))
    with pytest.raises(
        ValueError, match=r"`state` must hold float64 numbers, as JAX is configured here, but holds float32"
    ):
        jm.evaluate(CART, single)


def test_what_is_no_state_is_refused():
    with pytest.raises(TypeError, match=r"`state` must be a `State`, as `assemble` and .* return, but is a list"):
        check_state(CART, [0.0, 1.0])


@pytest.mark.parametrize(
    "law, found",
    [
        (lambda t, q, v, p: jnp.ones(2), r"returns shape \(2,\)"),
        (lambda t, q, v, p: -q[0], r"returns shape \(\)"),
        (lambda t, q, v, p: [1.0], "returns a list"),
    ],
)
def test_what_a_control_law_returns_is_looked_at_before_the_run(law, found):
    with pytest.raises(ValueError, match=rf"`control` must return an array of shape \(1,\), but {found}"):
        jm.simulate(CART, REST, [1.0], control=law)


class Rods(AbstractJoints):
    """Two equal rods between the origin and a particle, written without a mechanism."""

    names = ("rod", "again")
    loops = {"again": ("rod", "again")}  # noqa: RUF012
    units = (("m", "m"), ("m/s", "m/s"))
    topology = Topology(1, {"Rod": names}, 1, 0)

    def drivers(self, params):
        return {"again": None}

    def poses(self, q, params):
        return q

    def actuators(self, params):
        return ()

    def axes(self, t, q, params):
        return {"rod": jnp.array([-q[1], q[0]])}

    def wraps(self, name):
        return True

    def motion(self, t, q, v, params):
        return q

    def alignment(self, q, params):
        return {"again": q[0]}

    def coordinate(self, name):
        return Angle()

    def body_rows(self, system, state):
        along = state.q / jnp.linalg.norm(state.q)
        rows = {name: jnp.array([i]) for i, name in enumerate(self.names)}
        wrench = {name: jnp.zeros((3, 2)).at[:2, i].set(along) for i, name in enumerate(self.names)}
        return BodyRows(system.mass(state.t, state.q), 2 * jnp.stack([state.q, state.q]), rows, wrench)

    def check_run(self, system, state, events, rank_tol):
        raise ValueError(f"refused with {'events' if events else 'nothing'}")


class Angle(eqx.Module):
    def __call__(self, t, q, params):
        return jnp.arctan2(q[1], q[0])


def test_the_engine_knows_joints_by_what_they_answer():
    length = lambda t, q, p: q @ q - 1
    constraints = [jm.Holonomic(name, length) for name in Rods.names]
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=constraints, joints=Rods())
    state = jm.assemble(system, [0.6, 0.8])
    with pytest.raises(ValueError, match="Joint 'again' is assembled the wrong way round"):
        jm.assemble(system, [-0.6, 0.8])
    found = jm.diagnose(system, state)
    assert found.freedom_undriven == 1 and found.shared == ((Rods.names, 1),)
    report = jm.analyse_reactions(system, state)
    assert report.clusters == (("rod", "again"),)
    assert report.groups["rod"].components == {"fx": False, "fy": False, "tz": True}
    lock = jm.Lock("rod", at=0.5)
    np.testing.assert_allclose(lock.row(system).fn(state.t, state.q, None), np.arctan2(0.8, 0.6))
    with pytest.raises(ValueError, match="refused with nothing"):
        jm.simulate(system, state, [0.0, 1.0])
    with pytest.raises(ValueError, match="refused with events"):
        jm.simulate(system, state, [0.0, 1.0], events=[lock])


@pytest.mark.parametrize("turning", [False, True])
@pytest.mark.slow_cases("True")
def test_a_small_mass_matrix_is_differentiated_entry_by_entry_to_the_same_forces(turning):
    """Of compiled code; with velocities that are derivatives of coordinates and with others, and with M(t)."""

    def mass(t, q, p):
        pull = jnp.stack([jnp.sin(q[0] - q[2]), q[1] * jnp.cos(t), p * q[0]])
        return 2 * jnp.eye(3) + pull[:, None] * pull + jnp.diag(jnp.cos(q)) / 3

    inertia = MassInertia(mass, lambda t, q, p: p * jnp.sin(q[0]) * q[1] ** 2)
    own = inertia.unrolled(3)
    assert type(own) is not MassInertia
    assert inertia.unrolled(20) is inertia
    rate = (lambda q, v: jnp.stack([v[0] + q[1] * v[2], v[1] * (2 + jnp.sin(q[2])), v[2]])) if turning else None
    t, p = jnp.array(0.7), jnp.array(1.3)

    @jax.jit
    @jax.vmap
    def both(q, v):
        force = [lambda q, of=of: of.force(t, q, v, p, rate) for of in (own, inertia)]
        masses = [of.mass(t, q, p, rate, 3) for of in (own, inertia)]
        return [fn(q) for fn in force], masses, [jax.jacfwd(fn)(q) for fn in force]

    forces, masses, slopes = both(*jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 3))))
    np.testing.assert_allclose(*forces, atol=1e-13)
    np.testing.assert_allclose(*masses, atol=1e-15)
    np.testing.assert_allclose(*slopes, atol=1e-12)
