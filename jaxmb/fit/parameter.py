"""What is looked for: named numbers with bounds."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..foundations import (
    AllPositive,
    NoNaN,
    TextInNotebooks,
    aligned,
    as_floats,
    as_function,
    calling,
    contract,
    default_float,
    expect_different,
    expect_shape,
    floats_or_none,
    function_of,
    is_concrete,
    positive_or_one,
)
from .target import Location, Setup, locate

# Of larger arrays, such as the weights of a network, numbers are not printed.
PRINTED = 8


class Parameter(TextInNotebooks, eqx.Module):
    """A number, or an array, of the model that a search varies or keeps.

    The names of the arguments are those of `mujoco.sysid`.

    Args:
        name: its place in the model: "body.mass", "body.com.x", "spring.stiffness", "gravity.y", "params…" in a mechanism; the key, or the
            path of keys, in the parameters of a system; "control…" and "events.name…" in the experiments. With a `modifier`, any name.
        nominal: where the search starts; by default the value in the model. Required with a `modifier`.
        min_value: lower bound, a number or an array of the shape of `nominal`; none by default. Use zero for quantities that must be positive.
        max_value: upper bound.
        frozen: whether it keeps its nominal value.
        modifier: `modifier(model, value)` → model, for quantities that are not a single number of the model: a length that several bodies
            share, the mass of a rod with its inertia.
        scale: a significant change of it, of the shape of `nominal`; by default its absolute value at the start; if that is zero, the width
            of its bounds, or 1.
    """

    name: str = eqx.field(static=True)
    nominal: Array | None
    min_value: Array
    max_value: Array
    frozen: bool = eqx.field(static=True)
    modifier: Callable[[Any, Array], Any] | None = eqx.field(static=True)
    scale: Array | None

    @contract
    def __init__(
        self,
        name: str,
        nominal: NoNaN | None = None,
        min_value: NoNaN = -np.inf,
        max_value: NoNaN = np.inf,
        *,
        frozen: bool = False,
        modifier: Annotated[Any, function_of("model, value")] | None = None,
        scale: AllPositive | None = None,
    ):
        if modifier is not None and nominal is None:
            raise ValueError(f"Argument `nominal` of parameter '{name}' must be given along with `modifier`.")
        self.name, self.frozen, self.modifier = name, frozen, modifier
        self.nominal = floats_or_none(nominal)
        self.scale = floats_or_none(scale)
        self.min_value, self.max_value = as_floats(min_value), as_floats(max_value)
        shapes = (x.shape for x in (self.min_value, self.max_value) if x.shape)
        if len(set(shapes)) < 2 and is_concrete(self.min_value, self.max_value):
            low, high = np.asarray(self.min_value), np.asarray(self.max_value)
            if np.any(low > high):
                raise ValueError(
                    f"Argument `min_value` of parameter '{name}' must not be above `max_value`, but is {low} above {high}."
                )


def _entries(name: str, value: Array) -> list[tuple[str, tuple[int, ...]]]:
    """Labels and indices of the entries of a number or an array."""
    return [(f"{name}[{', '.join(map(str, i))}]" if i else name, i) for i in np.ndindex(*value.shape)]


def values_table(
    title: str, values: dict[str, Array], nominal: dict[str, Array], at_bound: Collection[str], indent: str = ""
) -> list[str]:
    """Lines of a table of values, where their search started, and which of them a bound holds; of large arrays the size alone."""
    rows = [(title, "value", "start", "")]
    for name, value in values.items():
        if value.size > PRINTED:
            count = sum(label in at_bound for label, _ in _entries(name, value))
            rows.append((name, f"{value.size} numbers", "", f"{count} at a bound" if count else ""))
            continue
        for label, i in _entries(name, value):
            note = "at its bound" if label in at_bound else ""
            rows.append((label, f"{float(value[i]):.6g}", f"{float(nominal[name][i]):.6g}", note))
    return aligned(rows, indent)


class Unknowns(eqx.Module):
    """The parameters of a search as one vector, each divided by its scale.

    Attributes:
        names: of all parameters, frozen ones included.
        locations: where they are; None for those with a modifier.
        modifiers: theirs.
        nominal: values of all, by name.
        free: names of those that are looked for.
        low, high, scale: bounds and scales of the vector's entries (n,).
    """

    names: tuple[str, ...] = eqx.field(static=True)
    locations: tuple[Location | None, ...]
    modifiers: tuple[Any, ...]
    nominal: dict[str, Array]
    free: tuple[str, ...] = eqx.field(static=True)
    low: Float[Array, " n"]
    high: Float[Array, " n"]
    scale: Float[Array, " n"]

    @classmethod
    def of(cls, parameters: Sequence[Parameter], setup: Setup) -> "Unknowns":
        """The parameters in what a setup holds.

        Raises:
            ValueError: naming the parameter, for names that lead nowhere or repeat, for values, bounds and scales that do not fit.
        """
        names = [p.name for p in parameters]
        expect_different("`name` of parameters", names)
        free = tuple(p.name for p in parameters if not p.frozen)
        entries = tuple(locate(setup, p.name) if p.modifier is None else None for p in parameters)
        nominal = {p.name: _nominal(p, location, setup) for p, location in zip(parameters, entries, strict=True)}
        edges = {p.name: _bounds(p, nominal[p.name]) for p in parameters}
        low, high, scale = (_joined([edges[name][i] for name in free]) for i in range(3))
        return cls(
            names=tuple(names),
            locations=entries,
            modifiers=tuple(as_function(p.modifier, f"modifier of parameter '{p.name}'") for p in parameters),
            nominal=nominal,
            free=free,
            low=low / scale,
            high=high / scale,
            scale=scale,
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the vector's entries."""
        return tuple(label for name in self.free for label, _ in _entries(name, self.nominal[name]))

    def picked(self, which: Bool[Array, " n"]) -> tuple[str, ...]:
        """Names of some of the vector's entries."""
        return tuple(label for label, is_one in zip(self.labels, np.asarray(which), strict=True) if is_one)

    @property
    def start(self) -> Float[Array, " n"]:
        """The vector at the nominal values."""
        return self.vector(self.nominal)

    def vector(self, values: dict[str, Array]) -> Float[Array, " n"]:
        """The vector of values by name."""
        return _joined([values[name] for name in self.free]) / self.scale

    def values(self, x: Float[Array, " n"]) -> dict[str, Array]:
        """The values of all parameters by name."""
        # In the order of the arguments, which pytrees do not keep.
        entries, values, start = x * self.scale, {name: self.nominal[name] for name in self.names}, 0
        for name in self.free:
            old = self.nominal[name]
            values[name] = entries[start : start + old.size].reshape(old.shape)
            start += old.size
        return values

    def applied(self, setup: Setup, values: dict[str, Array]) -> Setup:
        """The setup with values by name."""
        for name, location, modifier in zip(self.names, self.locations, self.modifiers, strict=True):
            if location is not None:
                setup = location.replaced(setup, values[name])
            else:
                with calling("modifier", f" of parameter '{name}'"):
                    model = modifier(setup.model, values[name])
                if type(model) is not type(setup.model):
                    raise TypeError(
                        f"Argument `modifier` of parameter '{name}' must return a model like the one that it gets, a "
                        f"{type(setup.model).__name__}, but returns a {type(model).__name__}."
                    )
                setup = dataclasses.replace(setup, model=model)
        return setup


