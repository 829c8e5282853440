"""Which of Diffrax's solvers a motion can be integrated by: all that `simulate` names, with their order or their tolerance."""

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
import pytest
from systems import make, pendulum

import jaxmb as jm
import jaxmb.simulation.solver
from jaxmb.simulation.arguments import checked_solver

EXPLICIT = {"Euler": 1, "Heun": 2, "Midpoint": 2, "Ralston": 2, "Bosh3": 3, "Tsit5": 5, "Dopri5": 5, "Dopri8": 8}
IMPLICIT = {"ImplicitEuler": 1e-2, "Kvaerno3": 1e-4, "Kvaerno4": 1e-4, "Kvaerno5": 1e-4}  # what is left at rtol 1e-5
OTHERS = {
    "KenCarp4": (dfx.KenCarp4(), "which needs a vector field in several parts, or noise"),
    "SemiImplicitEuler": (dfx.SemiImplicitEuler(), "which needs a vector field in several parts, or noise"),
    "SRA1": (dfx.SRA1(), "which needs a vector field in several parts, or noise"),
    "ReversibleHeun": (dfx.ReversibleHeun(), "which carries an earlier state on"),
    "LeapfrogMidpoint": (dfx.LeapfrogMidpoint(), "which carries an earlier state on"),
    "HalfSolver": (dfx.HalfSolver(dfx.Kvaerno3()), "which does not wrap implicit solvers"),
}


def end(solver, **method):
    system, _ = pendulum()
    state = jm.assemble(system, [-0.8, -0.6], [1.0, 0.0])
    return np.asarray(jm.simulate(system, state, [0.32], solver=solver, **method).q[-1])


@pytest.fixture(scope="module")
def exact():
    return end(dfx.Dopri8(), stepsize_controller=dfx.PIDController(rtol=1e-12, atol=1e-13))


RANKS = ("num_steps", "lowest_rank", "highest_rank")


@pytest.mark.slow_except("HalfSolver")  # the others are used by other tests
@pytest.mark.parametrize("name", [*EXPLICIT, "HalfSolver"])
def test_explicit_solvers_with_constant_steps(name, exact):
    """Half the step leaves 2⁻ᵖ of the error, or rounding."""
    solver = dfx.HalfSolver(dfx.Tsit5()) if name == "HalfSolver" else getattr(dfx, name)()
    constant = {"stepsize_controller": dfx.ConstantStepSize()}
    errors = [np.linalg.norm(end(solver, dt0=step, **constant) - exact) for step in (0.02, 0.01)]
    assert errors[0] < 0.1
    assert errors[1] <= max(1.3 * 0.5 ** EXPLICIT.get(name, 5) * errors[0], 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPLICIT)
def test_implicit_solvers_with_step_size_control(name, exact):
    found = end(getattr(dfx, name)(), stepsize_controller=dfx.PIDController(rtol=1e-5, atol=1e-6))
    np.testing.assert_allclose(found, exact, atol=IMPLICIT[name])


@pytest.mark.parametrize("name", OTHERS)
def test_other_solvers_are_refused_by_name(name):
    solver, why = OTHERS[name]
    with pytest.raises(ValueError, match=f"`solver` must be a one-step solver .* but is `{name}`, {why}"):
        end(solver)


def test_what_is_no_solver_is_refused():
    with pytest.raises(
        TypeError, match=r"`solver` must be a solver of Diffrax, such as `diffrax.Tsit5\(\)`, but is <class"
    ):
        checked_solver(dfx.Tsit5)


def test_solvers_named_in_the_docstring_are_those():
    for name in (*EXPLICIT, *IMPLICIT, "HalfSolver", "ReversibleHeun", "LeapfrogMidpoint", "SemiImplicitEuler"):
        assert f"`{name}`" in jm.simulate.__doc__


@pytest.mark.slow
@pytest.mark.parametrize("name", ["four-bar", "top"])
def test_what_is_certain_would_be_decided_alike(name, monkeypatch):
    """A run that decides about its rows at each step has the same steps, ranks and, to rounding, states."""
    system, state = make(name)
    run = lambda tol: jm.simulate(
        system, state, [0.4, 0.7], formulation=jm.formulation.GaussProjection(tol), engine=jm.XLA()
    )
    usual, asked = run(2.5e-7), []

    def never(*_):
        asked.append(True)
        return jnp.array(False)

    monkeypatch.setattr(jaxmb.simulation.solver, "_certify_end", never)
    decided = run(2.4e-7)  # another cut-off, so that no part of a program is used again
    assert asked
    np.testing.assert_allclose(usual.q, decided.q, rtol=0, atol=1e-13)
    assert {k: int(usual.stats[k]) for k in RANKS} == {k: int(decided.stats[k]) for k in RANKS}
