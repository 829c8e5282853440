"""The functions of a stepper in C: their names, arguments and results."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from ..lanes import CTypes
from .model import Function, Model
from .naming import comment

# What a function returns, and what it means.
CODES = (
    ("OK", "well: all results are written"),
    (
        "DEPENDENT",
        "rows of constraints come near to being dependent, as beside a singular pose, where jaxmb would make a general step",
    ),
    ("NOT_FINITE", "a number is not finite"),
    (
        "OPEN",
        "the correction has left residuals of constraints: the step is too long, or the state is far from the constraints",
    ),
)

# Public functions that read a state, and which function of a model they call.
READERS = {"acceleration": "begin", "rates": "begin", "outputs": "outputs", "inputs": "inputs"}


@dataclasses.dataclass(frozen=True)
class Vector:
    """An argument of functions.

    Attributes:
        name: in C.
        title: what it is.
        labels: what its numbers are called,
        units: and their units, None where they are not known.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    units: tuple[str | None, ...]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return len(self.labels)

    def __bool__(self) -> bool:
        return self.size > 0


@dataclasses.dataclass(frozen=True)
class Result(Vector):
    """An argument that a function writes.

    Attributes:
        result: of which result of a program it is,
        start: and from which number on.
    """

    result: str
    start: int = 0


@dataclasses.dataclass(frozen=True)
class Interface:
    """A model and its functions, in C.

    Attributes:
        name: the beginning of all public names.
        model: the model.
        functions: its functions by name.
        version: of the library, for the heads of files.
    """

    name: str
    model: Model
    functions: dict[str, Function]
    version: str

    @functools.cached_property
    def types(self) -> CTypes:
        """The type of numbers."""
        return CTypes(self.model.dtype)

    @property
    def real(self) -> str:
        """Its name."""
        return self.types.real

    @property
    def capitals(self) -> str:
        """The beginning of macros."""
        return self.name.upper()

    @property
    def readers(self) -> tuple[str, ...]:
        """The public functions that read a state."""
        return tuple(name for name, function in READERS.items() if function in self.functions)

    # Arguments

    @property
    def state(self) -> tuple[Vector, ...]:
        """Coordinates, velocities, and what the controller remembers, as far as there are any."""
        model, names = self.model, self.model.names
        memory = tuple(f"z{i}" for i in range(model.nz))
        vectors = (
            Vector("q", "coordinates", names.coordinates, names.coordinate_units),
            Vector("v", "velocities", names.rates, names.velocity_units),
            Vector("z", "what the controller remembers", memory, (None,) * model.nz),
        )
        return tuple(filter(None, vectors))

    @property
    def exogenous(self) -> tuple[Vector, ...]:
        """Inputs and parameters, as far as there are any."""
        names, labels = self.model.names, self.model.unknowns.labels
        inputs = (names.inputs, names.input_units) if self.model.nu else ((), ())
        vectors = (Vector("u", "inputs", *inputs), Vector("p", "parameters", labels, (None,) * len(labels)))
        return tuple(filter(None, vectors))

    def results(self, function: str) -> tuple["Result", ...]:
        """What a public function that reads a state writes."""
        model, names = self.model, self.model.names

        def result(name: str, title: str, labels: tuple[str, ...], of: str, start: int = 0) -> Result:
            return Result(name=name, title=title, labels=labels, units=(None,) * len(labels), result=of, start=start)

        if function == "acceleration":
            accelerations = tuple(f"rate of {x}" for x in names.rates)
            vectors = [
                result("a", "accelerations", accelerations, "rate", model.nq),
                result("lambda", "multipliers", names.rows, "lambda"),
            ]
        elif function == "rates":
            vectors = [result(f"d{x.name}", x.title, x.labels, "rate", model.starts[x.name]) for x in self.state]
        elif function == "outputs":
            vectors = [result("y", "outputs", model.output_names, "y")]
        else:
            inputs = result("u", "inputs", names.inputs, "input")
            vectors = [dataclasses.replace(inputs, units=names.input_units)]
        return tuple(filter(None, vectors))

    @property
    def outputs(self) -> tuple["Result", ...]:
        """Outputs, and inputs that the controller puts out, as far as there are any."""
        return tuple(x for name in ("outputs", "inputs") if name in self.readers for x in self.results(name))

    def arguments(self, vectors: Iterable[Vector], constant: bool = True, prefix: str = "") -> list[str]:
        """They, as arguments."""
        return [f"{'const ' if constant else ''}{self.real} *{prefix}{x.name}" for x in vectors]

    def head(self, what: str) -> str:
        """The first lines of a file."""
        return f"/* {what}\n * Written by jaxmb {comment(self.version)}. C99; needs math.h only. Not to be compiled with -ffast-math. */\n"

    def declarations(self) -> list[tuple[str, str]]:
        """Public functions: what they do, and how they are called."""
        texts = {
            "acceleration": "Accelerations and multipliers at a state",
            "rates": "Rates of the state",
            "outputs": "Outputs at a state",
            "inputs": "Inputs that the controller puts out at a state",
        }
        out = [(f"{texts[name]}.", self._reader(name)) for name in self.readers]
        out += [
            ("One step of dt seconds, with its correction: the state is that after it.", self._mover("step", True)),
            ("Moves a state onto the constraints.", self._mover("project", False)),
        ]
        if "rate_tangent" in self.functions:
            tangents = "with derivatives along (d_q, d_v, ...), which come last."
            out += [(f"{texts[name]}, {tangents}", self._reader(name, True)) for name in self.readers]
            out.append((f"One step, {tangents}", self._mover("step", True, True)))
        return out

    def _reader(self, name: str, tangent: bool = False) -> str:
        ins = self.arguments((*self.state, *self.exogenous))
        outs = self.arguments(self.results(name), False)
        if tangent:
            ins += self.arguments((*self.state, *self.exogenous), True, "d_")
            outs += self.arguments(self.results(name), False, "d_")
        return self._declared(name, [f"{self.real} t", *ins, *outs], tangent)

    def _mover(self, name: str, timed: bool, tangent: bool = False) -> str:
        own = self.arguments(self.state, False)
        others = self.arguments(self.exogenous)
        if tangent:
            own += self.arguments(self.state, False, "d_")
            others += self.arguments(self.exogenous, True, "d_")
        return self._declared(name, [f"{self.real} t", *([f"{self.real} dt"] if timed else []), *own, *others], tangent)

    def _declared(self, name: str, arguments: Sequence[str], tangent: bool) -> str:
        return f"int {self.name}_{name}{'_tangent' if tangent else ''}({', '.join(arguments)})"
