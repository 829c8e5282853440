"""A stepper as a functional mock-up unit (FMI 3.0)."""

import dataclasses
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from xml.sax.saxutils import quoteattr

import numpy as np
from jax.typing import ArrayLike

from ..foundations import TextInNotebooks, contract, folder_there, function_of, replacing
from ..mechanism import AbstractMechanism
from ..simulation import Stepper
from ..system import System
from .c import OfState, source_of
from .fmi_layer import fmi_layer
from .header import header
from .interface import Vector
from .naming import numbered
from .source import Source

# Exponents of base units (FMI 3.0, 2.4.4), of the units of mechanisms.
UNITS = {
    "m": 'm="1"',
    "rad": 'rad="1"',
    "m/s": 'm="1" s="-1"',
    "rad/s": 'rad="1" s="-1"',
    "N": 'kg="1" m="1" s="-2"',
    "N m": 'kg="1" m="2" s="-2"',
}
# Name of the platform, and what the names of its libraries end with.
PLATFORMS = {("Linux", "x86_64"): ("x86_64-linux", ".so"), ("Linux", "aarch64"): ("aarch64-linux", ".so")}
PLATFORMS |= {("Darwin", "x86_64"): ("x86_64-darwin", ".dylib"), ("Darwin", "arm64"): ("aarch64-darwin", ".dylib")}


@dataclasses.dataclass(frozen=True)
class FMU(TextInNotebooks):
    """The file that `fmu` has written; `print` shows it as a line.

    Attributes:
        path: the file.
        variables: names of its variables, the time included.
        platform: for which there is a binary; None where there is source code only.
    """

    path: pathlib.Path
    variables: tuple[str, ...]
    platform: str | None

    def __str__(self) -> str:
        what = "source code only" if self.platform is None else f"source code and a binary for {self.platform}"
        return f"'{self.path}': {len(self.variables)} variables, {what}"


@dataclasses.dataclass(frozen=True)
class _Variable:
    name: str
    unit: str | None
    attributes: str


@contract
def fmu(
    step: Stepper,
    path: str | os.PathLike[str],
    name: str = "mechanism",
    *,
    outputs: Mapping[str, str | OfState] | Sequence[str] = (),
    parameters: Sequence[str] = (),
    model: AbstractMechanism | System | None = None,
    build: Annotated[Any, function_of("model")] | None = None,
) -> FMU:
    """Writes a stepper as a functional mock-up unit of FMI 3.0, for model exchange and co-simulation, with its source code.

    Its states are coordinates, velocities and what a controller remembers. In co-simulation steps are those of the stepper, at most `dt` long, with inputs
    that are held. In model exchange the state is moved onto the constraints where it has drifted off. Directional derivatives are exact.

    Args:
        step: made by `jaxmb.stepper`, in float64; this and all others as in `jaxmb.export.c`.
        path: the file, name.fmu.
        name: of the model, an identifier of C.
        outputs: variables to be read besides coordinates and velocities.
        parameters: numbers that may be set.
        model: where `parameters` name elements of a mechanism.
        build: from the model to the system.

    Returns:
        An `FMU`. It has a binary for this platform if there is a C compiler, `cc`.

    Raises:
        ValueError: for arguments that do not fit.
        RuntimeError: if the compiler fails, with its message.

    Example:
        >>> import os, tempfile, jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: jnp.eye(2), potential=lambda t, q, p: 9.81 * q[1],
        ...                    constraints=[jm.Holonomic("rod", lambda t, q, p: q @ q - 1)])
        >>> step = jm.stepper(system, jm.assemble(system, [-1.0, 0.0]), 0.01)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(jm.export.fmu(step, os.path.join(folder, "pendulum.fmu")).variables)
        ('time', 'x', 'y', "x'", "y'", 'der(x)', 'der(y)', "der(x')", "der(y')")
    """
    if folder_there(path, "path").suffix != ".fmu":
        raise ValueError(f"Argument `path` must end with .fmu, but is '{path}'.")
    source = source_of(step, name, outputs, parameters, model, build, True)
    if source.model.dtype != np.float64:
        raise ValueError("Argument `step` must be of float64, as FMI's states are, but is of float32.")
    files = {f"{name}.c": source.code(), f"{name}.h": header(source)}
    token = "{" + hashlib.sha256("".join(files.values()).encode()).hexdigest()[:32] + "}"
    files["fmi3.c"] = fmi_layer(source, token)
    binary = _binary(files, name)
    variables = _variables(source)
    with replacing(path) as fresh, zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("modelDescription.xml", _description(source, variables, token))
        archive.writestr("sources/buildDescription.xml", _build_description(name))
        for file, text in files.items():
            archive.writestr(f"sources/{file}", text)
        if binary is not None:
            archive.writestr(f"binaries/{binary[0]}/{name}{binary[1]}", binary[2])
    return FMU(pathlib.Path(path), tuple(v.name for v in variables), None if binary is None else binary[0])


