"""Scalar programs equal the functions of which they are made, and steps by compiled code those that are not."""

import dataclasses
import functools
import gc
import itertools
import pathlib
import re
import subprocess
import sys
import weakref
from types import SimpleNamespace

import bricard_joints
import diffrax as dfx
import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import parallelogram
import pytest
import systems
from jax import lax
from systems import SYSTEMS, make

import jaxmb as jm
from jaxmb.foundations import Blank
from jaxmb.lanes import NotScalarError, Program, Shaped, VJPProgram, jvp, unavailable
from jaxmb.lanes.code import Code
from jaxmb.lanes.interface import Interface, interface, read
from jaxmb.lanes.jaxpr import body, is_literal, opened
from jaxmb.lanes.stored import stored
from jaxmb.runge_kutta import RunProgram, StepProgram
from jaxmb.simulation import compiled_run
from jaxmb.simulation.compiled_adjoint import run_adjoint
from jaxmb.simulation.compiled_step import arrays_of_field, compiled_step, compiled_step_adjoint
from jaxmb.simulation.drift import Projection
from jaxmb.simulation.engine import compiles_quickly
from jaxmb.simulation.solver import ConstrainedSolver
from jaxmb.simulation.state_vector import StateVector
from jaxmb.simulation.vector_field import VectorField
from jaxmb.system import Scale, dense_work, layout_of

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="code is compiled for CPUs")
DOUBLE = jnp.float64


def shaped(*shape, dtype=DOUBLE):
    return Shaped(shape, dtype)


@functools.cache
def program(fn, *shapes):
    return Program.of(fn, *(shaped(*s) for s in shapes))


def both(fn, *arguments, shared=()):
    """Results of the program and of the function itself over lanes; arguments in `shared` are the same for all."""
    shapes = [np.shape(x)[0 if k in shared else 1 :] for k, x in enumerate(arguments)]
    axes = [None if k in shared else 0 for k in range(len(arguments))]
    over = lambda f: jax.jit(jax.vmap(f, axes))(*arguments)
    return over(program(fn, *shapes)), over(fn)


def assert_equal(found, expected, atol=1e-12):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=atol)


def elementwise(x):
    """Each function of one number, where it is defined."""
    one = [
        jnp.sin(x),
        jnp.cos(x),
        jnp.tan(x),
        jnp.arctan(x),
        jnp.exp(x),
        jnp.exp2(x),
        jnp.expm1(x),
        jnp.tanh(x),
        jnp.sinh(x),
    ]
    one += [jnp.cosh(x), jnp.arcsinh(x), jnp.cbrt(x), jnp.abs(x), jnp.sign(x), jnp.floor(x), jnp.ceil(x), jnp.round(x)]
    one += [
        lax.round(x),
        jax.nn.sigmoid(x),
        x**2,
        x**3,
        x**-2,
        x**0,
        jnp.isfinite(x).astype(float),
        -x,
        1 / x,
        jnp.square(x),
    ]
    positive = jnp.abs(x)
    one += [
        jnp.sqrt(positive),
        lax.rsqrt(positive),
        jnp.log(positive),
        jnp.log1p(positive),
        positive**1.7,
        jnp.arccosh(1 + positive),
    ]
    small = jnp.tanh(x)
    return jnp.stack([*one, jnp.arcsin(small), jnp.arccos(small), jnp.arctanh(0.5 * small)])


def of_two(x, y):
    larger = [
        jnp.maximum(x, y),
        jnp.minimum(x, y),
        jnp.arctan2(x, y),
        jnp.fmod(x, y),
        jnp.hypot(x, y),
        x / y,
        jnp.clip(x, -1, y),
    ]
    truths = [
        x > y,
        x < y,
        x >= y,
        x <= y,
        x == y,
        x != y,
        (x > 0) & (y > 0),
        (x > 0) | (y > 0),
        (x > 0) ^ (y > 0),
        ~(x > 0),
    ]
    return jnp.stack(larger), jnp.stack(truths)


def moving(x, y):
    """What moves entries."""
    table = jnp.arange(12.0).reshape(3, 4)
    rows = [
        x[jnp.array([2, 0, 2])],
        jnp.roll(x, 1),
        x[::-1],
        jnp.concatenate([x, y])[2:5],
        jnp.cumsum(x),
        jnp.pad(y, 1)[:3],
    ]
    rows += [
        x.at[1].set(y[0]),
        x.at[jnp.array([0, 2, 0])].add(y),
        jnp.tile(y, 2)[3:],
        jnp.repeat(y, 2)[1:4],
        jnp.where(x > y, x, y),
    ]
    rows += [table[:, 1] * x, jnp.diag(jnp.outer(x, y)), lax.pad(x, 0.0, [(-1, 1, 0)]), lax.cumsum(x, reverse=True)]
    place = jnp.argmax(x)
    one = [x[0], jnp.prod(x), jnp.max(x), jnp.min(y), jnp.any(x > 1).astype(float), jnp.all(x > -9).astype(float)]
    one += [
        place.astype(float),
        jnp.argmin(x).astype(float),
        lax.dynamic_slice(y, (place,), (1,))[0],
        jnp.einsum("i,ij,j", x, table[:, :3], y),
    ]
    return jnp.stack(rows), jnp.stack(one)


def looping(x, y):
    scanned, trace = lax.scan(lambda c, e: (c * 0.5 + e, c), x[0], y, reverse=True)
    looped = lax.fori_loop(0, 4, lambda i, c: c + jnp.sin(c) * i, x)
    chosen = lax.cond(x[0] > 0, lambda: x + y, lambda: x - y)
    three = lax.switch(jnp.int32(1), [lambda: x, lambda: 2 * x, lambda: 3 * x])
    return [scanned, trace, looped, chosen, three]


LANES = (1, 7, 64, 513)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("fn", [lambda x: [elementwise(x)], lambda x: list(of_two(x[0], x[1]))], ids=["one", "two"])
def test_operations(fn, lanes):
    x = np.random.default_rng(lanes).normal(size=(lanes, 2) if lanes else 2) * 2
    x = x[:, 0] if fn.__code__.co_names[0] == "elementwise" else x
    assert_equal(*both(fn, x))


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.slow_except("7")
def test_what_moves_entries_and_loops(lanes):
    x, y = np.random.default_rng(lanes).normal(size=(2, lanes, 3))
    assert_equal(*both(lambda x, y: list(moving(x, y)), x, y))
    assert_equal(*both(lambda x, y: looping(x, y), x, y))
    assert_equal(*both(lambda x, y: list(moving(x, y)), x, y[0], shared=(1,)))


def beyond(x, y):
    """What is read and written beyond the ends of an array, for each row another place, and choices by whole numbers."""
    out, rows, places = jnp.array([1, 7]), jnp.outer(x, y), jnp.array([2, 0, 1])
    numbers = [jnp.take(x, out, mode="fill"), jnp.take(x, out, mode="clip"), jnp.take(x, out, fill_value=2.0)]
    numbers += [x.at[out].set(y[:2], mode="drop")[:2], x.at[out].add(y[:2], mode="clip")[1:]]
    numbers += [jax.vmap(lambda row, k: row[k])(rows, places)[:2]]
    numbers += [jax.vmap(lambda row, k, v: row.at[k].set(v))(rows, places, x)[:2, 0]]
    which = jnp.argmax(x).astype(jnp.int32)
    chosen = [lax.select_n(which, x[0], 2 * y[1], y[2]), jnp.floor(x[0]).astype(bool).astype(float)]
    return [jnp.stack(numbers), jnp.stack(chosen), jnp.zeros((0, 2)) * x[0]]


@pytest.mark.parametrize("by_numbers", [False, True])
def test_what_lies_beyond_the_ends_of_arrays(by_numbers):
    x, y = np.random.default_rng(3).normal(size=(2, 5, 3))
    own = program(beyond, (3,), (3,))
    assert_equal(jax.jit(jax.vmap(own.by_numbers if by_numbers else own))(x, y), jax.vmap(beyond)(x, y))


def calling(x, y):
    """What holds programs, and what some versions of JAX have operations of their own for."""
    lanes = jax.custom_batching.custom_vmap(lambda x: jnp.sin(x) + 1)
    lanes.def_vmap(lambda size, batched, x: (jnp.sin(x) + 1, True))
    slope = jax.custom_vjp(lambda x: x**2)
    slope.defvjp(lambda x: (x**2, x), lambda x, bar: (3 * x * bar,))
    calls = [jax.jit(jnp.cumsum)(x), jax.checkpoint(jnp.cos)(x), steeper(x), slope(x), lanes(lax.stop_gradient(x))]
    grid = jnp.array([-1.0, 0.0, 0.5, 2.0])
    on_cpu = lax.platform_dependent(x, cpu=lambda x: x, default=lambda x: 2 * x)
    own = [
        jnp.interp(x[0], grid, grid**2) * y,
        jnp.sinc(x),
        jnp.log2(2 + x**2),
        jnp.polyval(y, x),
        jax.device_put(x),
        on_cpu,
    ]
    nested = lambda carry, row: (
        (carry[0] + lax.fori_loop(0, 2, lambda k, z: z * y[0] + k, row), carry[1]),
        (row, carry[0]),
    )
    (last, same), rows = lax.scan(nested, (x[0], x), y)
    turns = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + 1 / c[1]), (0, lax.stop_gradient(x)))[1]
    nothing = lax.scan(lambda c, _: (c + x[0], None), x, None, length=2)[0]
    return [jnp.stack(calls), jnp.stack(own), last, same, *rows, turns, nothing]


def test_what_each_version_of_jax_has_words_of_its_own_for():
    """Loops by their operands, calls by the program that they hold; derivatives too."""
    x, y = np.random.default_rng(7).normal(size=(2, 5, 3))
    assert_equal(*both(calling, x, y))
    own, fn = program(calling, (3,), (3,)), lambda x, y: jnp.concatenate([jnp.ravel(z) for z in calling(x, y)])
    flat = lambda x, y: jnp.concatenate([jnp.ravel(z) for z in own(x, y)])
    assert_equal(*(jax.jit(jax.vmap(jax.jacrev(f)))(x, y) for f in (flat, fn)))
    bar = jnp.asarray(np.random.default_rng(8).normal(size=(5, fn(x[0], y[0]).size)))
    back = VJPProgram(lambda x, y: [fn(x, y)], shaped(3), shaped(3), moving=(0, 1), at=2)
    expected = jax.vmap(lambda x, y, bar: jax.vjp(fn, x, y)[1](bar))(x, y, bar)
    assert_equal(jax.vmap(back)(x, y, bar), expected)


def test_where_things_stand_in_xlas_structs_is_read_from_its_header():
    """Fields follow each other, each at a multiple of its alignment; what is not there is told."""
    header = """
    #define XLA_FFI_API_MAJOR 2
    #define XLA_FFI_API_MINOR 7  // later
    typedef enum { XLA_FFI_DataType_A = 1, } XLA_FFI_DataType;
    typedef uint32_t XLA_FFI_Traits;
    struct XLA_FFI_Api_Version { size_t struct_size; int major_version; int minor_version; };
    struct XLA_FFI_Args { void** args; int64_t size; };
    typedef struct XLA_FFI_Rets { XLA_FFI_Traits traits; void (*call)(void* object); void** rets; } XLA_FFI_Rets;
    struct XLA_FFI_Buffer { XLA_FFI_DataType dtype; void* data; /* of all; */ int64_t rank; };
    struct XLA_FFI_CallFrame { int stage; XLA_FFI_Base* extension_start; XLA_FFI_Args args; XLA_FFI_Rets rets; const XLA_FFI_Api* api; };
    #define _XLA_FFI_API_STRUCT_FIELD(fn_type) fn_type* fn_type
    struct XLA_FFI_Api { int version; _XLA_FFI_API_STRUCT_FIELD(XLA_FFI_Error_Create); };
    typedef enum { XLA_FFI_Error_Code_OK = 0 } XLA_FFI_Error_Code;
    struct XLA_FFI_Error_Create_Args { size_t struct_size; const char* message; XLA_FFI_Error_Code errc; };
    struct XLA_FFI_Metadata_Extension { XLA_FFI_Api_Version base; XLA_FFI_Metadata* metadata; };
    struct XLA_FFI_Metadata { XLA_FFI_Traits traits; XLA_FFI_Api_Version api_version; };
    """
    assert read(header) == Interface((2, 7), 8, 16 + 0, 32 + 16, 8, 16, 8 + 8, 56, 8, 8, 16, 24)
    assert interface().version >= (0, 1) and unavailable() is None
    with pytest.raises(ValueError, match="has no `struct XLA_FFI_Buffer"):
        read(header.replace("XLA_FFI_Buffer", "XLA_FFI_Array"))
    with pytest.raises(ValueError, match="has no field `data` of `XLA_FFI_Buffer`"):
        read(header.replace("void* data", "void* numbers"))


