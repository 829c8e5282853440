"""A test in C: states, inputs and numbers from jaxmb, which the functions in C must return."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from ..output import reactions
from ..simulation import regular_end
from ..system import State
from .interface import Vector
from .source import Source

# So many steps are made, and this part of the largest number of a result is allowed for rounding.
STEPS, TOLERANCES = 4, {"double": 1e-9, "float": 1e-3}


@dataclasses.dataclass(frozen=True)
class Sample:
    """A state, and what jaxmb says of it, by the names of arguments in C."""

    t: float
    inputs: dict[str, np.ndarray]
    acceleration: np.ndarray
    after: dict[str, np.ndarray]
    outputs: np.ndarray
    controls: np.ndarray


def samples(source: Source) -> list[Sample]:
    """Along a few steps with random inputs, of the size of one."""
    model, rng, out = source.model, np.random.default_rng(0), []
    state = model.state
    read = jax.jit(lambda t, x: model.read(model.system, model.bare(t, x)))
    p = jnp.asarray(model.nominal)
    control = jax.jit(lambda t, x: model.regular(jnp.zeros(0, x.dtype), p).inputs(t, x))
    advance = jax.jit(lambda state, u: regular_end(model.stepper_at(p), state, u if model.nu else None))
    for _ in range(STEPS):
        u = jnp.asarray(rng.normal(size=model.nu), model.dtype)
        end, regular = advance(state, u)
        if not regular:
            break
        after = model.state_at(state, state.t + model.step.dt, end)
        x = model.vector(state)
        acting = u if model.step.control is None else control(state.t, x)
        bare = dataclasses.replace(state, control=None)
        vdot = reactions(model.actuated, bare, u=acting if acting.size else None, throw=False).vdot
        outputs = np.concatenate([np.zeros(0), *map(np.asarray, read(state.t, x))])
        inputs = {**_parts(source, state), "u": np.asarray(u), "p": model.nominal}
        controls = np.zeros(0) if model.step.control is None else np.asarray(acting)
        sample = Sample(
            t=float(state.t),
            inputs=inputs,
            acceleration=np.asarray(vdot),
            after=_parts(source, after),
            outputs=outputs,
            controls=controls,
        )
        out.append(sample)
        state = after
    return out


def _parts(source: Source, state: State) -> dict[str, np.ndarray]:
    parts = {"q": state.q, "v": state.v, "z": state.control}
    return {x.name: np.asarray(parts[x.name]) for x in source.state}


def trial(source: Source) -> str:
    """The text of the test."""
    tests = samples(source)
    if not tests:
        raise ValueError(
            "Argument `step` must make a regular step from its own state, but that is beside a singular pose, or fails: see `step.with_result`."
        )
    real, name, tolerance = source.real, source.name, source.types.literal(TOLERANCES[source.real])
    lines = [source.head(f"A test of {name}: 0 if it returns the numbers of jaxmb, else 1.")]
    lines += [f'#include "{name}.h"', "#include <math.h>\n#include <stdio.h>\n#include <string.h>\n"]
    lines.append(_DIFFERS.format(real=real, tolerance=tolerance))
    for k, sample in enumerate(tests):
        lines.append(_sample(source, k, sample))
    calls = "".join(f"    wrong |= sample{k}();\n" for k in range(len(tests)))
    lines.append(
        f'int main(void)\n{{\n    int wrong = 0;\n{calls}    puts(wrong ? "WRONG" : "well");\n    return wrong;\n}}\n'
    )
    return "\n".join(lines)


def _sample(source: Source, k: int, sample: Sample) -> str:
    name, real, lit = source.name, source.real, source.types.literal
    array = lambda what, x: f"    static const {real} {what}[] = {{{', '.join(lit(float(a)) for a in x)}}};\n"
    vectors = [*source.state, *source.exogenous]
    text = "".join(array(x.name, sample.inputs[x.name]) for x in vectors)
    text += "".join(array(f"{x.name}1", sample.after[x.name]) for x in source.state)
    checks: list[tuple[str, str, Vector]] = []
    ins = [lit(sample.t), *(x.name for x in vectors)]
    expected_of = {
        "acceleration": ("a", sample.acceleration),
        "outputs": ("y1", sample.outputs),
        "inputs": ("u1", sample.controls),
    }
    readers = [(name, source.results(name), expected_of[name][0]) for name in source.readers if name in expected_of]
    text += "".join(array(*expected_of[name]) for name, _, _ in readers)
    calls = ""
    for function, results, expected in readers:
        for x in results:
            text += f"    {real} {function}_{x.name}[{x.size}];\n"
        out = ", ".join(f"{function}_{x.name}" for x in results)
        calls += f"    wrong |= {name}_{function}({', '.join(ins)}, {out}) != {source.capitals}_OK;\n"
        checks.append((f"{function}_{results[0].name}", expected, results[0]))
    for x in source.state:
        text += f"    {real} moved_{x.name}[{x.size}];\n"
        calls += f"    memcpy(moved_{x.name}, {x.name}, sizeof moved_{x.name});\n"
        checks.append((f"moved_{x.name}", f"{x.name}1", x))
    arguments = [f"moved_{x.name}" for x in source.state] + [x.name for x in source.exogenous]
    calls += f"    wrong |= {name}_step({lit(sample.t)}, {source.capitals}_DT, {', '.join(arguments)}) != {source.capitals}_OK;\n"
    for what, expected, x in checks:
        calls += f'    wrong |= differs("{what}", {what}, {expected}, {x.size});\n'
    return f"static int sample{k}(void)\n{{\n{text}    int wrong = 0;\n{calls}    return wrong;\n}}\n"


_DIFFERS = """static int differs(const char *what, const {real} *found, const {real} *expected, int count)
{{
    {real} largest = 0, size = 1;
    int i;
    for (i = 0; i < count; ++i) {{
        const {real} off = found[i] > expected[i] ? found[i] - expected[i] : expected[i] - found[i];
        const {real} own = expected[i] < 0 ? -expected[i] : expected[i];
        if (!(off <= largest))
            largest = off;
        if (own > size)
            size = own;
    }}
    printf("%-24s off by %.1e\\n", what, (double)largest);
    return !(largest <= {tolerance} * size);
}}
"""
