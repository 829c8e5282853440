"""What an accelerator asks of a program: no call of the host and no LAPACK; batches on several devices and in several processes."""

import contextlib
import functools
import os
import re
import socket
import subprocess
import sys

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from systems import fourbar

import jaxmb as jm
from jaxmb.lanes import unavailable

C = jm.control
P = jm.planar
# Calls of the host, and libraries whose batched calls are loops over single ones.
FOREIGN = re.compile(r"callback|cusolver|cublas|lapack|lu_pivots|hipsolver", re.IGNORECASE)
TS = jnp.array([0.1, 0.2])


@functools.cache
def closed():
    """A four-bar, its loop closed twice."""
    system, (q, v) = fourbar(2)
    return system, jm.assemble(system, q, v)


@functools.cache
def arm():
    """Two links with motors; the first may be locked."""
    bodies = [P.Body.rod("upper", mass=1.0, length=1.0), P.Body.rod("lower", mass=0.5, length=0.8)]
    joints = [P.Revolute("shoulder", "ground", "upper.a"), P.Revolute("elbow", "upper.b", "lower.a")]
    mechanism = P.Mechanism(bodies, joints, gravity=(0.0, -9.81))
    motors = C.PD(("shoulder", "elbow"), 20.0, 2.0)
    system = mechanism.build()
    return mechanism, system, jm.assemble(system, {"shoulder": 0.3, "elbow": 0.5}), motors


def of_fourbar(fn):
    """A function of the velocities of the four-bar."""
    system, state = closed()
    return lambda v: fn(system, eqx.tree_at(lambda s: s.v, state, v)), state.v


def run(system, state, **method):
    return jm.simulate(system, state, TS, throw=False, **method)


def of_arm(fn):
    """A function of the arm's angles."""
    _, system, state, motors = arm()
    return lambda q: fn(system, eqx.tree_at(lambda s: s.q, state, q), motors), state.q


def end(solution):
    return jnp.sum(solution.q[-1])


def slope(adjoint=None, solver=None):
    return of_fourbar(
        lambda system, state: jax.grad(
            lambda v: end(run(system, jm.as_state(system, state.q, v), adjoint=adjoint, solver=solver))
        )(state.v)
    )


def fitted(identify):
    mechanism, _, state, _ = arm()
    seen = lambda y: jm.fit.Experiment(TS, state, jm.fit.Signal("elbow", y, 0.01))
    return lambda y: identify(mechanism, [jm.fit.Parameter("lower.mass")], seen(y)), jnp.array([0.5, 0.5])


ENTRIES = {
    "assemble": lambda: (lambda q: jm.assemble(closed()[0], q, throw=False), closed()[1].q),
    "evaluate": lambda: of_fourbar(jm.evaluate),
    "simulate": lambda: of_fourbar(run),
    "simulate, stiff": lambda: of_fourbar(functools.partial(run, solver=dfx.Kvaerno3())),
    "simulate, dense": lambda: of_fourbar(lambda system, state: run(system, state, dense=True).evaluate(0.15)),
    **{
        name: lambda name=name: of_fourbar(functools.partial(run, formulation=getattr(jm.formulation, name)()))
        for name in ("KKT", "OrthogonalProjection", "NullSpace", "CoordinatePartition", "Elimination", "Proximal")
    },
    "reactions": lambda: of_fourbar(lambda system, state: jm.reactions(system, state, throw=False)),
    "energy": lambda: of_fourbar(jm.energy),
    "residuals": lambda: of_fourbar(jm.residuals),
    "physical reactions": lambda: of_fourbar(
        lambda system, state: jm.physical_reactions(
            system, state, {"turn": lambda t, q, p: q[0], "other": lambda t, q, p: q[1]}
        )
    ),
    "transition": lambda: of_arm(lambda system, state, _: jm.transition(system, state, lock=["elbow"], throw=False)),
    "events": lambda: of_arm(lambda system, state, _: run(system, state, events=[jm.Lock("elbow", at=0.15)])),
    "guards": lambda: of_arm(
        lambda system, state, _: run(
            system, state, events=[jm.Lock("elbow", when=lambda t, q, v, reaction, p: q[0] - 0.2)]
        )
    ),
    "brake": lambda: of_arm(
        lambda system, state, _: run(system, state, events=[jm.Brake("elbow", at=0.1, sliding=3.0)])
    ),
    "control": lambda: of_arm(lambda system, state, motors: run(system, state, control=motors)),
    "sampled control": lambda: of_arm(
        lambda system, state, motors: run(system, state, control=C.Sampled(motors, 0.05))
    ),
    "equilibrium": lambda: of_arm(lambda system, state, _: jm.equilibrium(system, state, throw=False)),
    "linearise": lambda: of_arm(
        lambda system, state, _: jm.linearise(system, state, independent=("shoulder", "elbow"), throw=False)
    ),
    "reverse derivative": slope,
    "by checkpoints": lambda: slope(dfx.RecursiveCheckpointAdjoint(checkpoints=16)),
    "forward derivative": lambda: of_fourbar(
        lambda system, state: jax.jvp(  # along velocities that the rows allow
            lambda v: run(system, jm.as_state(system, state.q, v), adjoint=dfx.ForwardMode()).q,
            *[(state.v,)] * 2,
        )
    ),
    "fit": lambda: fitted(lambda *given: jm.fit.identify(*given, max_iterations=3, throw=False).estimates),
}