def test_code_is_kept_where_jax_keeps_its_programs(tmp_path):
    made, whole = [], b"code of a function"

    def compiled():
        made.append(whole)
        return whole

    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert [stored("f", compiled) for _ in range(3)] == [whole] * 3 and len(made) == 1
        (file,) = tmp_path.glob("lanes/f_*")
        for broken in (file.read_bytes()[:-1], file.read_bytes() + b"!", b""):
            file.write_bytes(broken)
            assert stored("f", compiled) == whole == stored("f", compiled)
        assert len(made) == 4 and list(tmp_path.glob("lanes/*")) == [file]
        # A folder that cannot be had, one of another kind, and none.
        for folder in (str(file), "gs://bucket/folder", None):
            jax.config.update("jax_compilation_cache_dir", folder)
            assert stored("f", compiled) == whole
        assert len(made) == 7
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


ANOTHER_PROCESS = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
import jax.numpy as jnp
from jaxmb.lanes import Program, Shaped, jit
compile_, made = jit._object_code, []
jit._object_code = lambda unit: made.append(unit) or compile_(unit)
program = Program.of(lambda x: [jnp.sin(x) * x], Shaped((3,), jnp.float64))
numbers = program(jnp.arange(3.0))[0].tolist()
print(len(made), numbers)
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    run = lambda: subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout.split(maxsplit=1)
    (first, numbers), (second, same) = run(), run()
    assert int(first) > 0 == int(second) and numbers == same


def test_the_same_number_by_number():
    """By operations of JAX on single numbers, for other devices than CPUs; tables in memory too."""
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(2, 7, 3))
    x[0, 0], y[1, 1] = np.nan, np.inf
    table = lambda x, y: [jnp.concatenate([x, y, x * y])[jnp.argmax(x) + 3 * jnp.argmin(y)], y > x]
    for fn in (
        lambda x, y: [elementwise(x)],
        lambda x, y: [*of_two(x, y)],
        looping,
        lambda x, y: [*moving(x, y)],
        table,
    ):
        for shared in ((), (1,)):
            own = program(fn, (3,), (3,))
            axes = (0, None) if shared else (0, 0)
            given = jnp.asarray(x), jnp.asarray(y[0] if shared else y)
            found, expected = (jax.jit(jax.vmap(f, axes))(*given) for f in (own.by_numbers, own))
            assert_equal(found, expected)
    for _ in range(5):
        own = Program.of(random_program(rng), shaped(3))
        assert_equal(jax.vmap(own.by_numbers)(x), jax.vmap(own)(x), atol=1e-11)


@pytest.mark.parametrize("inner", [(0, None, 0), (None, 0, 0), (None, 0, None)])
@pytest.mark.parametrize("outer", [(0, 0, None), (0, None, 0), (None, None, 0)])
@pytest.mark.slow_except("outer1-inner2", "outer2-inner0")
def test_operands_may_lack_some_of_the_lanes(inner, outer):
    """Two axes of lanes, along each of which some operands are the same; derivatives back to them are sums."""
    rng, fn = np.random.default_rng(0), lambda x, y, z: [jnp.sin(x) * y + z * z[::-1]]
    made = program(fn, (2,), (2,), (2,))
    shape = lambda a, b: ((5,) if b == 0 else ()) + ((9,) if a == 0 else ()) + (2,)
    given = [jnp.asarray(rng.normal(size=shape(a, b))) for a, b in zip(inner, outer, strict=True)]
    many = lambda f: jax.vmap(jax.vmap(f, inner), outer)
    assert_equal(*(jax.jit(many(f))(*given) for f in (made, fn)))
    total = lambda f: lambda *xs: jnp.sum(jnp.cos(many(f)(*xs)[0]))
    assert_equal(*(jax.jit(jax.grad(total(f), (0, 1, 2)))(*given) for f in (made, fn)))
    each = lambda f: many(jax.grad(lambda *xs: jnp.sum(jnp.cos(f(*xs)[0])), (0, 1, 2)))
    assert_equal(*(jax.jit(each(f))(*given) for f in (made, fn)))


def test_what_is_not_finite_is_not_lost():
    """Where the function is undefined or infinite so is the program; where a factor of 0 is, at least the program says so."""
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1e300, 1e-300, -1.0])
    pairs = np.array([(a, b) for a in odd for b in odd])

    def fn(x):
        return [
            x[0] + x[1],
            x[0] * x[1],
            x[0] / x[1],
            jnp.sqrt(x[0]),
            jnp.maximum(x[0], x[1]),
            x[0] > x[1],
            jnp.where(x[0] > 0, x[0], x[1]),
        ]

    found, expected = both(fn, pairs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-16)
    dropped, kept = both(lambda x: [x[0] * jnp.zeros(2) + x[1], 0 / x[0] + x[1], x[0] - x[0] + x[1]], pairs)
    for a, b in zip(dropped, kept, strict=True):
        assert np.all(np.isnan(a) | (a == b))
        assert np.all(np.isnan(a) >= np.isnan(b))


def test_the_first_nan_is_the_largest_and_the_smallest():
    """As JAX has it: of what is chosen by `argmax` and `argmin` none is lost."""
    x = np.array(
        [[1, np.nan, 2], [np.nan, 1, 2], [2, 1, np.nan], [np.nan] * 3, [np.inf, np.nan, 1], [3, 3, 1], [1, 2, 3]]
    )
    cases = [lambda x: x, lambda x: 2 * x, lambda x: 3 * x]
    for place in (jnp.argmax, jnp.argmin):
        fn = lambda x, place=place: [place(x), lax.switch(place(x), cases, x), lax.dynamic_slice(x, (place(x),), (1,))]
        for a, b in zip(*both(fn, x), strict=True):
            np.testing.assert_array_equal(a, b)


def test_quotients_over_the_whole_range_of_numbers():
    """Also where the reciprocal of the divisor is rounded to zero; derivatives where roots begin."""
    ends = [1e-300, 1.0, 1e300, 1e308, 1.7e308, -1.1e308]
    pairs = np.array([(a, b) for a in ends for b in ends])
    fn = lambda x: [x[0] / x[1], -x[0] / x[1], x[0] / -x[1], x[0] / 1.5e308, 3.0 / x[1], 1 / x[1]]
    tiny = np.finfo(float).tiny  # below, XLA's code takes numbers for zero; by 1.5e308 its own quotients are
    with np.errstate(over="ignore"):
        expected = fn(pairs.T)
    for a, b in zip(jax.vmap(program(fn, (2,)))(pairs), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=4e-16, atol=tiny)
    at = jnp.array([[0.0], [8.0], [-1.0]])
    for root in (jnp.cbrt, jnp.sqrt, lambda x: x**1.5, lambda x: jnp.arctan2(x, x), lambda x: jnp.arctan2(x, 1 + x)):
        own, expected = pulled(root, 1)
        np.testing.assert_allclose(
            *(jax.vmap(f)(at, jnp.ones((3, 1)))[0] for f in (own, expected)), rtol=1e-12, atol=1e-15
        )


def test_sine_and_cosine_to_two_units_in_the_last_place():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.uniform(-(10**k), 10**k, 4000) for k in range(-3, 9)]
        + [np.arange(-200, 200) * np.pi / 4, 10.0 ** rng.uniform(-300, 0, 500)]
    )
    own = jax.vmap(program(lambda x: [jnp.sin(x), jnp.cos(x)], ()))
    found = own(jnp.asarray(x))
    for value, exact in zip(found, (np.sin, np.cos), strict=True):
        exact = exact(x.astype(np.longdouble))
        off = np.abs(np.asarray(value) - exact) / np.spacing(np.abs(exact.astype(float)))
        assert off.max() < 2, x[off.argmax()]
    assert np.all(np.isnan(own(jnp.array([1.1e8, np.inf, np.nan]))))  # none rather than a wrong one
    single = jax.vmap(Program.of(lambda x: [jnp.sin(x), jnp.cos(x)], shaped(dtype=jnp.float32)))
    x = np.concatenate([rng.uniform(-(10**k), 10**k, 4000) for k in range(-3, 4)]).astype(np.float32)
    for value, exact in zip(single(jnp.asarray(x)), (np.sin, np.cos), strict=True):
        exact = exact(x.astype(float))
        assert np.max(np.abs(np.asarray(value, float) - exact) / np.spacing(np.abs(exact.astype(np.float32)))) < 2


def test_derivatives_that_are_no_scalar_programs_are_jaxs(monkeypatch):
    """As those of large functions, which take more operations than a program may have."""
    monkeypatch.setattr(Program, "tangent", lambda *_: None)
    monkeypatch.setattr(Program, "transposed", lambda *_: None)
    fn = lambda x, y: [jnp.sin(x) * y, x * x]
    x, y, dots = jnp.array([0.3, 0.7]), jnp.arange(6.0).reshape(2, 3), (jnp.array([1.0, 2.0]), jnp.ones((2, 3)))
    forward = lambda f: lambda x, y, a, b: jax.jvp(f, (x, y), (a, b))
    back = lambda f: jax.grad(lambda x, y: jnp.sum(f(x, y)[0]), (0, 1))
    own = program(fn, (), (3,))
    assert_equal(*(jax.jit(forward(f))(x[0], y[0], dots[0][0], dots[1][0]) for f in (own, fn)))
    assert_equal(*(jax.jit(back(f))(x[0], y[0]) for f in (own, fn)))
    assert_equal(*(jax.jit(jax.vmap(forward(f)))(x, y, *dots) for f in (own, fn)))
    assert_equal(*(jax.jit(jax.vmap(back(f)))(x, y) for f in (own, fn)))
    scaled = program(lambda x, y: [jnp.sin(x) * y], (), ())
    slope = jax.jit(lambda x: jax.jvp(lambda x: scaled(x, np.asarray(3.0)), (x,), (1.0,))[1])
    assert_equal(slope(x[0]), [3 * jnp.cos(x[0])])


def test_what_was_compiled_of_a_system_that_is_gone_is_forgotten(monkeypatch):
    """But for its code, which XLA may call for ever: where the latest ones are forgotten nothing else holds them."""
    made, init = weakref.WeakSet(), Program.__init__

    def noted(self, *args, **kwargs):
        init(self, *args, **kwargs)
        made.add(self)

    monkeypatch.setattr(Program, "__init__", noted)
    angle = lambda t, q, p: 0.5 * (1 + 0.125 * p) * (q @ q)  # of this test alone
    system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), potential=angle, params=1.0)
    end = lambda v: jm.simulate(system, jm.as_state(system, [1.0, 0.0], v), [0.5]).q[-1, 0]
    assert np.isfinite(jax.grad(end)(jnp.array([0.0, 1.0]))).all() and made
    del system, angle, end
    jax.clear_caches()
    for x in gc.get_objects():
        if isinstance(x, functools._lru_cache_wrapper) and x.__module__.startswith("jaxmb") and x.cache_info().maxsize:
            x.cache_clear()
    gc.collect()
    assert not made


def test_a_sine_that_is_not_known_is_not_lost_where_something_is_chosen():
    """Comparisons of NaN would choose one of both; then all is NaN instead."""
    fn = lambda x: [
        jnp.where(jnp.cos(x) > 0, 1.0, 2.0),
        lax.switch(jnp.argmax(jnp.stack([jnp.sin(x), 0.1])), [lambda: x, lambda: -x]),
    ]
    x = jnp.array([-3e9, 1e8, 2.0, 1.1e8])
    own, jaxs = (jax.vmap(f)(x) for f in (program(fn, ()), fn))
    for a, b in zip(own, jaxs, strict=True):
        np.testing.assert_array_equal(a, jnp.where(jnp.abs(x) > 1e8, jnp.nan, b))
    exact = jax.vmap(Program.of(fn, shaped(), exact=True))(x)
    assert_equal(exact, jaxs)


def test_what_is_taken_from_itself_leaves_a_zero_without_sign():
    x = jnp.array([-2.0, 3.0, jnp.inf, jnp.nan])
    fn = lambda x: [1 / (x - x), jnp.arctan2(x - x, x - x)]
    found = jax.vmap(Program.of(fn, shaped(), exact=True))(x)
    for a, b in zip(found, ([jnp.inf, jnp.inf, jnp.nan, jnp.nan], [0.0, 0.0, jnp.nan, jnp.nan]), strict=True):
        np.testing.assert_array_equal(a, jnp.array(b))


