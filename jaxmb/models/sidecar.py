"""Loops in a YAML file beside a URDF, as the parallel robots of Gepetto have them."""

import pathlib
from typing import Any

from ..foundations import listing, optional
from .document import MAX_DEPTH
from .graph import ModelGraph, ModelJoint

# The longest text in bytes; files of loops have some hundred.
MAX_BYTES = 2**20
KINDS = {"6d": "fixed", "3d": "spherical"}


def sidecar_table(data: bytes, file: pathlib.Path) -> dict[str, Any]:
    """The table of a YAML text: plain values, without tags and aliases.

    Raises:
        ValueError: with file and line, for what is none.
    """
    yaml = optional("yaml", "models")
    try:
        depth, events = 0, 0
        # Events are counted before values are built: aliases could multiply them without end, and deep nesting
        # overflow the stack.
        for event in yaml.parse(data, Loader=yaml.SafeLoader) if len(data) <= MAX_BYTES else ():
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise ValueError(f"{file}, line {line}, must not hold anchors or aliases, but does.")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            events += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"{file}, line {line}, must not be nested more deeply than {MAX_DEPTH}, but is.")
        table = yaml.safe_load(data) if events else None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1},"
        raise ValueError(f"{file}{line} must be YAML, but is not: {getattr(error, 'problem', error)}.") from None
    if not isinstance(table, dict):
        raise ValueError(f"{file} must be a table of at most {MAX_BYTES} bytes, but is not.")
    return table


def add_loops(graph: ModelGraph, table: dict[str, Any], file: pathlib.Path) -> None:
    """Adds what `closed_loop` lists: pairs of frames, each the name of a link, or of a joint for what it moves.

    Args:
        graph: the graph of the URDF.
        table: what the YAML file says.
        file: its name.

    Raises:
        ValueError: with the file and the entry.
    """
    pairs, kinds = _loops(table, file)
    for (a, b), kind in zip(pairs, kinds, strict=True):
        where = f"{file}, `closed_loop` of '{a}' and '{b}',"
        parent, child = (_frame(graph, name, where) for name in (a, b))
        name = f"{a}_{b}"
        if graph.joint(name) is not None:
            raise ValueError(f"{where} must stand there once, but stands there again.")
        graph.joints.append(
            ModelJoint(name=name, kind=KINDS[kind], parent=parent, child=child, where=where, closes=True)
        )
    for key in table:
        if key not in ("closed_loop", "type"):
            graph.note("listed", f"`{key}` of {file.name}", "is not part of a mechanism")


def _loops(table: dict[str, Any], file: pathlib.Path) -> tuple[list[list[str]], list[str]]:
    """Pairs of frames, and the type of each loop.

    Raises:
        ValueError: for anything else.
    """
    pairs = table.get("closed_loop", [])
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair) for pair in pairs
    ):
        raise ValueError(f"{file} must have as `closed_loop` a list of pairs of names, but has {pairs!r}.")
    kinds = table.get("type", ["6d"] * len(pairs))
    if not isinstance(kinds, list) or len(kinds) != len(pairs) or any(str(k).lower() not in KINDS for k in kinds):
        raise ValueError(f"{file} must have as `type` one of {listing(KINDS)} for each loop, but has {kinds!r}.")
    return pairs, [str(kind).lower() for kind in kinds]


def _frame(graph: ModelGraph, name: str, where: str) -> str:
    """The link of a frame; all links have their frames where their joints have them."""
    links = [link.name for link in graph.links]
    if name in links:
        return name
    joint = graph.joint(name)
    if joint is None or joint.closes:
        raise ValueError(f"{where} must name a link or a joint, but '{name}' is none; the links are {listing(links)}.")
    return joint.child
