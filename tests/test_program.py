import ast
import importlib
import os
import pathlib
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb as jm
from jaxmb.foundations.program import _FAVOURED, _accepted

SCRIPT = """
import jax, jax.numpy as jnp, jaxmb as jm
from jaxmb.foundations import is_concrete
assert jm.compiler_options() and "xla_backend_optimization_level" not in jm.compiler_options()
jax.config.update("jax_enable_x64", True)
rod = lambda t, q, p: q @ q - p
system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), constraints=[jm.Holonomic("rod", rod)], params=1.0)
state = jm.as_state(system, [0.6, 0.8])
push = lambda x: jm.evaluate(system, jm.as_state(system, x * state.q)).jacobian[0, 0]
one = jnp.array(1.0)
loop = lambda x: jax.lax.scan(lambda c, _: (push(c), None), x, None, length=1)[0]
for fn in (push, jax.jit(push), jax.jit(push, compiler_options=jm.compiler_options()), loop):
    assert fn(one) == 1.2, fn
for fn in (jax.grad(push), jax.jit(jax.grad(push)), jax.jacfwd(push)):
    assert fn(one) == 1.2, fn
assert jax.vmap(push)(jnp.ones(3)).tolist() == [1.2] * 3
jax.eval_shape(push, one)
constant = jax.jit(lambda x: x + jm.evaluate(system, state).jacobian[0, 0])  # nothing traced goes in
assert constant(one) == 2.2 and jax.grad(lambda x: x * jm.evaluate(system, state).jacobian[0, 0])(one) == 1.2
"""


def test_programs_use_their_options_where_they_are_outermost_only():
    """Options of a program that is not outermost are an error of JAX's; what XLA_FLAGS sets is left alone."""
    env = os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, env=env, timeout=300)


