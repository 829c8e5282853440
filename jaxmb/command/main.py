"""The commands: from parsed arguments to calls of the library."""

import argparse
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import jax

from ..foundations import listing, replacing, version
from .arguments import command_parser

# Exit codes; 2 for wrong arguments is argparse's, and 130 is 128 + SIGINT, as shells have it.
DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns 0 if it succeeded, 1 if it failed, 2 for arguments that make no sense.

    Errors are printed as one sentence, without a traceback.
    """
    parser = command_parser()
    options = parser.parse_args(arguments)
    if options.version:
        print(version("jaxmb"))
        return DONE
    if options.command is None:
        parser.print_help()
        return MISUSED
    # A command is a process of its own, so that its configuration disturbs nobody; rank decisions need double
    # precision.
    jax.config.update("jax_enable_x64", True)
    try:
        return COMMANDS[options.command](options)
    except (OSError, TypeError, ValueError, ImportError, RuntimeError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read has enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _announce(text: str) -> None:
    """Prints the present stage of the work to a terminal."""
    # Standard output holds results only, which may go into a file or another program.
    if sys.stderr.isatty():
        print(f"{text} …", file=sys.stderr, flush=True)


def _model(options: argparse.Namespace) -> Any:
    # Imports stand inside of commands: `--help` answers at once, and no command needs the extras of another.
    from ..models import load

    _announce(f"reading {options.model}")
    packages = {}
    for word in options.package:
        name, equals, folder = word.partition("=")
        if not equals:
            raise ValueError(f"Argument --package must be NAME=FOLDER, but is {word!r}.")
        packages[name] = folder
    return load(
        options.model,
        base=options.base,
        exclude=options.exclude,
        repair=options.repair,
        stops=dict(options.stop) or None,
        loops=options.loops,
        allow=options.allow,
        packages=packages,
    )


def _inspect(options: argparse.Namespace) -> int:
    from ..models import inspect

    model = _model(options)
    _announce("closing loops, looking at rows and reactions")
    report = inspect(model, options.pose, q=dict(options.set), input=options.input)
    print(
        json.dumps(_as_json(report.to_dict()), indent=2, ensure_ascii=False, allow_nan=False)
        if options.json
        else report
    )
    return DONE if report.closed else FAILED


def _as_json(value: object) -> object:
    """The value for JSON, which has no infinite numbers and no NaN: null in their place."""
    if isinstance(value, dict):
        return {str(key): _as_json(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _run(options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The model, its system and a motion."""
    import jax.numpy as jnp

    from ..simulation import simulate

    if options.samples < 2:
        raise ValueError(f"Argument --samples must be 2 or more, but is {options.samples}.")
    model = _model(options)
    system = model.build()
    _announce("closing loops")
    state = model.assemble(system, options.pose, dict(options.set), v=dict(options.speed) or None)
    _announce(f"moving for {options.time:g} s")
    return model, system, simulate(system, state, jnp.linspace(0.0, options.time, options.samples))


def _simulate(options: argparse.Namespace) -> int:
    from ..output import energy, tabulate

    kinds = (".nc", ".csv")
    if options.out.suffix not in kinds:
        raise ValueError(f"Argument --out must end with {' or '.join(kinds)}, but is {options.out}.")
    model, system, solution = _run(options)
    if options.out.suffix == ".csv":
        tabulate(system, solution).to_csv(options.out)
    else:
        from .stored import store

        store(options.out, model, solution)
    drift = float(abs(energy(system, solution).balance).max())
    print(f"{model.name}: {options.time:g} s, energy balance {drift:.2g} J, written to {options.out}")
    return DONE


def _view(options: argparse.Namespace) -> int:
    import webbrowser

    from ..plot import page

    if options.model.suffix == ".nc":
        from .stored import stored_run

        # The page and its title are made from the run: whatever makes a model move would be passed over silently.
        defaults = vars(command_parser().parse_args(["view", str(options.model)]))
        for word in sorted(defaults.keys() - {"out", "open"}):
            if getattr(options, word) != defaults[word]:
                raise ValueError(f"Argument --{word} must not be given with a saved run, but is.")
        name, system, solution = stored_run(options.model)
    else:
        model, system, solution = _run(options)
        name = model.name
    path: pathlib.Path = options.out or options.model.with_suffix(".html")
    page(system, solution, path, title=name)
    print(path)
    if options.open:
        webbrowser.open(path.resolve().as_uri())
    return DONE


def _convert(options: argparse.Namespace) -> int:
    from ..models import to_mjcf, to_urdf

    target: pathlib.Path = options.target
    writers = {".urdf": to_urdf, ".xml": to_mjcf}
    kinds = (".toml", *writers)
    if target.suffix not in kinds:
        raise ValueError(f"Argument `target` must end with {', '.join(kinds[:-1])} or {kinds[-1]}, but is {target}.")
    model = _model(options)
    mechanism, write = model.mechanism, writers.get(target.suffix)
    # Of all formats that are written MJCF alone has keyframes.
    more = {"poses": model.poses} if write is to_mjcf else {}
    text = mechanism.to_text() if write is None else write(mechanism, name=model.name, cut=model.loops, **more)
    # Written beside and renamed, so that an interrupted run leaves no half of a file.
    with replacing(target, "target") as fresh:
        fresh.write_text(text, encoding="utf-8")
    print(model)
    absent = {"limits of joints": model.limits, "keyframes": {} if more else model.poses}
    absent["gravity"] = {"gravity"} if write is to_urdf and mechanism.gravity.any() else {}
    if missing := [what for what, numbers in absent.items() if numbers]:
        print(f"{target} does not hold {' and '.join(missing)}.")
    return DONE


def _fit(options: argparse.Namespace) -> int:
    from ..foundations import RESULTS
    from .fitting import described_fit

    _announce(f"fitting {options.description}")
    fit = described_fit(options.description)
    print(fit)
    return DONE if bool(fit.result == RESULTS.successful) else FAILED


def _sweep(options: argparse.Namespace) -> int:
    from ..sweep import Report
    from .sweeping import described_sweep

    report = described_sweep(options)
    print(report)
    return FAILED if isinstance(report, Report) and report.failed else DONE


def _docs(options: argparse.Namespace) -> int:
    package = pathlib.Path(__file__).parents[1]
    # In the wheel pages lie within the package, in a checkout beside it.
    folder = next(x for x in (package / "docs", package.parent / "docs") if x.is_dir())
    pages = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}
    if options.page is None:
        overview = folder.parent / "llms.txt"
        print(overview.read_text(encoding="utf-8"), f"Pages in {folder}:", *pages, sep="\n")
        return DONE
    if options.page not in pages:
        near = get_close_matches(options.page, pages) or [page for page in pages if options.page in page] or pages
        raise ValueError(
            f"Argument `page` must be one that `jaxmb docs` lists, such as {listing(near)}, but is '{options.page}'."
        )
    print(pages[options.page].read_text(encoding="utf-8"))
    return DONE


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "inspect": _inspect,
    "simulate": _simulate,
    "view": _view,
    "convert": _convert,
    "fit": _fit,
    "sweep": _sweep,
    "docs": _docs,
}