def test_rounding_half_away_from_zero():
    """Where ½ more would be rounded itself, too."""
    half = np.nextafter(0.5, [0, 1])
    x = jnp.array([0.0, 0.5, -0.5, 1.5, -2.5, 2.0**52 + 1, -(2.0**53) + 1, *half, *-half, jnp.nan, jnp.inf])
    np.testing.assert_array_equal(jax.vmap(program(lambda x: [lax.round(x)], ()))(x)[0], lax.round(x))


def rich(x, y, matrix):
    s = jnp.sin(x) @ matrix
    c = jnp.cos(y) * s
    return [c / (1 + y * y), jnp.sum(jnp.where(s > 0, s, -s)) + jnp.linalg.norm(c)]


def test_truth_values_have_no_derivative():
    """Beside numbers that have one, and where nothing moves that is a number."""
    fn = lambda x, flag: [jnp.where(flag, jnp.sin(x), x), x > 0.5, flag]
    own = Program.of(fn, shaped(3), shaped(3, dtype=bool))
    x, flag = jnp.array([0.2, 0.7, 1.1]), jnp.array([True, False, True])
    found, moved = jax.jvp(lambda x: own(x, flag)[0], (x,), (jnp.ones(3),))
    np.testing.assert_allclose(found, jnp.where(flag, jnp.sin(x), x), atol=1e-15)
    np.testing.assert_allclose(moved, jnp.where(flag, jnp.cos(x), 1.0), atol=1e-15)
    slope = jax.grad(lambda y: jnp.sum(y * own(x, y > 2)[0]))(jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(slope, [0.2, 0.7, np.sin(1.1)], atol=1e-15)


WAYS = {
    "reverse": lambda g: jax.grad(g, (0, 1, 2)),
    "forward": lambda g: jax.jacfwd(g, (0, 2)),
    "forward over reverse": lambda g: jax.jacfwd(jax.grad(g, (0, 2)), (0, 2)),
    "reverse over reverse": lambda g: jax.jacrev(jax.grad(g, (1, 2)), (1, 2)),
    "forward over forward": lambda g: jax.jacfwd(jax.jacfwd(g, 1), 2),
}


@pytest.mark.slow_cases("reverse over reverse", "forward over forward")
@pytest.mark.parametrize("way", WAYS)
def test_derivatives_of_both_orders_over_lanes(way):
    rng = np.random.default_rng(1)
    x, y, matrix = (jnp.asarray(rng.normal(size=size)) for size in ((7, 3), (7, 3), (3, 3)))
    own = program(rich, (3,), (3,), (3, 3))
    total = lambda f: lambda x, y, m: jnp.sum(f(x, y, m)[0] ** 2) + f(x, y, m)[1]
    each = lambda f: jax.jit(jax.vmap(WAYS[way](total(f)), (0, 0, None)))(x, y, matrix)
    assert_equal(each(own), each(rich))


def test_derivatives_over_lanes_that_share_operands():
    rng = np.random.default_rng(1)
    x, y, matrix = (jnp.asarray(rng.normal(size=size)) for size in ((7, 3), (7, 3), (3, 3)))
    own = program(rich, (3,), (3,), (3, 3))
    total = lambda f: lambda x, y, m: jnp.sum(f(x, y, m)[0] ** 2) + f(x, y, m)[1]
    shared = lambda f: jax.grad(lambda m: jnp.sum(jax.vmap(total(f), (0, 0, None))(x, y, m)))(matrix)
    assert_equal(shared(own), shared(rich))
    nested = lambda f: jax.vmap(jax.vmap(total(f), (None, 0, None)), (0, None, None))(x, y, matrix)
    assert_equal(nested(own), nested(rich))


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: [lax.while_loop(lambda c: c < 1, lambda c: c + x, x)], "loop whose length depends"),
        (lambda x: [jnp.arange(3.0)[x.astype(int)]], "whole numbers"),
        (lambda x: [lax.reduce_precision(x, 8, 23)], "`reduce_precision`"),
        (lambda x: [x * jnp.real(jnp.array(1j) * 1j)], "complex"),
        (lambda x: [(jnp.argmax(jnp.stack([x, -x])) & 1).astype(float)], "`and` of whole numbers"),
        (lambda x: [lax.max(x > 0, x > 1).astype(float)], "`max` of truth values"),
        (lambda x: [lax.dynamic_slice(jnp.eye(3), [jnp.argmax(jnp.stack([x, -x]))] * 2, (1, 1))], "several places"),
        (lambda x: [jnp.sort(jnp.stack([x, -x]))], "`sort`"),
        (lambda x: [jnp.fft.fft(jnp.stack([x, x])).real], "complex|fft"),
        (lambda x: [x.astype(jnp.float32).astype(float) + x.astype(jnp.float32)], "precision"),
        (lambda x: [lax.scan(lambda c, _: (jnp.sin(c) + c, None), x, None, length=15_000)[0]], "more than"),
    ],
)
def test_reasons_why_there_is_no_program(fn, reason):
    with pytest.raises(NotScalarError, match=reason):
        Program.of(fn, shaped())


def random_program(rng, count=25):
    """A function of three numbers that does `count` things, each to earlier results."""
    steps = []
    for k in range(count):
        steps.append(
            (rng.integers(14), *rng.integers(0, 3 + k, 3), float(rng.choice([0.0, 1.0, -1.0, 0.5, rng.normal()])))
        )

    def fn(x):
        known = list(x)
        for kind, i, j, k, c in steps:
            a, b, d = known[i], known[j], known[k]
            known.append(
                [
                    lambda: a + b,
                    lambda: a - b,
                    lambda: a * b,
                    lambda: a / (2 + jnp.abs(b)),
                    lambda: -a,
                    lambda: c * a,
                    lambda: jnp.sin(a),
                    lambda: jnp.cos(b),
                    lambda: jnp.where(a > b, d, c),
                    lambda: jnp.maximum(a, c),
                    lambda: jnp.sqrt(jnp.abs(a)),
                    lambda: jnp.exp(-jnp.abs(a)),
                    lambda: a - a * c,
                    lambda: jnp.tanh(a) + c * b,
                ][kind]()
            )
        return [jnp.stack(known[-6:])]

    return fn


def test_random_programs():
    rng = np.random.default_rng(3)
    x = jnp.asarray(rng.normal(size=(9, 3)))
    for _ in range(15):
        fn = random_program(rng)
        own = Program.of(fn, shaped(3))
        assert_equal(jax.vmap(own)(x), jax.vmap(fn)(x), atol=1e-11)


def pulled(fn, size):
    """The program of the cotangent of x, and the function itself: (x, cotangent of the result) ↦ cotangent of x."""
    length = jax.eval_shape(fn, shaped(size)).shape
    own = VJPProgram(lambda x: [fn(x)], shaped(size), moving=(0,), at=1)
    assert own.operands == (shaped(size), shaped(*length))
    return own, lambda x, bar: jax.vjp(fn, x)[1](bar)


@jax.custom_jvp
def steeper(x):
    """Whose derivative is not that of what it does."""
    return jnp.sin(x)


steeper.defjvp(lambda primals, tangents: (steeper(*primals), 7.0 * tangents[0]))


def solved(x):
    """Of equations whose matrix and right-hand side both move, twice in a row."""
    matrix = jnp.outer(x, jnp.sin(x)) + 4.0 * jnp.eye(3)
    inverse = lax.stop_gradient(jnp.diag(1 / jnp.diag(matrix)))

    def by_sweeps(apply, b):
        return lax.fori_loop(0, 60, lambda _, y: y + inverse @ (b - apply(y)), jnp.zeros_like(b))

    transposed = lambda apply, b: by_sweeps(lambda y: matrix.T @ y, b)
    solve = lambda b: lax.custom_linear_solve(lambda y: matrix @ y, b, by_sweeps, transposed)
    return solve(jnp.cos(x) * solve(x**2))


def partly_known(x):
    """Of equations some of whose unknowns are known to be zero; zero is chosen elsewhere, too."""
    diagonal = jnp.stack([2 + x[0] ** 2, 2 + x[1] ** 2])
    solve = lambda apply, b: b / diagonal
    found = lax.custom_linear_solve(lambda y: diagonal * y, jnp.stack([x[1], 0.0]), solve, solve)
    return jnp.where(x > 0, x, 0.0) * found[0] + jnp.stack([found[1], found[0], 0.0])


CALCULUS = {
    "sums and products": lambda x: x * x[::-1] - x / (2 + x**2) + jnp.cumsum(-x) * x[0],
    "roots": lambda x: jnp.sqrt(2 + x) * lax.rsqrt(3 - x) + jnp.cbrt(2 + x),
    "angles": lambda x: jnp.sin(x) * jnp.cos(2 * x) + jnp.tan(0.3 * x) + jnp.arctan2(x, 2 + x[::-1]) + jnp.arctan(x),
    "arcs": lambda x: jnp.arcsin(x / 4) + jnp.arccos(x / 3) + jnp.arcsinh(x) + jnp.arccosh(3 + x) + jnp.arctanh(x / 4),
    "exponentials": lambda x: jnp.exp(x) + jnp.exp2(x) * jnp.expm1(x) + jnp.sinh(x) * jnp.cosh(x) + jnp.tanh(x),
    "logarithms": lambda x: jnp.log(3 + x) * jnp.log1p(2 + x) + (3 + x) ** 1.7 + x**-2,
    "powers of moving bases and exponents": lambda x: (3 + x) ** x[::-1] + 2.0**x,
    "a place that depends on numbers": lambda x: lax.dynamic_slice(x * x[0], (jnp.argmax(x),), (1,)) * x,
    "what may be equal": lambda x: jnp.maximum(x, x[::-1]) + jnp.minimum(2 * x, x[0]) * x + jnp.abs(x - x[0]) * x,
    "steps": lambda x: jnp.sign(x - x[0]) * x + jnp.floor(3 * x) * x + jnp.round(x) + jnp.fmod(x, 0.7) * x,
    "bounds": lambda x: jnp.clip(x, -0.5, x[0]) * x + jnp.max(x) + jnp.min(jnp.stack([x, x[::-1]]), axis=0),
    "choices": lambda x: jnp.where(x > 0, jnp.sin(x), x**2) * x[1],
    "branches": lambda x: lax.cond(x[0] > 0, lambda: jnp.sin(x), lambda: 1 / x),
    "branches that need different numbers": lambda x: lax.switch(
        jnp.argmax(x), [lambda: jnp.sin(x) * x, lambda: 2 * x, lambda: jnp.tanh(x @ x) * x]
    ),
    "held": lambda x: lax.stop_gradient(x) * x + (x - lax.stop_gradient(x)) * 3 + jnp.sin(lax.stop_gradient(x**2) * x),
    "a derivative of its own": lambda x: steeper(x) * x,
    "logistic": lambda x: jax.nn.sigmoid(1000 * x) * x + jax.nn.softplus(x) + jax.nn.relu(x) * x,
    "linear equations": solved,
    "linear equations of which some are known": partly_known,
}


@pytest.mark.parametrize("name", CALCULUS)
@pytest.mark.slow_except(
    "a derivative of its own",
    "choices",
    "held",
    "logarithms",
    "logistic",
    "powers of moving bases and exponents",
    "roots",
)
def test_cotangents_operation_by_operation(name):
    """Ties, zeros and what is not finite included."""
    fn = CALCULUS[name]
    rng = np.random.default_rng(2)
    x = jnp.concatenate([rng.normal(size=(9, 3)).clip(-1.9, 1.9), jnp.array([[0.7, 0.7, 0.7], [0.0, 0.3, -0.4]])])
    x = x.at[0].set(jnp.array([0.5, jnp.nan, 1.0]))
    own, expected = pulled(fn, 3)
    bar = jnp.asarray(rng.normal(size=jax.vmap(fn)(x).shape))
    found, expected = (np.asarray(jax.vmap(f)(x, bar)[0]) for f in (own, expected))
    known = np.isfinite(found)
    assert np.all(~known[~np.isfinite(expected)]) and np.all(known[1:] == np.isfinite(expected[1:]))
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", CALCULUS)
@pytest.mark.slow_except("a derivative of its own", "choices", "held", "what may be equal")
def test_tangents_operation_by_operation(name):
    """Within another program, with values beside them; ties and zeros included. Equations with a derivative of their own keep it."""
    fn = CALCULUS[name]
    rng = np.random.default_rng(2)
    x = jnp.concatenate([rng.normal(size=(9, 3)).clip(-1.9, 1.9), jnp.array([[0.7, 0.7, 0.7], [0.1, 0.3, -0.4]])])
    dot = jnp.asarray(rng.normal(size=x.shape))
    inner = Program.of(lambda x: [fn(x)], shaped(3))
    outer = Program.of(lambda x, dot: [y[0] for y in jvp(inner, [x], (0,), [dot])], shaped(3), shaped(3))
    expected = jax.vmap(lambda x, dot: jax.jvp(fn, (x,), (dot,)))(x, dot)
    for found in (jax.vmap(outer)(x, dot), jax.vmap(outer.fn)(x, dot)):
        assert_equal(found, expected, atol=1e-11)
    again = lambda program: jax.vmap(lambda x, dot: jax.jvp(lambda x: program(x, dot)[1], (x,), (dot,))[1])
    found, expected = again(outer)(x, dot), again(lambda x, dot: jax.jvp(fn, (x,), (dot,)))(x, dot)
    known = np.isfinite(found)  # exp(1000 x) is infinite in between
    assert np.all(known) or name == "logistic"
    assert_equal(found[known], expected[known], atol=1e-9)


