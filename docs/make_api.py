"""Writes the pages of the interface, docs/api/*.md, from the docstrings.

python docs/make_api.py
"""

import collections
import inspect
import pathlib
import re
import textwrap
import typing

import jaxmb as jm

FOLDER = pathlib.Path(__file__).parent / "api"
# Pages: what they show, and the packages whose public names these are.
PAGES = {
    "systems": ("Systems and states", ("system", "foundations")),
    "kinematics": ("Assembly, diagnosis, reduction", ("kinematics",)),
    "formulations": ("Formulations", ("formulation",)),
    "simulation": ("Simulation", ("simulation", "batch")),
    "topology": ("Variable topology", ("topology",)),
    "reactions": ("Reactions and other quantities", ("output", "reaction")),
    "planar": ("Planar mechanisms", ("planar", "mechanism")),
    "spatial": ("Spatial mechanisms", ("spatial",)),
    "control": ("Control", ("control",)),
    "env": ("Environments", ("env",)),
    "fit": ("Fits", ("fit",)),
    "design": ("Design of mechanisms", ("design",)),
    "export": ("C and other formats", ("export",)),
    "verification": ("Checks of runs and gradients", ("verification",)),
    "sweep": ("Sweeps", ("sweep",)),
    "models": ("Models from files", ("models",)),
    "records": ("Records", ("records",)),
    "plot": ("Pictures", ("plot",)),
}
# Packages all of whose names are public; of others those in `__all__`.
NAMED = ("planar", "spatial", "control", "fit", "models", "records", "plot", "sweep")
# Classes whose inherited members are for users; those of others are for who adds a class.
WITH_BASES = ("Mechanism", "Body", "Plant", "Instant")
SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Limits|Example|Examples):$")


def entries(packages: tuple[str, ...]) -> dict[str, typing.Any]:
    """What a page shows, by the name that users write: at the top of `jaxmb`, or by its package."""
    things: dict[str, typing.Any] = {}
    for package in packages:
        room = getattr(jm, package)
        at_top = {
            name: thing
            for name, thing in ((name, getattr(jm, name)) for name in dir(jm))
            if _documented(thing) and thing.__module__.startswith(f"jaxmb.{package}.")
        }
        public = {
            name: getattr(room, name) for name in getattr(room, "__all__", vars(room) if package in NAMED else ())
        }
        others = {
            f"{package}.{name}": thing
            for name, thing in public.items()
            if _documented(thing) and name[0] != "_" and not any(thing is top for top in at_top.values())
        }
        things |= at_top | others
    return things


def _documented(thing: typing.Any) -> bool:
    return (inspect.isclass(thing) or inspect.isfunction(thing)) and bool(thing.__doc__)


def page(title: str, things: dict[str, typing.Any]) -> str:
    """A page with a table of contents."""
    parts = [f"# {title}", "Made from the docstrings by `python docs/make_api.py`."]
    parts.append(
        "\n".join(f"* [`jm.{name}`](#{at}): {_first_line(things[name])}" for name, at in anchors(things).items())
    )
    for name, thing in things.items():
        parts += [f"## `jm.{name}`", f"```text\n{signature(name, thing)}\n```", described(inspect.getdoc(thing) or "")]
        if inspect.isclass(thing):
            for method, about in members(thing).items():
                parts += [f"### `{name.split('.')[-1]}.{method}`", described(about)]
    return "\n\n".join(parts) + "\n"


def members(thing: type) -> dict[str, str]:
    """Documented public methods and properties of a class; of some also what they inherit."""
    found = {}
    for base in reversed(thing.__mro__):
        if not base.__module__.startswith("jaxmb.") or (base is not thing and thing.__name__ not in WITH_BASES):
            continue
        for name, member in vars(base).items():
            text = (
                inspect.getdoc(member)
                if isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member)
                else None
            )
            if not name.startswith("_") and text:
                call = (
                    ""
                    if isinstance(member, property)
                    else _arguments(getattr(thing, name), skip_self=not isinstance(member, classmethod))
                )
                found[f"{name}{call}"] = text
    return found


def signature(name: str, thing: typing.Any) -> str:
    """The call with its arguments and their defaults, one to a line where they are long."""
    try:
        call = f"jm.{name}{_arguments(thing)}"
    except ValueError:
        return f"jm.{name}"
    if len(call) <= 110:
        return call
    inside = call[call.index("(") + 1 : -1]
    return call[: call.index("(") + 1] + "\n    " + ",\n    ".join(_split(inside)) + ",\n)"


def _arguments(thing: typing.Any, skip_self: bool = False) -> str:
    parameters = list(inspect.signature(thing).parameters.values())
    if skip_self and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    bare = [p.replace(annotation=inspect.Parameter.empty, default=_shown(p.default)) for p in parameters]
    return str(inspect.Signature(bare))


class _Word:
    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(default: typing.Any) -> typing.Any:
    """A default as it is written: without addresses of functions and arrays."""
    if default is inspect.Parameter.empty or isinstance(default, str | int | float | bool | tuple | None):
        return default
    return _Word(getattr(default, "__name__", type(default).__name__ + "(…)"))


def _split(text: str) -> list[str]:
    """At the commas that stand in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def described(text: str) -> str:
    """A docstring in Markdown: arguments as lists, examples as code."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        head = SECTION.match(line)
        if head:
            sections.append((head[1], []))
        else:
            sections[-1][1].append(line)
    return "\n\n".join(
        filter(None, (_section(name, textwrap.dedent("\n".join(lines)).strip("\n")) for name, lines in sections))
    )


def _section(name: str, body: str) -> str:
    if not name:
        return _paragraphs(body)
    if name.startswith("Example"):
        return f"```pycon\n{body}\n```"
    items = [body] if name in ("Returns", "Limits") else re.split(r"\n(?=\S)", body)
    if name in ("Args", "Attributes"):
        words = [re.match(r"(\*{0,2}[\w, ]+): (.*)", item, re.S) for item in items]
        lines = [
            f"* `{m[1]}`: {_joined(m[2])}" if m else f"* {_joined(item)}" for m, item in zip(words, items, strict=True)
        ]
    else:
        lines = [f"* {_joined(item)}" for item in items]
    return f"**{name}**\n\n" + "\n".join(lines)


def _paragraphs(body: str) -> str:
    """Formulas, which are indented, as code; the rest as it is."""
    blocks = re.split(r"\n\s*\n", body)
    return "\n\n".join(f"```text\n{textwrap.dedent(b)}\n```" if b.startswith("    ") else b for b in blocks)


def _joined(text: str) -> str:
    return " ".join(text.split())


def _first_line(thing: typing.Any) -> str:
    return _joined((inspect.getdoc(thing) or "").split("\n\n")[0])


def anchors(names: typing.Iterable[str]) -> dict[str, str]:
    """Where GitHub puts the headings: names that differ in capitals only are counted."""
    plain = {name: "jm" + re.sub(r"[^\w]", "", name).lower() for name in names}
    before = collections.Counter()
    for name, at in plain.items():
        plain[name] = at + (f"-{before[at]}" if before[at] else "")
        before[at] += 1
    return plain


def pages() -> dict[str, str]:
    """All pages by the name of their file."""
    found = {f"{name}.md": page(title, entries(packages)) for name, (title, packages) in PAGES.items()}
    lines = [f"* [{title}]({name}.md)" for name, (title, _) in PAGES.items()]
    found["README.md"] = "# Interface\n\nAll public names, `import jaxmb as jm`.\n\n" + "\n".join(lines) + "\n"
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