def lowered(fn, *arguments):
    """The programs for CPUs and NVIDIA's GPUs, as JAX exports them."""
    arrays = lambda *given: jax.tree.leaves(eqx.filter(fn(*given), eqx.is_array))
    found = export.export(jax.jit(arrays), platforms=["cpu", "cuda"])(*arguments)
    assert found.out_avals
    return found.mlir_module()


@pytest.mark.slow_except("simulate", "reverse derivative")
@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.slow_cases("reverse derivative")
@pytest.mark.slow
def test_a_batch_is_exported_without_calls_of_the_host_or_of_lapack(name):
    """So a program of many runs neither waits for the host nor hangs in LAPACK's batched calls."""
    fn, argument = ENTRIES[name]()
    found = set(re.findall(r"custom_call @([\w.$]+)", lowered(jax.vmap(fn), jnp.stack([argument] * 2))))
    assert not [call for call in found if FOREIGN.search(call)], found


@pytest.mark.slow
@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("derived", [lambda f: f, jax.grad], ids=["run", "gradient"])
def test_steps_number_by_number_for_a_gpu(derived):
    """With `Compiled()` products of matrices are products of numbers there, in stages, corrections and the way back."""

    def products(engine):
        fn, v = of_fourbar(lambda system, state: end(run(system, state, engine=engine)))
        text = export.export(jax.jit(jax.vmap(derived(fn))), platforms=["cuda"])(jnp.stack([v, v])).mlir_module()
        assert not FOREIGN.search(text)
        return [text.count(f"stablehlo.{name}") for name in ("dot_general", "multiply")]

    # The general step is part of both programs.
    (dots, numbers), (general, others) = map(products, (jm.Compiled(), jm.XLA()))
    # The general step, of arrays, has seven products of numbers for each product of arrays (1,373 and 185 of the run).
    assert numbers - others > 100 * (dots - general), (numbers, others, dots, general)


@pytest.mark.slow
@pytest.mark.skipif(jax.default_backend() != "gpu", reason="there is no GPU")
@pytest.mark.parametrize("name", ENTRIES)
def test_a_gpu_gives_what_a_cpu_does(name):
    """Two rows at once; numbers of a size below 1 to 1e-9, others relative to their size."""
    fn, argument = ENTRIES[name]()

    def numbers(device):
        rows = jax.device_put(jnp.stack([argument, 0.99 * argument]), device)
        with jax.default_device(device):
            return jax.jit(lambda x: jax.tree.leaves(eqx.filter(jax.vmap(fn)(x), eqx.is_inexact_array)))(rows)

    for on_gpu, on_cpu in zip(*(numbers(jax.devices(kind)[0]) for kind in ("gpu", "cpu")), strict=True):
        on_gpu, on_cpu = np.asarray(on_gpu), np.asarray(on_cpu)
        np.testing.assert_array_equal(np.isfinite(on_gpu), np.isfinite(on_cpu))
        size = max(1.0, np.max(np.abs(on_cpu), initial=0.0, where=np.isfinite(on_cpu)))
        np.testing.assert_allclose(on_gpu, on_cpu, rtol=0, atol=1e-9 * size)


def test_what_is_looked_for_is_found():
    assert FOREIGN.search(lowered(jax.vmap(jnp.linalg.inv), jnp.ones((2, 3, 3))))
    with pytest.raises(Exception, match="callback"):
        lowered(lambda x: eqx.error_if(x, x[0] > 0, "no"), jnp.ones(2))


# Batches