def test_what_a_derivative_of_its_own_depends_on_is_seen():
    """Its value need not depend on the argument along which it is differentiated: no zero stands for what there is no rule for."""

    @jax.custom_jvp
    def like(x, value):
        return value

    @like.defjvp
    def _(primals, tangents):
        return like(*primals), 3 * primals[0] * tangents[0]

    fn = lambda x: like(x, lax.stop_gradient(x))
    inner = Program.of(lambda x: [fn(x)], shaped(3))
    outer = Program.of(lambda x, dot: jvp(inner, [x], (0,), [dot])[1], shaped(3), shaped(3))
    x, dot = jnp.array([1.0, 2.0, -1.0]), jnp.array([0.5, 1.0, 2.0])
    assert_equal(outer(x, dot)[0], 3 * x * dot)
    own, expected = pulled(fn, 3)
    assert_equal(own(x, dot), expected(x, dot))


def test_a_derivative_of_its_own_is_taken_where_other_arguments_are_known():
    @jax.custom_jvp
    def twice(known, x):
        return known * x

    twice.defjvp(lambda primals, tangents: (twice(*primals), 5 * tangents[1]))
    x, dot = jnp.array([1.0, 2.0, -1.0]), jnp.array([0.5, 1.0, 2.0])
    own, _ = pulled(lambda x: twice(jnp.array(2.0), x), 3)
    assert_equal(own(x, dot), 5 * dot)


@pytest.mark.slow
def test_cotangents_of_random_programs():
    """What does not change has none, also where JAX finds 0·∞: √|x − x|."""
    rng = np.random.default_rng(6)
    x, bar = (jnp.asarray(rng.normal(size=(9, size))) for size in (3, 6))
    total, count = 0.0, 15
    for _ in range(count):
        fn = random_program(rng)
        found, expected = (np.asarray(jax.vmap(f)(x, bar)[0]) for f in pulled(lambda x, fn=fn: fn(x)[0], 3))
        known = np.isfinite(found) & np.isfinite(expected)
        assert not np.any(np.isfinite(found[~np.all(np.isfinite(jax.vmap(fn)(x)[0]), axis=1)]))
        total += np.mean(known) / count
        np.testing.assert_allclose(found[known], expected[known], rtol=1e-10, atol=1e-9)
    assert total > 0.7


@pytest.mark.slow
def test_a_thousand_random_programs():
    """A NaN is never lost; exact programs have it where the function has it, others may have it in more places."""
    rng = np.random.default_rng(4)
    x = jnp.asarray(rng.normal(size=(9, 3)))
    for _ in range(1000):
        fn = random_program(rng, 40)
        for derived, atol in ((lambda f: f, 1e-10), (jax.jacfwd, 1e-8)):
            value = lambda f, derived=derived: np.asarray(jax.vmap(derived(f))(x)[0])
            expected, exact, found = (
                value(f) for f in (fn, Program.of(fn, shaped(3), exact=True), Program.of(fn, shaped(3)))
            )
            assert_equal(exact, expected, atol=atol)
            known = np.isfinite(found)
            assert_equal(found[known], expected[known], atol=atol)
            assert np.all(~known[~np.isfinite(expected)])


# What random programs do, of three earlier results and a number; signs of zeros make no difference.
THINGS = (
    lambda a, b, d, c: a + b,
    lambda a, b, d, c: a - b,
    lambda a, b, d, c: a * b,
    lambda a, b, d, c: a / jnp.abs(b),
    lambda a, b, d, c: a / (2 + jnp.abs(b)),
    lambda a, b, d, c: (a - a) * b + d,
    lambda a, b, d, c: c * a,
    lambda a, b, d, c: a - a * c + b / 3,
    lambda a, b, d, c: c - b,
    lambda a, b, d, c: lax.rem(a, b),
    lambda a, b, d, c: jnp.mod(a, 0.7),
    lambda a, b, d, c: jnp.maximum(a, b),
    lambda a, b, d, c: jnp.minimum(c, b),
    lambda a, b, d, c: jnp.hypot(a, b),
    lambda a, b, d, c: lax.pow(jnp.abs(a), b),
    lambda a, b, d, c: jnp.abs(a) ** 1.5 + jnp.square(b),
    lambda a, b, d, c: jnp.arctan2(a, 1 + jnp.abs(b)),
    lambda a, b, d, c: jnp.sin(a) + jnp.cos(b),
    lambda a, b, d, c: jnp.sin(1e8 * a),
    lambda a, b, d, c: jnp.tan(a),
    lambda a, b, d, c: jnp.arcsin(a) + jnp.arccos(b / 3),
    lambda a, b, d, c: jnp.arctan(a) - jnp.arcsinh(b),
    lambda a, b, d, c: jnp.arccosh(1 + jnp.abs(a)) + jnp.arctanh(b / 4),
    lambda a, b, d, c: jnp.sinh(a) - jnp.cosh(b),
    lambda a, b, d, c: jnp.tanh(a) * jnp.exp(-jnp.abs(b)),
    lambda a, b, d, c: jnp.exp(a) - jnp.exp2(b),
    lambda a, b, d, c: jnp.expm1(a) + jnp.log1p(b),
    lambda a, b, d, c: jnp.log(a),
    lambda a, b, d, c: jnp.log2(jnp.abs(a)),
    lambda a, b, d, c: jnp.sqrt(a),
    lambda a, b, d, c: jnp.sqrt(jnp.abs(a)) + lax.rsqrt(jnp.abs(b)),
    lambda a, b, d, c: jnp.cbrt(a),
    lambda a, b, d, c: jnp.abs(a) ** -2 + b**3,
    lambda a, b, d, c: jnp.sign(a) * b + jnp.floor(d),
    lambda a, b, d, c: jnp.round(a) + jnp.ceil(3 * b) + lax.round(d),
    lambda a, b, d, c: jax.nn.sigmoid(a) + jax.nn.softplus(b),
    lambda a, b, d, c: lax.stop_gradient(a) * b,
    lambda a, b, d, c: jnp.where(a > b, d, c),
    lambda a, b, d, c: jnp.where((a > 0) & (b < c), jnp.sqrt(a), d),
    lambda a, b, d, c: jnp.where((a <= b) ^ ~(b != d), -a, b),
    lambda a, b, d, c: jnp.where(jnp.isfinite(a), b, d),
    lambda a, b, d, c: lax.clamp(a, b, d),
    lambda a, b, d, c: jnp.max(jnp.stack([a, b, d])) - jnp.min(jnp.stack([a, b])),
    lambda a, b, d, c: jnp.linalg.norm(jnp.stack([a, b, d])),
    lambda a, b, d, c: jnp.prod(jnp.stack([a, b, d])) + jnp.cumsum(jnp.stack([a, b, d]))[1],
    lambda a, b, d, c: jnp.stack([a, b]) @ jnp.array([[1.0, c], [0.0, 2.0]]) @ jnp.stack([d, a]),
    lambda a, b, d, c: jnp.argmax(jnp.stack([a, b, d])) + a,
    lambda a, b, d, c: lax.switch(jnp.argmin(jnp.stack([a, b, d])), [lambda: a * d, lambda: -b, lambda: c]),
    lambda a, b, d, c: lax.cond(b == 0, lambda: a, lambda: d / b),
    lambda a, b, d, c: lax.stop_gradient(jnp.stack([a, b, d, -a, c * b, a * d]))[
        jnp.argmin(jnp.stack([b, d, a, -d, 2 * a, d * d]))
    ],
    lambda a, b, d, c: jnp.interp(a, jnp.array([-1.0, 0.0, 0.5, 2.0]), jnp.array([1.0, 0.0, 0.25, 4.0])),
    lambda a, b, d, c: jnp.sum(jnp.stack([a, b]).at[jnp.array([1, 0, 1])].add(jnp.stack([d, c, a])) * 0.5),
)


def mixed_program(rng, count):
    """A function of three numbers that does `count` of all `THINGS`, each to earlier results: all of these."""
    numbers = (0.0, 1.0, -1.0, 0.5)
    steps = [
        (THINGS[rng.integers(len(THINGS))], rng.integers(0, 3 + k, 3), float(rng.choice([*numbers, rng.normal()])))
        for k in range(count)
    ]

    def fn(x):
        known = list(x)
        for thing, places, c in steps:
            known.append(thing(*(known[k] for k in places), c))
        return [jnp.stack([jnp.asarray(number, float) for number in known[3:]])]

    return fn


ROUNDED = (
    "add add_any sub mul div integer_pow pow dot_general reduce_sum reduce_prod cumsum sqrt rsqrt cbrt square exp exp2"
)
ROUNDED += " expm1 log log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh logistic"


def shaken(fn, given, rng, copies=6):
    """Results of a function over lanes, as JAX has it operation by operation, and how far they move if each operation rounds by a few units more."""

    def results(program, given):
        inner, constants = opened(program)
        known = dict(zip([*inner.constvars, *inner.invars], [*constants, *given], strict=True))
        read = lambda v: v.val if is_literal(v) else known[v]
        for equation in inner.eqns:
            ins, own = [read(v) for v in equation.invars], body(equation)
            out = equation.primitive.bind(*ins, **equation.params) if own is None else results(own, ins)
            out = out if own is not None or equation.primitive.multiple_results else [out]
            if equation.primitive.name in ROUNDED.split() and out[0].dtype == DOUBLE:
                out = [x * (1 + 2.0**-50 * noise(x.shape)) for x in out]
            known.update(zip(equation.outvars, out, strict=True))
        return [read(v) for v in inner.outvars]

    lanes = len(given[0])

    def noise(shape):
        out = rng.uniform(-1, 1, shape)
        return (
            out if shape[:1] != (lanes * (copies + 1),) else np.concatenate([np.zeros_like(out[:lanes]), out[lanes:]])
        )

    given = [jnp.tile(x, (copies + 1, 1)) for x in given]
    found = np.asarray(results(jax.make_jaxpr(fn)(*given), given)[0])
    found = found.reshape(copies + 1, lanes, -1)
    with np.errstate(invalid="ignore"):
        return found[0], np.ptp(found, axis=0)


def compared_with_jax(rng, count, numbers):
    """Yields values, derivatives of both modes and cotangents of random programs: (whether exact, kind, found, as JAX has it, rounding)."""
    x, along = jnp.asarray(numbers), jnp.asarray(rng.normal(size=numbers.shape))
    fn, bar = mixed_program(rng, count), jnp.asarray(rng.normal(size=(len(x), 1)))
    last = lambda f: lambda x: f(x)[0][-1:]
    kinds = {
        "value": lambda f: jax.vmap(lambda x, _: f(x)[0]),
        "forward": lambda f: jax.vmap(lambda x, along: jax.jvp(lambda x: f(x)[0], (x,), (along,))[1]),
        "reverse": lambda f: jax.vmap(lambda x, bar: jax.vjp(last(f), x)[1](bar)[0]),
    }
    programs = {exact: Program.of(fn, shaped(3), exact=exact) for exact in (False, True)}
    for kind, derived in kinds.items():
        given = (x, bar if kind == "reverse" else along)
        expected, rounding = shaken(derived(fn), given, rng)
        found = {exact: np.asarray(derived(own)(*given)) for exact, own in programs.items()}
        for exact, own in found.items():
            yield exact, kind, own, expected, rounding
    back = VJPProgram(lambda x: [last(fn)(x)], shaped(3), moving=(0,), at=1)
    yield False, "reverse", np.asarray(jax.vmap(back)(x, bar)[0]), expected, rounding


