"""From words to calls."""

import argparse
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax

from ..foundations import replacing, version
from .arguments import parser

DONE, FAILED, INTERRUPTED = 0, 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line says: 0 if that went well, 1 if not, 2 for words that make no sense.

    Errors are told in a sentence, without a traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["sweep"]:
        from ..sweep.__main__ import main as sweep

        return sweep(words[1:])
    whole = parser()
    said = whole.parse_args(words)
    if said.version:
        print(version("jaxmb"))
        return DONE
    if said.command is None:
        whole.print_help()
        return 2
    jax.config.update("jax_enable_x64", True)
    try:
        return COMMANDS[said.command](said)
    except (OSError, TypeError, ValueError, ImportError, RuntimeError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read has enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return DONE
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _told(text: str) -> None:
    """Says what goes on, where somebody looks."""
    if sys.stderr.isatty():
        print(f"{text} …", file=sys.stderr, flush=True)


def _model(said: argparse.Namespace) -> Any:
    from ..models import load

    _told(f"reading {said.model}")
    packages = {}
    for word in said.package:
        name, equals, folder = word.partition("=")
        if not equals:
            raise ValueError(f"Argument --package must be NAME=FOLDER, but is {word!r}.")
        packages[name] = folder
    return load(
        said.model,
        base=said.base,
        left_out=said.left_out,
        repair=said.repair,
        rotors=said.rotors,
        loops=said.loops,
        allow=said.allow,
        packages=packages,
    )


def _inspect(said: argparse.Namespace) -> int:
    from ..models import inspect

    model = _model(said)
    _told("closing loops, looking at rows and reactions")
    found = inspect(model, said.pose, q=dict(said.set), input=said.input)
    print(json.dumps(_plain(found.to_dict()), indent=2, ensure_ascii=False, allow_nan=False) if said.json else found)
    return DONE if found.closed else FAILED


def _plain(value: Any) -> Any:
    """What JSON can hold: numbers that are not finite as null."""
    if isinstance(value, dict):
        return {str(key): _plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _run(said: argparse.Namespace) -> tuple[Any, Any, Any]:
    """The model, its system and a motion."""
    import jax.numpy as jnp

    from ..simulation import simulate

    if said.samples < 2:
        raise ValueError(f"Argument --samples must be 2 or more, but is {said.samples}.")
    model = _model(said)
    system = model.build()
    _told("closing loops")
    state = model.assemble(system, said.pose, dict(said.set), v=dict(said.speed) or None)
    _told(f"moving for {said.time:g} s")
    return model, system, simulate(system, state, jnp.linspace(0.0, said.time, said.samples))


def _simulate(said: argparse.Namespace) -> int:
    from ..output import energy, tabulate

    kinds = (".nc", ".csv")
    if said.out.suffix not in kinds:
        raise ValueError(f"Argument --out must end with {' or '.join(kinds)}, but is {said.out}.")
    model, system, solution = _run(said)
    if said.out.suffix == ".csv":
        tabulate(system, solution).to_csv(said.out)
    else:
        solution.to_xarray().to_netcdf(said.out)
    drift = float(abs(energy(system, solution).balance).max())
    print(f"{model.name}: {said.time:g} s, energy balance {drift:.2g} J, written to {said.out}")
    return DONE


def _view(said: argparse.Namespace) -> int:
    import webbrowser

    from ..plot import page

    model, system, solution = _run(said)
    path = page(system, solution, said.out or said.model.with_suffix(".html"), title=model.name)
    print(path)
    if said.open:
        webbrowser.open(path.resolve().as_uri())
    return DONE


def _convert(said: argparse.Namespace) -> int:
    from ..models import to_urdf

    target: pathlib.Path = said.target
    if target.suffix not in (".toml", ".urdf"):
        raise ValueError(f"Argument `target` must end with .toml or .urdf, but is {target}.")
    model = _model(said)
    mechanism = model.mechanism
    as_urdf = target.suffix == ".urdf"
    text = to_urdf(mechanism, name=model.name, cut=model.loops) if as_urdf else mechanism.to_text()
    with replacing(target, "target") as fresh:
        fresh.write_text(text, encoding="utf-8")
    print(model)
    return DONE


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "inspect": _inspect,
    "simulate": _simulate,
    "view": _view,
    "convert": _convert,
}
