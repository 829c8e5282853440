"""Laws that every formulation obeys, on all systems."""

import dataclasses
import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from systems import FORMULATIONS, SYSTEMS, TELLING, contradictory, evaluated, make, slow_but, states

import jaxmb as jm

USUAL = ("GaussProjection", "KKT")
DIRECT = [
    *(
        ("unconstrained", m) if m in USUAL else pytest.param("unconstrained", m, marks=pytest.mark.slow)
        for m in FORMULATIONS
    ),
    pytest.param("four-bar, 3 loops", "GaussProjection"),
    pytest.param("four-bar, 3 loops", "KKT", marks=pytest.mark.slow),
]
COUNT, ROWS, VELOCITIES = 20, 6, 6


def massless():
    """A massless coordinate that a constraint ties to a heavy one."""
    return jm.System(
        2,
        mass=lambda t, q, p: jnp.diag(jnp.array([2.0, 0.0])),
        force=lambda t, q, v, p: jnp.array([1.0, 3.0]),
        constraints=[jm.Holonomic("tie", lambda t, q, p: q[1] - 2 * q[0])],
    )


SPECIAL = {"contradictory": (contradictory(), [0.0, 0.0]), "massless": (massless(), [0.1, 0.0])}


def padded(terms):
    """The arrays of a larger system's terms: with bodies of unit mass that nothing acts on, and rows that say nothing."""
    count, m, nv = terms.jacobian.shape

    def fill(x, *shape):
        return np.pad(np.asarray(x), [(0, 0), *((0, n - k) for n, k in zip(shape, x.shape[1:], strict=True))])

    mass, scale = fill(terms.mass, VELOCITIES, VELOCITIES), fill(terms.scale, ROWS)
    mass[:, range(nv, VELOCITIES), range(nv, VELOCITIES)] = 1
    scale[:, m:] = 1
    jacobian = fill(terms.jacobian, ROWS, VELOCITIES)
    rows = (fill(x, ROWS) for x in (terms.offset, terms.gamma))
    kinds = True if terms.holonomic is None else terms.holonomic
    holonomic = fill(np.broadcast_to(kinds, (count, m)), ROWS)
    return mass, fill(terms.force, VELOCITIES), jacobian, *rows, scale, holonomic


@functools.cache
def together(names):
    """The states of all systems asked for as one batch of padded terms, and where each system's are."""
    parts = {name: evaluated(name, COUNT) for name in names}
    for name, (system, q) in SPECIAL.items():
        terms = dataclasses.replace(jm.evaluate(system, jm.assemble(system, q)), nearby=None)
        parts[name] = jax.tree.map(lambda x: x[None], terms)
    ends = np.cumsum([0, *(len(part.mass) for part in parts.values())])
    places = dict(zip(parts, itertools.starmap(slice, itertools.pairwise(ends)), strict=True))
    return places, jax.vmap(jm.system.Terms)(*map(np.concatenate, zip(*map(padded, parts.values()), strict=True)))


@functools.cache
def solved(method, names):
    """What a formulation finds for all of them, by one program."""
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(FORMULATIONS[method].acceleration))(together(names)[1]))


def solution(name, method):
    """What a formulation finds for one of them."""
    names = (*SYSTEMS,) if name in SYSTEMS and name not in TELLING else TELLING
    return jax.tree.map(lambda x: x[together(names)[0][name]], solved(method, names))