def assert_to_rounding(found, expected, rounding):
    """Where all three are finite."""
    finite = np.isfinite(found) & np.isfinite(expected) & np.isfinite(rounding)
    off = np.abs(found[finite] - expected[finite])
    assert np.all(off <= 4 * rounding[finite] + 1e-15 * np.abs(expected[finite]))


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 60), marks=pytest.mark.slow)])
def test_random_programs_of_all_operations_are_jaxs_to_rounding(seeds):
    """At ordinary numbers: values and derivatives, as far as rounding of each operation lets them be known."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for _, kind, found, expected, rounding in compared_with_jax(rng, 20, rng.normal(size=(9, 3))):
            assert_to_rounding(found, expected, rounding)
            assert kind != "value" or np.all(np.isnan(found[np.isnan(expected)]))


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 60), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_random_programs_of_all_operations_lose_no_nan(seeds):
    """At kinks, ties, beyond the domains of functions and where numbers are infinite or none: exact programs are as JAX has it, of others all may be NaN."""
    pool = np.array([0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan, 1e9, -1e-9])
    for seed in seeds:
        rng = np.random.default_rng(1000 + seed)
        x = np.where(rng.uniform(size=(24, 3)) < 0.6, rng.choice(pool, (24, 3)), rng.normal(size=(24, 3)))
        x[:6, 1] = x[:6, 0]
        for exact, kind, found, expected, rounding in compared_with_jax(rng, 12, x):
            assert_to_rounding(found, expected, rounding)
            if kind == "value":
                assert np.all(np.isnan(found[np.isnan(expected)]))
                assert not exact or np.array_equal(np.isnan(found), np.isnan(expected))


def test_what_is_known_to_be_infinite_is_not_lost():
    """Where it is multiplied by zero."""
    x = jnp.array([0.5, -0.5])
    sums = lambda x: [0 * (jnp.inf * x), 0 * (x + jnp.nan), 0 * jnp.maximum(x, jnp.inf), x - x]
    cases = [lambda x, k=k: [sums(x)[k]] for k in range(4)] + [lambda x: [0 * jnp.where(x > 0, jnp.inf, x)]]
    for fn in cases:
        assert_equal(jax.vmap(Program.of(fn, shaped()))(x), jax.vmap(fn)(x))
    # Of a choice that is not taken, nothing is spoilt.
    safe = lambda x: [jnp.where(x > 0, x, 0 * jnp.where(x < 9, x, jnp.inf))]
    assert_equal(jax.vmap(Program.of(safe, shaped()))(x), jax.vmap(safe)(x))


def test_exact_programs_have_hardly_more_operations():
    """Zeros of sparse matrices stay zeros, whose results alone are NaN where what was multiplied by them is no number."""
    blocks = jnp.asarray(np.kron(np.eye(4), np.ones((3, 3))))

    def fn(x):
        turns = [blocks * jnp.cos(x[k]) + (1 - blocks) * 0 * x[k] for k in range(6)]
        return [functools.reduce(jnp.matmul, turns)]

    exact, free = (Program.of(fn, shaped(6), exact=exact, library=True) for exact in (True, False))
    assert exact.code.count <= 1.1 * free.code.count
    x = jnp.arange(6) / 5
    bad = x.at[2].set(jnp.nan)
    for value in (x, bad):
        assert_equal(exact(value), jax.jit(fn)(value))
    apart = lambda x: [jnp.stack([x[0] + 0 * x[1], 0 * (x[1] * x[2]), x[0]])]
    assert np.array_equal(np.isnan(Program.of(apart, shaped(6), exact=True)(bad)[0]), [False, True, False])


def test_transposes_have_hardly_more_operations_than_what_they_are_of():
    """And are those of JAX: products, quotients, choices, tables, and what is NaN."""
    matrix = jnp.asarray(np.kron(np.eye(3), np.arange(1.0, 10.0).reshape(3, 3)))

    def fn(x, y):
        z = matrix @ (x * jnp.sin(y)) / (2 + jnp.cos(y))
        z = jnp.where(y > 0.5, z, jnp.sum(z) - x)
        return [z, z[jnp.argmax(y)] * y]

    own = Program.of(fn, shaped(9), shaped(9), exact=True)
    x, y, bar = (jnp.asarray(np.random.default_rng(k).normal(size=9)) for k in range(3))
    back = lambda f: lambda x, y, bar: jax.vjp(lambda x: f(x, y), x)[1]([bar, 2 * bar])
    assert_equal(jax.jit(back(own))(x, y, bar), jax.jit(back(fn))(x, y, bar))
    tangent = own.tangent((True, False))
    assert tangent.transposed().code.count < 1.5 * tangent.code.count
    bad = y.at[4].set(jnp.nan)
    # Of a table the entry that is taken has a cotangent, whichever it is.
    for k in (0, 8):
        taken = y.at[k].set(3.0)
        assert_equal(back(own)(x, taken, bar), back(fn)(x, taken, bar))
    for at in ((x, bad, bar), (x, y, bar.at[4].set(jnp.nan))):
        assert np.all(np.isnan(back(own)(*at)[0])[np.isnan(back(fn)(*at)[0])])
    # What may not be divided by is not where another branch is taken: as JAX has it, of `cond` only.
    safe = lambda x: [lax.cond(x == 0, lambda: x, lambda: jnp.sqrt(x) / x)]
    value = lambda f: jax.grad(lambda x: f(x)[0])(0.0)
    assert value(Program.of(safe, shaped(), exact=True)) == value(safe) == 1


def test_choices_between_known_truth_values_and_out_of_tables_of_two_numbers():
    def fn(p, q, x, y):
        a, b = p > 0, q > 0
        chosen = jnp.where(a, True, b), jnp.where(a, False, b), jnp.where(a, b, True), jnp.where(a, b, False)
        return [*(jnp.where(c, 1.0, -1.0) for c in chosen), jnp.stack([x, x, 2 * x, x])[jnp.argmax(y)]]

    own = Program.of(fn, shaped(), shaped(), shaped(), shaped(4))
    compiled, plain = jax.jit(own), jax.jit(fn)
    for p, q, k in itertools.product((-1.0, 1.0), (-1.0, 1.0), range(4)):
        at = jnp.asarray(p), jnp.asarray(q), jnp.asarray(3.0), jnp.zeros(4).at[k].set(1.0)
        assert_equal(compiled(*at), plain(*at))


def test_what_a_program_does_not_depend_on_makes_no_derivative_of_its_own():
    own = Program.of(lambda t, x, y: [x * x, jnp.round(y)], shaped(), shaped(3), shaped(3))

    def programs(moving):
        """What is called for the tangent along these operands."""
        at = (1.0, jnp.arange(3.0), jnp.ones(3))

        def change(*along):
            full = [along[moving.index(k)] if k in moving else jnp.zeros_like(x) for k, x in enumerate(at)]
            fixed = lambda *xs: own(*(xs[moving.index(k)] if k in moving else x for k, x in enumerate(at)))
            return jax.jvp(fixed, tuple(at[k] for k in moving), tuple(full[k] for k in moving))[1]

        jaxpr = jax.make_jaxpr(change)(*(jnp.ones_like(at[k]) for k in moving))
        return [e.params["program"] for e in jaxpr.eqns if e.primitive.name == "scalar_program"][1:]

    (tangent,) = programs((1,))
    assert programs((0, 1)) == [tangent] and programs((0,)) == []
    # The derivative of what is rounded is zero: nothing is called for it, back neither.
    rounded = Program.of(lambda y: [jnp.round(y)], shaped(3))
    back = jax.make_jaxpr(jax.vjp(lambda y: rounded(y)[0], jnp.ones(3))[1])(jnp.ones(3))
    assert not any(e.primitive.name == "scalar_program" for e in back.eqns)


def test_few_numbers_are_looked_at_to_know_that_all_are_finite():
    """A sum of products has no more than its last result to be looked at; each input that is not finite still spoils all."""
    size = 6
    fn = lambda x: [0 * jnp.linalg.norm(jnp.cumsum(jnp.sin(x) * x)), jnp.cumsum(x)]
    own = Program.of(fn, shaped(size))
    graph = own.code.graph
    assert sum(graph.operations[i] == "zero_or_nan" for i in own.code.order) == 1
    for value in (jnp.inf, -jnp.inf, jnp.nan, 1e9):  # the last is beyond the sine's domain
        bad = jnp.where(jnp.eye(size, dtype=bool), value, 0.5)
        assert np.all(np.isnan(jax.vmap(own)(bad)[0]))
    assert np.all(np.isfinite(own(jnp.full(size, 0.5))[0]))


def test_what_is_dropped_is_looked_at_in_the_half_where_it_is_known():
    """Of x⁰ it is x, and the cotangent, which is multiplied by 0."""
    (first,), rest = VJPProgram(lambda x: [x ** jnp.array([0.0, 2.0])], shaped(2), moving=(0,), at=1).halves((0,))

    def looked_at(code):
        nodes = [i for i in code.order if code.graph.operations[i] == "zero_or_nan"]
        return Code(code.graph, code.leaves, tuple(nodes)).inputs

    assert (looked_at(first.code), looked_at(rest.code)) == ([(0, 0)], [(1, 0)])


@pytest.mark.parametrize(
    ("fn", "passed"),
    [(lambda x, p: [p * x**2], 1), (lambda x, p: [jnp.sin(p * jnp.exp(x))], 2), (lambda x, p: [p + x], 0)],
)
def test_no_more_is_passed_from_one_half_to_the_other_than_the_rest_cannot_do_again(fn, passed):
    """Neither parameters, which it reads itself, nor what is one operation from others that are passed."""
    (first,), rest = VJPProgram(fn, shaped(), shaped(), moving=(0,), at=1).halves((0,))
    assert len(first.code.outputs) == 1 + passed  # behind the value
    read = [entry for operand, entry in rest.code.inputs if operand == 3]
    assert sorted(read) == list(range(1, 1 + passed))
    assert {operand for operand, _ in rest.code.inputs} <= {1, 2, 3} and 0 not in {k for k, _ in rest.code.inputs}


# Steps


def problem_of(name, count):
    """A problem, and its state and those of random consistent ones, as what is integrated."""
    system, many = systems.states(name, count)
    one = jax.tree.map(lambda x: x[0], many)
    scale = dataclasses.replace(one.scale, rate=jnp.asarray(5.0))
    problem = VectorField(system, jm.formulation.GaussProjection(), Projection(), None, scale, jnp.array(True), None)
    packed = jax.vmap(lambda q, v: StateVector.of(q, v, jnp.zeros(())).packed)(many.q, many.v)
    return problem, StateVector.of(one.q, one.v, jnp.zeros(())), many.t, packed


FEW = ("four-bar, 3 loops", "pendulum", "sleigh, 3 blades")


@pytest.mark.slow_except("pendulum")
@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in SYSTEMS])
def test_a_step_equals_its_definition_and_so_does_the_way_back(name):
    """Of stage, correction, rank certificate and cotangents of all numbers of the problem, over lanes at random states; number by number too."""
    by_numbers = name in FEW
    problem, like, t, packed = problem_of(name, 7)
    step = compiled_step(problem, dfx.Tsit5(), like, False)
    in_use = problem.independent(t[0], StateVector(packed[0], like.nq, like.nv))
    basis = jnp.zeros((problem.system.m, like.nv))
    lanes = (0, 0, 0, 0, None, None) + (None,) * len(step.parameters)
    given = (t, t + 1e-3, packed, 0.1 * packed, basis, in_use, *step.parameters)
    over = lambda f: jax.jit(jax.vmap(f, lanes))(*given)
    expected = over(step.program.fn)
    size = max(1.0, float(jnp.max(jnp.abs(expected[1]))))
    spans = {5: problem.scale.span, 6: problem.scale.span}  # of residuals
    for fn in (step.program, step.program.by_numbers)[: 1 + by_numbers]:
        for k, (a, b) in enumerate(zip(over(fn), expected, strict=True)):
            unit = spans.get(k, 1.0)
            np.testing.assert_allclose(a / unit, b / unit, rtol=1e-10, atol=1e-12 * size)
    moves, rest = eqx.partition(problem, eqx.is_inexact_array)
    back = compiled_step_adjoint(moves, rest, dfx.Tsit5(), like, False)
    assert not isinstance(back, str), back
    back = back.program
    bars = np.random.default_rng(0).normal(size=(3, 7, packed.shape[1]))
    ks_bar, taken = jnp.asarray(0.1 * bars[:1] + jnp.zeros_like(expected[1]).swapaxes(0, 1)).swapaxes(0, 1), t > -1
    taken = taken.at[3].set(False)
    y1 = jnp.concatenate([expected[3], expected[4], expected[0][:, like.nq + like.nv :]], axis=1)
    given = (t, t + 1e-3, packed, expected[1], y1, *map(jnp.asarray, bars), ks_bar, taken, in_use)
    given = (*given, *jax.tree.leaves(moves), *jax.tree.leaves(eqx.filter(rest, eqx.is_array)))
    lanes = (0,) * 10 + (None,) * (len(given) - 10)
    expected = over(back.fn)
    for fn in (back, back.by_numbers)[: 1 + by_numbers]:
        for a, b in zip(over(fn), expected, strict=True):
            scale = max(1.0, float(jnp.max(jnp.abs(b))) if b.size else 1.0)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 * scale)


BOTH = (jm.Compiled(), jm.XLA())


def compared(name, **method):
    system, state = make(name)
    run = lambda engine: jm.simulate(system, state, [0.4, 0.7], engine=engine, **method)
    native, plain = run(jm.Compiled()), run(jm.XLA())
    assert int(native.stats["compiled_steps"]) > 0.5 * int(native.stats["num_accepted_steps"])
    assert int(plain.stats["compiled_steps"]) == 0
    for count in ("num_steps", "lowest_rank", "highest_rank"):
        assert int(native.stats[count]) == int(plain.stats[count]), count
    np.testing.assert_allclose(native.q, plain.q, rtol=0, atol=1e-11)
    np.testing.assert_allclose(native.v, plain.v, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["four-bar, 3 loops", "unconstrained"])
def test_a_run_by_compiled_code_is_the_same(name):
    compared(name)


@pytest.mark.slow
def test_a_run_of_known_numbers_needs_no_general_step_where_nothing_is_special():
    system, state = make("four-bar, 3 loops")
    ts = jnp.array([0.2, 0.4])
    alone = jm.simulate(system, state, ts)
    whole = jax.jit(lambda ts: jm.simulate(system, state, ts))(ts)
    assert int(alone.stats["compiled_steps"]) == int(alone.stats["num_accepted_steps"])
    assert int(whole.stats["compiled_steps"]) == int(whole.stats["num_accepted_steps"])
    assert int(alone.stats["highest_rank"]) == int(alone.stats["lowest_rank"]) == int(whole.stats["lowest_rank"]) == 2
    np.testing.assert_allclose(alone.q, whole.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(alone.v, whole.v, rtol=0, atol=1e-11)


@pytest.mark.parametrize("derivative", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.slow
def test_programs_hold_calls_of_the_systems_functions_not_these(derivative):
    """Neither the general step nor, far from singular poses, any sine of the system's stands in what XLA compiles."""
    system, state = make("four-bar")
    last = lambda v: jm.simulate(system, dataclasses.replace(state, v=v), [0.2], throw=False).q[-1, 0]
    text = jax.jit(jax.grad(last) if derivative else last).lower(state.v).as_text()
    assert "stablehlo.sine" not in text and "stablehlo.cosine" not in text and len(text.splitlines()) < 4000


