import os
import subprocess
import sys

import jax

import jaxmb as jm

SCRIPT = """
import jax, jax.numpy as jnp, jaxmb as jm
from jaxmb.foundations import is_concrete
assert set(jm.compiler_options()) <= {"xla_cpu_use_fusion_emitters"}
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


def test_flags_go_before_options():
    assert all(name not in os.environ["XLA_FLAGS"] for name in jm.compiler_options())
    assert jax.jit(lambda x: 2 * x, compiler_options=jm.compiler_options())(1.0) == 2
