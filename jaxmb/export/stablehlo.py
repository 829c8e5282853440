"""A stepper as a program of StableHLO."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.export
import jax.numpy as jnp
from jaxtyping import Array

from ..foundations import RESULTS, Count, TextInNotebooks, contract, function_of, optional, replacing
from ..mechanism import AbstractMechanism
from ..simulation import Stepper
from ..system import System
from .c import OfState
from .model import Model

Shapes = dict[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class StableHLO(TextInNotebooks):
    """The program that `stablehlo` has written; `print` shows it as a list.

    Attributes:
        path: the file.
        platforms: for which it is.
        operands: shapes of the arrays that the program takes, by name,
        results: and of those that it returns.
    """

    path: pathlib.Path
    platforms: tuple[str, ...]
    operands: Shapes
    results: Shapes

    def __str__(self) -> str:
        shown = lambda shapes: ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        return f"'{self.path}' for {' and '.join(self.platforms)}: {shown(self.operands)} -> {shown(self.results)}"


@contract
def stablehlo(
    step: Stepper,
    path: str | os.PathLike[str],
    *,
    lanes: Count | None = None,
    platforms: Sequence[str] = ("cpu", "cuda"),
    outputs: Mapping[str, str | OfState] | Sequence[str] = (),
    parameters: Sequence[str] = (),
    model: AbstractMechanism | System | None = None,
    build: Annotated[Any, function_of("model")] | None = None,
) -> StableHLO:
    """Writes a stepper as a program of StableHLO, which JAX runs without this library: general steps included, beside singular poses and through them.

    The program takes a dictionary of arrays and returns one: The arguments are "t", "q", "v", "z" (what a controller remembers), "u" (the inputs)
    and "p" (the parameters), as far as they exist; the results are "t", "q", "v", "z" after the step, "y" (the outputs there) and "successful".
    If a step fails, its numbers are NaN.

    Args:
        step: made by `jaxmb.stepper`.
        path: the file, which `jax.export.deserialize` reads.
        lanes: number of steps made at once, along a first axis of all arrays but "p"; by default one, without such an axis.
        platforms: "cpu", "cuda", "rocm" or "tpu".
        outputs: this and all that follow as in `jaxmb.export.c`.
        parameters: numbers that stay arguments.
        model: where these name elements of a mechanism.
        build: from the model to the system.

    Returns:
        A `StableHLO`.

    Raises:
        ValueError: for arguments that do not fit.
        ImportError: without the package flatbuffers (extra `export`).
    """
    own = Model.of(step, outputs, parameters, model, build)
    lead = () if lanes is None else (int(lanes),)
    sizes = {"t": (), "q": (own.nq,), "v": (own.nv,), "z": (own.nz,), "u": (own.nu,), "p": (own.nominal.size,)}
    operands = {k: (*(() if k == "p" else lead), *shape) for k, shape in sizes.items() if shape != (0,)}
    fn = _Step(own)
    run = fn if lanes is None else jax.vmap(fn, ({k: None if k == "p" else 0 for k in operands},))
    shapes = {k: jax.ShapeDtypeStruct(shape, own.dtype) for k, shape in operands.items()}
    optional("flatbuffers", "export")
    program = jax.export.export(jax.jit(run), platforms=list(platforms))(shapes)
    with replacing(path) as fresh:
        fresh.write_bytes(program.serialize())
    results = jax.tree.unflatten(program.out_tree, [tuple(x.shape) for x in program.out_avals])
    return StableHLO(pathlib.Path(path), tuple(program.platforms), operands, results)


@dataclasses.dataclass(frozen=True, eq=False)
class _Step:
    """A step from arrays by name to arrays by name."""

    model: Model

    def __call__(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """The state after the step, and what is read there."""
        model = self.model
        p = arrays.get("p", jnp.zeros(0, model.dtype))
        step = model.stepper_at(p)
        x = jnp.concatenate([arrays[k] for k in ("q", "v", "z") if k in arrays])
        after, result = step.with_result(model.state_at(model.state, arrays["t"], x), arrays.get("u"))
        out = {"t": after.t, "q": after.q, "v": after.v, "successful": result == RESULTS.successful}
        if after.control is not None:
            out["z"] = after.control
        if model.readings:
            system = step.system.in_mode(model.state.mode)
            end = dataclasses.replace(after, mode=None)
            out["y"] = jnp.concatenate(model.read(system, end))
        return out