def test_a_gradient_reads_of_the_tape_what_the_run_has_made():
    """It has room for the largest number of steps, and only compiled loops over the steps that were made get hold of it."""
    system, state = make("four-bar")
    last = lambda v: jm.simulate(system, dataclasses.replace(state, v=v), [0.2], throw=False, max_steps=4321).q[-1, 0]
    lines = [line for line in jax.jit(jax.grad(last)).lower(state.v).as_text().splitlines() if "4322x" in line]
    assert lines and all(any(word in line for word in ("custom_call", "call @", "func", "return")) for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "events", "most"), [("relative", True, 16_500), ("absolute", False, 20_000)])
def test_programs_of_loops_in_space_are_small(build, events, most):
    """Also their gradients, with a brake, and of 31 rows: derivatives of all functions of the system are compiled by themselves."""
    mechanism = bricard_joints.bricard_joints()
    system = mechanism.build(build, cut=["hinge6"] if build == "relative" else ())
    state = jm.assemble(system)
    brakes = [jm.Brake("hinge1", 0.5, at=0.1)] if events else []

    def last(v):
        return jm.simulate(system, dataclasses.replace(state, v=v), [0.2], events=brakes, throw=False).q[-1, 0]

    assert len(jax.jit(jax.grad(last)).lower(state.v).as_text().splitlines()) < most


@pytest.mark.slow
def test_a_run_with_a_step_near_a_singular_configuration_is_made_by_the_whole_program():
    system = parallelogram.parallelogram()
    start = jm.assemble(
        system, *parallelogram.pose(jnp.array(0.3), jnp.array(-2.0))
    )  # through the flat pose at about 0.15 s
    ts = jnp.array([0.1, 0.3])
    alone = jm.simulate(system, start, ts)
    whole = jax.jit(lambda ts: jm.simulate(system, start, ts))(ts)
    for a, b in zip(jax.tree.leaves(alone.stats), jax.tree.leaves(whole.stats), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-15)
    np.testing.assert_allclose(alone.q, whole.q, rtol=0, atol=1e-14)
    assert 0 < int(alone.stats["compiled_steps"]) < int(alone.stats["num_accepted_steps"]) - 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_all_runs_by_compiled_code_are_the_same(name):
    compared(name)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [dfx.Heun(), dfx.Bosh3(), dfx.Dopri8()], ids=lambda s: type(s).__name__)
def test_methods_by_compiled_code(solver):
    compared("four-bar", solver=solver, stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8))


@pytest.mark.slow
def test_gradients_by_compiled_code_are_the_same():
    system, state = make("pendulum, 4 copies")

    def loss(v, length, engine):
        start = eqx.tree_at(lambda s: s.v, state, v * state.v)
        found = jm.simulate(system, start, jnp.stack([0.3 * length, length]), engine=engine)
        return jnp.sum(found.q[-1] ** 2 * jnp.array([1.0, 3.0])) + found.v[0, 0]

    one = jnp.array(1.0)
    native, plain = (jax.grad(loss, (0, 1))(one, one, choice) for choice in BOTH)
    np.testing.assert_allclose(native, plain, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a program", "too large", pytest.param("twice", marks=pytest.mark.slow)])
def test_the_derivative_of_a_step_along_all_its_operands(how, monkeypatch):
    """Times, state, slope and numbers of the problem, two directions over lanes, against the definition; and once more by the state."""
    if how == "too large":
        monkeypatch.setattr("jaxmb.runge_kutta.step.augmented", lambda *_: how)
    problem, like, t, packed = problem_of("moving line", 3)
    step = compiled_step(problem, dfx.Bosh3(), like, False)
    in_use = problem.independent(t[0], StateVector(packed[0], like.nq, like.nv))
    basis, rng = jnp.zeros((problem.system.m, like.nv)), np.random.default_rng(0)
    moving = [k for k, x in enumerate(step.parameters) if jnp.issubdtype(x.dtype, jnp.floating)][:3]
    points = (t, t + 1e-3, packed, 0.1 * packed)
    numbers = tuple(jnp.broadcast_to(step.parameters[k], (3, *step.parameters[k].shape)) for k in moving)
    ways = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=(2, *x.shape))), (*points, *numbers))

    def along(program, at, dots):
        def fn(t0, t1, y, f, *given):
            own = dict(zip(moving, given, strict=True))
            arrays = (own.get(k, x) for k, x in enumerate(step.parameters))
            return [x for x in program(t0, t1, y, f, basis, in_use, *arrays) if x.dtype == y.dtype][:4]

        once = lambda *at: jax.jvp(fn, at, dots)[1]
        if how != "twice":
            return once(*at)
        return jax.jvp(lambda y: once(*at[:2], y, *at[3:]), (at[2],), (dots[2],))[1]

    def over_lanes(program):
        each = jax.vmap(functools.partial(along, program))
        return jax.vmap(each, (None, 0))((*points, *numbers), ways)

    for a, b in zip(over_lanes(step.program), over_lanes(step.program.fn), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11 * max(1.0, float(jnp.max(jnp.abs(b)))))


def jacobians(name, engine, **method):
    """Derivatives of a motion in forward mode by the numbers of the system, the speed and the end of the run."""
    system, state = make(name)
    numbers, rest = eqx.partition(system.params, eqx.is_inexact_array_like)
    flat, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, numbers))

    def run(numbers, speed, end):
        own = system.with_params(eqx.combine(unravel(numbers), rest))
        start = eqx.tree_at(lambda s: s.v, state, speed * state.v)
        found = jm.simulate(own, start, jnp.stack([0.4 * end, end]), engine=engine, adjoint=dfx.ForwardMode(), **method)
        return jnp.concatenate([found.q.ravel(), found.v[-1]]), found.stats["compiled_steps"]

    return jax.jit(jax.jacfwd(run, (0, 1, 2), has_aux=True))(flat, jnp.array(1.0), jnp.array(0.5))


def compared_jacobians(name, **method):
    (native, count), (plain, none) = (jacobians(name, choice, **method) for choice in BOTH)
    assert int(count) > 0 and int(none) == 0
    for a, b in zip(native, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * max(1.0, float(jnp.max(jnp.abs(b), initial=0))))


@pytest.mark.slow
def test_forward_derivatives_by_compiled_code_are_the_same():
    compared_jacobians("unconstrained")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unconstrained", *FEW])
def test_forward_derivatives_along_whole_runs(name):
    """At times that do not change, of several rows of a batch: those of plain steps."""
    system, state = make(name)
    numbers, rest = eqx.partition(system.params, eqx.is_inexact_array_like)
    flat, unravel = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, numbers))

    def run(numbers, speed, engine):
        own = system.with_params(eqx.combine(unravel(numbers), rest))
        start = eqx.tree_at(lambda s: s.v, state, speed * state.v)
        options = dict(adjoint=dfx.ForwardMode(), dt0=5e-3, stepsize_controller=dfx.ConstantStepSize(), throw=False)
        return jm.simulate(own, start, jnp.array([0.0, 0.04, 0.3, 0.5]), engine=engine, **options).q

    found, expected = (
        jax.jit(jax.vmap(jax.jacfwd(functools.partial(run, engine=engine), (0, 1)), (None, 0)))(
            flat, jnp.array([0.5, 1.0, 1.4])
        )
        for engine in BOTH
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * max(1.0, float(jnp.max(jnp.abs(b), initial=0))))


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_all_forward_derivatives_by_compiled_code_are_the_same(name):
    compared_jacobians(name, solver=dfx.Heun(), dt0=5e-3, stepsize_controller=dfx.ConstantStepSize())


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (dict(formulation=jm.formulation.CoordinatePartition()), "`CoordinatePartition` may choose anew"),
        (dict(solver=dfx.Kvaerno3()), "`Kvaerno3` is not an explicit|neither over a tape"),
        (dict(adjoint=dfx.DirectAdjoint()), "derivatives are neither over a tape nor in forward mode"),
    ],
)
@pytest.mark.slow_cases("method0-`CoordinatePartition` may choose anew")
def test_reasons_why_a_run_is_not_compiled(method, reason):
    system, state = make("pendulum")
    with pytest.raises(ValueError, match="Argument `engine` must not be `Compiled` here: .*(" + reason + ")"):
        jm.simulate(system, state, [0.2], engine=jm.Compiled(), **method)


FEW = "not sparse: 3 velocities and 2 rows are too few"
PARTITION = "`CoordinatePartition` may choose anew at each accepted state"


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (dict(), f"Compiled(sparse=False); {FEW}"),
        (dict(adjoint=dfx.ForwardMode()), f"Compiled(sparse=False); {FEW}"),
        (dict(engine=jm.XLA()), f"XLA(sparse=False); not compiled: `engine` is `XLA`; {FEW}"),
        (
            dict(adjoint=dfx.DirectAdjoint()),
            f"XLA(sparse=False); not compiled: derivatives are neither over a tape nor in forward mode; {FEW}",
        ),
        (
            dict(formulation=jm.formulation.CoordinatePartition()),
            f"XLA(sparse=False); not compiled: {PARTITION}; not sparse: `CoordinatePartition` is not `GaussProjection`",
        ),
        (
            dict(solver=dfx.Kvaerno3(), engine=jm.XLA(sparse=False)),
            "XLA(sparse=False); not compiled: `engine` is `XLA`; not sparse: `sparse` is False",
        ),
        (dict(engine=jm.Compiled(sparse=True)), "Compiled(sparse=True)"),
        (dict(engine=jm.XLA(sparse=True)), "XLA(sparse=True); not compiled: `engine` is `XLA`"),
        (
            dict(solver=dfx.Kvaerno3()),
            "XLA(sparse=False); not compiled: `Kvaerno3` is not an explicit Runge–Kutta method; not sparse: `Kvaerno3` is not an explicit Runge–Kutta method",
        ),
    ],
)
def test_which_engine_makes_the_steps_is_told_beforehand(method, told):
    assert str(jm.choose_engine(*make("four-bar"), **method)) == told


