"""Records from files: exact numbers, missing samples, units, and what is refused."""

import json
import pathlib
import struct
import zipfile
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.io

import jaxmb as jm
from jaxmb.records import UNITS, Column, Record, read, read_described
from jaxmb.records.formats import open_source

T = np.array([0.0, 0.1, 0.25])
ANGLE = np.array([1.0, 1 / 3, -2e-7])
MATRIX = np.array([[1.0, 2.0, 3.0], [4.0, np.nan, 6.0]])  # two rows along the times
COLUMNS = {"angle": Column("a", "rad"), "b": "b"}


def same(found, expected):
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected), strict=True)


def text(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def refused(match, fn, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=match):
        fn(*args, **kwargs)


# Formats


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_text(tmp_path, delimiter):
    rows = [[repr(float(x)) for x in row] for row in zip(T, ANGLE, [5, 6, 7], strict=True)]
    rows[1][2] = "NA"
    lines = ["# made by hand", "", '"time, all", a ,b'.replace(",", delimiter), "  # in between"]
    lines[2] = lines[2].replace(f"time{delimiter} all", "time, all")
    lines += [delimiter.join(row) for row in rows]
    record = read(text(tmp_path / "x.CSV", *lines), COLUMNS, time="time, all")
    same(record.t, T)
    same(record["angle"], ANGLE)
    same(record["b"], [5.0, np.nan, 7.0])


@pytest.mark.parametrize("units, unit", [('{"a": "deg"}', "rad"), ('["deg"]', None), ("{", None)])
def test_units_in_comments_of_text(tmp_path, units, unit):
    """A table of units counts, other comments do not."""
    record = read(text(tmp_path / "x.csv", f"# units {units}", "time,a", "0,180"), {"a": "a"})
    same(record["a"], [np.pi if unit else 180.0])
    assert dict(record.units).get("a") == unit


def test_text_with_missing_cells_and_a_byte_order_mark(tmp_path):
    path = text(tmp_path / "x.csv", "\ufefftime,a", "0,", "1,nan", "2,NaN", "3,NA", "4, 1e3 ")
    same(read(path, {"a": "a"})["a"], [np.nan] * 4 + [1e3])


def test_npz(tmp_path):
    np.savez(tmp_path / "x.npz", time=T[:, None], a=ANGLE, rows=MATRIX, columns=MATRIX.T, counts=[1, 2, 3])
    columns = {name: name for name in ("a", "rows", "columns", "counts")} | {"second": Column("rows", index=1)}
    record = read(tmp_path / "x.npz", columns | {"first": Column("columns", index=0)})
    same(record.t, T)
    same(record["a"], ANGLE)
    same(record["rows"], MATRIX.T)
    same(record["columns"], MATRIX.T)
    same(record["counts"], [1.0, 2.0, 3.0])
    same(record["second"], MATRIX[1])
    same(record["first"], MATRIX[0])


def test_times_in_a_matrix(tmp_path):
    """Of a matrix with unequal sides the longer one runs along the times."""
    table = np.vstack([T, ANGLE])
    np.savez(tmp_path / "x.npz", down=table.T, along=table)
    for name in ("down", "along"):
        record = read(tmp_path / "x.npz", {"a": Column(name, index=1)}, time=Column(name, index=0))
        same(record.t, T)
        same(record["a"], ANGLE)


def test_matrices_of_one_column_or_one_sample(tmp_path):
    np.savez(tmp_path / "x.npz", time=T, a=ANGLE[:, None], b=ANGLE[None, :], now=[[4.0]], three=MATRIX[:1].T)
    record = read(tmp_path / "x.npz", {"a": Column("a", index=0), "b": Column("b", index=0), "c": "b"})
    for name in record.columns:
        same(record[name], ANGLE)
    record = read(
        tmp_path / "x.npz", {"all": "three", "last": Column("three", index=2), "t": Column("now", index=0)}, time="now"
    )
    same(record.t, [4.0])
    same(record["all"], MATRIX[:1])
    same(record["last"], [3.0])
    same(record["t"], [4.0])


def test_matlab(tmp_path):
    """Matrices, and cell arrays, whose cells MATLAB counts down the columns."""
    cells, times = np.empty((2, 2), object), np.empty((2, 1), object)
    for i in range(4):
        cells[i % 2, i // 2] = MATRIX + 10 * i
    times[0, 0], times[1, 0] = T[:, None], T[None, :] + 1
    scipy.io.savemat(tmp_path / "x.mat", {"Y": cells, "time": times, "t": T, "a": ANGLE, "short": T.astype("f4")})
    record = read(tmp_path / "x.mat", {"a": "a", "short": "short"}, time="t")
    same(record["a"], ANGLE)
    same(record["short"], T.astype("f4").astype(float))
    columns = {"both": Column("Y", index=2), "one": Column("Y", index=(2, 1)), "tuple": Column("Y", index=(3,))}
    record = read(tmp_path / "x.mat", columns, time=Column("time", index=1))
    same(record.t, T + 1)
    same(record["both"], MATRIX.T + 20)
    same(record["one"], MATRIX[1] + 20)
    same(record["tuple"], MATRIX.T + 30)


def test_units_by_hand():
    """Against conversions written down anew, as fractions of π and powers of ten; every unit is among them."""
    pi = np.pi
    conversions = {
        "rad": {"rad": 1, "mrad": 0.001, "deg": pi / 180, "rev": 2 * pi},
        "m": {"m": 1, "cm": 0.01, "mm": 0.001, "um": 0.000001},
        "s": {"s": 1, "ms": 0.001, "us": 0.000001, "ns": 0.000000001},
        "m/s": {"m/s": 1, "mm/s": 0.001},
        "rad/s": {"rad/s": 1, "deg/s": pi / 180, "rpm": 2 * pi / 60},
        "m/s^2": {"m/s^2": 1, "mm/s^2": 0.001},
        "rad/s^2": {"rad/s^2": 1, "deg/s^2": pi / 180},
        "kg": {"kg": 1, "g": 0.001},
        "N": {"N": 1, "kN": 1000, "mN": 0.001},
        "N m": {"N m": 1, "N mm": 0.001},
        "A": {"A": 1, "mA": 0.001},
        **{unit: {unit: 1} for unit in ("1", "1/s", "J", "W", "V")},
    }
    assert {unit for units in conversions.values() for unit in units} == set(UNITS)
    for si, units in conversions.items():
        for unit, factor in units.items():
            assert Column("x", unit).si == si
            np.testing.assert_allclose(Column("x", unit).in_si(3.0), 3 * factor, rtol=4e-16)
    assert Column("x").si is None
    # 3072 of 4096 counts, from 1024 on, the other way round: half a turn back.
    np.testing.assert_allclose(Column("x", "rev", -1 / 4096, 1024.0).in_si(3072), -pi, rtol=4e-16)


def test_units_of_a_record(tmp_path):
    path = text(tmp_path / "x.csv", "t,a,b", "1000,90,1", "1500,180,2")
    record = read(path, {"a": Column("a", "deg"), "b": "b"}, time=Column("t", "ms", offset=1000.0), source="by hand")
    same(record.t, [0.0, 0.5])
    np.testing.assert_allclose(record["a"], [np.pi / 2, np.pi], rtol=4e-16)
    assert dict(record.units) == {"a": "rad"} and record.source == "by hand"
    same(read(path, {"a": "a"}, time=Column("t", scale=0.5)).t, [500.0, 750.0])


# Records


def record():
    return Record([0.0, 0.1, 0.2, 0.3], {"x": [1, np.nan, 3, 4], "y": np.ones((4, 2))}, {"x": "m"})


def test_parts_of_a_record():
    whole = record()
    assert len(whole) == 4 and whole["x"].dtype == whole.t.dtype == jnp.zeros(()).dtype
    part = whole.window(0.1, 0.2)
    same(part.t, whole.t[1:3])
    same(part["x"], [np.nan, 3.0])
    assert part["y"].shape == (2, 2) and part.units == whole.units
    same(whole.every(3)["x"], [1.0, 4.0])
    same(whole.every(1).t, whole.t)
    assert str(whole).splitlines() == [
        "Record: 4 samples in 0.3 s",
        "  x             m, 1 missing",
        "  y             no unit, 2 each",
    ]
    assert str(Record([1.0], {}, source="nothing")) == "Record: 1 sample in 0 s, nothing"


def test_records_in_programs():
    """They are pytrees: stacked for a batch, and arguments of compiled functions."""
    both = jax.tree.map(lambda *x: jnp.stack(x), record(), record())
    assert "times of shape (2, 4)" in str(both)
    found = jax.jit(jax.vmap(lambda r: (jnp.nansum(r["x"]), len(r))))(both)
    same(found[0], [8.0, 8.0])
    same(found[1], np.array([4, 4]))
    slope = jax.grad(lambda k: jnp.nansum(Record(record().t, {"x": k * record().t})["x"]))(2.0)
    np.testing.assert_allclose(slope, 0.6)


def test_times_that_are_traced_are_not_looked_at():
    """What is known must rise; in a program times may depend on an argument."""
    span = jax.jit(lambda k: Record(k * jnp.array([0.0, 1.0, 3.0]), {}).t)
    same(span(2.0), [0.0, 2.0, 6.0])
    same(span(-2.0), [0.0, -2.0, -6.0])


def test_float32():
    jax.config.update("jax_enable_x64", False)
    try:
        assert record().t.dtype == record()["x"].dtype == jnp.float32
        refused("index 1 after .* These are float32 numbers; turn on float64", Record, [1.7e9, 1.7e9 + 0.01], {})
    finally:
        jax.config.update("jax_enable_x64", True)


def test_refused_records():
    refused(r"`t` must be a vector of at least one time, but has shape \(0,\)", Record, [], {})
    refused(r"`t` must be a vector .* shape \(1, 2\)", Record, [[0.0, 1.0]], {})
    refused("`t` must be finite, but is nan at index 1", Record, [0.0, np.nan], {})
    refused(r"`t` must increase, but is 1\.0 s at index 2 after 1\.0 s\.$", Record, [0.0, 1.0, 1.0], {})
    shape = r"Column 'x' must have shape \(2,\) or \(2, k\), like the times, but has"
    refused(rf"{shape} \(3,\)", Record, [0.0, 1.0], {"x": [1, 2, 3]})
    refused(rf"{shape} \(\)", Record, [0.0, 1.0], {"x": 1.0})
    refused("Column 'x' must be finite, or NaN .* infinite at index 1", Record, [0.0, 1.0], {"x": [1, np.inf]})
    refused("`units` names 'z'; the columns are 'x'", Record, [0.0], {"x": [1]}, {"z": "m"})
    refused("no column 'z'; there are 'x' and 'y'", lambda: record()["z"], error=KeyError)
    refused("no samples from 5 s to 6 s; they are from 0 s to 0.3 s", record().window, 5, 6)
    for n in (0, 1.5):
        refused(f"`n` must be a positive integer, but is {n}", record().every, n, error=(TypeError, ValueError))


def test_record_of_another_engine():
    """The reference records of a four-bar, whose loop is closed by angles that are all absolute."""
    path = pathlib.Path(__file__).parent / "data" / "fourbar_encoder.npz"
    names, known = ("crank", "coupler", "rocker"), np.load(path)
    for i in range(4):
        found = read(path, {name: Column(name, "rad", index=i) for name in names}, time="t")
        assert len(found) == 401 and found.t[-1] == 2.0
        crank, coupler, rocker = (
            length * np.exp(1j * found[name]) for length, name in zip(known["lengths"], names, strict=True)
        )
        np.testing.assert_allclose(crank + coupler - rocker, known["ground"], rtol=0, atol=1e-9)
        swept = np.diff(found["crank"]) * 200  # mean speeds against those at the ends of each span
        ends = known["crank_speed"][i]
        np.testing.assert_allclose(swept, (ends[1:] + ends[:-1]) / 2, rtol=0, atol=0.3)


# Refused files


LINES = {
    "text in numbers": (
        ["time,a,b", "0,1,2", "", "1,one,2"],
        r"x\.csv, line 4, column 'a' must be a number, .* 'one'\.$",
    ),
    "decimal comma": (["time;a;b", "0;1,5;2"], r"line 2, column 'a' must .* '1,5'\. Decimals are written with a point"),
    "times fall": (
        ["time,a,b", "0,1,2", "1,1,2", "0.5,1,2"],
        r"'time' .*x\.csv\) must increase, but is 0\.5 s at index 2",
    ),
    "time missing": (["time,a,b", "0,1,2", ",1,2"], r"'time' .*x\.csv\) must be finite, but is nan at index 1"),
    "no samples": (["time,a,b"], r"'time' .*x\.csv\) must be a vector of at least one time, but has shape \(0,\)"),
    "nothing": (["# only this"], r"x\.csv must begin with a line of names, but holds no line"),
    "missing column": (
        ["time,c,b", "0,1,2"],
        r"Column 'angle' must be in .*x\.csv under a name out of 'time', 'c' and 'b', but is looked for as 'a'",
    ),
    "missing time": (
        ["t,a,b", "0,1,2"],
        r"Column 'time' must be .* out of 't', 'a' and 'b', but is looked for as 'time'",
    ),
    "twice": (["time,a,a,b", "0,1,2,3"], r"x\.csv has 2 columns 'a'; names must be different"),
    "cells": (["time,a,b", "0,1"], r"x\.csv, line 2, must have 3 cells, like the names, but has 2"),
    "infinite": (["time,a,b", "0,1,2", "1,inf,2"], r"x\.csv: Column 'angle' must be finite, .* infinite at index 1"),
}


@pytest.mark.parametrize("case", LINES)
def test_refused_text(tmp_path, case):
    lines, message = LINES[case]
    refused(message, read, text(tmp_path / "x.csv", *lines), COLUMNS)


def test_refused_files(tmp_path):
    refused(
        r"x\.txt must end with one of '\.csv', '\.npz', '\.mat', '\.nc' and '\.zarr'", read, tmp_path / "x.txt", COLUMNS
    )
    refused(r"There is no file .*x\.csv", read, tmp_path / "x.csv", COLUMNS, error=FileNotFoundError)
    (tmp_path / "x.csv").write_bytes("time,°\n0,1".encode("latin-1"))
    refused(r"x\.csv must be text in UTF-8, but", read, tmp_path / "x.csv", COLUMNS)
    for suffix, message in {
        "npz": r"x\.npz must be a file of `numpy.savez`",
        "mat": r"x\.mat must be a MATLAB file",
    }.items():
        refused(message, read, text(tmp_path / f"x.{suffix}", "no such file at all"), COLUMNS)
    np.save(tmp_path / "one.npy", T)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    refused(r"one\.npz must be a file of `numpy.savez`", read, tmp_path / "one.npz", COLUMNS)


def test_newer_matlab_files(tmp_path):
    """A file of version 7.3 begins with this line and holds HDF5."""
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    (tmp_path / "x.mat").write_bytes(head.ljust(512, b"\0") + b"\x89HDF\r\n\x1a\n")
    refused(
        r"x\.mat must be a MATLAB file, but: it is of version 7\.3; save it with save\(…, '-v7'\)",
        read,
        tmp_path / "x.mat",
        COLUMNS,
    )


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "x.npz", time=T, a=ANGLE, b=np.array([{}, 1, "c"], object))
    refused(
        r"'b' in .*x\.npz must be an array, but: it is an array of Python objects, which are never loaded",
        read,
        tmp_path / "x.npz",
        COLUMNS,
    )
    same(read(tmp_path / "x.npz", {"a": "a"})["a"], ANGLE)  # the others are read


def test_refused_arrays(tmp_path):
    path = tmp_path / "x.npz"
    arrays = {
        "long": np.ones(4),
        "words": ["a", "b", "c"],
        "complex": 1j * T,
        "cube": np.ones((3, 3, 2)),
        "square": np.eye(3),
    }
    np.savez(path, time=T, a=ANGLE, rows=MATRIX, **arrays)
    one = lambda name, index=None: {"x": Column(name, index=index)}
    samples = r"Column 'x' \('{}' in .*x\.npz\) must have a sample for each of the 3 times, but has shape \({}\)"
    refused(samples.format("long", "4,"), read, path, one("long"))
    refused(samples.format("cube", "3, 3, 2"), read, path, one("cube"))
    refused("must be an array of numbers, but is of type <U1", read, path, one("words"))
    refused("must be an array of numbers, but is of type complex128", read, path, one("complex"))
    refused(
        r"'square' in .* is square, \(3, 3\), so that rows and columns cannot be told apart", read, path, one("square")
    )
    refused("'rows' in .* has 2 columns to choose from, and not number 2, counted from 0", read, path, one("rows", 2))
    refused("'a' in .* has 0 columns to choose from, and not number 0", read, path, one("a", 0))
    refused(
        r"'rows' in .* is no cell array: `index` must be one number, but is \(0, 1\)", read, path, one("rows", (0, 1))
    )
    refused(
        r"Column 'time' .* must be a vector of at least one time, but has shape \(3, 2\)", read, path, {}, time="rows"
    )


def test_refused_cells(tmp_path):
    cells = np.empty((2, 1), object)
    cells[0, 0], cells[1, 0] = MATRIX, "word"
    scipy.io.savemat(tmp_path / "x.mat", {"time": T, "Y": cells, "s": {"a": T}})
    for index, shown in ((None, None), (2, r"\(2,\)"), ((2, 0), r"\(2, 0\)")):
        message = rf"Column 'x' \('Y' in .*x\.mat\) is an array of 2 cells: `index` .* but is {shown}\."
        refused(message, read, tmp_path / "x.mat", {"x": Column("Y", index=index)})
    refused("must be an array of numbers, but is of type <U4", read, tmp_path / "x.mat", {"x": Column("Y", index=1)})
    refused("'s' in .* must be an array of numbers, or cells of them", read, tmp_path / "x.mat", {"x": "s"})


def test_refused_descriptions(tmp_path):
    path = text(tmp_path / "x.csv", "time,a", "0,1")
    refused(r"`unit` of column 'a' is 'degree'; units are '1', 'm', .*'deg'.*'mA'", Column, "a", "degree")
    refused("`source` of Column must be text that is not empty, but is 3", Column, 3, error=TypeError)
    refused("`scale` of column 'a' must be a number, but is '2'", Column, "a", scale="2", error=TypeError)
    refused("`offset` of column 'a' must be a number, but is None", Column, "a", offset=None, error=TypeError)
    refused("`scale` of column 'a' must not be 0", Column, "a", scale=0)
    refused("`offset` of column 'a' must be finite, but is inf", Column, "a", offset=float("inf"))
    for index in (-1, 1.0, True, (1, 2, 3), "a", (0, -1)):
        refused(
            "`index` of column 'a' must be None, an integer from 0 or two", Column, "a", index=index, error=TypeError
        )
    refused("`columns` must be a dictionary, .*, but is 'a'", read, path, "a", error=TypeError)
    refused(
        "`columns` must be a dictionary, .* each value text that is not empty or a Column, but is {'a': 1}",
        read,
        path,
        {"a": 1},
        error=TypeError,
    )
    refused("unit of column 'time' must be one of time, but is 'mm'", read, path, {}, time=Column("time", "mm"))


# Descriptions in files


FILE = 'file = "data/x.csv"\n'


def described(tmp_path, content):
    (tmp_path / "data").mkdir(exist_ok=True)
    text(tmp_path / "data" / "x.csv", "t,a,b", "0,90,1", "2,180,2")
    return text(tmp_path / "x.toml", content)


def test_described(tmp_path):
    path = described(
        tmp_path,
        f"""{FILE}source = "by hand"
[time]
column = "t"
unit = "ms"
[columns]
b = "b"
[columns.crank]
column = "a"
unit = "deg"
offset = 90
scale = -1""",
    )
    found = read_described(str(path))
    same(found.t, [0.0, 0.002])
    np.testing.assert_allclose(found["crank"], [0, -np.pi / 2], rtol=4e-16)
    same(found["b"], [1.0, 2.0])
    assert found.source == "by hand" and dict(found.units) == {"crank": "rad"}


def test_described_cells(tmp_path):
    cells = np.empty((2, 1), object)
    cells[0, 0], cells[1, 0] = MATRIX, 2 * MATRIX
    scipy.io.savemat(tmp_path / "x.mat", {"time": T, "Y": cells})
    path = text(tmp_path / "x.toml", 'file = "x.mat"', "[columns.y]", 'column = "Y"', "index = [1, 0]")
    same(read_described(path)["y"], 2 * MATRIX[0])


TOML = {
    "syntax": ("file =", r"x\.toml must be a TOML file: "),
    "no file": ('columns = {b = "b"}', r"x\.toml lacks 'file'"),
    "no columns": (FILE, r"x\.toml lacks 'columns'"),
    "unknown": (
        FILE + 'colums = {b = "b"}',
        r"x\.toml has unknown keys 'colums'; they may be 'file', 'source', 'time' and",
    ),
    "unknown in a column": (
        FILE + "[columns.b]\nname = 'b'",
        r"Column 'b' in .*x\.toml has unknown keys 'name'; they may be",
    ),
    "no name": (FILE + "[columns.b]\nunit = 'm'", r"Column 'b' in .*x\.toml lacks 'column'"),
    "unit": (
        FILE + "[columns.b]\ncolumn = 'b'\nunit = 'furlong'",
        r"Column 'b' in .*x\.toml: .*'furlong'; units are '1', ",
    ),
    "outside": (
        'file = "../x.csv"\ncolumns = {b = "b"}',
        r"x\.toml must be in the same folder or below, but is '\.\./x\.csv'",
    ),
    "type of columns": (FILE + "columns = 3", (r"'columns' in .*x\.toml must be a table, but is 3", TypeError)),
    "type of a column": (
        FILE + "columns = {b = 3}",
        (r"Column 'b' in .*x\.toml must be a name or a table, but is 3", TypeError),
    ),
    "type of the file": ('file = 3\ncolumns = {b = "b"}', (r"'file' in .*x\.toml must be a name, but is 3", TypeError)),
    "index": (
        FILE + "[columns.b]\ncolumn = 'b'\nindex = 'x'",
        (r"Column 'b' in .*x\.toml: Argument `index`", TypeError),
    ),
    "source": (FILE + "source = 3\ncolumns = {b = 'b'}", (r"`source` must be text or None, but is 3", TypeError)),
}


@pytest.mark.parametrize("case", TOML)
def test_refused_toml(tmp_path, case):
    content, message = TOML[case]
    message, error = message if isinstance(message, tuple) else (message, ValueError)
    refused(message, read_described, described(tmp_path, content), error=error)


def test_data_stay_in_their_folder(tmp_path):
    """Absolute names are refused, and links that lead out."""
    inside, outside = tmp_path / "inside", text(tmp_path / "x.csv", "time,a", "0,1")
    inside.mkdir()
    (inside / "x.csv").symlink_to(outside)
    for file in (str(outside), str(inside / "x.csv"), "x.csv"):
        path = text(inside / "x.toml", f"file = {json.dumps(file)}", 'columns = {a = "a"}')
        refused(r"'file' in .*x\.toml must be in the same folder or below", read_described, path)
    refused(r"There is no file .*none\.toml", read_described, inside / "none.toml", error=FileNotFoundError)


def test_public_names():
    assert jm.records.read is read and {"read", "read_described", "Record", "Column", "UNITS"} <= set(dir(jm.records))


# Damaged and hostile files


def matlab(path, **options):
    """A file with matrices of several kinds, and what it holds."""
    cells = np.empty((1, 2), object)
    cells[0, 0], cells[0, 1] = T, MATRIX
    more = {} if options.get("format") == "4" else {"Y": cells, "s": {"a": T}}
    scipy.io.savemat(path, {"t": T, "a": MATRIX, "z": 1j * T, "i": np.arange(6, dtype="i2")} | more, **options)
    return path.read_bytes()


@pytest.mark.parametrize("options", [{}, {"do_compression": True}, {"format": "4"}], ids=["plain", "compressed", "4"])
def test_damaged_matlab_files_are_read_or_refused(tmp_path, options):
    whole, path, random = matlab(tmp_path / "x.mat", **options), tmp_path / "x.mat", np.random.default_rng(0)
    sizes = [np.array(n, "<i4").tobytes() for n in (-1, 0, 1, 16, 2**31 - 1)]
    results = set()
    for _ in range(400):
        damaged, at = bytearray(whole), int(random.integers(len(whole) - 4))
        damaged[at : at + 4] = sizes[random.integers(5)] if random.random() < 0.5 else random.bytes(4)
        path.write_bytes(damaged)
        try:
            source = open_source(path)
            results |= {source.values(name, "x").shape for name in ("t", "a", "i") if name in source.names}
        except ValueError as error:
            assert "x.mat must be" in str(error)
            results.add("refused")
    assert {"refused", (1, 3), (2, 3), (1, 6)} <= results
    path.write_bytes(whole[:-4])
    refused(r"x\.mat must be a MATLAB file, but: .*", read, path, {"a": "a"}, time="t")


def element(kind, data):
    """An element of a MATLAB file, filled up to eight bytes."""
    return struct.pack("<II", kind, len(data)) + data.ljust(-(-len(data) // 8) * 8, b"\0")


FLAGS, SIZE = element(6, struct.pack("<II", 6, 0)), element(5, struct.pack("<ii", 1, 1))
ONE = element(14, FLAGS + SIZE + element(1, b"x") + element(9, struct.pack("<d", 2.5)))
packed = lambda data: struct.pack("<II", 15, len(zlib.compress(data))) + zlib.compress(data)


@pytest.mark.parametrize(
    "body, told",
    [
        (b"abc", "it is too short"),
        (element(9, b"12345678"), "it holds an element of type 9 in place of a matrix"),
        (ONE + b"1234", "it ends within an element"),
        (packed(ONE + ONE), "a compressed variable holds 2 elements"),
        (element(14, FLAGS + SIZE), "a matrix has no name"),
        (element(14, FLAGS + SIZE + element(2, b"x")), "a matrix has no name"),
    ],
)
def test_matlab_files_of_wrong_parts(tmp_path, body, told):
    """The same parts, whole, are read."""
    path, head = tmp_path / "x.mat", b"by hand".ljust(124) + b"\x00\x01IM"
    path.write_bytes(body if body == b"abc" else head + body)
    refused(rf"x\.mat must be a MATLAB file, but: {told}", open_source, path)
    for whole in (ONE, packed(ONE)):
        path.write_bytes(head + whole)
        assert float(open_source(path).values("x", "x").squeeze()) == 2.5


def test_cells_in_cells_are_read_so_deep_and_no_deeper(tmp_path):
    cells = T
    for _ in range(17):
        cells = [cells]
    nested = lambda x: x if isinstance(x, np.ndarray) else np.array([nested(x[0]), None], object)[:1]
    scipy.io.savemat(tmp_path / "x.mat", {"c": nested(cells)})
    refused("cell arrays are nested more deeply than 16", open_source, tmp_path / "x.mat")
    scipy.io.savemat(tmp_path / "x.mat", {"c": nested(cells[0])})
    assert open_source(tmp_path / "x.mat").names == ["c"]


def test_newer_headers_of_numpy(tmp_path):
    """The second version, for headers beyond 64 KiB."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        for name, values in {"time": T, "a": ANGLE}.items():
            with file.open(f"{name}.npy", "w") as part:
                np.lib.format.write_array(part, values, version=(2, 0))
    same(read(tmp_path / "x.npz", {"a": "a"})["a"], ANGLE)


def test_only_what_is_asked_for_is_unpacked_and_what_is_too_large_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxmb.records.sources.LARGEST", 2**20)
    zeros = np.zeros(2**18)  # two of the largest, and some kB on the disk
    np.savez_compressed(tmp_path / "x.npz", time=T, a=ANGLE, zeros=zeros)
    same(read(tmp_path / "x.npz", {"a": "a"})["a"], ANGLE)
    message = "takes 2 MiB when it is unpacked, more than 1 MiB"
    refused(rf"'zeros' in .*x\.npz must be an array, but: it {message}", read, tmp_path / "x.npz", {"a": "zeros"})
    scipy.io.savemat(tmp_path / "x.mat", {"time": T, "zeros": zeros}, do_compression=True)
    refused(r"x\.mat must be .* takes more than 1 MiB when", read, tmp_path / "x.mat", {"a": "zeros"})
    xarray = pytest.importorskip("xarray")
    data = xarray.Dataset({"time": ("time", T), "a": ("time", ANGLE), "zeros": ("n", zeros)})
    data.to_netcdf(tmp_path / "x.nc", encoding={"zeros": {"zlib": True}})
    same(read(tmp_path / "x.nc", {"a": "a"})["a"], ANGLE)
    refused(rf"'zeros' in .*x\.nc {message}", read, tmp_path / "x.nc", {"a": "zeros"})


def test_files_are_written_beside_links_not_through_them(tmp_path):
    """A link that someone has put where a writer would write leads to what must not be written."""
    treasure = tmp_path / "treasure"
    treasure.write_text("gold")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("x.csv", "x.csv.part", "x.part"):
        (folder / name).symlink_to(treasure)
    Record(T, {"a": ANGLE}).to_csv(folder / "x.csv")
    assert treasure.read_text() == "gold" and not (folder / "x.csv").is_symlink()
    same(read(folder / "x.csv", {"a": "a"})["a"], ANGLE)
    assert sorted(path.name for path in folder.iterdir()) == ["x.csv", "x.csv.part", "x.part"]
    refused(
        "`path` must name a file in a folder that is there", Record(T, {"a": ANGLE}).to_csv, tmp_path / "no" / "x.csv"
    )


@pytest.mark.parametrize("open_, close", [("[", "]"), ("{a = ", "}")])
@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_descriptions_are_refused(tmp_path, open_, close, depth):
    path = text(tmp_path / "x.toml", FILE + "deep = " + open_ * depth + "1" + close * depth)
    refused(r"x\.toml must be a TOML file: it is nested more deeply than 64", read_described, path)
    refused("`text` must be TOML, .* nested more deeply", jm.planar.Mechanism.from_text, path.read_text())
