"""Which lines and branches of the engine the default tests run, and which of these tests run a line, by coverage.py."""

import collections
import dataclasses
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
        """Tests that run one of the lines, as many as take `budget` seconds together.

        Each time the one that adds most lines of the file, per second, to those that are run so far, until none adds any; then from the start again:
        what is quickest alone are many tests of arguments that are refused, which all run the same few lines.
        """
        by_line = self.tests.get(str(path), {})
        found = set().union(*(by_line.get(line, ()) for line in lines))
        if "" in found:  # what an import has made shows in what comes after it
            found = set().union(*by_line.values())
        runs = collections.defaultdict(set)
        for line, names in by_line.items():
            for name in found.intersection(names) - {""}:
                runs[name].add(line)
        chosen, done, left = [], set(), budget
        while runs:
            # A second more for each is about what a process needs to start it.
            name = max(runs, key=lambda name: (len(runs[name] - done) / (1 + self.seconds[name]), -self.seconds[name]))
            own = runs.pop(name)
            if self.seconds[name] > left and chosen:
                continue
            left -= self.seconds[name]
            chosen.append(name)
            done = own if own <= done else done | own
        return chosen


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