def _binary(files: Mapping[str, str], name: str) -> tuple[str, str, bytes] | None:
    """Platform, ending and bytes of the library; None where none can be made."""
    this = PLATFORMS.get((platform.system(), platform.machine()))
    compiler = shutil.which("cc")
    if this is None or compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for file, text in files.items():
            pathlib.Path(folder, file).write_text(text, encoding="ascii")
        flags = ["-std=c99", "-O2", "-shared", "-fPIC"]
        command = [compiler, *flags, "-o", name, f"{name}.c", "fmi3.c", "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"The C compiler fails:\n{done.stderr}")
        return *this, pathlib.Path(folder, name).read_bytes()


def _variables(source: Source) -> list[_Variable]:
    """All variables, in the order of their value references."""
    model, calculated = source.model, 'variability="continuous" initial="calculated"'
    kinds = {"u": 'causality="input" variability="continuous"'}
    kinds["p"] = 'causality="parameter" variability="tunable" initial="exact"'
    kinds["x"] = 'causality="output" variability="continuous" initial="exact"'

    def labelled(*vectors: Vector) -> list[tuple[str, str | None]]:
        return [pair for vector in vectors for pair in zip(vector.labels, vector.units, strict=True)]

    def started(kind: str, values: ArrayLike, *vectors: Vector) -> list[_Variable]:
        pairs = zip(labelled(*vectors), np.asarray(values), strict=True)
        return [_Variable(label, unit, f'{kinds[kind]} start="{float(x)!r}"') for (label, unit), x in pairs]

    out = [_Variable("time", None, 'causality="independent" variability="continuous"')]
    out += started("x", model.x, *source.state)
    for k, (label, _) in enumerate(labelled(*source.state), start=1):
        out.append(_Variable(f"der({label})", None, f'causality="local" {calculated} derivative="{k}"'))
    for vector in source.exogenous:
        out += started(vector.name, model.nominal if vector.name == "p" else np.zeros(vector.size), vector)
    out += [_Variable(label, unit, f'causality="output" {calculated}') for label, unit in labelled(*source.outputs)]
    return _unique(out)


def _unique(variables: Sequence[_Variable]) -> list[_Variable]:
    """The variables, whose names hold no control characters, and no two of which have one name."""
    names: list[str] = []
    for variable in variables:
        names.append(numbered(re.sub(r"[\x00-\x1f\x7f]", " ", variable.name), names, "{} ({})"))
    return [dataclasses.replace(variable, name=name) for variable, name in zip(variables, names, strict=True)]


def _description(source: Source, variables: Sequence[_Variable], token: str) -> str:
    name, n, count = source.name, source.model.n, len(variables)
    shared = f'modelIdentifier="{name}" canGetAndSetFMUState="true" providesDirectionalDerivatives="true"'
    dt = float(source.model.step.dt)
    read = sum(x.size for x in source.outputs)
    outputs, derivatives = [*range(1, n + 1), *range(count - read, count)], range(n + 1, 2 * n + 1)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    lines.append(
        f'<fmiModelDescription fmiVersion="3.0" modelName="{name}" instantiationToken="{token}" generationTool={quoteattr("jaxmb " + source.version)} '
        'variableNamingConvention="flat">'
    )
    lines.append(f'  <ModelExchange {shared} needsCompletedIntegratorStep="true"/>')
    lines.append(f'  <CoSimulation {shared} canHandleVariableCommunicationStepSize="true"/>')
    units = [f'    <Unit name="{unit}"><BaseUnit {base}/></Unit>' for unit, base in UNITS.items()]
    lines += ["  <UnitDefinitions>", *units, "  </UnitDefinitions>"]
    lines.append('  <LogCategories><Category name="logStatusError"/></LogCategories>')
    start = float(source.model.state.t)
    lines.append(f'  <DefaultExperiment startTime="{start!r}" stopTime="{start + 100 * dt!r}" stepSize="{dt!r}"/>')
    lines.append("  <ModelVariables>")
    for k, v in enumerate(variables):
        unit = f" unit={quoteattr(v.unit)}" if v.unit in UNITS else ""
        lines.append(f'    <Float64 name={quoteattr(v.name)} valueReference="{k}" {v.attributes}{unit}/>')
    lines += ["  </ModelVariables>", "  <ModelStructure>"]
    lines += [f'    <Output valueReference="{k}"/>' for k in outputs]
    lines += [f'    <ContinuousStateDerivative valueReference="{k}"/>' for k in derivatives]
    lines += [f'    <InitialUnknown valueReference="{k}"/>' for k in (*outputs[n:], *derivatives)]
    return "\n".join([*lines, "  </ModelStructure>", "</fmiModelDescription>", ""])


def _build_description(name: str) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<fmiBuildDescription fmiVersion="3.0">\n'
        f'  <BuildConfiguration modelIdentifier="{name}">\n    <SourceFileSet language="C99">\n'
        f'      <SourceFile name="{name}.c"/>\n      <SourceFile name="fmi3.c"/>\n'
        "    </SourceFileSet>\n  </BuildConfiguration>\n</fmiBuildDescription>\n"
    )
