"""Laws that every formulation obeys, on all systems."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from systems import FORMULATIONS, SYSTEMS, contradictory, make, states

import jaxmb as jm

USUAL = ("GaussProjection", "KKT")
TELLING = ("four-bar, 3 loops", "driven cart", "unconstrained")


def cases(telling, usual=USUAL):
    """Pairs of system and formulation; those of the other formulations on the other systems are slow."""
    quick = lambda name, method: name in telling or method in usual
    return [
        pytest.param(name, method, marks=() if quick(name, method) else pytest.mark.slow)
        for name in SYSTEMS
        for method in FORMULATIONS
    ]


@pytest.mark.parametrize(("name", "method"), cases(TELLING))
def test_laws(name, method):
    """C v̇ = Γ, reaction = Cᵀλ, rank and least norm, against the oracle to 100·cond·eps."""
    check_laws(name, method, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("method", FORMULATIONS)
def test_laws_at_a_thousand_states(name, method):
    check_laws(name, method, 1000)


def check_laws(name, method, count):
    system, batch = states(name, count)
    formulation = FORMULATIONS[method]
    terms = jax.vmap(lambda s: jm.evaluate(system, s))(batch)
    found = jax.jit(jax.vmap(formulation.acceleration))(terms)
    assert bool(jnp.all(found.result == jm.RESULTS.successful))
    for i in range(batch.t.shape[0]):
        mass, force, jacobian, gamma = (
            np.asarray(x[i]) for x in (terms.mass, terms.force, terms.jacobian, terms.gamma)
        )
        if not system.m:
            np.testing.assert_allclose(mass @ found.vdot[i], force, atol=1e-12)
            continue
        vdot, reaction, multipliers, rank = oracle.acceleration(mass, force, jacobian, gamma)
        bound = 100 * np.finfo(float).eps * oracle.condition(mass, jacobian)
        size = np.linalg.norm(vdot) + np.linalg.norm(np.linalg.solve(mass, force))
        np.testing.assert_allclose(found.vdot[i], vdot, atol=bound * size)
        np.testing.assert_allclose(found.reaction[i], reaction, atol=bound * size * np.linalg.norm(mass))
        assert int(found.rank[i]) == rank
        assert int(found.eliminated[i].sum()) == (system.m - rank if method == "Elimination" else 0)
        assert not np.any(np.asarray(found.multipliers[i])[np.asarray(found.eliminated[i])])
        sigma = np.asarray(batch.scale.row[i])
        np.testing.assert_allclose((jacobian @ found.vdot[i] - gamma) / sigma, 0, atol=bound * size)
        np.testing.assert_allclose(jacobian.T @ found.multipliers[i], reaction, atol=10 * bound * size)
        if method == "Elimination":
            continue
        np.testing.assert_allclose(
            found.multipliers[i] * sigma, multipliers * sigma, atol=1e-9 * np.abs(multipliers * sigma).max()
        )


@pytest.mark.parametrize(("name", "method"), cases(("driven cart",), ()))
def test_first_derivatives(name, method):
    """Of v̇ and the reaction with respect to q and v, forward and reverse, are those of Gauss's principle to 1e-8."""
    system, state = make(name)
    rng = np.random.default_rng(0)
    tangents = jnp.asarray(rng.normal(size=system.nq)), jnp.asarray(rng.normal(size=system.nv))
    weights = jnp.asarray(rng.normal(size=(2, system.nv)))

    def outcome(formulation, q, v):
        found = formulation.acceleration(jm.evaluate(system, jm.State(state.t, q, v, state.scale)))
        return jnp.stack([found.vdot, found.reaction])

    @eqx.filter_jit
    def derivatives(formulation):
        fn = lambda q, v: outcome(formulation, q, v)
        forward = jax.jvp(fn, (state.q, state.v), tangents)[1]
        reverse = jax.vjp(fn, state.q, state.v)[1](weights)
        return forward, sum(jnp.sum(a * b) for a, b in zip(reverse, tangents, strict=True))

    forward, reverse = derivatives(FORMULATIONS[method])
    exact, _ = derivatives(jm.GaussProjection())
    size = max(float(jnp.abs(exact).max()), 1.0)
    np.testing.assert_allclose(forward, exact, atol=1e-8 * size)
    np.testing.assert_allclose(reverse, jnp.sum(weights * forward), atol=1e-8 * size)


@pytest.mark.parametrize("name", ["pendulum, 4 copies", "four-bar, 3 loops", "driven cart"])
def test_power_of_reactions_is_that_of_moving_constraints(name):
    """vᵀ reaction = −bᵀ λ."""
    system, batch = states(name)
    out = jm.reactions(system, batch)
    offset = jax.vmap(lambda s: jm.evaluate(system, s).offset)(batch)
    multipliers = jnp.concatenate(list(out.multipliers.values()), axis=1)
    power = jnp.sum(batch.v * out.reaction, axis=1)
    np.testing.assert_allclose(power, -jnp.sum(offset * multipliers, axis=1), atol=1e-9)


