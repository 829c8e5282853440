"""A stepper in C."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..foundations import TextInNotebooks, contract, folder_there, function_of, replacing, version
from ..mechanism import AbstractMechanism
from ..simulation import Stepper
from ..system import System
from .header import header
from .interface import CODES
from .model import Model
from .naming import checked_name, comment
from .source import Source
from .trial import trial

OfState = Annotated[Any, function_of("system, state")]


@dataclasses.dataclass(frozen=True)
class CFiles(TextInNotebooks):
    """The files that `c` has written; `print` shows them as a list.

    Attributes:
        folder: where.
        files: names of the files.
        operations: how many operations each function is made of.
    """

    folder: pathlib.Path
    files: tuple[str, ...]
    operations: dict[str, int]

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count:,}" for name, count in self.operations.items())
        return f"{', '.join(self.files)} in '{self.folder}'; operations: {counts}"


@contract
def c(
    step: Stepper,
    folder: str | os.PathLike[str],
    name: str = "mechanism",
    *,
    outputs: Mapping[str, str | OfState] | Sequence[str] = (),
    parameters: Sequence[str] = (),
    model: AbstractMechanism | System | None = None,
    build: Annotated[Any, function_of("model")] | None = None,
    derivatives: bool = False,
) -> CFiles:
    """Writes a stepper in C99: accelerations, multipliers, outputs and steps, without dependencies, memory of its own, or state.

    The numbers are those of the regular steps of `step`. If constraint rows come near to being dependent, where jaxmb
    would make a general step, the functions return a status and write nothing.

    Args:
        step: made by `jaxmb.stepper`, with an explicit Runge–Kutta method; its controller, if there is one, is part of the code.
        folder: for the files, created if necessary: name.h, name.c, test_name.c, Makefile, README.md.
        name: of the files, and the beginning of all identifiers.
        outputs: outputs computed from a state, by name: a coordinate or joint coordinate, with "'" behind it its rate, a point of a body, or
            a function (system, state) → a number or (k,); or a list of names.
        parameters: names of numbers that stay arguments, as in `jaxmb.fit.Parameter`: "crank.mass", "gravity.y", "control.gain", or the keys of a system's
            `params`. All others become constants.
        model: the mechanism from which the system was built, if `parameters` name its elements.
        build: from the model to the system; by default `model.build()`.
        derivatives: whether derivatives along a direction are written too.

    Returns:
        A `CFiles`.

    Raises:
        ValueError: for arguments that do not fit; for a stepper whose steps are never regular, or too large to be written number by number.

    Example:
        >>> import tempfile, jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(2, mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.81 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> step = jm.stepper(system, jm.assemble(system, [-1.0, 0.0]), 0.01)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(jm.export.c(step, folder, "pendulum").files)
        ('pendulum.h', 'pendulum.c', 'test_pendulum.c', 'Makefile', 'README.md')
    """
    source = source_of(step, name, outputs, parameters, model, build, derivatives)
    texts = texts_of(source)
    path = pathlib.Path(folder)
    folder_there(path / "file", "folder") if path.is_dir() else folder_there(path, "folder")
    path.mkdir(exist_ok=True)
    for file, text in texts.items():
        with replacing(path / file, "folder") as fresh:
            fresh.write_text(text, encoding="ascii")
    return CFiles(path, tuple(texts), {name: f.program.code.count for name, f in source.functions.items()})


def source_of(
    step: Stepper,
    name: str,
    outputs: Mapping[str, Any] | Sequence[str],
    parameters: Sequence[str],
    model: AbstractMechanism | System | None,
    build: Any,
    derivatives: bool,
) -> Source:
    """What is written, from the arguments of `c`."""
    checked_name(name)
    own = Model.of(step, outputs, parameters, model, build)
    return Source(name, own, own.functions(derivatives), version("jaxmb"))


def texts_of(source: Source) -> dict[str, str]:
    """All files."""
    name = source.name
    return {
        f"{name}.h": header(source),
        f"{name}.c": source.code(),
        f"test_{name}.c": trial(source),
        "Makefile": _MAKEFILE.format(name=name),
        "README.md": _readme(source),
    }


def _readme(source: Source) -> str:
    declarations = "\n".join(f"/* {text} */\n{declaration};" for text, declaration in source.declarations())
    codes = "\n".join(f"| `{source.capitals}_{code}` | {text} |" for code, text in CODES)
    method, capitals = type(source.model.step.solver).__name__, source.capitals
    return (
        f"# {source.name}\n\nA mechanism in C99, written by jaxmb {comment(source.version)}. `make test` compares it with numbers of jaxmb.\n\n"
        f"```c\n{declarations}\n```\n\n"
        f"Steps are those of {method}, in {source.model.method.substeps} substeps; `{capitals}_DT` is the length that jaxmb's stepper has. "
        f"`{source.name}.h` names all numbers, by the macros `{capitals}_Q_…`.\n\n"
        f"| returned | meaning |\n|---|---|\n{codes}\n\nWhere that is not `{capitals}_OK` nothing is written.\n"
    ).replace("…", "...")


_MAKEFILE = """# Written by jaxmb. `make test`, `make size`
CC ?= cc
CFLAGS ?= -std=c99 -O2 -Wall -Wextra

test: test_{name}
	./test_{name}

test_{name}: test_{name}.c {name}.o
	$(CC) $(CFLAGS) -o $@ test_{name}.c {name}.o -lm

{name}.o: {name}.c {name}.h
	$(CC) $(CFLAGS) -c -o $@ {name}.c

size: {name}.o
	size {name}.o

clean:
	rm -f {name}.o test_{name}

.PHONY: test size clean
"""
