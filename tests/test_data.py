"""Runs as data: exact round trips through files, names and units, tables, and runs that go on from a file."""

import dataclasses
import functools
import sys

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from systems import pendulum

import jaxmb as jm
from jaxmb.reaction import determined_multipliers
from jaxmb.records import Column, Record, read
from jaxmb.system import Names

xarray = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")
P = jm.planar
TS = jnp.linspace(0.0, 0.4, 5)
TIGHT = dfx.PIDController(rtol=1e-10, atol=1e-12)


@functools.cache
def cart():
    """A pendulum on a cart that is pushed, with a lock and a controller: units m and rad, inputs, events, memory."""
    mechanism = P.Mechanism(
        bodies=[P.Body("cart", mass=2.0, inertia=0.1), P.Body.rod("rod", mass=1.0, length=1.0)],
        joints=[P.Prismatic("slide", "ground", "cart"), P.Revolute("hinge", "cart", "rod.a")],
        actuators=[P.Motor("push", "slide")],
        gravity=(0.0, -9.81),
    )
    system = mechanism.build()
    return system, jm.assemble(system, {"slide": 0.0, "hinge": 0.4})


@functools.cache
def controlled():
    """One program for all runs with events and control."""
    system, _ = cart()
    law = jm.control.PID(["slide"], stiffness=2.0, damping=1.0, integral=0.1)

    def run(state, at):
        events = [jm.Lock("hinge", at=at)]
        return jm.simulate(system, state, TS, events=events, max_events=3, control=law, throw=False)

    return run


@functools.cache
def single():
    return jax.jit(controlled())(cart()[1], jnp.asarray(0.25))


@functools.cache
def batch():
    """Three runs: the last is spoilt, and its states are NaN."""
    state = cart()[1]
    q = jnp.stack([state.q, state.q + 0.1, jnp.full(2, jnp.nan)])
    at = jnp.array([0.25, 0.15, 0.25])
    return jax.jit(jax.vmap(lambda q, at: controlled()(dataclasses.replace(state, q=q), at)))(q, at)


@functools.cache
def free():
    """The pendulum with its rod's row stated twice: no units are known, the shares of the rows are not determined."""
    system, guess = pendulum(2)
    return system, jm.simulate(system, jm.assemble(system, *guess), TS, stepsize_controller=TIGHT)


@functools.cache
def bare():
    """No constraints, inputs or events."""
    system = jm.System(1, mass=lambda t, q, p: jnp.eye(1), potential=lambda t, q, p: q[0] ** 2)
    return system, jm.simulate(system, jm.assemble(system, [1.0]), TS)


def the_same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


RUNS = {"single": single, "batch": batch, "free": lambda: free()[1], "bare": lambda: bare()[1]}


# Data sets


@pytest.mark.slow_except("bare-nc", "bare-zarr")
@pytest.mark.parametrize("kind", ["nc", "zarr"])
@pytest.mark.parametrize("which", RUNS)
@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_files_give_back_all_that_is_written(tmp_path, which, kind):
    data, path = RUNS[which]().to_xarray(), tmp_path / f"run.{kind}"
    if kind == "nc":
        data.to_netcdf(path)
    else:
        data.to_zarr(path)
    with xarray.open_dataset(path, engine=None if kind == "nc" else "zarr") as found:
        assert found.load().identical(data)


def test_names_units_and_numbers():
    data, sol = single().to_xarray(), single()
    assert list(data.coordinate.values) == list(data.velocity.values) == ["slide", "hinge"]
    assert list(data.coordinate_units.values) == ["m", "rad"] and list(data.velocity_units.values) == ["m/s", "rad/s"]
    assert "units" not in data.q.attrs and data.u.attrs["units"] == data.input_units.item() == "N"
    assert data.input.item() == "slide" and data.constraint.item() == data.lock.item() == "lock hinge"
    the_same(data.time, TS)
    the_same(data.q.sel(coordinate="hinge"), sol.q[:, 1])
    the_same(data.u.sel(input="slide"), sol.u[:, 0])
    the_same(data.control, sol.control)
    the_same(data.active, sol.modes.active)
    assert int(data.stats_num_steps) == int(sol.stats["num_steps"])
    assert data.verdict.item() == "successful" and int(data.result) == 0
    assert data.result.attrs["flag_meanings"].split()[int(data.result)] == "successful"


