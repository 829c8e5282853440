"""The text of a stepper in C: a header, and a file with all functions."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np

from ..lanes import CTypes, c_function
from .model import Function, Model
from .naming import comment, macros

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


@dataclasses.dataclass(frozen=True)
class Vector:
    """An argument of functions.

    Attributes:
        name: in C.
        size: how many numbers it has.
        title: what it is.
        labels: what its numbers are called,
        units: and their units, None where they are not known.
    """

    name: str
    size: int
    title: str
    labels: tuple[str, ...]
    units: tuple[str | None, ...]

    def __bool__(self) -> bool:
        return self.size > 0


@dataclasses.dataclass(frozen=True)
class Source:
    """A model and its functions, as text of C.

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

    # Arguments

    @property
    def state(self) -> tuple[Vector, ...]:
        """Coordinates, velocities, and what the controller remembers, as far as there are any."""
        model, names = self.model, self.model.names
        memory = tuple(f"z{i}" for i in range(model.nz))
        vectors = (
            Vector("q", model.nq, "coordinates", names.coordinates, names.coordinate_units),
            Vector("v", model.nv, "velocities", names.rates, names.velocity_units),
            Vector("z", model.nz, "what the controller remembers", memory, (None,) * model.nz),
        )
        return tuple(filter(None, vectors))

    @property
    def given(self) -> tuple[Vector, ...]:
        """Inputs and parameters, as far as there are any."""
        model, names = self.model, self.model.names
        labels = model.unknowns.labels
        vectors = (
            Vector("u", model.nu, "inputs", names.inputs, names.input_units),
            Vector("p", len(labels), "parameters", labels, (None,) * len(labels)),
        )
        return tuple(filter(None, vectors))

    def results(self, function: str) -> tuple[Vector, ...]:
        """What a public function writes."""
        model, names = self.model, self.model.names
        rates = tuple(f"rate of {x}" for x in names.rates)
        vectors = {
            "acceleration": (
                Vector("a", model.nv, "accelerations", rates, (None,) * model.nv),
                Vector("lambda", model.m, "multipliers of constraint rows", names.rows, (None,) * model.m),
            ),
            "rates": tuple(dataclasses.replace(x, name=f"d{x.name}", title=f"rates of {x.title}") for x in self.state),
            "outputs": (Vector("y", len(model.output_names), "outputs", model.output_names, ()),),
            "inputs": (Vector("u", len(names.inputs), "inputs of the controller", names.inputs, names.input_units),),
        }
        return tuple(filter(None, vectors[function]))

    def arguments(self, vectors: Iterable[Vector], constant: bool = True, prefix: str = "") -> list[str]:
        """They, as arguments."""
        return [f"{'const ' if constant else ''}{self.real} *{prefix}{x.name}" for x in vectors]

    # Texts

    def head(self, what: str) -> str:
        """The first lines of a file."""
        return f"/* {what}\n * Written by jaxmb {comment(self.version)}. C99; needs math.h only. Not to be compiled with -ffast-math. */\n"

    def header(self) -> str:
        """The text of the header."""
        model, capitals = self.model, self.capitals
        guard = f"{capitals}_H"
        lines = [
            self.head(f"{self.name}: a mechanism, one step after the other."),
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
        ]
        vectors = [*self.state, *self.given, *self._outputs()]
        for vector in vectors:
            lines += self._listed(vector)
        lines += self._rows()
        lines += [
            f"/* Length of the stepper's step in s; one of {model.method.substeps} substeps. */",
            f"#define {capitals}_DT {self.types.literal(float(model.step.dt))}",
            "",
            "/* What functions return. Where that is not OK they have written nothing. */",
            f"enum {self.name}_result {{",
            *(f"    {capitals}_{code} = {k}, /* {text} */" for k, (code, text) in enumerate(CODES)),
            "};",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
        ]
        for text, declaration in self.declarations():
            lines += [f"/* {text} */", f"{declaration};", ""]
        lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */", ""]
        return "\n".join(lines)

    def _outputs(self) -> tuple[Vector, ...]:
        return self.results("outputs") if "outputs" in self.functions else ()

    def _listed(self, vector: Vector) -> list[str]:
        """The size of a vector, and the index of each of its numbers."""
        prefix = f"{self.capitals}_{vector.name.upper()}"
        size = f"{self.capitals}_N{vector.name.upper()}"
        units = vector.units or (None,) * vector.size
        lines = [f"/* {vector.name}: {vector.title} */", f"#define {size} {vector.size}"]
        for k, (word, label, unit) in enumerate(zip(macros(vector.labels), vector.labels, units, strict=True)):
            unit_text = "" if unit is None else f", in {comment(unit)}"
            lines.append(f"#define {prefix}_{word} {k} /* {comment(label)}{unit_text} */")
        return [*lines, ""]

    def _rows(self) -> list[str]:
        model = self.model
        if not model.m:
            return []
        in_use = np.asarray(model.step.independent)
        lines = [
            "/* lambda: multipliers of constraint rows, zero of rows that are left out since they follow from others */"
        ]
        lines.append(f"#define {self.capitals}_NLAMBDA {model.m}")
        for k, (word, label) in enumerate(zip(macros(model.names.rows), model.names.rows, strict=True)):
            note = "" if in_use[k] else ", left out"
            lines.append(f"#define {self.capitals}_LAMBDA_{word} {k} /* {comment(label)}{note} */")
        return [*lines, ""]

    def declarations(self) -> list[tuple[str, str]]:
        """Public functions: what they do, and how they are called."""
        out = [
            ("Accelerations and multipliers at a state.", self._reader("acceleration", "acceleration")),
            ("Rates of the state.", self._reader("rates", "rates")),
        ]
        if "outputs" in self.functions:
            out.append(("Outputs at a state.", self._reader("outputs", "outputs")))
        if "inputs" in self.functions:
            out.append(("Inputs that the controller puts out at a state.", self._reader("inputs", "inputs")))
        out += [
            (
                "One step of dt seconds, with its correction: the state is that after the step.",
                self._mover("step", True),
            ),
            ("Moves a state onto the constraints.", self._mover("project", False)),
        ]
        if any(name.endswith("_tangent") for name in self.functions):
            along = "and their derivatives along (d_q, d_v, ...), which come last."
            for name, text in (
                ("acceleration", "Accelerations and multipliers"),
                ("outputs", "Outputs"),
                ("inputs", "Inputs"),
            ):
                if name in self.functions:
                    out.append((f"{text} {along}", self._reader(name, name, True)))
            out.append((f"One step, {along}", self._mover("step", True, True)))
        return out

    def _reader(self, name: str, results: str, tangent: bool = False) -> str:
        ins = self.arguments((*self.state, *self.given))
        outs = self.arguments(self.results(results), False, "out_" if results == "inputs" else "")
        if tangent:
            ins += self.arguments((*self.state, *self.given), True, "d_")
            outs += self.arguments(self.results(results), False, "d_out_" if results == "inputs" else "d_")
        return self._declared(name, [f"{self.real} t", *ins, *outs], tangent)

    def _mover(self, name: str, timed: bool, tangent: bool = False) -> str:
        moved = self.arguments(self.state, False)
        given = self.arguments(self.given)
        if tangent:
            moved += self.arguments(self.state, False, "d_")
            given += self.arguments(self.given, True, "d_")
        return self._declared(
            name, [f"{self.real} t", *([f"{self.real} dt"] if timed else []), *moved, *given], tangent
        )

    def _declared(self, name: str, arguments: Sequence[str], tangent: bool) -> str:
        return f"int {self.name}_{name}{'_tangent' if tangent else ''}({', '.join(arguments)})"

    def code(self) -> str:
        """The text of the functions."""
        parts = [
            c_function(
                f"f_{name}", f.program, self.model.dtype, self._operands(name), [f"r{k}" for k in range(len(f.results))]
            )
            for name, f in self.functions.items()
        ]
        lookup = [self.types.lookup] if any("= lookup(" in part for part in parts) else []
        tangents = [False, True] if "rate_tangent" in self.functions else [False]
        public = [self._public(tangent) for tangent in tangents]
        head = [
            self.head(f"{self.name}: see {self.name}.h"),
            f'#include "{self.name}.h"\n',
            "#include <math.h>\n#include <string.h>\n",
        ]
        return "\n".join([*head, self._sizes(), _FINITE.format(real=self.real), *lookup, *parts, *public])

    def _operands(self, name: str) -> list[str]:
        before = ["before"] if name.startswith("end") else []
        return ["t", "x", *before, "u", "p"]

    def _sizes(self) -> str:
        method = self.model.method
        rows = ",\n".join("    {" + ", ".join(self.types.literal(float(x)) for x in row) + "}" for row in method.a)
        times = ", ".join(self.types.literal(float(x)) for x in method.c)
        basis = max(1, self.functions["begin"].sizes["basis"])
        counts = f"enum {{ BASIS = {basis}, ROWS = {len(method.a)}, STAGES = {method.a.shape[1]}, SUBSTEPS = {method.substeps} }};"
        return (
            f"{counts}\n\n/* Runge and Kutta: states of stages, the last one that of the end, and their times */\n"
            f"static const {self.real} A[ROWS][STAGES] = {{\n{rows}\n}};\nstatic const {self.real} C[ROWS] = {{{times}}};\n"
        )

    def _public(self, tangent: bool) -> str:
        """The step, and all public functions, or those of their tangents."""
        model, suffix = self.model, "_tangent" if tangent else ""
        factor = 2 if tangent else 1
        names = dict(
            name=self.name,
            capitals=self.capitals,
            real=self.real,
            suffix=suffix,
            n=factor * model.n,
            nu=max(1, factor * model.nu),
            np=max(1, factor * model.nominal.size),
            finite_u=f"all_finite(u, {factor * model.nu}) && " if model.nu else "",
            finite_p=f"all_finite(p, {factor * model.nominal.size}) && " if model.nominal.size else "",
            reuses=int(model.method.reuses),
        )
        parts = [_STEP.format(**names), self._move("step", tangent)]
        for name in ("acceleration", "outputs", "inputs"):
            if name in self.functions:
                parts.append(self._read(name, name, tangent))
        if not tangent:
            parts += [self._read("rates", "begin", False), self._project()]
        return "\n".join(parts)

    # Bodies of public functions

    def _packed(self, tangent: bool) -> list[str]:
        """Lines that bring the arguments of a function together."""
        lines, model = [], self.model
        factor = 2 if tangent else 1
        lines.append(f"{self.real} x[{factor * model.n}];")
        for name, size in (("u", model.nu), ("p", model.nominal.size)):
            if tangent:
                lines.append(f"{self.real} both_{name}[{max(1, 2 * size)}];")
            elif not size:
                lines.append(f"const {self.real} *{name} = 0;")
        return lines

    def _loaded(self, tangent: bool) -> list[str]:
        lines, at = [], 0
        for prefix in ("", "d_") if tangent else ("",):
            for vector in self.state:
                lines.append(self._copy(f"x + {at}", f"{prefix}{vector.name}", vector.size))
                at += vector.size
        if tangent:
            for vector in self.given:
                lines.append(self._copy(f"both_{vector.name}", vector.name, vector.size))
                lines.append(self._copy(f"both_{vector.name} + {vector.size}", f"d_{vector.name}", vector.size))
        return lines

    def _copy(self, to: str, of: str, size: int) -> str:
        return f"memcpy({to}, {of}, {size} * sizeof({self.real}));"

    def _arguments_of(self, tangent: bool) -> str:
        return "both_u, both_p" if tangent else "u, p"

    def _body(self, declaration: str, lines: Sequence[str]) -> str:
        return f"{declaration}\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"

    def _move(self, name: str, tangent: bool) -> str:
        """A function that changes a state."""
        suffix = "_tangent" if tangent else ""
        lines = [*self._packed(tangent), "int result;", *self._loaded(tangent)]
        lines.append(f"result = advance{suffix}(t, dt, x, {self._arguments_of(tangent)});")
        lines += [f"if (result != {self.capitals}_OK)", "    return result;"]
        return self._body(self._mover(name, True, tangent), [*lines, *self._stored(tangent, "x"), "return result;"])

    def _stored(self, tangent: bool, of: str) -> list[str]:
        lines, at = [], 0
        for prefix in ("", "d_") if tangent else ("",):
            for vector in self.state:
                lines.append(self._copy(f"{prefix}{vector.name}", f"{of} + {at}", vector.size))
                at += vector.size
        return lines

    def _read(self, name: str, function: str, tangent: bool) -> str:
        """A function that reads a state."""
        suffix = "_tangent" if tangent else ""
        sizes = self.functions[function + suffix].sizes
        lines = self._packed(tangent)
        lines += [f"{self.real} r_{k}[{max(1, size)}];" for k, size in sizes.items()]
        lines += self._loaded(tangent)
        lines.append(
            f"f_{function}{suffix}(t, x, {self._arguments_of(tangent)}, {', '.join(f'r_{k}' for k in sizes)});"
        )
        wanted = [k for k, size in sizes.items() if k not in ("doubtful", "basis") and size]
        lines += [
            f"if (!({' && '.join(f'all_finite(r_{k}, {sizes[k]})' for k in wanted)}))",
            f"    return {self.capitals}_NOT_FINITE;",
        ]
        if "doubtful" in sizes:
            lines += [f"if (r_doubtful[0] != {self.types.literal(0.0)})", f"    return {self.capitals}_DEPENDENT;"]
        vectors = self.results(name)
        prefixes = [("out_" if name == "inputs" else "", 0)] + (
            [("d_out_" if name == "inputs" else "d_", 1)] if tangent else []
        )
        for prefix, half in prefixes:
            at = 0
            for k, vector in enumerate(vectors):
                # Rates of the whole state are one result.
                result, first = (wanted[0], at) if name == "rates" else (wanted[k], half * vector.size)
                lines.append(self._copy(f"{prefix}{vector.name}", f"r_{result} + {first}", vector.size))
                at += vector.size
        return self._body(self._reader(name, name, tangent), [*lines, f"return {self.capitals}_OK;"])

    def _project(self) -> str:
        sizes = self.functions["end"].sizes
        zero = self.types.literal(0.0)
        lines = [*self._packed(False), f"const {self.real} before[BASIS] = {{{zero}}};"]
        lines += [f"{self.real} r_{k}[{max(1, size)}];" for k, size in sizes.items()]
        lines += self._loaded(False)
        lines.append(f"f_end(t, x, before, u, p, {', '.join(f'r_{k}' for k in sizes)});")
        lines += [f"if (!all_finite(r_corrected, {sizes['corrected']}))", f"    return {self.capitals}_NOT_FINITE;"]
        lines += [f"if (r_doubtful[0] != {zero})", f"    return {self.capitals}_DEPENDENT;"]
        lines += [f"if (r_open[0] != {zero})", f"    return {self.capitals}_OPEN;"]
        lines += self._stored(False, "r_corrected")
        return self._body(self._mover("project", False), [*lines, f"return {self.capitals}_OK;"])


