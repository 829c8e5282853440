"""Which lines and branches of the engine the default tests run, and which of these tests run a line, by coverage.py."""

import collections
import dataclasses
import functools
import json
import pathlib
import subprocess
import sys

import coverage
import pytest

# Processes that tests start count too. Left out is what no test may reach.
SETTINGS = """
[run]
branch = true
source = jaxmb
parallel = true
relative_files = true
patch =
    subprocess
    _exit
[report]
exclude_also =
    if TYPE_CHECKING:
    assert_never
    raise NotImplementedError
    @abstractmethod
    @abc.abstractmethod
"""


@dataclasses.dataclass(frozen=True)
class Covered:
    """What the default tests run.

    Attributes:
        totals: numbers of statements and branches, and of those that are run, as coverage.py reports them.
        tests: names of the tests that run a line, by file and line; "" stands for what is run by an import.
        seconds: how long each test takes.
    """

    totals: dict
    tests: dict
    seconds: dict

    def telling(self, path, lines, budget):
        """Tests that run one of the lines, as many as take `budget` seconds together, those first of whose lines the largest part is in this file."""
        by_line = self.tests.get(str(path), {})
        found = set().union(*(by_line.get(line, ()) for line in lines))
        if found == {""}:  # what an import has made shows in what comes after it
            found = set().union(*by_line.values())
        own = collections.Counter(name for names in by_line.values() for name in names)
        chosen = []
        for name in sorted(found - {""}, key=lambda name: (-own[name] / self.lines[name], self.seconds[name])):
            if self.seconds[name] <= budget or not chosen:
                budget -= self.seconds[name]
                chosen.append(name)
        return chosen

    def files(self, path, lines, budget):
        """Files of the tests that run one of the lines, in the same order, as many as take `budget` seconds together.

        A program that several tests share is traced by the first of them, so that its lines count for that one alone: the others are near it.
        """
        seconds, chosen = collections.Counter(), []
        for name, number in self.seconds.items():
            seconds[name.split("::")[0]] += number
        for file in dict.fromkeys(name.split("::")[0] for name in self.telling(path, lines, float("inf"))):
            if seconds[file] <= budget:
                budget -= seconds[file]
                chosen.append(file)
        return chosen

    @functools.cached_property
    def lines(self):
        """How many lines each test runs."""
        return collections.Counter(
            name for by_line in self.tests.values() for names in by_line.values() for name in names
        )


def covered(folder, environment):
    """Runs the default tests of a checkout."""
    settings, times = folder / "coverage.ini", folder / "times"
    settings.write_text(SETTINGS)
    times.mkdir()
    environment |= {"JAXMB_TIMES": str(times)}
    options = f"--rcfile={settings}"

    def run(*words, passes=(0,)):
        done = subprocess.run([sys.executable, "-m", "coverage", *words], cwd=folder, env=environment)
        if done.returncode not in passes:
            done.check_returncode()

    # A test that measures time may fail here, since lines are watched.
    watched = "-m", "pytest", "-q", "-p", "hard.contexts", "-p", "no:cacheprovider"
    run("run", options, *watched, passes=(pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED))
    run("combine", "--quiet", options)
    run("json", "--quiet", options, "-o", "coverage.json")
    data, tests = coverage.CoverageData(str(folder / ".coverage")), {}
    data.read()
    for name in data.measured_files():
        path = pathlib.Path(name)
        tests[str(path.relative_to(folder) if path.is_absolute() else path)] = data.contexts_by_lineno(name)
    lines = [line.split(" ", 1) for file in times.iterdir() for line in file.read_text().splitlines()]
    seconds = collections.defaultdict(float, {name: float(number) for number, name in lines})
    return Covered(json.loads((folder / "coverage.json").read_text())["totals"], tests, seconds)