@pytest.mark.parametrize("name", slow_but(TELLING))
@pytest.mark.parametrize("method", FORMULATIONS)
@pytest.mark.slow_cases(
    "CoordinatePartition-four-bar, 3 loops",
    "GaussProjection-four-bar, 3 loops",
    "GaussProjection-top, 2 pivots",
    "NullSpace-four-bar, 3 loops",
    "skew-four-bar, 3 loops",
)
def test_laws(name, method):
    """C v̇ = Γ, reaction = Cᵀλ, rank and least norm, against the oracle to 100·cond·eps; what was added is left alone."""
    found = solution(name, method)
    terms = evaluated(name, COUNT)
    m, nv = terms.jacobian.shape[1:]
    np.testing.assert_array_equal(found.vdot[:, nv:], 0)
    np.testing.assert_array_equal(found.reaction[:, nv:], 0)
    np.testing.assert_array_equal(found.multipliers[:, m:], 0)
    of_rows, of_velocities = lambda f: (f.multipliers, f.eliminated), lambda f: (f.vdot, f.reaction)
    found = eqx.tree_at(of_rows, found, tuple(x[:, :m] for x in of_rows(found)))
    found = eqx.tree_at(of_velocities, found, tuple(x[:, :nv] for x in of_velocities(found)))
    check_laws(method, terms, found)


@pytest.mark.parametrize(("name", "method"), DIRECT)
@pytest.mark.slow_cases("four-bar, 3 loops-GaussProjection")
def test_laws_in_the_shapes_of_a_system(name, method):
    check_states(name, method, COUNT)


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("method", FORMULATIONS)
def test_laws_at_a_thousand_states(name, method):
    check_states(name, method, 1000)


def check_states(name, method, count):
    system, batch = states(name, count)
    found = jax.jit(jax.vmap(lambda s: FORMULATIONS[method].acceleration(jm.evaluate(system, s))))(batch)
    check_laws(method, evaluated(name, count), found)


def check_laws(method, terms, found):
    """For the terms and solutions of a batch."""
    assert bool(jnp.all(found.result == jm.RESULTS.successful))
    terms, found = jax.tree.map(np.asarray, (terms, found))
    m = terms.gamma.shape[1]
    for i in range(len(terms.mass)):
        mass, force, jacobian, gamma = (x[i] for x in (terms.mass, terms.force, terms.jacobian, terms.gamma))
        if not m:
            np.testing.assert_allclose(mass @ found.vdot[i], force, atol=1e-12)
            continue
        vdot, reaction, multipliers, rank = oracle.acceleration(mass, force, jacobian, gamma)
        bound = 100 * np.finfo(float).eps * oracle.condition(mass, jacobian)
        size = np.linalg.norm(vdot) + np.linalg.norm(np.linalg.solve(mass, force))
        np.testing.assert_allclose(found.vdot[i], vdot, atol=bound * size)
        np.testing.assert_allclose(found.reaction[i], reaction, atol=bound * size * np.linalg.norm(mass))
        assert int(found.rank[i]) == rank
        assert int(found.eliminated[i].sum()) == (m - rank if method == "Elimination" else 0)
        assert not np.any(found.multipliers[i][found.eliminated[i]])
        sigma = terms.scale[i]
        np.testing.assert_allclose((jacobian @ found.vdot[i] - gamma) / sigma, 0, atol=bound * size)
        np.testing.assert_allclose(jacobian.T @ found.multipliers[i], reaction, atol=10 * bound * size)
        if method == "Elimination":
            continue
        np.testing.assert_allclose(
            found.multipliers[i] * sigma, multipliers * sigma, atol=1e-9 * np.abs(multipliers * sigma).max()
        )


def on(telling, methods):
    """Pairs of system and formulation; those on other systems, or of others, are slow."""
    return [
        pytest.param(name, method, marks=() if name in telling and method in methods else pytest.mark.slow)
        for name in SYSTEMS
        for method in FORMULATIONS
    ]


@functools.cache
def derivatives(name, method):
    """v̇ and the reaction at a state, their derivative along some tangents of q and v, and the same contracted in reverse."""
    system, state = make(name)
    rng = np.random.default_rng(0)
    tangents = jnp.asarray(rng.normal(size=system.nq)), jnp.asarray(rng.normal(size=system.nv))
    weights = jnp.asarray(rng.normal(size=(2, system.nv)))

    def outcome(q, v):
        found = FORMULATIONS[method].acceleration(jm.evaluate(system, jm.State(state.t, q, v, state.scale)))
        return jnp.stack([found.vdot, found.reaction])

    @jax.jit
    def everything(q, v):
        value, forward = jax.jvp(outcome, (q, v), tangents)
        reverse = jax.vjp(outcome, q, v)[1](weights)
        return (
            value,
            forward,
            jnp.sum(weights * forward),
            sum(jnp.sum(a * b) for a, b in zip(reverse, tangents, strict=True)),
        )

    return jax.tree.map(np.asarray, everything(state.q, state.v))