def swing(row):
    """A pendulum of some length, from a start."""
    return jm.simulate(PENDULUM.with_params({"l": row["l"]}), jm.as_state(PENDULUM, row["q"][None]), TS, throw=False)


def pendulum_mass(t, q, p):
    return p["l"] ** 2 * jnp.eye(1)


def pendulum_potential(t, q, p):
    return -9.81 * p["l"] * jnp.cos(q[0])


PENDULUM = jm.System(("angle",), mass=pendulum_mass, potential=pendulum_potential, params={"l": 1.0})
ROWS = {"l": np.linspace(0.5, 2.0, 23), "q": np.linspace(1.0, 0.1, 23)}


@functools.cache
def by_groups():
    return jm.batched(swing, size=8)


def test_groups_give_what_single_runs_do():
    found, alone = by_groups()(ROWS), eqx.filter_jit(swing)
    assert isinstance(found, jm.Solution) and isinstance(found.q, np.ndarray) and found.q.shape == (23, 2, 1)
    assert bool(np.all(found.result == jm.RESULTS.successful))
    for i in (0, 7, 8, 22):
        one = alone({name: x[i] for name, x in ROWS.items()})
        np.testing.assert_allclose(found.q[i], one.q, rtol=0, atol=1e-13)
        np.testing.assert_allclose(found.v[i], one.v, rtol=0, atol=1e-12)


def test_a_program_serves_fewer_rows_and_rows_that_fail():
    few = by_groups()({name: np.where(np.arange(3) == 1, np.nan, x[:3]) for name, x in ROWS.items()})
    np.testing.assert_array_equal(np.asarray(few.result == jm.RESULTS.successful), [True, False, True])
    np.testing.assert_array_equal(few.q[[0, 2]], by_groups()(ROWS).q[[0, 2]])
    assert len(by_groups().programs) == 1


def test_rows_in_the_order_of_their_cost_come_back_in_their_own():
    found = jm.batched(lambda row: (row["l"], jnp.argmin(row["l"])), size=4, cost=lambda row: -(row["q"] ** 2))(ROWS)
    np.testing.assert_array_equal(found[0], ROWS["l"])


def large(x):
    """Some 80 kB of temporaries."""
    return jnp.sum(jnp.sort(jnp.sin(x * jnp.arange(10_000.0))))


def test_memory_bounds_the_groups():
    xs = np.linspace(0, 1, 40)
    free, bound = jm.batched(large), jm.batched(large, memory=1e6)
    np.testing.assert_allclose(free(xs), bound(xs), rtol=1e-12)
    (wide,), (narrow,) = free.programs.values(), bound.programs.values()
    assert wide.size == 40 and wide.memory > 3e6 and narrow.memory <= 1e6 and 3 <= narrow.size <= 12
    bound(np.linspace(0, 1, 400))
    assert next(iter(bound.programs.values())) is narrow
    with pytest.raises(
        ValueError, match=r"`memory` must be enough for one row on each device, 0.* MB, but is 0.001 MB"
    ):
        jm.batched(large, memory=1e3)(xs)


def test_arguments_of_batched_that_do_not_fit():
    with pytest.raises(TypeError, match=r"`fn` must be a function \(row\)"):
        jm.batched(3.0)
    for name, value in (("size", 0), ("memory", -1.0)):
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            jm.batched(large, **{name: value})
    with pytest.raises(ValueError, match="`mesh` must have one axis, but has 2 axes"):
        jm.batched(large, mesh=jax.make_mesh((1, 1), ("a", "b")))
    with pytest.raises(ValueError, match=r"rows\['b'\]` has 3"):
        by_groups()({"a": np.ones(2), "b": np.ones(3)})
    with pytest.raises(ValueError, match=r"`rows\['a'\]` is a single number"):
        by_groups()({"a": 1.0})
    with pytest.raises(ValueError, match="it holds none"):
        by_groups()({})


# Several devices and processes

COMMON = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import jaxmb as jm
jax.config.update("jax_enable_x64", True)
if len(sys.argv) > 1:
    path, port, count, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if count > 1:
        jax.distributed.initialize(f"localhost:{port}", count, number)
