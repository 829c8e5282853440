"""Measures of the code itself: lines, arguments, types, comments, branches and words, package by package.

    python benchmarks/code_measures.py [--words | --functions | --any | --positions] [FOLDER …]

`comments` in % of lines; `Any` in % of arguments and fields; `words` are names that say how a thing came about and not what it is (`LISTED`), per 1,000 lines of code;
`complex` counts functions above a cyclomatic number of 15, by if, for, while, and, or, conditional expressions, comprehensions, handlers and cases; `long` private functions with more than 8 arguments.
`positions` are records made of six arguments and more that are not named.
The options list where they stand.
"""

import ast
import collections
import dataclasses
import io
import pathlib
import re
import sys
import tokenize
from typing import TypeGuard

LISTED = [
    "found",
    "given",
    "made",
    "kept",
    "known",
    "lost",
    "held",
    "asked",
    "wanted",
    "taken",
    "seen",
    "written",
    "drawn",
    "meant",
    "gone",
    "said",
    "left",
    "told",
    "looked",
    "moved",
    "tried",
    "wrong",
    "right",
    "straight",
    "still",
    "whole",
    "plain",
    "usual",
    "special",
    "along",
    "pulled",
    "sure",
    "certain",
    "sound",
    "vague",
    "blind",
    "astray",
    "keep",
    "keeps",
    "place",
    "places",
    "thing",
    "things",
]
RECORD = re.compile(r"_?[A-Z]\w*[a-z]|cls$")  # a class by its name
WORD = re.compile(r"[a-z]+")
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.comprehension, ast.ExceptHandler, ast.match_case)


@dataclasses.dataclass
class Measures:
    """Of a set of files."""

    lines: int = 0
    code: int = 0  # lines with code
    comments: int = 0
    arguments: int = 0
    untyped: int = 0  # `Any`
    words: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    locations: dict[str, list[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(list))

    @property
    def row(self) -> str:
        """Of the printed table."""
        per = [
            100 * self.comments / max(self.lines, 1),
            100 * self.untyped / max(self.arguments, 1),
            1000 * sum(self.words.values()) / max(self.code, 1),
        ]
        return f"{self.lines:7d} {per[0]:9.1f} {per[1]:6.1f} {per[2]:6.1f} {len(self.locations['complex']):8d} {len(self.locations['long']):5d} {len(self.locations['positions']):9d}"


def cyclomatic(node: ast.AST) -> int:
    """Of a function, with the functions within it."""
    return 1 + sum(len(n.values) - 1 if isinstance(n, ast.BoolOp) else isinstance(n, BRANCHES) for n in ast.walk(node))


def is_any(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Name) and node.id == "Any"


def is_record(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a class is called, with arguments whose number can be seen."""
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and RECORD.match(node.func.id)
    return bool(named) and not any(isinstance(x, ast.Starred) for x in node.args)


def arguments(function: ast.FunctionDef) -> list[ast.arg]:
    a = function.args
    named = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return [arg for arg in named if arg.arg not in ("self", "cls")]


def measure(path: pathlib.Path, into: Measures) -> None:
    text = path.read_text()
    into.lines += text.count("\n")
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    into.comments += len(
        {t.start[0] for t in tokens if t.type == tokenize.COMMENT and not re.match(r"# (noqa|type:|pyright)", t.string)}
    )
    into.code += len({t.start[0] for t in tokens if t.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER)})
    for token in tokens:
        for word in WORD.findall(token.string.lower()) if token.type == tokenize.NAME else ():
            if word in LISTED:
                into.words[word] += 1
                into.locations["words"].append(f"{path}:{token.start[0]}: {token.string}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.AnnAssign):
            into.arguments += 1
            into.untyped += is_any(node.annotation)
            if is_any(node.annotation):
                into.locations["any"].append(f"{path}:{node.lineno}: {ast.unparse(node.target)}")
        if is_record(node) and len(node.args) >= 6:
            into.locations["positions"].append(
                f"{path}:{node.lineno}: {ast.unparse(node.func)}, {len(node.args)} arguments"
            )
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        named = arguments(node)
        into.arguments += len(named)
        untyped = [arg.arg for arg in named if is_any(arg.annotation)]
        into.untyped += len(untyped)
        into.locations["any"] += [f"{path}:{node.lineno}: {node.name}({name})" for name in untyped]
        if cyclomatic(node) > 15:
            into.locations["complex"].append(f"{path}:{node.lineno}: {node.name}, {cyclomatic(node)}")
        if len(named) > 8 and node.name.startswith("_"):
            into.locations["long"].append(f"{path}:{node.lineno}: {node.name}, {len(named)} arguments")


def main(options: list[str]) -> None:
    folders = [o for o in options if not o.startswith("-")] or sorted(
        str(p) for p in pathlib.Path("jaxmb").iterdir() if p.is_dir() and not p.name.startswith("_")
    )
    everything = Measures()
    print(f"{'':24}{'lines':>7} {'comments':>9} {'Any':>6} {'words':>6} {'complex':>8} {'long':>5} {'positions':>9}")
    for folder in folders:
        own = Measures()
        for path in sorted(pathlib.Path(folder).rglob("*.py")):
            measure(path, own)
            measure(path, everything)
        print(f"{folder:24}{own.row}")
    print(f"{'all':24}{everything.row}")
    if "--words" in options:
        print(*(f"{word} {count}" for word, count in everything.words.most_common()), sep="\n")
    listed = {"--words": ["words"], "--functions": ["complex", "long"], "--any": ["any"], "--positions": ["positions"]}
    for option in options:
        for kind in listed.get(option, []):
            print(*everything.locations[kind], sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