@pytest.mark.parametrize(("name", "method"), on(("driven cart",), ("KKT", "parameterised", "CoordinatePartition")))
@pytest.mark.slow
def test_first_derivatives(name, method):
    """Of v̇ and the reaction with respect to q and v, forward and reverse, are those of Gauss's principle to 1e-8.

    The values are the oracle's.
    """
    value, forward, contracted, reverse = derivatives(name, method)
    _, exact, _, _ = derivatives(name, "GaussProjection")
    terms = jax.tree.map(lambda x: np.asarray(x[0]), evaluated(name))
    if len(terms.gamma):
        vdot, reaction, _, _ = oracle.acceleration(terms.mass, terms.force, terms.jacobian, terms.gamma)
        bound = 100 * np.finfo(float).eps * oracle.condition(terms.mass, terms.jacobian)
        size = np.linalg.norm(vdot) + np.linalg.norm(np.linalg.solve(terms.mass, terms.force))
        np.testing.assert_allclose(value[0], vdot, atol=bound * size)
        np.testing.assert_allclose(value[1], reaction, atol=bound * size * np.linalg.norm(terms.mass))
    size = max(np.abs(exact).max(), 1.0)
    np.testing.assert_allclose(forward, exact, atol=1e-8 * size)
    np.testing.assert_allclose(reverse, contracted, atol=1e-8 * size)


@pytest.mark.parametrize("name", ["driven cart", *slow_but((), ["pendulum, 4 copies", "four-bar, 3 loops"])])
def test_power_of_reactions_is_that_of_moving_constraints(name):
    """vᵀ reaction = −bᵀ λ."""
    system, batch = states(name)
    out = jm.reactions(system, batch)
    offset = evaluated(name).offset
    multipliers = jnp.concatenate(list(out.multipliers.values()), axis=1)
    power = jnp.sum(batch.v * out.reaction, axis=1)
    np.testing.assert_allclose(power, -jnp.sum(offset * multipliers, axis=1), atol=1e-9)


def rods(q, p):
    return jnp.stack([q[:2] @ q[:2] - p, (q[2:] - q[:2]) @ (q[2:] - q[:2]) - 1])


def pendulum_with(fn, params):
    """Two point masses on two rods."""
    return jm.System(
        4,
        mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 1.0, 2.0, 2.0])),
        potential=lambda t, q, p: 9.81 * (q[1] + 2 * q[3]),
        constraints=[jm.Holonomic("rods", fn)],
        params=params,
    )


PLAIN = pendulum_with(lambda t, q, p: rods(q, p["length"]), {"length": 1.0})
COMBINED = pendulum_with(lambda t, q, p: p["rows"] @ rods(q, p["length"]), {"length": 1.0, "rows": np.zeros((8, 2))})
VARIANTS = {
    "two copies": ([1.0, 1.0], None),
    "four copies": ([1.0, -2.0, 1.0, 5.0], None),
    "scaled down": ([1e-6], None),
    "scaled up": ([1e6], None),
    "scaled copies": ([1e6, 1e-6, 1.0], None),
    "permuted": ([1.0], [1, 0]),
    "permuted copies": ([1.0, 1e3, 1e-3], [4, 1, 3, 5, 0, 2]),
}


def combination(factors, order=None):
    """The matrix that repeats, scales and permutes the rows of the rods, in eight rows of which the last may be zero."""
    rows = np.concatenate([f * np.eye(2) for f in factors])
    rows = rows if order is None else rows[order]
    return np.pad(rows, [(0, 8 - len(rows)), (0, 0)])