mass = lambda t, q, p: p["l"] ** 2 * jnp.eye(1)
potential = lambda t, q, p: -9.81 * p["l"] * jnp.cos(q[0])
system = jm.System(("angle",), mass=mass, potential=potential, params={"l": 1.0})
start, ts = jm.as_state(system, [1.0]), jnp.array([0.2, 0.4])
run = lambda l: jm.simulate(system.with_params({"l": l}), start, ts, throw=False)
lengths = np.linspace(0.5, 2.0, 8)
many = lambda ls: jax.vmap(lambda l: run(l).q[:, 0])(ls)
cost = lambda ls, many=many: jnp.mean(many(ls)[:, -1] ** 2)
on = lambda mesh: jax.shard_map(many, mesh=mesh, in_specs=P("rows"), out_specs=P("rows"), check_vma=False)
"""

ON_FOUR = """
assert len(jax.devices()) == 4
plain = jax.jit(many)(lengths), jax.jit(jax.grad(cost))(lengths)
for kind in (AxisType.Explicit, AxisType.Auto):
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(kind,))
    found = jm.batched(run, mesh=mesh)(lengths)
    np.testing.assert_allclose(found.q[..., 0], plain[0], rtol=0, atol=1e-13)
mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Auto,))
placed = jax.device_put(lengths, NamedSharding(mesh, P("rows")))
for fn, expected in zip((many, jax.grad(cost)), plain):
    np.testing.assert_allclose(jax.jit(fn)(placed), expected, rtol=0, atol=1e-13)
alone = on(mesh)
for fn, expected in zip((alone, jax.grad(lambda ls: cost(ls, alone))), plain):
    spread = jax.jit(fn)(placed)
    assert len(spread.sharding.device_set) == 4 and not spread.sharding.is_fully_replicated
    np.testing.assert_allclose(spread, expected, rtol=0, atol=1e-13)
assert "all-" not in jax.jit(alone).lower(placed).compile().as_text()
"""

OF_SEVERAL = """
assert len(jax.devices()) == 2 and jax.process_count() == count
mesh = jax.make_mesh((2,), ("rows",), axis_types=(AxisType.Auto,))
mine = lengths.reshape(count, -1)[number]
placed = jax.make_array_from_process_local_data(NamedSharding(mesh, P("rows")), mine)
local = lambda x: np.concatenate([np.asarray(s.data) for s in sorted(x.addressable_shards, key=lambda s: s.index[0].start)])
np.savez(f"{path}/{count}-{number}.npz", q=local(jax.jit(on(mesh))(placed)), slope=local(jax.jit(jax.grad(lambda ls: cost(ls, on(mesh))))(placed)))
"""


def in_process(script, devices, *arguments):
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", COMMON + script, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(*processes):
    for process in processes:
        told = process.communicate(timeout=300)[0]
        assert process.returncode == 0, told[-3000:]


@pytest.mark.slow
def test_four_devices_give_what_one_does():
    ended(in_process(ON_FOUR, 4))


@pytest.mark.slow
def test_two_processes_give_what_one_does_bit_for_bit(tmp_path):
    """One program over two devices, of one process or of two."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    ended(in_process(OF_SEVERAL, 2, tmp_path, port, 1, 0))
    ended(*(in_process(OF_SEVERAL, 1, tmp_path, port, 2, i) for i in range(2)))
    whole, first, second = (np.load(tmp_path / f"{name}.npz") for name in ("1-0", "2-0", "2-1"))
    for key in ("q", "slope"):
        np.testing.assert_array_equal(whole[key], np.concatenate([first[key], second[key]]))


def test_assembly_without_constraints_is_exported():
    _, system, *_ = arm()
    assembled = lambda speed: jm.assemble(system, {"shoulder": 0.3}, {"elbow": speed}, throw=False).v
    program = export.export(jax.jit(assembled), platforms=["cpu", "cuda"])(jax.ShapeDtypeStruct((), jnp.float64))
    assert np.allclose(program.call(2.0), [0.0, 2.0])


def test_what_a_mesh_refuses_leaves_no_trace():
    """JAX takes no arrays over `Explicit` axes, which `make_mesh` makes, in a batch: later runs of the system were refused as well."""
    joint = P.Revolute("pivot of a mesh", "ground", "rod.a")
    system = P.Mechanism([P.Body.rod("rod", 1.0, 1.0)], [joint], gravity=(0.0, -9.81)).build()

    @jax.jit
    def end(speed):
        return jm.simulate(system, jm.as_state(system, [0.3], speed[None]), TS, throw=False).q[-1, 0]

    speeds = jnp.array([-1.0, 1.0])
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,))
    with contextlib.suppress(Exception):
        jax.vmap(end)(jax.device_put(speeds, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))))
    with jax.set_mesh(mesh):
        within = end(speeds[0])
    np.testing.assert_array_equal(jax.vmap(end)(speeds)[0], within)