_FINITE = """static int all_finite(const {real} *x, int count)
{{
    int i;
    for (i = 0; i < count; ++i)
        if (!isfinite(x[i]))
            return 0;
    return 1;
}}
"""

# A step: the first rate is that at the start, or that at the end of the substep before.
_STEP = """static void stage{suffix}(const {real} *x, {real} (*k)[{n}], int row, {real} *y)
{{
    int i, j;
    memcpy(y, x, {n} * sizeof({real}));
    for (j = 0; j < row; ++j)
        for (i = 0; i < {n}; ++i)
            y[i] += A[row][j] * k[j][i];
}}

static int advance{suffix}({real} t, {real} dt, {real} *x, const {real} *u, const {real} *p)
{{
    const {real} h = dt / SUBSTEPS;
    {real} rate[{n}], basis[BASIS] = {{0}}, after[BASIS] = {{0}}, k[STAGES][{n}], y[{n}], corrected[{n}], doubtful[1], open[1];
    int step, row, i;
    if (!({finite_u}{finite_p}isfinite(t) && isfinite(dt)))
        return {capitals}_NOT_FINITE;
    f_begin{suffix}(t, x, u, p, rate, basis, doubtful);
    if (!all_finite(rate, {n}))
        return {capitals}_NOT_FINITE;
    if (doubtful[0] != 0)
        return {capitals}_DEPENDENT;
    for (step = 0; step < SUBSTEPS; ++step) {{
        const {real} t0 = t + step * h;
        for (row = 0; row < ROWS - 1; ++row) {{
            stage{suffix}(x, k, row, y);
            if (row > 0 || (step > 0 && !{reuses})) {{
                f_rate{suffix}(t0 + C[row] * h, y, u, p, rate, doubtful);
                if (doubtful[0] != 0)
                    return {capitals}_DEPENDENT;
            }}
            for (i = 0; i < {n}; ++i)
                k[row][i] = h * rate[i];
        }}
        stage{suffix}(x, k, ROWS - 1, y);
        f_end{suffix}(t0 + h, y, basis, u, p, rate, corrected, after, doubtful, open);
        if (!all_finite(corrected, {n}) || !all_finite(rate, {n}))
            return {capitals}_NOT_FINITE;
        if (doubtful[0] != 0)
            return {capitals}_DEPENDENT;
        if (open[0] != 0)
            return {capitals}_OPEN;
        memcpy(x, corrected, sizeof corrected);
        memcpy(basis, after, sizeof basis);
    }}
    return {capitals}_OK;
}}
"""