def pendulum_motion(system, method):
    """A program for v̇ and the reaction with their forward and reverse derivatives with respect to the length and v."""

    def found(params):
        state = jm.as_state(
            system.with_params(params), [0.6, -0.8, 1.2, -1.6], [0.4, 0.3, 0.0, 0.0]
        )  # it is consistent

        def outcome(length, v):
            moved = jm.State(state.t, state.q * jnp.sqrt(length), v, state.scale)
            changed = system.with_params(params | {"length": length})
            found = FORMULATIONS[method].acceleration(jm.evaluate(changed, moved))
            return found.vdot, found.reaction

        arguments = (jnp.array(1.0), state.v)
        kinds = outcome, jax.jacfwd(outcome, argnums=(0, 1)), jax.jacrev(outcome, argnums=(0, 1))
        return tuple(kind(*arguments) for kind in kinds)

    return found


@functools.cache
def pendulum_motions(method):
    """Of the two rows as they are, and of all variants by one program."""
    plain = jax.jit(pendulum_motion(PLAIN, method))({"length": jnp.array(1.0)})
    rows = jnp.asarray(np.stack([combination(*variant) for variant in VARIANTS.values()]))
    found = jax.jit(jax.vmap(lambda rows: pendulum_motion(COMBINED, method)({"length": jnp.array(1.0), "rows": rows})))(
        rows
    )
    return jax.tree.map(np.asarray, (plain, found))


@pytest.mark.parametrize("method", slow_but(("GaussProjection",), FORMULATIONS))
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.slow
def test_duplicating_scaling_and_permuting_rows_changes_nothing(variant, method):
    """Values to 1e-10, forward and reverse derivatives to 1e-9."""
    (value, forward, reverse), others = pendulum_motions(method)
    other, other_forward, other_reverse = jax.tree.map(lambda x: x[list(VARIANTS).index(variant)], others)
    for a, b in zip(jax.tree.leaves(value), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10 * np.abs(a).max())
    for mine, theirs in ((forward, other_forward), (reverse, other_reverse), (forward, reverse)):
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9 * max(np.abs(a).max(), 1))


def test_the_rank_of_the_last_accepted_state_is_used():
    """At a state slightly off the constraints, rows that were found dependent stay out."""
    formulation = jm.formulation.GaussProjection()
    system, state = make("four-bar, 3 loops")

    @jax.jit
    def kept(state, off):
        in_use = formulation.prepare(jm.evaluate(system, state))
        return in_use, formulation.acceleration(jm.evaluate(system, off), in_use).rank

    in_use, rank = kept(state, jm.State(state.t, state.q + 1e-3, state.v, state.scale))
    assert int(rank) == 2 and int(in_use.sum()) == 2


@pytest.mark.parametrize("method", FORMULATIONS)
def test_contradictory_rows_are_reported(method):
    found = solution("contradictory", method)
    assert found.result == jm.RESULTS.contradictory_constraints and int(found.rank[0]) == 1


@pytest.mark.parametrize("method", FORMULATIONS)
def test_mass_that_is_regular_on_the_null_space_only(method):
    """Most formulations solve it, Gauss's principle cannot."""
    found = solution("massless", method)
    if method in ("GaussProjection", "Elimination", "skew", "symmetric"):
        assert found.result == jm.RESULTS.nonfinite
        return
    np.testing.assert_allclose(found.vdot[0, :2], [3.5, 7.0], rtol=1e-13)
    np.testing.assert_allclose(found.reaction[0, :2], [6.0, -3.0], rtol=1e-12)


@pytest.mark.slow
def test_motion_with_a_mass_that_is_regular_on_the_null_space_only():
    system, q = SPECIAL["massless"]
    state = jm.assemble(system, q)
    with pytest.raises(ValueError, match=r"`mass` must be positive definite for `GaussProjection`.*KKT"):
        jm.simulate(system, state, [1.0], formulation=jm.formulation.GaussProjection())
    sol = jm.simulate(system, state, [1.0])
    np.testing.assert_allclose(sol.q[0], [0.1 + 1.75, 2 * (0.1 + 1.75)], rtol=1e-9)
