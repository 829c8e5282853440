"""Wrong arguments are refused by name, whatever they are."""

import inspect
import json
import pathlib
import subprocess
import sys
from typing import Annotated, Any

import calls
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.foundations import Finite, Positive, contract, function_of

# What the library makes, or a user inherits from: it has no arguments to be checked at a door.
MADE = {
    "": """Acceleration Criterion CurveEvent DependentRows Diagnosis Energy Equilibrium Events Kinematics Linearisation Minimal Mode
        Motion MotionCurve Partition Projected ReactionReport Reactions Residuals RESULTS Scale Solution State Statics EngineChoice Switches
        Terms Transition Verdict Wrench AbstractDrift AbstractEvent Attempt Change EventContext Occurrence AbstractEngine AbstractFormulation NoDrift Stepper AbstractSensor DirectionalDerivative GradientCheck Evidence RunCheck SearchCheck
        compiler_options show_config""",
    "planar": "",
    "spatial": "",
    "control": """AbstractStepper Guess Trajectory AbstractClock AbstractController AbstractForces AbstractInstant AbstractOutput AbstractWrapper Affine Clock Command Controllability Deviation Drive Effort Equilibrium Linearisation
        ForceReport HybridCommand Instant LQR Eigenmode Operational OutputRows Plant Response StateFeedback Tangent Timetable Tracking as_controller as_output
        certifies_infeasible reference_at scaled_to_limits""",
    "fit": "Fit Identifiability Progress SignalFit Tuned",
    "models": "BodyReport Inspection Model Note",
    "export": "CFiles FMU StableHLO",
    "design": "AbstractOutput Design Outcome ParetoFront Tolerances",
    "plot": "LiveWindow Player",
    "records": "",
    "sweep": "Description Report Status",
}


def walked(*groups):
    """The count of wrong calls and those that were not refused by name, in a process without the type checks of the tests."""
    script = pathlib.Path(calls.__file__)
    done = subprocess.run(
        [sys.executable, str(script), *groups], cwd=script.parent.parent, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    return found["calls"], found["failures"]


def test_every_wrong_shape_of_a_body_is_refused_by_name():
    count, failures = walked("shapes")
    assert failures == [] and count > 150


@pytest.mark.slow
@pytest.mark.parametrize("group", [name for name in calls.GROUPS if name != "shapes"])
def test_every_wrong_call_is_refused_by_name(group):
    count, failures = walked(group)
    assert failures == [] and count > 600


@pytest.mark.slow
def test_every_public_function_is_called_wrongly():
    covered = {inspect.unwrap(getattr(f, "__func__", f)) for f, _ in calls.right_calls(calls.GROUPS)}
    for room, module in calls.ROOMS.items():
        names = getattr(module, "__all__", vars(module))
        public = {name: x for name in names if callable(x := getattr(module, name)) and not name.startswith("_")}
        made = {*MADE.get(room, MADE[""]).split()}
        left = {name for name, x in public.items() if inspect.unwrap(x) not in covered} - made
        assert left == set(), room


# The rules of annotations


@contract
def door(
    a: Positive,
    names: list[str] = (),
    *rest: jm.System,
    fn: Annotated[Any, function_of("t")] | None = None,
    flag: bool = True,
):
    return a


def test_rules_follow_the_annotations():
    assert door(1) == 1 and door(np.float32(2.0)) == 2
    for arguments, error, match in (
        ({"a": "1"}, TypeError, "`a` must be a positive number, but is '1'"),
        ({"a": True}, TypeError, "`a` must be a positive number, but is True"),
        ({"a": -1.0}, ValueError, "`a` must be a positive number, but is -1.0"),
        ({"a": jnp.nan}, ValueError, "`a` must be a positive number, but is nan"),
        ({"a": jnp.inf}, ValueError, "`a` must be a positive number, but is inf"),
        (
            {"a": 1, "names": "wrist"},
            TypeError,
            "`names` must be a sequence, each entry text that is not empty, but is 'wrist'",
        ),
        ({"a": 1, "names": [""]}, ValueError, "`names` must be a sequence, each entry text that is not empty"),
        ({"a": 1, "fn": lambda: 0}, ValueError, r"`fn` must be a function \(t\) or None, but is a function \(\)"),
        ({"a": 1, "fn": jm.formulation.KKT}, TypeError, r"`fn` must be a function \(t\) or None, but is the class KKT"),
        ({"a": 1, "flag": "no"}, TypeError, "`flag` must be True or False, but is 'no'"),
    ):
        with pytest.raises(error, match=match):
            door(**arguments)
    for gains in ({"stiffness": np.inf, "damping": 1.0}, {"stiffness": 1.0, "damping": [1.0, np.inf]}):
        with pytest.raises(ValueError, match="` must be a number or an array of finite numbers, none of them negative"):
            jm.control.PD("wrist", **gains)
    with pytest.raises(
        TypeError, match="`rest` must be a System, but is a planar Mechanism; its method `build` gives a System"
    ):
        door(1, [], calls.pendulum())
    with pytest.raises(TypeError, match=r"`mechanism` must be a spatial Mechanism, but is a planar Mechanism\.$"):
        jm.models.to_urdf(calls.pendulum())


def test_values_are_looked_at_where_they_are_known_and_kinds_always():
    assert jax.jit(door)(-1.0) == -1
    assert np.all(jax.vmap(door)(jnp.array([1.0, -1.0])) == jnp.array([1.0, -1.0]))
    with pytest.raises(TypeError, match="`a` must be a positive number"):
        jax.jit(door)(jnp.array(True))


def test_sequences_of_numbers_are_arrays_where_arrays_are_asked_for():
    @contract
    def kinds(x: Finite | dict[str, float] | None = None, *, names: list[str] = (), span: tuple[float, float] = (0, 1)):
        return [type(given) for given in (x, names, span)]

    assert kinds([[1, 2.0], (3, 4)]) == [np.ndarray, tuple, tuple]
    assert kinds({"a": 1.0}, names=["a"], span=[0.0, 1.0]) == [dict, list, list]
    assert jax.jit(lambda t: entries([t, 1.0]))(2.0).tolist() == [2.0, 1.0]


@contract
def entries(x: Finite):
    return x


COST = """
import inspect, timeit
from typing import Annotated, Any
from jaxmb.foundations import Finite, Positive, contract, function_of

@contract
def door(a: Positive, names: list[str] = (), fn: Annotated[Any, function_of("t")] | None = None, flag: bool = True):
    return a

call = lambda fn: min(timeit.repeat(lambda: fn(1.0, ["a", "b"], flag=False), number=1000, repeat=5)) / 1000
print(call(door) - call(inspect.unwrap(door)))
"""


def test_a_door_costs_microseconds():
    found = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True)
    assert float(found.stdout) < 50e-6, found.stderr