def test_units_of_joints():
    """In space, in relative and absolute coordinates, with a coordinate that counts turns."""
    S = jm.spatial
    mechanism = S.Mechanism(
        bodies=[S.Body(name, mass=1.0, inertia=(0.1, 0.1, 0.1)) for name in ("a", "b", "c")],
        joints=[
            S.Spherical("ball", "ground", "a"),
            S.Cylindrical("sleeve", "a", "b"),
            S.Screw("nut", "b", "c", pitch=0.01),
        ],
    )
    systems = [mechanism.build(kind) for kind in ("relative", "absolute")]
    relative, absolute = map(Names.of, systems)
    joints = ("ball.qw", "sleeve.z", "sleeve.angle", "nut")
    assert [systems[1].joints.coordinate(name).unit for name in joints] == ["1", "m", "rad", "rad"]
    assert relative.coordinate_units == ("1", "1", "1", "1", "m", "rad", "rad")
    assert relative.velocity_units == ("rad/s", "rad/s", "rad/s", "m/s", "rad/s", "rad/s")
    assert relative.efforts == ("N m", "N m", "N m", "N", "N m", "N m")
    assert absolute.coordinate_units == ("m", "m", "m", "1", "1", "1", "1") * 3
    assert absolute.velocity_units == ("m/s", "m/s", "m/s", "rad/s", "rad/s", "rad/s") * 3
    assert relative.rates == ("ball.wx", "ball.wy", "ball.wz", "sleeve.z'", "sleeve.angle'", "nut'")


def test_events_as_data():
    data, events = single().to_xarray(), single().events
    assert data.event_what.values.tolist() == ["lock hinge", "", ""]
    the_same(data.event_time, [0.25, np.nan, np.nan])
    the_same(data.event_loss, [events.loss[0], np.nan, np.nan])
    assert float(data.event_loss[0]) > 0
    the_same(data.event_happened.sel(happening="lock hinge"), [True, False, False])
    the_same(data.event_v_after.isel(event=0), events.after.v[0])


@pytest.mark.slow
def test_switches_as_data():
    """Changes of the independent coordinate of a pendulum that goes round."""
    system, _ = pendulum(1)
    state = jm.assemble(system, [0.0, -1.0], [8.0, 0.0])
    sol = jm.simulate(system, state, jnp.array([0.0, 1.0]), formulation=jm.formulation.CoordinatePartition())
    data = sol.to_xarray()
    assert int(data.switch_count) == int(sol.switches.count) >= 2
    the_same(data.switch_time, sol.switches.t)
    the_same(data.switch_after, sol.switches.after)


@pytest.mark.slow
def test_batches_keep_verdicts_and_what_was_not_reached():
    data = batch().to_xarray()
    assert data.q.dims == ("run", "time", "coordinate")
    assert data.verdict.values.tolist() == ["successful", "successful", "inconsistent_state"]
    names, texts = data.result.attrs["flag_meanings"].split(), data.result.attrs["flag_texts"].split("\n")
    assert [names[i] for i in data.result.values] == data.verdict.values.tolist()
    assert texts[int(data.result[2])] == " ".join(jm.RESULTS[jm.RESULTS.inconsistent_state].split())
    assert np.isnan(data.q[2]).all() and not np.isnan(data.q[:2]).any()
    the_same(data.event_time[:, 0], [0.25, 0.15, np.nan])


def test_leading_axes_have_names():
    twice = jax.tree.map(lambda x: jnp.stack([x, x]), batch())
    assert twice.to_xarray().q.dims[:2] == ("run_0", "run_1")
    assert twice.to_xarray(["case", "seed"]).work.dims == ("case", "seed", "time")
    assert twice.to_pandas(["case", "seed"]).index.names == ["case", "seed", "time"]
    for wrong in (["case"], ["case", "case"]):
        with pytest.raises(
            ValueError, match=r"`runs` must be 2 different names, one for each leading axis, but is \['case'"
        ):
            twice.to_xarray(wrong)


