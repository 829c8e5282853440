"""The functions of FMI 3.0 in C, around those of a stepper (Functional Mock-up Interface Specification 3.0.2, sections 2 to 4)."""

import importlib.resources

from .source import Source

# Of these types there are no variables: they are refused.
_OTHERS = {
    "Float32": "float",
    "Int8": "signed char",
    "UInt8": "unsigned char",
    "Int16": "short",
    "UInt16": "unsigned short",
    "Int32": "int",
    "UInt32": "unsigned int",
    "Int64": "long long",
    "UInt64": "unsigned long long",
    "Boolean": "bool",
    "String": "String",
}
# What need not be offered, by the attributes of modelDescription.xml: name and arguments behind the instance.
_REFUSED = {
    "GetBinary": "const Reference r[], size_t n, size_t sizes[], const unsigned char *values[], size_t count",
    "SetBinary": "const Reference r[], size_t n, const size_t sizes[], const unsigned char *const values[], size_t count",
    "GetClock": "const Reference r[], size_t n, bool values[]",
    "SetClock": "const Reference r[], size_t n, const bool values[]",
    "GetNumberOfVariableDependencies": "Reference r, size_t *n",
    "GetVariableDependencies": "Reference r, size_t a[], Reference b[], size_t c[], int kinds[], size_t n",
    "SerializedFMUStateSize": "void *state, size_t *size",
    "SerializeFMUState": "void *state, unsigned char bytes[], size_t size",
    "DeserializeFMUState": "const unsigned char bytes[], size_t size, void **state",
    "GetAdjointDerivative": "const Reference a[], size_t na, const Reference b[], size_t nb, const double seed[], size_t ns, double o[], size_t no",
    "EnterConfigurationMode": "",
    "ExitConfigurationMode": "",
    "GetIntervalDecimal": "const Reference r[], size_t n, double intervals[], int qualifiers[]",
    "GetIntervalFraction": "const Reference r[], size_t n, unsigned long long a[], unsigned long long b[], int qualifiers[]",
    "GetShiftDecimal": "const Reference r[], size_t n, double shifts[]",
    "GetShiftFraction": "const Reference r[], size_t n, unsigned long long a[], unsigned long long b[]",
    "SetIntervalDecimal": "const Reference r[], size_t n, const double intervals[]",
    "SetIntervalFraction": "const Reference r[], size_t n, const unsigned long long a[], const unsigned long long b[]",
    "SetShiftDecimal": "const Reference r[], size_t n, const double shifts[]",
    "SetShiftFraction": "const Reference r[], size_t n, const unsigned long long a[], const unsigned long long b[]",
    "GetOutputDerivatives": "const Reference r[], size_t n, const int orders[], double values[], size_t count",
    "ActivateModelPartition": "Reference clock, double t",
}


def fmi_layer(source: Source, token: str) -> str:
    """The text of the functions.

    Args:
        source: the functions of the stepper, those of derivatives included.
        token: of the instantiation, as in modelDescription.xml.
    """
    model, name, starts = source.model, source.name, source.model.starts
    outputs = [
        (reader, sum(x.size for x in source.results(reader)))
        for reader in ("outputs", "inputs")
        if reader in source.readers
    ]
    state = [f"{{of}}->{{prefix}}x + {starts[x.name]}" for x in source.state]
    others = [f"{{of}}->{{prefix}}{x.name}" for x in source.exogenous]
    arguments = lambda parts, prefix="": ", ".join(part.format(of="s", prefix=prefix) for part in parts)
    rates = lambda of: ", ".join(f"{of} + {starts[x.name]}" for x in source.state)
    both = [*state, *others]
    size = lambda n: max(1, n)
    numbers = lambda xs: ", ".join(source.types.literal(float(x)) for x in xs)
    worst = "{{ const int own = {call}; result = own > result ? own : result; }}"
    readers, tangents, at = [], [], 0
    for reader, count in outputs:
        readers.append(worst.format(call=f"{name}_{reader}(s->t, {arguments(both)}, y + {at})"))
        call = f"{name}_{reader}_tangent(s->t, {arguments(both)}, {arguments(both, 'd_')}, y + {at}, d_y + {at})"
        tangents.append(worst.format(call=call))
        at += count
    words = dict(
        name=name,
        capitals=source.capitals,
        token=token,
        n=model.n,
        nu=model.nu,
        np=model.nominal.size,
        ny=at,
        size_u=size(model.nu),
        size_p=size(model.nominal.size),
        size_y=size(at),
        rates=f"{name}_rates(s->t, {arguments(both)}, {rates('d')})",
        rates_tangent=f"{name}_rates_tangent(s->t, {arguments(both)}, {arguments(both, 'd_')}, {rates('d')}, {rates('dd')})",
        readers="\n    ".join(readers),
        tangents="\n    ".join(tangents),
        step=f"{name}_step(t, h, {arguments([*state, *others])})",
        project=f"{name}_project(s->t, {', '.join(f'x + {starts[v.name]}' for v in source.state)}{''.join(', ' + g.format(of='s', prefix='') for g in others)})",
        start_x=numbers(model.x),
        start_u=numbers([0.0] * size(model.nu)),
        start_p=numbers(model.nominal if model.nominal.size else [0.0]),
        start_t=source.types.literal(float(model.state.t)),
    )
    text = importlib.resources.files("jaxmb.export").joinpath("fmi3.c").read_text(encoding="ascii")
    for key, value in words.items():
        text = text.replace(f"@{key}@", str(value))
    return source.head(f"{name}: the functions of FMI 3.0.") + text + "\n" + "\n".join(_refused())


def _refused() -> list[str]:
    """Functions for what is not offered."""
    out = [
        f"Status fmi3{what}(void *s{', ' if rest else ''}{rest})\n{{\n{_ignored(rest)}    return refused(s);\n}}\n"
        for what, rest in _REFUSED.items()
    ]
    for kind, c in _OTHERS.items():
        for verb, const in (("Get", ""), ("Set", "const ")):
            rest = f"const Reference r[], size_t n, {const}{c} values[], size_t count"
            out.append(
                f"Status fmi3{verb}{kind}(void *s, {rest})\n{{\n    (void)r; (void)values; (void)count;\n    return n ? refused(s) : OK;\n}}\n"
            )
    return out


def _ignored(arguments: str) -> str:
    names = [part.split()[-1].lstrip("*").removesuffix("[]") for part in arguments.split(", ") if part]
    return "    " + " ".join(f"(void){name};" for name in names) + "\n" if names else ""