def test_a_system_of_too_much_work_for_single_numbers_is_not_compiled(monkeypatch):
    system, state = make("four-bar")
    chosen = lambda: str(jm.choose_engine(system, state))
    for largest, told in ((dense_work(system), "Compiled"), (dense_work(system) - 1, "XLA")):
        monkeypatch.setattr("jaxmb.simulation.engine.LARGEST_WORK", largest)
        assert chosen().startswith(told)
    assert "not compiled: 3 velocities and 2 rows are too many" in chosen()


def test_what_is_around_compiled_steps_is_compiled_quickly_unless_it_is_large(monkeypatch):
    """Steps along a band leave zeros out, what is done beside them does not."""
    (system, _), engine = make("four-bar"), "jaxmb.simulation.engine."
    layout = layout_of(system, True)
    for dense, largest, quickly in ((80_000, 0, True), (80_001, 0, False), (80_000, -1, False)):
        monkeypatch.setattr(engine + "dense_work", lambda system, dense=dense: dense)
        monkeypatch.setattr(engine + "LARGEST_WORK", layout.work + largest)
        monkeypatch.setattr(engine + "layout_of", lambda *given, **more: layout)
        assert compiles_quickly(None, system) is quickly
        assert compiles_quickly(jm.Compiled(sparse=True), system) is False
    monkeypatch.setattr(engine + "layout_of", lambda *given, **more: "why not")
    assert compiles_quickly(None, system) is False


def test_limits_that_pages_tell_are_those_of_the_code(monkeypatch):
    page = " ".join((pathlib.Path(__file__).parents[1] / "docs" / "engines.md").read_text().split())
    told = r"some ([\d,]+) operations a stage .* no function of a step has more than ([\d,]+)\. With .* ([\d,]+) are allowed"
    work, *operations = (int(x.replace(",", "")) for x in re.search(told, page).groups())
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1))
    for amount in (work, work + 1):
        monkeypatch.setattr("jaxmb.simulation.engine.dense_work", lambda system, amount=amount: amount)
        assert compiles_quickly(jm.Compiled(), system) is (amount == work)
    monkeypatch.setattr("jaxmb.simulation.compiled_step._step_program", lambda *given: str(given[2]))
    parts = jm.formulation.GaussProjection(), Projection(), None, jm.as_state(system, jnp.zeros(1), length=1.0).scale
    problem = VectorField(system, *parts, jnp.array(True), None)
    like = StateVector.of(jnp.zeros(1), jnp.zeros(1), jnp.zeros(()))
    limits = [compiled_step(problem, dfx.Tsit5(), like, on_demand) for on_demand in (False, True)]
    assert limits == [str(x) for x in operations]


def test_a_large_function_is_compiled_quickly_and_does_the_same(monkeypatch):
    fn = lambda x, y: [jnp.sin(x[:2]) @ y + jnp.sqrt(x @ x), jnp.cumsum(y) / (1 + x[:2] ** 2)]
    x, y = jnp.array([0.3, -1.2, 2.0]), jnp.array([0.5, 0.1])
    monkeypatch.setattr("jaxmb.lanes.module.LARGE", 3)
    for thorough in (False, True):
        made = Program.of(fn, shaped(3), shaped(2), thorough=thorough)
        quick = [unit.quick for unit in made.module((True, True), 1).units]
        assert any(quick) != thorough
        assert_equal(jax.jit(made)(x, y), fn(x, y))
        assert_equal(jax.jit(functools.partial(made.in_lane, 2))(x, y), fn(x, y))
        assert_equal(jax.jit(functools.partial(made.in_lane, 1))(x, y), fn(x, y))


def test_a_large_step_has_no_derivative_in_forward_mode(monkeypatch):
    monkeypatch.setattr("jaxmb.runge_kutta.step.LARGEST_DERIVATIVE", 1000)
    system, state = make("pendulum")
    assert jm.choose_engine(system, state).engine == jm.Compiled(sparse=False)
    told = jm.choose_engine(system, state, adjoint=dfx.ForwardMode()).not_compiled
    assert told == "its derivative in forward mode has too many operations"