def test_runs_with_times_of_their_own():
    runs = batch()
    moved = dataclasses.replace(runs, ts=runs.ts + jnp.arange(3.0)[:, None])
    data = moved.to_xarray()
    assert data.time.dims == ("run", "sample") and data.q.dims == ("run", "sample", "coordinate")
    the_same(data.time, moved.ts)
    assert runs.to_xarray(shared_times=False).time.dims == ("run", "sample")
    with pytest.raises(ValueError, match=r"`shared_times` must not be True, as the runs have different times"):
        moved.to_xarray(shared_times=True)


def test_frames():
    one, many = single().to_pandas(), batch().to_pandas()
    columns = ["slide", "hinge", "slide'", "hinge'", "u.slide", "work"]
    assert [*columns, "verdict"] == list(one.columns) == list(many.columns)
    assert one.attrs["units"] == dict(zip(["time", *columns], ["s", "m", "rad", "m/s", "rad/s", "N", "J"], strict=True))
    the_same(one["hinge'"], single().v[:, 1])
    assert many.index.names == ["run", "time"] and len(many) == 15
    the_same(many.loc[1, "hinge"], batch().q[1, :, 1])
    assert many["verdict"].astype(str).iloc[-1] == "inconsistent_state"
    assert free()[1].to_pandas().attrs["units"] == {"time": "s", "work": "J"}


