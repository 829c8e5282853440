"""mutants: small faults put into the engine, one at a time, which the default tests must notice.

`python -m hard.mutants 40 1` prints the changes that are drawn by seed 1, without a test, and
`python -m hard.mutants jaxmb/linalg/rank.py regular_metric tests/test_massless.py` tries all those of a function with some tests.
"""

import ast
import dataclasses
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib

import numpy as np

from hard.covered import covered
from hard.forks import forks
from hard.row import Figure, cpu_time

MUTANTS = 300
KILLED, BRANCHES = 0.9, 0.95
BUDGETS = 0.05, 0.15  # of the time of all tests: those that run its lines, then files of such tests
ROOT = pathlib.Path(__file__).parents[2]
# What changes are that were read and that no test could notice, by their names.
LISTS = tomllib.loads(pathlib.Path(__file__).with_name("unseen.toml").read_text())
UNSEEN = {name: kind for kind, reasons in LISTS.items() for name in reasons}
# Where faults are put.
PLACES = (
    *(f"jaxmb/{name}/*.py" for name in ("linalg", "dependence", "formulation", "kinematics", "simulation")),
    *(f"jaxmb/lanes/{name}.py" for name in ("derivatives", "reverse", "transpose", "vjp")),
)
SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
# Keywords of `zip`, of fields and of dataclasses that make no number another one.
DECLARATIONS = ("strict", "static", "frozen")
# Of these calls the second and the third argument are swapped.
CHOICES = ("where", "select", "cond")


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change of a file: which characters, what stands there instead, the lines of the statement, and its name, which holds as code moves."""

    path: pathlib.Path
    start: int
    end: int
    text: str
    lines: range
    name: str

    def applied(self, source):
        return f"{source[: self.start]}({self.text}){source[self.end :]}"


def variants(node):
    """What may stand in place of a node: the same with another operator, without its sign, with another number."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        yield _with(node, op=SWAPS[type(node.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield _with(node, ops=[SWAPS[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.UnaryOp):
        yield node.operand
    if isinstance(node, ast.IfExp):
        yield _with(node, body=node.orelse, orelse=node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.Call) and len(node.args) == 3 and _name(node.func) in CHOICES:
        yield _with(node, args=[node.args[0], node.args[2], node.args[1]])


def _with(node, **changes):
    return type(node)(**{**dict(ast.iter_fields(node)), **changes})


def _name(func):
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", None)


def nodes(tree, lines=range(0)):
    """All that runs, neither annotations nor what errors say nor declarations, with the lines of the statement, or of its head."""
    if isinstance(tree, ast.stmt):
        body = getattr(tree, "body", None)
        lines = range(tree.lineno, max(tree.lineno, body[0].lineno - 1 if body else tree.end_lineno) + 1)
    if isinstance(tree, ast.Raise | ast.JoinedStr) or (isinstance(tree, ast.keyword) and tree.arg in DECLARATIONS):
        return
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, lines
                yield from nodes(child, lines)


def mutants(path):
    """All changes of a file."""
    source = (ROOT / path).read_text()
    starts = np.cumsum([0, *(len(line.encode()) for line in source.splitlines(keepends=True))])
    # Columns count bytes, and sources are not all ASCII.
    place = lambda line, column: len(source.encode()[: starts[line - 1] + column].decode())
    found = []
    for node, lines in nodes(ast.parse(source)):
        for other in variants(node):
            text = ast.unparse(ast.fix_missing_locations(other))
            start, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
            found.append(Mutant(path, start, end, text, lines, _named(path, source, start, end, text)))
    return found


def _named(path, source, start, end, text):
    """The file, and the line with what changes in it."""
    before, after = source.rfind("\n", 0, start) + 1, source.find("\n", end)
    line = f"{source[before:start]}⟨{source[start:end]} → {text}⟩{source[end:after]}"
    return f"{path}: {' '.join(line.split())}"


@functools.cache
def every():
    """All changes of all files."""
    files = [path.relative_to(ROOT) for place in PLACES for path in sorted(ROOT.glob(place))]
    return [mutant for path in files for mutant in mutants(path)]


def drawn(count, seed):
    """So many changes, each as likely as any other; the same ones again wherever in their files they stand by then."""
    return sorted(every(), key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())[:count]


def copied(folder):
    """The files of the checkout, to be changed."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def surroundings(folder, cache):
    """Of processes that run the tests of a folder. Compiled programs are kept: most of them are the same in all mutants."""
    paths = os.pathsep.join(str(folder / name) for name in (".", "tests", "examples", "benchmarks"))
    return os.environ | {"PYTHONPATH": paths, "JAXMB_TEST_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}


def figures(share, seed):
    """The row's figures: which branches the default tests take, and how many of the changes some test notices."""
    result, count = [], max(10, round(MUTANTS * share))
    with cpu_time(result), tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "tree"
        environment = surroundings(folder, pathlib.Path(name) / "cache")
        copied(folder)
        found = covered(folder, environment)
        branches, taken = found.totals["num_branches"], found.totals["covered_branches"]
        what = "branches of the library that the default tests take"
        goal = f"≥ {BRANCHES:.0%}"
        result.append(Figure("mutants", what, goal, f"{taken / branches:.1%}", branches, taken >= BRANCHES * branches))
        tried = [mutant for mutant in drawn(count, seed) if mutant.name not in UNSEEN]
        left_out = [UNSEEN[mutant.name] for mutant in drawn(count, seed) if mutant.name in UNSEEN]
        budgets = [part * sum(found.seconds.values()) for part in BUDGETS]
        choices = lambda mutant: [
            choice(mutant.path, mutant.lines, budget)
            for choice, budget in zip((found.telling, found.files), budgets, strict=True)
        ]
        noticed = number_noticed(folder, environment, tried, choices)
        what = (
            f"small faults in the engine that the default tests notice; left out by name are {left_out.count('equivalent')} that nobody could see "
            f"and {left_out.count('speed')} of speed alone"
        )
        goal = f"≥ {KILLED:.0%}"
        result.append(Figure("mutants", what, goal, f"{noticed}", len(tried), noticed >= KILLED * len(tried)))
    return result


def number_noticed(folder, environment, tried, choices):
    """How many changes some test notices, of those in any of a change's choices, one after the other."""
    noticed = 0
    with forks(folder, environment) as passes:
        for mutant in tried:
            source = (folder / mutant.path).read_text()
            passed, words = True, ""
            (folder / mutant.path).write_text(mutant.applied(source))
            for tests in choices(mutant):
                if passed and tests:
                    passed, words = passes(tests)
            (folder / mutant.path).write_text(source)
            noticed += not passed
            print(f"mutants {mutant.name}: {'NOT NOTICED' if passed else words}", flush=True)
    return noticed


def of_function(path, name, tests):
    """Tries the changes of a function, or of a class, with some tests."""
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    lines = {n for node in nodes if getattr(node, "name", "") == name for n in range(node.lineno, node.end_lineno + 1)}
    tried = [m for m in mutants(pathlib.Path(path)) if m.lines[0] in lines and m.name not in UNSEEN]
    with tempfile.TemporaryDirectory() as base:
        folder = pathlib.Path(base) / "tree"
        copied(folder)
        environment = surroundings(folder, pathlib.Path(base) / "cache")
        print(f"{number_noticed(folder, environment, tried, lambda _: [tests])} of {len(tried)}")


if __name__ == "__main__":
    first, second, *tests = sys.argv[1:]
    if tests:
        of_function(first, second, tests)
    else:
        print("\n".join(mutant.name for mutant in drawn(int(first), int(second))))