def test_solutions_of_other_systems_are_refused():
    other = jm.System(("angle",), mass=lambda t, q, p: jnp.eye(1))
    with pytest.raises(ValueError, match="motion must be one of `system`, with coordinates 'angle', but has 'pivot'"):
        jm.energy(other, calls.motion())
    with pytest.raises(ValueError, match=r"`u` must have shape \(3, 0\), but has shape \(3, 1\)"):
        jm.reactions(other, jm.simulate(other, jm.assemble(other), calls.TIMES), u=np.zeros((3, 1)))


def test_parameters_of_other_systems_are_refused():
    with pytest.raises(
        ValueError,
        match=r"`params` must hold the parameters that the system was made with, .*, but lacks .*m.* and has .*mass",
    ):
        calls.particle().with_params({"mass": 1.0})
    with pytest.raises(ValueError, match=r"made with, .*'m'.*, but has .*mass.* besides\.$"):
        calls.particle().with_params({"m": 1.0, "mass": 1.0})
    # Of a mechanism they stand beside the numbers of its elements.
    driven = jm.planar.Mechanism([jm.planar.Body("b", 1.0, 1.0)], params={"speed": 2.0}).build()
    with pytest.raises(
        ValueError, match=r"`equinox\.tree_at\(lambda s: s\.params\.params\['speed'\], system, value\)` changes"
    ):
        driven.with_params({"speed": 3.0})
    bare = jm.planar.Mechanism([jm.planar.Body("b", 1.0, 1.0)]).build()
    with pytest.raises(
        ValueError, match=r"must be a `Numbers` .*, but is a dict; the mechanism's own parameters are none\.$"
    ):
        bare.with_params({"speed": 3.0})


@pytest.mark.parametrize("i", [3, -4, 99])
def test_states_beyond_the_saved_ones_are_refused(i):
    with pytest.raises(ValueError, match=f"`i` must be an index of 3 saved states, but is {i}"):
        calls.motion().state(i)
    np.testing.assert_array_equal(calls.motion().state(-3).t, calls.TIMES[0])  # the first one, counted from the end


@pytest.mark.parametrize("matrix", [2 * np.eye(3), np.diag([1.0, -1.0, 1.0]), np.eye(3) + np.eye(3, k=1)])
def test_poses_that_scale_mirror_or_shear_are_refused(matrix):
    with pytest.raises(ValueError, match="`pose` must turn and shift only"):
        calls.pendulum().placed(matrix)