def test_what_cannot_become_data_is_refused(monkeypatch):
    with pytest.raises(TypeError, match="must hold known numbers to become data, but is traced"):
        jax.eval_shape(lambda s: s.to_xarray() and s.ts, single())
    with pytest.raises(ValueError, match="must have `names` to become data"):
        dataclasses.replace(single(), names=None).to_xarray()
    same = dataclasses.replace(single().names, coordinates=("work", "hinge"))
    with pytest.raises(ValueError, match="must have different names, but several are called 'work'"):
        dataclasses.replace(single(), names=same).to_pandas()
    monkeypatch.setitem(sys.modules, "xarray", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs the package 'xarray': pip install jaxmb\[data\]"):
        single().to_xarray()
    with pytest.raises(ImportError, match=r"needs the package 'pandas': pip install jaxmb\[data\]"):
        single().to_pandas()


def test_names_do_not_compile_anew():
    """One program for equal systems with other numbers: names are static and equal."""
    system, state = cart()
    traced = []

    @jax.jit
    def run(params):
        traced.append(None)
        return jm.simulate(system.with_params(params), state, TS[:2], throw=False)

    first, second = run(system.params), run(jax.tree.map(lambda x: x, system.params))
    assert len(traced) == 1 and first.names == second.names and hash(first.names) == hash(second.names)


def test_a_run_goes_on_from_a_file(tmp_path):
    """Two halves, the second from the last state in a file, against the whole."""
    system, whole = free()
    first = jm.simulate(system, whole.state(0), TS[:3], stepsize_controller=TIGHT)
    first.to_xarray().to_netcdf(tmp_path / "first.nc")
    with xarray.open_dataset(tmp_path / "first.nc") as data:
        last = data.isel(time=-1)
        state = jm.as_state(system, last.q.values, last.v.values, t=last.time.item())
    second = jm.simulate(system, state, TS[2:], stepsize_controller=TIGHT)
    np.testing.assert_allclose(second.q, whole.q[2:], atol=1e-9)
    np.testing.assert_allclose(second.v, whole.v[2:], atol=1e-8)


# Records


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_records_from_data_sets(tmp_path, kind):
    data, path = single().to_xarray(), tmp_path / f"run.{kind}"
    data.to_netcdf(path) if kind == "nc" else data.to_zarr(path)
    columns = {
        "angle": "q.hinge",
        "both": "q",
        "pushed": Column("u.slide", "kN"),
        "second": Column("v", "rad/s", index=1),
    }
    record = read(path, columns)
    the_same(record.t, TS)
    the_same(record["angle"], single().q[:, 1])
    the_same(record["both"], single().q)
    the_same(record["pushed"], single().u[:, 0] * 1000)
    the_same(record["second"], single().v[:, 1])
    assert dict(record.units) == {"pushed": "N", "second": "rad/s"}


def test_data_sets_obey_the_laws_of_other_files(tmp_path):
    times = {"clock": ("clock", [0.0, 5.0, 10.0], {"units": "ms"})}
    angle = ("clock", [180.0, np.nan, 90.0], {"units": "deg"})
    odd, words = ("clock", [1.0, 2.0, 3.0], {"units": "furlong"}), ("clock", ["a", "b", "c"])
    data = xarray.Dataset({"angle": angle, "odd": odd, "words": words, "plane": (("a", "b"), np.zeros((2, 4)))}, times)
    path = tmp_path / "x.nc"
    data.to_netcdf(path)
    record = read(path, {"angle": "angle", "odd": Column("odd", "m", 201.168)}, time="clock")
    the_same(record.t, np.array([0.0, 5.0, 10.0]) * 1e-3)
    the_same(record["angle"], np.array([180.0, np.nan, 90.0]) * (np.pi / 180))
    assert dict(record.units) == {"angle": "rad", "odd": "m"}
    for columns, match in (
        ({"x": "odd"}, r"Column 'x' \('odd' in .*x\.nc\) is said there to be in 'furlong', which is not known"),
        ({"x": "words"}, r"Column 'x' .* must be an array of numbers, but is of type"),
        ({"x": "none"}, r"Column 'x' must be in .*x\.nc under a name out of 'angle', .*, but is looked for as 'none'"),
        ({"x": "plane"}, r"Column 'x' .* must have a sample for each of the 3 times, but has shape \(2, 4\)"),
    ):
        with pytest.raises(ValueError, match=match):
            read(path, columns, time="clock")
    with pytest.raises(ValueError, match=r"The unit of column 'time' must be one of time, but is 'deg'"):
        read(path, {}, time="angle")
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*none\.zarr"):
        read(tmp_path / "none.zarr", {})
    (tmp_path / "bad.nc").write_text("no data set")
    with pytest.raises(ValueError, match=r"bad\.nc must be a data set of netCDF or Zarr, but: "):
        read(tmp_path / "bad.nc", {})


RECORD = Record(
    TS,
    {"a": [1 / 3, np.nan, -2e-300, 5e-324, 1.7e308], "b, c": jnp.ones(5) / 7, "wide": jnp.arange(10.0).reshape(5, 2)},
    {"a": "rad", "wide": "m"},
    "by hand\nin two lines",
)


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("kind", ["csv", "nc", "zarr"])
def test_records_to_files_and_back(tmp_path, kind):
    """To the last digit, missing samples and units included."""
    path = tmp_path / f"x.{kind}"
    writers = {"csv": RECORD.to_csv, "nc": RECORD.to_xarray().to_netcdf, "zarr": RECORD.to_xarray().to_zarr}
    writers[kind](path)
    wide = {"wide[0]": "wide[0]", "wide[1]": "wide[1]"} if kind == "csv" else {"wide": "wide"}
    record = read(path, {"a": "a", "b, c": "b, c"} | wide)
    the_same(record.t, RECORD.t)
    the_same(record["a"], RECORD["a"])
    the_same(record["b, c"], RECORD["b, c"])
    the_same(jnp.stack([record[name] for name in wide], axis=1).reshape(5, 2), RECORD["wide"])
    assert dict(record.units) == {"a": "rad", **dict.fromkeys(wide, "m")}
    assert not list(tmp_path.glob("*.part"))


def test_records_as_frames():
    table = RECORD.to_pandas()
    assert list(table.columns) == ["a", "b, c", "wide[0]", "wide[1]"] and table.index.name == "time"
    assert table.attrs["units"] == {"time": "s", "a": "rad", "wide[0]": "m", "wide[1]": "m"}
    assert table.attrs["source"] == "by hand\nin two lines"
    the_same(table["wide[1]"], RECORD["wide"][:, 1])


def test_names_that_text_cannot_hold(tmp_path):
    for name in (" a", "a;b;c;d", "a\nb"):
        with pytest.raises(ValueError, match="must have names that text can hold"):
            Record([0.0], {name: [1.0]}).to_csv(tmp_path / "x.csv")
    with pytest.raises(ValueError, match=r"must have different names, but several are called 'a\[0\]'"):
        Record([0.0], {"a": [[1.0]], "a[0]": [1.0]}).to_csv(tmp_path / "x.csv")
    assert not list(tmp_path.iterdir())


# Tables


def test_table_of_a_run():
    """Each column is what the functions of its name give; the share of a redundant row is not determined."""
    system, sol = free()
    table = jm.output.tabulate(system, sol)
    energy, found = jm.energy(system, sol), jm.reactions(system, sol)
    the_same(table.t, sol.ts)
    the_same(jnp.stack([table[name] for name in ("x", "y", "x'", "y'")], 1), jnp.concatenate([sol.q, sol.v], 1))
    the_same(jnp.stack([table["reaction.x"], table["reaction.y"]], 1), found.reaction)
    for part in ("kinetic", "potential", "total", "balance"):
        the_same(table[f"energy.{part}"], getattr(energy, part))
    the_same(table["residual.rod[1]"], jm.residuals(system, sol).position[:, 1])
    the_same(table["residual_rate.rod[0]"], jm.residuals(system, sol).velocity[:, 0])
    assert np.isnan(table["multiplier.rod[0]"]).all() and np.isnan(table["multiplier.rod[1]"]).all()
    assert dict(table.units)["energy.total"] == "J" and "x" not in dict(table.units)


def test_multipliers_that_are_determined():
    """Rows that take part in a dependence are not, others are, also where there are more rows than velocities."""
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    turned = rows @ np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 2)[0]
    for found in determined_multipliers(np.stack([rows, turned])):
        assert found.tolist() == [False, True, False, False]
    assert determined_multipliers(rows[:2]).tolist() == [True, True]
    assert determined_multipliers(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])).tolist() == [False] * 3


