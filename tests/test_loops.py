"""Programs with loops, compiled as a whole, are what JAX makes of the same text."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmb.lanes import LoopProgram, NotScalarError, Program, Shaped


def shaped(*shape, dtype=jnp.float64):
    return Shaped(shape, dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Written(LoopProgram):
    """A program of a function (call, operands) ↦ results, of which some operands belong to a run."""

    text: object
    parts: tuple
    given: tuple
    returned: tuple
    count: int

    dtype = property(lambda self: self.parts[0].dtype)
    thorough = property(lambda self: False)
    own = property(lambda self: self.count)
    operands = property(lambda self: self.given)
    results = property(lambda self: self.returned)

    def definition(self, call, *operands):
        return self.text(*(call(part) for part in self.parts), *operands)


def assert_as_jax_has_it(program, axes, *operands):
    found = jax.jit(jax.vmap(lambda *xs: program(*xs), axes))(*operands)
    expected = jax.jit(jax.vmap(program.fn, axes))(*operands)
    single = operands[0].dtype == jnp.float32
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-5 if single else 1e-13, atol=1e-6 if single else 1e-14)


def walk(dtype):
    """Goes on until a number that a program changes is small: with a loop within each turn, a choice with a call, rows that are read and written."""
    x, row, table, rows, whole = (shaped(*s, dtype=dtype) for s in ((), (2,), (6, 2), (7, 2), ()))
    shrink = Program.of(lambda x, a: [x * a, x > 2.0], x, x)
    mix = Program.of(lambda row, y, a: [row * a + y], row, row, x)

    def text(shrink, mix, x, table, most, a):
        def turn(carry):
            k, x, total, out, lengths, _ = carry
            here = lax.dynamic_index_in_dim(table, jnp.minimum(k, 5), 0, keepdims=False)

            def add(inner):
                n, total = inner
                return n + 1, mix(total, here, a)[0]

            n, total = lax.while_loop(lambda inner: inner[0] < k % 4, add, (jnp.zeros_like(k), total))
            y, large = shrink(x, a)
            x = lax.cond(large, lambda: shrink(y, a)[0], lambda: y)
            out = out.at[jnp.where(large, k, 7)].set(total, mode="drop")
            return k + 1, x, total, out, lengths.at[k].set(n), large

        zero = jnp.zeros((), jnp.int32)
        out, lengths = jnp.full((7, 2), jnp.inf, dtype), jnp.full(7, -1, jnp.int32)
        start = zero, x, table[0], out, lengths, jnp.array(False)
        k, x, total, out, lengths, large = lax.while_loop(lambda c: (c[1] > 1.0) & (c[0] < most), turn, start)
        return [x + k, total, out, lengths, large, k]

    results = x, row, rows, shaped(7, dtype=jnp.int32), shaped(dtype=jnp.bool_), shaped(dtype=jnp.int32)
    return Written(text, (shrink, mix), (x, table, shaped(dtype=jnp.int32), whole), results, 3)


def test_a_program_is_compiled_once_whoever_calls_it():
    x = shaped(20)
    program = Program.of(lambda x: [jnp.sin(x) * jnp.sum(x)], x)
    alone = {unit.name for unit in program.module((True,), 1).units}
    # Of an operand, of what is computed between two calls, and of what another call has left in memory.
    for text in (lambda call, x: call(x), lambda call, x: call(2 * x + 1), lambda call, x: call(call(x)[0])):
        loop = Written(text, (program,), (x,), (x,), 1)
        assert {unit.name for unit in loop.module((True,), 1).units} == alone
        assert_as_jax_has_it(loop, 0, jnp.linspace(0.0, 1.0, 60).reshape(3, 20))


def test_what_is_between_the_calls_of_a_large_program_is_compiled_as_quickly(monkeypatch):
    monkeypatch.setattr("jaxmb.lanes.module.LARGE", 30)
    x, few = shaped(20), shaped(2)
    large = Program.of(lambda x: [jnp.sin(x) * jnp.sum(x)], x)
    small = Program.of(lambda x: [x * x], few)
    text = lambda large, small, x: [large(x)[0].at[:2].set(small(x[:2])[0])]
    both = Written(text, (large, small), (x,), (x,), 1)
    assert both.module((True,), 1).handler.quick
    assert not Written(lambda small, x: small(x), (small,), (few,), (few,), 1).module((True,), 1).handler.quick
    # Lanes side by side are many runs: compiled well.
    assert not both.module((True,), 8).handler.quick


@pytest.mark.parametrize("lanes", [1, 5, 37])
@pytest.mark.slow_except("37")
def test_a_loop_with_all_that_may_stand_in_it(lanes):
    """Runs of none to seven turns, in the order that they are given; also with operands that all lanes share."""
    rng = np.random.default_rng(lanes)
    x, most = jnp.asarray(rng.uniform(0.5, 30, lanes)), jnp.asarray(rng.integers(0, 8, lanes), jnp.int32)
    table, a = jnp.asarray(rng.normal(size=(lanes, 6, 2))), jnp.asarray(rng.uniform(0.6, 0.9, lanes))
    program = walk(jnp.float64)
    assert_as_jax_has_it(program, (0, 0, 0, 0), x, table, most, a)
    if lanes == 5:
        assert_as_jax_has_it(program, (0, None, None, None), x, table[0], most[0] + 7, a[0])
        single = (y.astype(jnp.float32) if y.dtype == jnp.float64 else y for y in (x, table, most, a))
        assert_as_jax_has_it(walk(jnp.float32), (0, 0, 0, 0), *single)


def test_a_program_without_a_loop():
    x = shaped(3)
    square = Program.of(lambda x: [x * x], x)

    def text(square, x, k):
        y = square(square(x)[0])[0]
        return [lax.cond(k > 1, lambda: square(y)[0], lambda: x), jnp.sum(y)]

    program = Written(text, (square,), (x, shaped(dtype=jnp.int64)), (x, shaped()), 2)
    values, kinds = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.5, (19, 3))), jnp.arange(19) % 4
    assert_as_jax_has_it(program, (0, 0), values, kinds)


def test_long_arrays_are_read_where_they_stand():
    """What one call returns is given to the next without being copied, also around a loop."""
    long = shaped(40)
    turn = Program.of(lambda x, a: [jnp.roll(x, 1) * a, jnp.sum(x)], long, shaped())

    def text(turn, x, a, most):
        def go(carry):
            k, x, _, total = carry
            new, part = turn(x, a)
            return k + 1, new, x, total + part  # one becomes the other

        _, x, y, total = lax.while_loop(lambda c: c[0] < most, go, (jnp.zeros_like(most), x, x, jnp.zeros(())))
        return [x, y, total]

    program = Written(text, (turn,), (long, shaped(), shaped(dtype=jnp.int32)), (long, long, shaped()), 3)
    rng = np.random.default_rng(1)
    most = jnp.asarray(rng.integers(0, 9, 11), jnp.int32)
    assert_as_jax_has_it(program, (0, None, 0), jnp.asarray(rng.normal(size=(11, 40))), jnp.asarray(0.9), most)


def test_what_is_not_understood_is_told():
    x, table = shaped(), shaped(4, 3)
    same = Program.of(lambda x: [x], x)

    def text(same, x, table, k):
        return [same(x)[0] + lax.dynamic_slice(table, (k, jnp.int32(1)), (1, 2))[0, 0]]

    program = Written(text, (same,), (x, table, shaped(dtype=jnp.int32)), (x,), 3)
    with pytest.raises(NotScalarError, match="reads more than a row of an operand"):
        program.module((False, False, False), 1)
