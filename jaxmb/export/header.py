"""The header of a stepper in C."""

import numpy as np

from .interface import CODES, Interface, Vector
from .naming import comment, macros


def header(own: Interface) -> str:
    """The text of the header."""
    model, capitals = own.model, own.capitals
    guard = f"{capitals}_H"
    lines = [
        own.head(f"{own.name}: a mechanism, one step after the other."),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
    ]
    vectors = [*own.state, *own.exogenous, *own.outputs]
    for vector in vectors:
        lines += _listed(own, vector)
    lines += _rows(own)
    lines += [
        f"/* Length of the stepper's step in s; one of {model.method.substeps} substeps. */",
        f"#define {capitals}_DT {own.types.literal(float(model.step.dt))}",
        "",
        "/* What functions return. Where that is not OK they have written nothing. */",
        f"enum {own.name}_result {{",
        *(f"    {capitals}_{code} = {k}, /* {text} */" for k, (code, text) in enumerate(CODES)),
        "};",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    for text, declaration in own.declarations():
        lines += [f"/* {text} */", f"{declaration};", ""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def _listed(own: Interface, vector: Vector) -> list[str]:
    """The size of a vector, and the index of each of its numbers."""
    prefix = f"{own.capitals}_{vector.name.upper()}"
    size = f"{own.capitals}_N{vector.name.upper()}"
    lines = [f"/* {vector.name}: {vector.title} */", f"#define {size} {vector.size}"]
    for k, (word, label, unit) in enumerate(zip(macros(vector.labels), vector.labels, vector.units, strict=True)):
        unit_text = "" if unit is None else f", in {comment(unit)}"
        lines.append(f"#define {prefix}_{word} {k} /* {comment(label)}{unit_text} */")
    return [*lines, ""]


def _rows(own: Interface) -> list[str]:
    """The number of rows, and the index of each."""
    model = own.model
    if not model.m:
        return []
    in_use = np.asarray(model.step.independent)
    lines = [
        "/* lambda: multipliers of constraint rows, zero of rows that are left out since they follow from others */"
    ]
    lines.append(f"#define {own.capitals}_NLAMBDA {model.m}")
    for k, (word, label) in enumerate(zip(macros(model.names.rows), model.names.rows, strict=True)):
        note = "" if in_use[k] else ", left out"
        lines.append(f"#define {own.capitals}_LAMBDA_{word} {k} /* {comment(label)}{note} */")
    return [*lines, ""]