def test_table_without_constraints():
    table = jm.output.tabulate(*bare())
    expected = [
        "q0",
        "q0'",
        "work",
        "reaction.q0",
        *(f"energy.{x}" for x in ("kinetic", "potential", "total", "balance")),
    ]
    assert list(table.columns) == expected
    the_same(table["reaction.q0"], np.zeros(5))
    assert "energy.potential J" in str(table)


@pytest.mark.slow
def test_table_of_a_mechanism_with_a_lock(tmp_path):
    """λ of the lock is its torque once it acts, and zero before; the file gives all of it back."""
    system, sol = cart()[0], single()
    table = jm.output.tabulate(system, sol, ["motion", "multipliers", "reactions"])
    assert dict(table.units)["reaction.hinge"] == "N m" and dict(table.units)["u.slide"] == "N"
    assert dict(table.units)["multiplier.lock hinge"] == "N m"
    torque = table["multiplier.lock hinge"]
    the_same(torque[:3], [0.0, 0.0, 0.0])
    np.testing.assert_allclose(torque[3:], table["reaction.hinge"][3:], rtol=1e-9)
    assert np.all(np.abs(torque[3:]) > 0.1)
    table.to_csv(tmp_path / "run.csv")
    back = read(tmp_path / "run.csv", {name: name for name in table.columns})
    assert back.units == table.units
    for name in table.columns:
        the_same(back[name], table[name])


def test_table_of_an_unreached_end():
    spoilt = jax.tree.map(lambda x: x[2], batch())
    table = jm.output.tabulate(cart()[0], spoilt, ["motion", "multipliers", "reactions"])
    assert all(np.isnan(column).all() for name, column in table.columns.items() if name != "multiplier.lock hinge")


def test_tables_that_are_refused():
    system, sol = free()
    with pytest.raises(ValueError, match=r"`quantities` must be out of 'motion', .* but is \['power'\]"):
        jm.output.tabulate(system, sol, ["power"])
    with pytest.raises(TypeError, match=r"`quantities` must be a sequence, .* but is 'motion'"):
        jm.output.tabulate(system, sol, "motion")
    with pytest.raises(TypeError, match="`solution` must hold known numbers"):
        jax.eval_shape(lambda sol: jm.output.tabulate(system, sol).t, sol)
    with pytest.raises(ValueError, match=r"`solution` must be a single run, but has leading axes \(3,\)"):
        jm.output.tabulate(cart()[0], batch())