@pytest.mark.slow
def test_without_the_compiler_runs_are_plain(monkeypatch):
    monkeypatch.setattr("jaxmb.simulation.engine.unavailable", lambda by_xla: "llvmlite is not installed")
    mass = lambda t, q, p: jnp.eye(2)
    system = jm.System(2, mass=mass, constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
    state = jm.as_state(system, [0.6, 0.8], [-0.8, 0.6])
    assert int(jm.simulate(system, state, [0.1]).stats["compiled_steps"]) == 0
    with pytest.raises(ValueError, match="llvmlite is not installed"):
        jm.simulate(system, state, [0.1], engine=jm.Compiled())


def two_arms():
    """On hinges along x and y: axes, places and gravity hold zeros and ones, some of which may then be something else."""
    shape = jm.spatial.Cylinder(0.5, radius=0.05)
    bodies = [jm.spatial.Body(f"arm{i}", mass=1.0, shape=shape) for i in (1, 2)]
    joints = [
        jm.spatial.Revolute("first", "ground", "arm1.a", axis=(1.0, 0.0, 0.0)),
        jm.spatial.Revolute("second", "arm1.b", "arm2.a", axis=(0.0, 1.0, 0.0)),
    ]
    system = jm.spatial.Mechanism(bodies, joints, gravity=(0.0, 0.0, -9.81)).build()
    return system, jm.as_state(system, [0.3, 0.4], [1.0, -2.0])


def test_known_zeros_and_ones_shorten_programs():
    system, state = two_arms()
    sizes, one = [], jnp.ones(())
    for own in (system, system.with_constants()):
        scale = Scale(jnp.ones(0), jnp.ones(0), jnp.ones(2), jnp.ones(0), one)
        problem = VectorField(own, jm.formulation.GaussProjection(), Projection(), None, scale, one > 0, None)
        step = compiled_step(problem, dfx.Tsit5(), StateVector.of(state.q, state.v, jnp.zeros(())), False)
        sizes.append(step.program.stage.code.count)
    assert sizes[1] < 0.6 * sizes[0]
    found = system.with_constants().specialised.params
    jax.tree.map(np.testing.assert_array_equal, found, system.params)
    assert system.with_constants().with_params(system.params).constants is None


@pytest.mark.slow
def test_known_zeros_and_ones_change_nothing():
    system, state = two_arms()
    by_numbers = jax.jit(
        lambda params: jm.simulate(system.with_params(params), state, [0.3]).q
    )  # nothing is known of them
    np.testing.assert_allclose(jm.simulate(system, state, [0.3]).q, by_numbers(system.params), rtol=0, atol=1e-12)
    under = lambda *gravity: eqx.tree_at(lambda p: p.gravity, system.params, jnp.stack(jnp.broadcast_arrays(*gravity)))
    moved = under(1.0, 0.0, -9.81)
    found = jm.simulate(system.with_params(moved), state, [0.3]).q
    np.testing.assert_allclose(found, by_numbers(moved), rtol=0, atol=1e-12)
    assert abs(float(found[0, 1] - by_numbers(system.params)[0, 1])) > 1e-3
    slope = jax.grad(lambda g: jm.simulate(system.with_params(under(g, 0.0, -9.81)), state, [0.3]).q[0, 1])(0.0)
    h, push = 1e-5, lambda g: by_numbers(under(g, 0.0, -9.81))[0, 1]
    np.testing.assert_allclose(slope, (push(h) - push(-h)) / (2 * h), rtol=1e-6)


# Tables


def between(t, ts, values):
    """What stands in a table, straight from one of its times to the next."""
    last = ts.shape[0] - 1
    i = jnp.clip(jnp.searchsorted(ts, t, side="right") - 1, 0, last)
    k = jnp.minimum(i + 1, last)
    return [values[i] + jnp.clip((t - ts[i]) / (ts[k] - ts[i] + 1e-9), 0.0, 1.0) * (values[k] - values[i])]


@pytest.mark.parametrize("lanes", LANES)
def test_tables_are_looked_up(lanes):
    """Of each lane, of all lanes, and known ones; beyond their ends, and where the place is no number."""
    rng = np.random.default_rng(0)
    ts, values = jnp.asarray(np.cumsum(rng.uniform(0.1, 1, 60))), jnp.asarray(rng.normal(size=(60, 2)))
    t = jnp.asarray(rng.uniform(-5, 40, lanes)).at[0].set(jnp.nan if lanes == 7 else 3.0)
    assert_equal(*both(between, t, ts, values, shared=(1, 2)))
    own = jnp.sort(ts + 0.05 * rng.normal(size=(lanes, 60)), axis=1), jnp.asarray(rng.normal(size=(lanes, 60, 2)))
    assert_equal(*both(between, t, *own))
    known = lambda t: between(t, ts, values)
    assert_equal(*both(known, t))
    assert program(between, (), (60,), (60, 2)).code.count < 200  # a search by halves, not one after the other


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_is_no_number_stands_at_the_end_of_a_table(side):
    """As where tables of several lengths are filled up."""
    ts, t = jnp.array([0.0, 1.0, 2.0, 4.0, jnp.nan, jnp.nan]), jnp.array([-1.0, 0.5, 2.0, 5.0, jnp.inf, jnp.nan])
    place = lambda t, ts: [jnp.searchsorted(ts, t, side=side).astype(float)]
    expected = [np.searchsorted(ts, t, side=side)]
    for fn in (program(place, (), (6,)), Program.of(place, shaped(), shaped(6), exact=True)):
        assert_equal(jax.vmap(fn, (0, None))(t, ts)[0][:-1], expected[0][:-1])  # of what is sought NaN may spoil all
    assert_equal(jax.vmap(fn, (0, None))(t, ts), expected)
    known = Program.of(lambda t: place(t, ts), shaped(), exact=True)
    assert_equal(jax.vmap(known)(t), expected)


def test_a_table_and_an_index_that_lanes_share():
    """What is looked up is the same in all lanes, and is computed once."""
    x, table, index = shaped(3), shaped(9), Shaped((), jnp.int32)
    own = Program.of(lambda x, table, i: [x * lax.dynamic_index_in_dim(table, i, 0, keepdims=False)], x, table, index)
    x, table = np.arange(12.0).reshape(4, 3), np.arange(9.0) + 1
    over = jax.jit(jax.vmap(lambda x, table, i: own(x, table, i)[0], (0, None, None)))
    np.testing.assert_array_equal(over(x, table, jnp.int32(4)), 5 * x)


def test_derivatives_of_what_is_looked_up():
    """By the place, and along a change of the table; backwards by the table, for which there is no scalar program, as JAX finds it."""
    ts, values = jnp.linspace(0.0, 1.0, 40), jnp.sin(jnp.arange(80.0)).reshape(40, 2)
    fn = program(between, (), (40,), (40, 2))
    for t in (0.312, -1.0):
        slopes = [jax.jit(jax.jacfwd(lambda t, f=f: f(t, ts, values)[0]))(t) for f in (fn, between)]
        assert_equal(*slopes)
        along = [
            jax.jit(lambda dv, f=f, t=t: jax.jvp(lambda v: f(t, ts, v)[0], (values,), (dv,))[1]) for f in (fn, between)
        ]
        assert_equal(*(f(values**2) for f in along))
    at, back = jnp.array([0.3, 0.71]), lambda f: jax.grad(lambda v, t: f(t, ts, v)[0][0])
    assert_equal(*(jax.jit(jax.vmap(back(f), (None, 0)))(values, at) for f in (fn, between)))
    assert_equal(
        *(
            jax.jit(jax.grad(lambda v, f=f: jnp.sum(jax.vmap(lambda t: f(t, ts, v)[0])(at))))(values)
            for f in (fn, between)
        )
    )


def test_backwards_a_place_beyond_the_ends_of_a_table_stands_for_the_end():
    fn = lambda x, i: [lax.dynamic_index_in_dim(x**2, i, 0, keepdims=False)]
    back = VJPProgram(fn, shaped(3), Shaped((), jnp.int32), moving=(0,), at=2)
    x, places = jnp.array([1.0, 2.0, 4.0]), jnp.arange(-1, 5, dtype=jnp.int32)
    found = jax.jit(jax.vmap(lambda i: back(x, i, jnp.array(3.0))[0]))(places)
    np.testing.assert_allclose(found, 3 * 2 * x * np.eye(3)[[2, 0, 1, 2, 2, 2]])


def test_derivatives_that_are_too_large_are_those_of_the_function_itself(monkeypatch):
    """In both modes, over lanes of which some share operands, and once more."""
    fn = lambda x, y: [jnp.outer(jnp.sin(x), y) @ jnp.cos(y), x > 0]
    own = Program.of(fn, shaped(3), shaped(3))
    monkeypatch.setattr("jaxmb.lanes.program.LARGEST_DERIVATIVE", 10)
    x, y = jnp.asarray(np.random.default_rng(5).normal(size=(2, 4, 3)))
    for derivative in (jax.jacfwd, jax.jacrev, lambda f: jax.jacfwd(jax.jacrev(f))):
        found, expected = (
            jax.jit(jax.vmap(derivative(lambda x, y, f=f: f(x, y)[0]), (0, None)))(x, y[0]) for f in (own, fn)
        )
        assert_equal(found, expected)
    assert own.tangent((True, True)) is None


@pytest.mark.parametrize("hold", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_recorded_inputs_are_part_of_compiled_steps(hold):
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
    start, ts = jm.as_state(system, [0.0]), jnp.linspace(0.0, 1.0, 33)
    record = jm.control.Recorded(ts, jnp.cos(7 * ts), hold=hold)
    steps = {"dt0": 1 / 32, "stepsize_controller": dfx.ConstantStepSize()}
    runs = [jm.simulate(system, start, [1.0], control=record, engine=engine, **steps) for engine in BOTH]
    assert runs[0].stats["compiled_steps"] == 32
    assert_equal(runs[0].q, runs[1].q)


# Whole runs


def toy_run(taped, guarded):
    """y' = −x y by Heun's method; each lane ends after steps of its own number, of which every fourth is not accepted, or by a guard."""
    t, y, x = shaped(), shaped(2), shaped(3)
    count = shaped(dtype=jnp.int64)
    stage = Program.of(lambda t, y, a: [-a * y, t > 1e9], t, y, t)
    end = Program.of(lambda t, y, x, a: [-a * y, x + t, jnp.sum(y) > 1e9], t, y, x, t)

    def attempt(t0, t1, y0, f0, x, n, raw, slopes, near, after, doubtful, too_long, a, most):
        n = n + 1
        accepted = (jnp.remainder(n, 4) != 0) & ~too_long
        chosen = lambda new, old: jnp.where(accepted, new, old)
        h = (t1 - t0) * jnp.where(too_long, 0.75, 1)
        begin = chosen(t1, t0)
        out = begin, begin + h, chosen(raw, y0), chosen(slopes[-1] / h, f0), chosen(after, x), n
        return [*out, accepted, n < most, raw - y0]

    step = StepProgram(stage, end, ((0.0, 0.0), (1.0, 0.0), (0.5, 0.5)), (0.0, 1.0, 1.0), False)
    judge = Program.of(attempt, t, t, y, y, x, count, *step.results, shaped(dtype=jnp.bool_), t, t, exact=True)
    read = Program.of(
        lambda t, t0, t1, y0, y1, k, shift: [y0 + (t - t0) / (t1 - t0) * shift], t, t, t, y, y, step.slopes, y
    )

    def guard(t, y, a, most):
        value = jnp.cos(40 * t + 10 * y[0])
        return [value > 0.9, (value > 0.9) & (most < 30)]

    guard = Program.of(guard, t, y, t, t) if guarded else None
    parts = step.stage, step.end, step.a, step.c, step.knows_start, None, judge, read, guard
    return RunProgram(*parts, 4, 5, 40 if taped else 0)


@pytest.mark.parametrize("lanes", [1, 37])
@pytest.mark.parametrize("taped, guarded", [(False, True), (True, False), (True, True)])
def test_whole_runs_equal_their_definition(lanes, taped, guarded):
    """Also where lanes take several runs one after the other, of very different lengths, in the order that they are given."""
    run, rng = toy_run(taped, guarded), np.random.default_rng(2)
    most = jnp.asarray(rng.integers(1, 38, lanes), float)
    start = (
        jnp.zeros(lanes),
        jnp.asarray(rng.uniform(0.01, 0.02, lanes)),
        jnp.asarray(rng.normal(size=(lanes, 2))),
        jnp.zeros((lanes, 2)),
        jnp.zeros((lanes, 3)),
        jnp.zeros(lanes, jnp.int64),
    )
    times, a = jnp.linspace(0.0, 0.3, 5), jnp.asarray(rng.uniform(1, 2, lanes))
    axes = (*(0 for _ in start), None, 0, 0)
    found = jax.jit(jax.vmap(lambda *x: run(*x), axes))(*start, times, a, most)
    expected = jax.jit(jax.vmap(run.fn, axes))(*start, times, a, most)
    assert guarded or found[5].tolist() == most.tolist()
    if guarded and lanes > 1:
        ended = np.asarray(found[7])
        assert 5 < ended.sum() < lanes
        value = lambda t, y: np.cos(40 * t + 10 * y[:, 0])
        above, begun = value(found[0], found[2]), ended & (most < 30) & (value(0.0, start[2]) <= 0.9)
        np.testing.assert_allclose(above[begun], 0.9, atol=1e-12)
        assert (above[ended] > 0.9 - 1e-12).all()
    if taped:
        # What of the tape is not used may be anything: its last state is that at the end, from which no step has ended.
        ts, row = expected[-3], jnp.arange(expected[-3].shape[1])
        last = jnp.argmax(ts == expected[0][:, None], axis=1)[:, None]
        states, steps = row <= last, row < last
        used = lambda ts, ys, ends: [jnp.where(*x, 0) for x in ((states, ts), (states[..., None], ys), (steps, ends))]
        # A guard ends a run within its last step; without one each ends where the next one begins.
        ends = expected[-1] if guarded else jnp.roll(ts, -1, axis=1)
        found, expected = [*found[:-3], *used(*found[-3:])], [*expected[:-3], *used(*expected[-3:-1], ends)]
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-13)


class Made(eqx.Module):
    """What a run carries, as far as its tangent asks for it."""

    t0: jax.Array
    t1: jax.Array
    y0: jax.Array
    accepted: jax.Array
    failed: jax.Array


class Told(RunProgram):
    """A run whose results are known."""

    carry = range(5)

    def __init__(self, **known):
        self.__dict__.update(known, stage=SimpleNamespace(operands=range(5)))

    def __call__(self, *operands):
        return self.told


@pytest.mark.parametrize(
    ("guarded", "ended", "failed"),
    [(False, False, False), (True, True, False), (True, False, False), (True, False, True)],
)
def test_the_tangent_of_a_run_goes_along_its_accepted_steps(guarded, ended, failed, monkeypatch):
    """Of the parameters that move. Where a guard ends it that of the end is read between two states; a run that has failed has none."""
    made = Made(jnp.array(0.7), jnp.array(0.9), jnp.array([3.0]), jnp.array(6), jnp.array(failed))
    tape = jnp.arange(3.0), jnp.arange(3.0)[:, None], jnp.arange(3.0)
    results = [*jax.tree.leaves(made), jnp.zeros((2, 1)), *[jnp.array(ended), jnp.ones(1)] * guarded, *tape]
    operands = [*map(jnp.asarray, (0.0, 0.1, [2.0], 0, False)), jnp.array([0.5, 0.9]), jnp.ones(2, bool), 4.0, 5.0, 6.0]
    kind, given = object.__new__(compiled_run._RunKind), []
    kind.__dict__.update(structure=jax.tree.structure(made), nq=1, nv=0)

    def tangent(*operands):
        given.extend(operands)
        return 10 * operands[4][:, None] + jnp.arange(len(operands[4]))[:, None], jnp.array([4.0])

    monkeypatch.setattr(compiled_run, "_tangent_program", lambda *_: tangent)
    for y0_dot in (None, jnp.array([8.0])):
        given.clear()
        dots = [None, None, y0_dot, *[None] * 5, 11.0, None]
        dots = tuple(None if x is None else jnp.asarray(x) for x in dots)
        found, tangents = compiled_run._by_tape(
            (tuple(map(jnp.asarray, operands)), dots), Told(guard=guarded or None, told=results), (), kind
        )
        assert all(a is b for a, b in zip(found, results, strict=True)) and set(tangents) == {2, 5}
        times = [0.5, 0.7, 0.7] if guarded else [0.5, 0.9]
        expected = [*tape, 6 - failed, times, [0.0 if y0_dot is None else 8.0], [True, True], 4.0, 5.0, 11.0]
        for a, b in zip(given, expected, strict=True):
            np.testing.assert_array_equal(a, b)
        ends = np.nan if failed else 10 * 0.7 + 2 if ended else 4.0
        np.testing.assert_allclose(tangents[2], [ends])
        np.testing.assert_allclose(tangents[5][:, 0], [np.nan] * 2 if failed else 10 * np.array(times[:2]) + [0, 1])


def test_the_tangent_of_a_run_goes_step_by_step_where_times_move_or_steps_have_no_tangent(monkeypatch):
    """Not where the start moves, or what is found again from it."""
    program, asked = Told(end=None, start=None), []

    def augmented(programs, first, moving):
        asked.append(moving)
        return "no scalar program" if first or 2 in moving else programs

    monkeypatch.setattr(compiled_run, "augmented", augmented)
    monkeypatch.setattr(compiled_run, "_by_tape", lambda *_: ([jnp.zeros(())] * 2, {1: jnp.ones(())}))
    monkeypatch.setattr(compiled_run, "_step_by_step", lambda *_: ([jnp.zeros(())] * 2, {1: 2 * jnp.ones(())}))
    kind, operands, ways = object.__new__(compiled_run._RunKind), [jnp.zeros(())] * 11, []
    for k in range(11):  # times, y₀, its slope, basis; saved times, rows in use; two parameters; other numbers
        dots = [jnp.ones(()) if i == k else None for i in range(11)]
        run = lambda *operands: compiled_run._run(operands, program, kind)
        ways.append(int(eqx.filter_jvp(run, operands, dots)[1][1]))
    assert ways == [2, 2, 1, 1, 1, 2, 2, 1, 2, 2, 2]
    assert asked[7:9] == [(1,), (2,)] and not any(asked[:7] + asked[9:])


def test_a_run_is_made_as_a_whole_if_its_parts_are_scalar_programs(monkeypatch):
    """With room on the tape for the start and all steps."""
    run, kind = toy_run(True, True), object.__new__(compiled_run._RunKind)
    kind.__dict__.update(max_steps=7)
    made = lambda tape: compiled_run._program.__wrapped__(run.step, None, kind, 9, tape)
    monkeypatch.setattr(compiled_run, "_parts", lambda *_: (run.attempt, run.between, run.guard))
    for tape, room in ((True, 8), (False, 0)):
        expected = dataclasses.replace(run, parts=compiled_run.SAMPLES_PER_STEP, times=9, taped=room, start=None)
        assert vars(made(tape)) == vars(expected)
    monkeypatch.setattr(compiled_run, "_parts", lambda *_: None)
    assert made(True) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum", "four-bar, 3 loops"])
@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Heun()])
def test_the_way_back_over_whole_runs_equals_its_definition(name, solver):
    """Of runs of 1 to 7 steps, with saved states at their ends, several in one step, and some that were not reached; two steps end before a jump."""
    lanes, room, rng = 11, 8, np.random.default_rng(4)
    problem, like, _, packed = problem_of(name, lanes)
    moves, rest = eqx.partition(problem, eqx.is_inexact_array)
    native = compiled_step_adjoint(moves, rest, solver, like, False)
    assert not isinstance(native, str), native
    run = run_adjoint(native, Blank.of(ConstrainedSolver(solver))[0], (like.nq, like.nv), 7, room, False)
    count = jnp.asarray(rng.integers(1, room, lanes), jnp.int32)
    row, times = jnp.arange(room), jnp.linspace(0.0, 6.2e-3, 6)
    ts = jnp.where(row <= count[:, None], 1e-3 * row, jnp.inf)
    ys = packed[:, None] + 1e-4 * jnp.asarray(rng.normal(size=(lanes, room, packed.shape[1])))
    end = jax.vmap(lambda y, k: y[k])(ys, count)
    reached = jnp.sum(times <= 1e-3 * count[:, None], axis=1)
    ends = 1e-3 * (row + 1) - jnp.where((row == 1) | (row == 3), 1e-9, 0) * jnp.ones((lanes, 1))
    saved = jnp.concatenate([jnp.broadcast_to(times, (lanes, 6)), 1e-3 * count[:, None]], axis=1)
    bars = jnp.asarray(rng.normal(size=(lanes, 7, packed.shape[1])))
    given = ts, ends, ys, count, end, saved, bars, reached.astype(jnp.int32)
    in_use = problem.independent(jnp.zeros(()), StateVector(packed[0], like.nq, like.nv))
    shared = (in_use, *arrays_of_field(moves, rest))
    axes = (0,) * 8 + (None,) * len(shared)
    found, expected = (jax.jit(jax.vmap(lambda *x, f=f: f(*x), axes))(*given, *shared) for f in (run, run.fn))
    for a, b in zip(found, expected, strict=True):
        scale = max(1.0, float(jnp.max(jnp.abs(b)))) if b.size else 1.0
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 * scale)