def pendulum_with(rows, order=None):
    """Two point masses on two rods, with the rod rows repeated, scaled and permuted at will."""

    def rods(t, q, p):
        row = jnp.stack([q[:2] @ q[:2] - p, (q[2:] - q[:2]) @ (q[2:] - q[:2]) - 1])
        stacked = jnp.concatenate([f * row for f in rows])
        return stacked if order is None else stacked[jnp.array(order)]

    return jm.System(
        4,
        mass=lambda t, q, p: jnp.diag(jnp.array([1.0, 1.0, 2.0, 2.0])),
        potential=lambda t, q, p: 9.81 * (q[1] + 2 * q[3]),
        constraints=[jm.Holonomic("rods", rods)],
        params=1.0,
    )


VARIANTS = {
    "two copies": ([1.0, 1.0], None),
    "four copies": ([1.0, -2.0, 1.0, 5.0], None),
    "scaled down": ([1e-6], None),
    "scaled up": ([1e6], None),
    "scaled copies": ([1e6, 1e-6, 1.0], None),
    "permuted": ([1.0], [1, 0]),
    "permuted copies": ([1.0, 1e3, 1e-3], [4, 1, 3, 5, 0, 2]),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=() if m in USUAL else pytest.mark.slow) for m in FORMULATIONS]
)
def test_duplicating_scaling_and_permuting_rows_changes_nothing(variant, method):
    """Values to 1e-10, forward and reverse derivatives to 1e-9."""
    formulation = FORMULATIONS[method]
    guess = ([0.6, -0.8, 1.2, -1.6], [0.4, 0.3, 0.0, 0.0])

    def run(system):
        state = jm.assemble(system, *guess)

        @jax.jit
        def outcome(length, v):
            moved = jm.State(state.t, state.q * jnp.sqrt(length), v, state.scale)
            changed = eqx.tree_at(lambda s: s.params, system, length)
            found = formulation.acceleration(jm.evaluate(changed, moved))
            return found.vdot, found.reaction

        arguments = (jnp.array(1.0), state.v)
        return (
            outcome(*arguments),
            jax.jacfwd(outcome, argnums=(0, 1))(*arguments),
            jax.jacrev(outcome, argnums=(0, 1))(*arguments),
        )

    value, forward, reverse = run(pendulum_with([1.0]))
    other, other_forward, other_reverse = run(pendulum_with(*VARIANTS[variant]))
    for a, b in zip(jax.tree.leaves(value), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10 * np.abs(a).max())
    for mine, theirs in ((forward, other_forward), (reverse, other_reverse), (forward, reverse)):
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9 * max(np.abs(a).max(), 1))


def test_the_rank_of_the_last_accepted_state_is_used():
    """At a state slightly off the constraints, rows that were found dependent stay out."""
    formulation = jm.GaussProjection()
    system, state = make("four-bar, 3 loops")
    keep = formulation.prepare(jm.evaluate(system, state))
    off = jm.State(state.t, state.q + 1e-3, state.v, state.scale)
    found = formulation.acceleration(jm.evaluate(system, off), keep)
    assert int(found.rank) == 2 and int(keep.sum()) == 2


def test_contradictory_rows_are_reported():
    system = contradictory()
    terms = jm.evaluate(system, jm.assemble(system, [0.0, 0.0]))
    for formulation in FORMULATIONS.values():
        found = formulation.acceleration(terms)
        assert found.result == jm.RESULTS.contradictory_constraints and int(found.rank) == 1


def test_mass_that_is_regular_on_the_null_space_only():
    """A massless coordinate that a constraint ties to a heavy one: most solve it, Gauss's principle cannot."""
    system = jm.System(
        2,
        mass=lambda t, q, p: jnp.diag(jnp.array([2.0, 0.0])),
        force=lambda t, q, v, p: jnp.array([1.0, 3.0]),
        constraints=[jm.Holonomic("tie", lambda t, q, p: q[1] - 2 * q[0])],
    )
    state = jm.assemble(system, [0.1, 0.0])
    terms = jm.evaluate(system, state)
    for method, formulation in FORMULATIONS.items():
        found = formulation.acceleration(terms)
        if method in ("GaussProjection", "Elimination", "skew", "symmetric"):
            assert found.result == jm.RESULTS.nonfinite, method
            continue
        np.testing.assert_allclose(found.vdot, [3.5, 7.0], rtol=1e-13)
        np.testing.assert_allclose(found.reaction, [6.0, -3.0], rtol=1e-12)
    with pytest.raises(ValueError, match=r"`mass` must be positive definite for `GaussProjection`.*`KKT`"):
        jm.simulate(system, state, [0.1])
    sol = jm.simulate(system, state, [1.0], formulation=jm.KKT())
    np.testing.assert_allclose(sol.q[0], [0.1 + 1.75, 2 * (0.1 + 1.75)], rtol=1e-9)
