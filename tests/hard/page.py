"""The table, and the page of the documentation that holds it."""

import pathlib

HOW = pathlib.Path(__file__).with_name("counted.md")


def table(figures):
    """Lines of a Markdown table."""
    yield "Row | What | Goal | Result | Cases | CPU s | Met"
    yield "---|---|---|---|---|---|---"
    for f in figures:
        yield f"{f.row} | {f.what} | {f.goal} | {f.result} | {f.cases:,} | {f.seconds:.0f} | {'yes' if f.met else '**no**'}"


def page(figures, share, seed, commit, date):
    """The page: table, command, and how each row is counted."""
    missed = sum(not f.met for f in figures)
    verdict = "All figures meet their goals." if not missed else f"{missed} of {len(figures)} figures miss their goals."
    head = f"Run on {date} at commit {commit}, share {share:g}, seed {seed}. {verdict}"
    return "\n".join(["# Scoreboard of hard use", "", head, "", *table(figures), "", HOW.read_text()])
