"""The table of hard use: `python -m hard`, with `tests` on PYTHONPATH."""

import argparse
import datetime
import importlib
import pathlib
import subprocess

import jax

from hard.page import page, table

ROWS = {
    "mechanisms": "random_mechanisms",
    "formulations": "formulations",
    "gradients": "gradients",
    "random gradients": "random_gradients",
    "batches": "batches",
    "events": "events",
    "random events": "random_events",
    "programs": "programs",
    "long runs": "long_runs",
    "wrong calls": "wrong_calls",
    "hostile files": "hostile_files",
    "killed": "killed",
    "surroundings": "surroundings",
    "many systems": "many_systems",
    "mutants": "mutants",
}
HOURS = ("mutants",)  # left out if no rows are named
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "scoreboard.md"


def main():
    parser = argparse.ArgumentParser(prog="python -m hard", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the cases of each row")
    parser.add_argument("--rows", default=",".join(row for row in ROWS if row not in HOURS), help="separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", type=pathlib.Path, default=PAGE, help="where the table is written")
    options = parser.parse_args()
    unknown = set(options.rows.split(",")) - set(ROWS)
    if unknown:
        parser.error(f"--rows must name rows out of {', '.join(ROWS)}, but names {', '.join(sorted(unknown))}")
    jax.config.update("jax_enable_x64", True)
    figures, state = [], commit()
    for row in options.rows.split(","):
        figures += importlib.import_module(f"hard.{ROWS[row]}").figures(options.share, options.seed)
        jax.clear_caches()
        # After each row, so that a run that is stopped leaves what it has.
        options.page.write_text(page(figures, options.share, options.seed, state, datetime.date.today()))
    print("\n".join(table(figures)))


def commit():
    """The state of the checkout in a few digits."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=PAGE.parent, capture_output=True, text=True).stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
