"""The arguments of the command line."""

import argparse
import pathlib
from typing import Any

EXAMPLES = {
    "": """examples:
  jaxmb inspect robot.urdf
  jaxmb simulate robot.urdf --time 2 --set crank=1.2 --out run.nc
  jaxmb view robot.xml --pose home --out motion.html
  jaxmb convert robot.xml robot.toml""",
    "inspect": """examples:
  jaxmb inspect fourbar.urdf --set A=1.0 --set B=-0.6 --input A
  jaxmb inspect cassie.xml --pose home --json > cassie.json
  jaxmb inspect gripper.xml --exclude left_pad --exclude right_pad""",
    "simulate": """examples:
  jaxmb simulate robot.urdf --time 2 --out run.nc
  jaxmb simulate robot.urdf --set crank=1.2 --speed crank=3 --samples 501 --out run.csv""",
    "view": """examples:
  jaxmb view robot.urdf --time 2
  jaxmb view robot.xml --pose home --out motion.html --no-open
  jaxmb view run.nc""",
    "convert": """examples:
  jaxmb convert robot.urdf robot.toml
  jaxmb convert robot.xml robot.urdf""",
    "fit": """examples:
  jaxmb fit description.toml""",
    "sweep": """examples:
  jaxmb sweep description.toml
  jaxmb sweep description.toml --status
  jaxmb sweep description.toml --task 1 --tasks 4 --progress""",
    "docs": """examples:
  jaxmb docs
  jaxmb docs reactions
  jaxmb docs api/control | less""",
}
HELP = {
    "inspect": "tell what is wrong with a model, and what it can do",
    "simulate": "let a model move from a pose, and write the motion",
    "view": "let a model move, or take a run from a file, and open the motion in a browser",
    "convert": "write a model in another format",
    "fit": "find numbers of a model from records of its motion",
    "sweep": "evaluate a function over the rows of a table",
    "docs": "print a page of the documentation, or which pages there are",
}


def pair(text: str) -> tuple[str, float]:
    """The name and the number of NAME=VALUE."""
    name, equals, value = text.partition("=")
    try:
        # `float("no")` raises the same error as a wrong number, and one message serves both.
        return name, float(value) if equals and name else float("no")
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE with a number, but is {text!r}") from None


def constants(text: str) -> tuple[str, tuple[float, float]]:
    """The name and both numbers of NAME=STIFFNESS,DAMPING."""
    name, _, values = text.partition("=")
    try:
        stiffness, damping = (float(word) for word in values.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be NAME=STIFFNESS,DAMPING with numbers, but is {text!r}") from None
    return name, (stiffness, damping)


def positive(text: str) -> float:
    """A positive number."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, but is {text!r}")
    return number


def command_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    options: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser("jaxmb", description="Dynamics of mechanisms.", epilog=EXAMPLES[""], **options)
    parser.add_argument("--version", action="store_true", help="tell the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    each = {
        name: commands.add_parser(name, help=text, description=text, epilog=EXAMPLES[name], **options)
        for name, text in HELP.items()
    }
    for name in ("inspect", "simulate", "view", "convert"):
        _of_models(each[name])
    each["fit"].add_argument("description", type=pathlib.Path, help="TOML file, see jaxmb.command.fitting")
    _of_sweeps(each["sweep"])
    each["docs"].add_argument("page", nargs="?", help="name of a page")
    for name in ("inspect", "simulate", "view"):
        _of_poses(each[name])
    for name in ("simulate", "view"):
        _of_runs(each[name])
    each["inspect"].add_argument("--json", action="store_true", help="as JSON")
    each["inspect"].add_argument("--input", help="coordinate whose range and dead centres are looked for")
    each["simulate"].add_argument("--out", type=pathlib.Path, required=True, help="file to write: .nc, or .csv")
    each["view"].add_argument("--out", type=pathlib.Path, help="page to write; MODEL.html by default")
    each["view"].add_argument("--open", action=argparse.BooleanOptionalAction, default=True, help="open the page")
    each["convert"].add_argument(
        "target", type=pathlib.Path, help="file to write: .toml, .urdf with loops, or .xml for MJCF"
    )
    return parser


def _of_models(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model", type=pathlib.Path, help="URDF, MJCF, SDF, a text of a mechanism (.toml); for `view` a run too (.nc)"
    )
    command.add_argument("--base", choices=("fixed", "free"), default="fixed", help="how the root of a URDF is held")
    command.add_argument("--exclude", action="append", default=[], metavar="NAME", help="an element that is not read")
    command.add_argument(
        "--repair",
        action="store_true",
        help="change inertias that no body can have, and close loops that rounded numbers leave open",
    )
    text = "a stop at the limits of a joint, or of all revolute or prismatic ones: N/m, s/m or N m/rad, s/rad"
    command.add_argument(
        "--stop", type=constants, action="append", default=[], metavar="NAME=STIFFNESS,DAMPING", help=text
    )
    command.add_argument("--loops", type=pathlib.Path, help="YAML file of loops for a URDF")
    command.add_argument("--allow", action="append", default=[], metavar="FOLDER", help="a further folder for files")
    command.add_argument("--package", action="append", default=[], metavar="NAME=FOLDER", help="where a package is")


def _of_sweeps(command: argparse.ArgumentParser) -> None:
    command.add_argument("description", help="TOML file, see jaxmb.sweep.read_described")
    command.add_argument("--folder", type=pathlib.Path, help="where the results go, instead of what the file says")
    command.add_argument("--task", type=int, help="number of this task, from 0; by default that of SLURM's array")
    command.add_argument("--tasks", type=int, help="number of tasks that share the shards")
    command.add_argument("--status", action="store_true", help="only tell which shards are there")
    command.add_argument("--progress", action="store_true", help="a line for each shard, into a log")


def _of_poses(command: argparse.ArgumentParser) -> None:
    command.add_argument("--pose", metavar="NAME", help="a keyframe of the file")
    command.add_argument("--set", type=pair, action="append", default=[], metavar="NAME=VALUE", help="a coordinate")


def _of_runs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--time", type=positive, default=2.0, help="how long, in s; 2 by default")
    command.add_argument("--samples", type=int, default=201, help="number of times, 201 by default")
    command.add_argument("--speed", type=pair, action="append", default=[], metavar="NAME=VALUE", help="a velocity")