def _joined(values: Sequence[Array]) -> Float[Array, " n"]:
    return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(x) for x in values)]).astype(default_float())


def _nominal(parameter: Parameter, location: Location | None, setup: Setup) -> Array:
    value = None if location is None else location.read(setup)
    if parameter.nominal is None:
        assert value is not None
        return value
    if value is not None:
        expect_shape(f"`nominal` of parameter '{parameter.name}'", parameter.nominal, value.shape)
    return parameter.nominal


def _bounds(parameter: Parameter, nominal: Array) -> tuple[Array, Array, Array]:
    """Bounds and scale, of the shape of the value."""
    arguments = {"min_value": parameter.min_value, "max_value": parameter.max_value}
    if parameter.scale is not None:
        arguments["scale"] = parameter.scale
    for argument, value in arguments.items():
        expect_shape(f"`{argument}` of parameter '{parameter.name}'", value, (), nominal.shape)
    low, high = (jnp.broadcast_to(arguments[key], nominal.shape) for key in ("min_value", "max_value"))
    # A value of zero tells no scale.
    width = jnp.where(jnp.isfinite(high - low), high - low, 1.0)
    scale = jnp.where(nominal != 0, jnp.abs(nominal), positive_or_one(width))
    # A unit, not a quantity: covariances and steps must not depend on derivatives of it.
    scale = jax.lax.stop_gradient(jnp.broadcast_to(arguments.get("scale", scale), nominal.shape))
    if is_concrete(nominal, low, high):
        # In NumPy: inside of a program even comparisons of known numbers are traced.
        least, value, most = map(np.asarray, (low, nominal, high))
        inside = (least <= value) & (value <= most) & (least < most)
        if not (np.all(np.isfinite(value)) and (inside.all() or parameter.frozen)):
            raise ValueError(
                f"Parameter '{parameter.name}' must start within its bounds, but {value} is not between {least} and {most}."
            )
    return low, high, scale