def test_options_are_those_that_this_xla_knows_on_a_cpu(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    known = _accepted.__wrapped__("cpu")
    assert known and _accepted.__wrapped__("gpu") == {}
    monkeypatch.setitem(_FAVOURED, "xla_option_that_there_is_not", True)
    assert _accepted.__wrapped__("cpu") == known


def test_flags_go_before_options():
    assert all(name not in os.environ["XLA_FLAGS"] for name in jm.compiler_options())
    assert jax.jit(lambda x: 2 * x, compiler_options=jm.compiler_options())(1.0) == 2


WITHOUT = """
import sys, warnings
sys.modules["llvmlite"] = None
import jax, jax.numpy as jnp, jaxmb as jm
jax.config.update("jax_enable_x64", True)
system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), potential=lambda t, q, p: 0.5 * q @ q)
state = jm.as_state(system, [1.0])
told = []
for engine in (jm.XLA(), None, None):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jm.simulate(system, state, [0.1], engine=engine)
    told.append([str(w.message) for w in caught if w.category is RuntimeWarning])
print(told)
print(jm.choose_engine(system, state).not_compiled)
jm.show_config()
"""


def test_without_the_compiler_it_is_told_once_why_and_what_it_costs():
    """By the first run that did not ask for it; in the words of `choose_engine` and `show_config`."""
    found = subprocess.run([sys.executable, "-c", WITHOUT], check=True, capture_output=True, text=True, timeout=300)
    told, kind, *shown = found.stdout.splitlines()
    first, second, third = ast.literal_eval(told)
    assert kind == "llvmlite is not installed (`pip install llvmlite`)"
    assert not first and not third and len(second) == 1
    assert f"10 to 100 times as long as they could, because no code is compiled: {kind}." in second[0]
    assert any(line.startswith("steps") and line.endswith(kind) for line in shown)


def test_the_configuration_is_shown(capsys):
    jm.show_config()
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (
        shown["jaxmb"] == jm.__version__ and shown["jax"] == jax.__version__ and shown["numbers"].startswith("float64")
    )
    assert {"python", "jaxmb", "jaxlib", "diffrax", "equinox", "optimistix", "lineax", "llvmlite"} <= set(shown)
    assert shown["devices"] and (shown["steps"] == "compiled code" or jax.default_backend() != "cpu")


LATER = """
import sys, jax, diffrax, equinox
before = set(sys.modules)
import jaxmb as jm
print(sorted({name.split(".")[0] for name in set(sys.modules) - before if "." in name} & {"scipy", "optax", "matplotlib", "llvmlite"}))
print([name for name in sys.modules if name.startswith("jaxmb.")])
jm.simulate
print(sorted({"jaxmb.fit", "jaxmb.plot", "jaxmb.mechanism", "jaxmb.output", "jaxmb.verification"} & set(sys.modules)))
print({"fit", "planar", "plot", "spatial", "sweep"} <= set(dir(jm)), jm.fit.identify.__name__, jm.spatial.Body.__name__)
try:
    jm.nothing
except AttributeError as error:
    print(error)
"""


def test_what_few_programs_need_is_imported_where_it_is_used():
    found = subprocess.run([sys.executable, "-c", LATER], check=True, capture_output=True, text=True, timeout=300)
    *lists, names, error = found.stdout.splitlines()
    assert lists == ["[]", "[]", "[]"] and names == "True identify Body"
    assert error == "module 'jaxmb' has no attribute 'nothing'"


def test_type_checkers_are_told_the_names_that_there_are():
    """Those that they read are those that are found, and `dir` has them; each is what it is in its room."""
    tree = ast.parse(pathlib.Path(jm.__file__).read_text())
    (told,) = (node for node in tree.body if isinstance(node, ast.If))
    places = {(x.module or "", x.names[0].name) for x in told.body if isinstance(x, ast.ImportFrom)}
    assert places == {("", room) for room in jm._ROOMS} | {(room, name) for name, room in jm._ROOM_OF.items()}
    for room, name in places:
        held = importlib.import_module(f"jaxmb.{room or name}")
        assert getattr(jm, name) is (getattr(held, name) if room else held)
    assert {name for _, name in places} == {name for name in dir(jm) if not name.startswith("__")}


COMPILED = """
import jax
jax.config.update("jax_enable_x64", True)
seen = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: seen.append(name.endswith("backend_compile_duration")))
import jax.numpy as jnp, numpy as np, jaxmb as jm
from jaxmb.foundations import compiler_options
compiler_options()  # tries which options this version of XLA knows, by empty programs
seen.clear()
P = jm.planar
ends = [("ground", "a.a"), ("a.b", "b.a"), ("b.b", "c.a"), ("c.b", ("ground", (1.0, 0.0)))]
bodies = [P.Body.rod(name, mass=1.0, length=length) for name, length in zip("abc", (0.4, 0.9, 0.8))]
mechanism = P.Mechanism(bodies, [P.Revolute(name, *pair) for name, pair in zip("ABCD", ends)], gravity=(0.0, -9.81))
system = mechanism.build(cut=["D"])
start = jm.assemble(system, {"A": 1.2, "B": -1.3, "C": -1.4}, hold=["A"])
ts = np.linspace(0.0, 0.2, 5)
motion = jm.simulate(system, start, ts)
jm.reactions(system, motion), jm.energy(system, motion).balance
alone = sum(seen)
jm.simulate(system, start, ts, events=[jm.Lock("A", at=0.1)], max_events=2)
print(alone, sum(seen) - alone)
"""


@pytest.mark.slow
def test_single_operations_on_known_numbers_are_not_compiled():
    """A dozen programs, and one for the plan of events: each operation that JAX compiles by itself costs as much as a small program."""
    found = subprocess.run([sys.executable, "-c", COMPILED], check=True, capture_output=True, text=True, timeout=300)
    alone, with_events = map(int, found.stdout.split())
    assert alone <= 16 and with_events <= 3


def test_what_a_program_has_traced_of_a_system_is_not_remembered():
    """A number of weak type becomes another one within the program that meets the system first."""
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), force=lambda t, q, v, p: -p * q, params=1.0)
    system = eqx.tree_at(lambda s: s.params, system, jnp.asarray(2.0))
    assert system.params.weak_type
    start = jm.as_state(system, [1.0])
    inside = jax.jit(lambda q: jm.simulate(system, eqx.tree_at(lambda s: s.q, start, q), [0.1], throw=False).q)(start.q)
    np.testing.assert_allclose(inside, jm.simulate(system, start, [0.1]).q, rtol=1e-12)
