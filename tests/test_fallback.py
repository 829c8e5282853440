"""Fallbacks that are compiled when a row first needs them."""

import functools
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxmb.deferral import with_fallback
from jaxmb.deferral.host import handler
from jaxmb.foundations import where_needed
from jaxmb.lanes import Program, registered

TRACED = []


def slow_root(x, scale, name):
    """Of numbers and a pair of other types, with a loop and a solution of equations of LAPACK."""
    TRACED.append(name)
    step = lambda _, y: (y + x / y) / 2
    root = jax.lax.fori_loop(0, 30, step, x)
    matrix = jnp.eye(3) + 0.1 * jnp.outer(root, root)
    return {"root": root * scale, "solved": jnp.linalg.solve(matrix, x), "count": jnp.sum(x > 1)}


def either(needed, x, scale, chosen=with_fallback, name="it"):
    otherwise = {"root": -x, "solved": 2 * x, "count": jnp.array(-1)}
    return chosen(needed, slow_root, (x, scale, name), otherwise)


def numbers(tree):
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def assert_same(found, expected):
    for a, b in zip(numbers(found), numbers(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
        assert a.dtype == b.dtype


XS = jnp.asarray(np.random.default_rng(0).uniform(0.5, 3, (40, 3)))


def test_it_is_traced_only_when_it_is_needed():
    TRACED.clear()
    run = eqx.filter_jit(functools.partial(either, name="late"))
    two = jnp.array(2.0)
    idle = run(jnp.array(False), XS[0], two)
    np.testing.assert_array_equal(idle["root"], -XS[0])
    assert not TRACED
    found = run(jnp.array(True), XS[0], two)
    assert TRACED == ["late"]
    np.testing.assert_allclose(found["root"], 2 * np.sqrt(XS[0]), rtol=1e-14)
    run(jnp.array(True), XS[1], two)
    assert TRACED == ["late"]


def test_it_works_where_a_user_has_switched_jit_off():
    """And so does a function of single numbers."""
    sine = Program.callee(lambda x: [jnp.sin(x)], jax.ShapeDtypeStruct((), "float64"))
    with jax.disable_jit():
        np.testing.assert_array_equal(with_fallback(jnp.array(True), lambda x: 2 * x, (XS[0],), XS[0]), 2 * XS[0])
        np.testing.assert_allclose(sine(jnp.array(0.5))[0], np.sin(0.5), rtol=1e-15)


@pytest.mark.slow_except("0", "3", "20")
@pytest.mark.parametrize("few", [0, 1, 2, 3, 20, 40])
def test_it_is_what_a_part_of_the_program_would_be(few):
    """For single rows, batches, batches of batches whose arguments are shared along either axis, and loops."""
    needed = jnp.asarray(np.random.default_rng(few).permutation(40) < few)
    two, scales = jnp.array(2.0), jnp.linspace(1.0, 2.0, 40)
    both = lambda fn, *given: tuple(
        eqx.filter_jit(lambda *xs: fn(c)(*xs))(*given) for c in (with_fallback, where_needed)
    )
    one = lambda c: functools.partial(either, chosen=c)
    assert_same(*both(one, needed[0], XS[0], two))
    assert_same(*both(lambda c: eqx.filter_vmap(one(c), in_axes=(0, 0, None)), needed, XS, two))
    assert_same(*both(lambda c: eqx.filter_vmap(one(c), in_axes=(0, None, 0)), needed, XS[0], scales))
    split = lambda x: x.reshape(4, 10, *x.shape[1:])
    inner = lambda c: eqx.filter_vmap(one(c), in_axes=(0, 0, None))
    assert_same(*both(lambda c: eqx.filter_vmap(inner(c), in_axes=(0, 0, 0)), split(needed), split(XS), scales[:4]))
    inner = lambda c: eqx.filter_vmap(one(c), in_axes=(0, None, None))
    assert_same(*both(lambda c: eqx.filter_vmap(inner(c), in_axes=(0, 0, None)), split(needed), XS[:4], two))
    along = lambda c: lambda *xs: jax.lax.map(lambda row: eqx.filter(one(c)(*row, two), eqx.is_array), xs)
    assert_same(*both(along, needed, XS))


@pytest.mark.parametrize("of_lane", [False, True])
def test_its_derivatives_in_forward_mode(of_lane):
    def moved(chosen, needed, x, scale):
        fn = lambda x, scale: eqx.filter(either(needed, x, scale, chosen), eqx.is_array)
        return jax.jvp(fn, (x, scale), (jnp.cos(x), jnp.array(0.3)))

    needed = jnp.array([True, False, True, True])
    both = []
    for chosen in (with_fallback, where_needed):
        fn = functools.partial(moved, chosen)
        found = jax.jit(jax.vmap(fn, (0, 0, None)) if of_lane else fn)(
            *((needed, XS[:4]) if of_lane else (needed[0], XS[0])), jnp.array(2.0)
        )
        both.append(jax.tree.map(lambda x: x if x.dtype != jax.dtypes.float0 else jnp.zeros(()), found))
    assert_same(*both)


def test_its_derivatives_in_reverse_mode():
    """Of functions in which JAX goes back: single rows, batches, shared arguments, loops; alone or where a part of rows needs it."""

    def smooth(x, scale):
        return [jnp.sin(x) * scale, jnp.sum(x**3), jnp.sum(x > 1)]

    def cost(chosen, needed, x, scale):
        found = chosen(needed, smooth, (x, scale), [2 * x, x[0] * scale, jnp.array(7)])
        return jnp.sum(found[0] ** 2) + jnp.cos(found[1])

    needed = jnp.arange(12) % 3 == 0
    both = []
    for chosen in (with_fallback, where_needed):
        one = functools.partial(cost, chosen)
        many = lambda needed, x, scale, one=one: jnp.sum(jax.vmap(one, (0, 0, None))(needed, x, scale))
        other = lambda needed, x, scale, one=one: jnp.sum(jax.vmap(one, (0, None, 0))(needed, x, scale))
        along = lambda needed, x, scale, one=one: jnp.sum(jax.lax.map(lambda row: one(*row, scale), (needed, x)))
        slope = lambda fn: jax.jit(jax.grad(fn, (1, 2)))
        rows = [slope(one)(jnp.array(c), XS[0], jnp.array(1.3)) for c in (False, True)]
        rest = slope(many)(needed, XS[:12], jnp.array(1.3)), slope(along)(needed, XS[:12], jnp.array(1.3))
        both.append((rows, rest, slope(other)(needed, XS[0], jnp.linspace(1.0, 2.0, 12))))
    assert_same(*both)


@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
def test_its_second_derivatives(outer):
    """Forward over reverse and reverse over reverse, of single rows and of a batch that shares an argument."""

    def smooth(x, scale):
        return [jnp.sin(x) * scale**2, jnp.sum(x**3), jnp.sum(x > 1)]

    def cost(chosen, needed, x, scale):
        found = chosen(needed, smooth, (x, scale), [2 * x, x[0] * scale, jnp.array(7)])
        return jnp.sum(found[0] ** 2) + jnp.cos(found[1])

    needed, both = jnp.array([True, False, True]), []
    for chosen in (with_fallback, where_needed):
        one = functools.partial(cost, chosen)
        many = lambda x, scale, one=one: jnp.sum(jax.vmap(one, (0, 0, None))(needed, x, scale))
        single = lambda x, scale, one=one: one(needed[0], x, scale)
        found = [
            jax.jit(outer(jax.grad(fn, (0, 1)), (0, 1)))(x, jnp.array(1.3))
            for fn, x in ((single, XS[0]), (many, XS[:3]))
        ]
        both.append(found)
    assert_same(*both)


def test_what_it_raises_is_an_error_of_the_program():
    def wrong(x):
        raise KeyError("no such thing")

    run = jax.jit(lambda needed, x: with_fallback(needed, wrong, (x,), x))
    np.testing.assert_array_equal(run(jnp.array(False), XS[0]), XS[0])
    with pytest.raises(Exception, match="KeyError: 'no such thing'"):
        jax.block_until_ready(run(jnp.array(True), XS[0]))
    other = jax.jit(lambda needed, x: with_fallback(needed, jnp.sum, (x,), x))
    with pytest.raises(Exception, match="must return arrays"):
        jax.block_until_ready(other(jnp.array(True), XS[0]))


def test_single_precision_beside_double():
    with jax.enable_x64(False):
        run = eqx.filter_jit(lambda x: either(jnp.array(True), x, jnp.array(2.0)))
        found = run(jnp.asarray(XS[0], jnp.float32))
        assert found["root"].dtype == jnp.float32
    np.testing.assert_allclose(found["root"], 2 * np.sqrt(XS[0]), rtol=1e-6)


def test_what_is_exported_does_not_call_the_host():
    fn = jax.jit(lambda needed, x: eqx.filter(either(needed, x, jnp.array(2.0)), eqx.is_array))
    exported = export.export(fn)(jax.ShapeDtypeStruct((), bool), jax.ShapeDtypeStruct((3,), float))
    assert "jaxmb_" not in exported.mlir_module()
    assert_same(exported.call(jnp.array(True), XS[0]), fn(jnp.array(True), XS[0]))


ONE_CORE = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax
jax.config.update("jax_enable_x64", True)
import test_fallback as t
run = t.eqx.filter_jit(t.eqx.filter_vmap(lambda n, x: t.either(n, x, t.jnp.array(2.0)), in_axes=0))
x = t.jnp.asarray(t.np.random.default_rng(0).uniform(0.5, 3, (20_000, 3)))
for k in range(1, 6):
    found = run(t.jnp.arange(20_000) % k == 0, x)
print(float(abs(found["root"][::5] - 2 * x[::5] ** 0.5).max()) < 1e-14)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no such call here")
def test_it_does_not_wait_for_itself_on_one_core():
    folder = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.path.dirname(folder)])}
    done = subprocess.run(
        [sys.executable, "-c", ONE_CORE], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.stdout.split() == ["True"], done.stderr[-2000:]


def test_threads_that_come_with_equal_calls_at_once_register_one():
    """Each has a handler of its own by then, and XLA takes a name once."""
    shape = jax.ShapeDtypeStruct((), bool)
    makes = [handler(lambda operands, results: None, [shape], [shape]) for _ in range(2)]
    assert [registered(made, "jaxmb_twice") for made in makes] == ["jaxmb_twice"] * 2
