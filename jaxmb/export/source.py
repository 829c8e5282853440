"""The text of a stepper in C."""

from collections.abc import Sequence

from ..lanes import c_function
from .interface import READERS, Interface


class Source(Interface):
    """The functions of a stepper, as text of C."""

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
        # Twice as many with their derivatives.
        multipliers = 2 * max(1, self.model.m)
        counts = f"enum {{ BASIS = {basis}, LAMBDA = {multipliers}, ROWS = {len(method.a)}, STAGES = {method.a.shape[1]}, SUBSTEPS = {method.substeps} }};"
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
        parts = [_STEP.format(**names), self._step(tangent)]
        parts += [self._read(name, tangent) for name in self.readers]
        if not tangent:
            parts.append(self._project())
        return "\n".join(parts)

    # Bodies of public functions

    def _packed(self, tangent: bool) -> list[str]:
        """Lines that bring the arguments of a function together."""
        model, factor = self.model, 2 if tangent else 1
        lines = [f"{self.real} x[{factor * model.n}];"]
        if tangent:
            lines += [f"{self.real} both_{x.name}[{2 * x.size}];" for x in self.exogenous]
        return lines

    def _loaded(self, tangent: bool) -> list[str]:
        lines, at = [], 0
        for prefix in ("", "d_") if tangent else ("",):
            for vector in self.state:
                lines.append(self._copy(f"x + {at}", f"{prefix}{vector.name}", vector.size))
                at += vector.size
        if tangent:
            for vector in self.exogenous:
                lines.append(self._copy(f"both_{vector.name}", vector.name, vector.size))
                lines.append(self._copy(f"both_{vector.name} + {vector.size}", f"d_{vector.name}", vector.size))
        return lines

    def _copy(self, to: str, of: str, size: int) -> str:
        return f"memcpy({to}, {of}, {size} * sizeof({self.real}));"

    def _arguments_of(self, tangent: bool) -> str:
        """Inputs and parameters as arguments of a function of the model; no address where there are none."""
        names = [x.name for x in self.exogenous]
        return ", ".join(("both_" if tangent else "") + name if name in names else "0" for name in ("u", "p"))

    def _body(self, declaration: str, lines: Sequence[str]) -> str:
        return f"{declaration}\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"

    def _step(self, tangent: bool) -> str:
        suffix = "_tangent" if tangent else ""
        lines = [*self._packed(tangent), "int result;", *self._loaded(tangent)]
        lines.append(f"result = advance{suffix}(t, dt, x, {self._arguments_of(tangent)});")
        lines += [f"if (result != {self.capitals}_OK)", "    return result;"]
        return self._body(self._mover("step", True, tangent), [*lines, *self._stored(tangent, "x"), "return result;"])

    def _stored(self, tangent: bool, of: str) -> list[str]:
        lines, at = [], 0
        for prefix in ("", "d_") if tangent else ("",):
            for vector in self.state:
                lines.append(self._copy(f"{prefix}{vector.name}", f"{of} + {at}", vector.size))
                at += vector.size
        return lines

    def _read(self, name: str, tangent: bool) -> str:
        """A function that reads a state."""
        function = READERS[name] + ("_tangent" if tangent else "")
        sizes, results = self.functions[function].sizes, self.results(name)
        lines = self._packed(tangent)
        lines += [f"{self.real} r_{k}[{max(1, size)}];" for k, size in sizes.items()]
        lines += self._loaded(tangent)
        lines.append(f"f_{function}(t, x, {self._arguments_of(tangent)}, {', '.join(f'r_{k}' for k in sizes)});")
        for k in dict.fromkeys(x.result for x in results):
            lines += [f"if (!all_finite(r_{k}, {sizes[k]}))", f"    return {self.capitals}_NOT_FINITE;"]
        if "doubtful" in sizes:
            lines += [f"if (r_doubtful[0] != {self.types.literal(0.0)})", f"    return {self.capitals}_DEPENDENT;"]
        for prefix, half in (("", 0), ("d_", 1)) if tangent else (("", 0),):
            for x in results:
                first = x.start + half * sizes[x.result] // 2
                lines.append(self._copy(f"{prefix}{x.name}", f"r_{x.result} + {first}", x.size))
        return self._body(self._reader(name, tangent), [*lines, f"return {self.capitals}_OK;"])

    def _project(self) -> str:
        sizes = self.functions["end"].sizes
        zero = self.types.literal(0.0)
        lines = [*self._packed(False), f"const {self.real} before[BASIS] = {{{zero}}};"]
        lines += [f"{self.real} r_{k}[{max(1, size)}];" for k, size in sizes.items()]
        lines += self._loaded(False)
        lines.append(f"f_end(t, x, before, {self._arguments_of(False)}, {', '.join(f'r_{k}' for k in sizes)});")
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
    {real} rate[{n}], lambda[LAMBDA], basis[BASIS] = {{0}}, after[BASIS] = {{0}}, k[STAGES][{n}], y[{n}], corrected[{n}], doubtful[1], open[1];
    int step, row, i;
    if (!({finite_u}{finite_p}isfinite(t) && isfinite(dt)))
        return {capitals}_NOT_FINITE;
    f_begin{suffix}(t, x, u, p, rate, lambda, basis, doubtful);
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
