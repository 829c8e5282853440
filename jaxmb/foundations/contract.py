"""What a public function accepts: its annotations, enforced at the door.

A wrong kind is refused before anything is done with it, under the name of the argument. Values are looked at where they are known;
of what is traced only the kind is.
"""

import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import AbstractArray

from .check import arrays_of, is_concrete

F = TypeVar("F", bound=Callable[..., Any])
Test = Callable[[Any], bool]

# So many characters of a refused value are shown: with the rest of the sentence two lines of a terminal.
SHOWN = 60
# Packages with classes of the same names.
TWINS = ("planar", "spatial")


class Rule(NamedTuple):
    """What an argument must be.

    Attributes:
        noun: in words, after "must be".
        kind: whether a value is of that kind; a `TypeError` if not.
        value: whether a value of that kind is admissible, where it is known; a `ValueError` if not.
        axes: names of an array's axes. One that is named like a count of another argument, or of its system, is as long: "nv" of a `System`.
        array: whether it is an array: nested sequences of numbers are made one before a function gets hold of them.
    """

    noun: str
    kind: Test
    value: Test = lambda value: True
    axes: tuple[str, ...] = ()
    array: bool = False

    def __repr__(self) -> str:
        """In words only, as signatures show it in `help`."""
        return repr(self.noun)

    def admits(self, value: object) -> bool:
        """Whether all holds."""
        return self.kind(value) and self.value(value)


# Rules of values


def _is_real(value: object) -> bool:
    """A number, or an array of numbers, no truth values among them."""
    if isinstance(value, bool | np.bool_ | complex):
        return False
    if isinstance(value, int | float):
        return True
    dtype = getattr(value, "dtype", None)
    return isinstance(dtype, np.dtype) and hasattr(value, "shape") and _numeric(dtype)


def _numeric(dtype: np.dtype) -> bool:
    return bool(jax.numpy.issubdtype(dtype, np.floating) or jax.numpy.issubdtype(dtype, np.integer))


def _are_real(value: object) -> bool:
    """An array of numbers, also as nested sequences."""
    if isinstance(value, list | tuple | range):
        return all(_are_real(x) for x in value)
    return _is_real(value)


def _is_scalar(value: object) -> bool:
    return _is_real(value) and not getattr(value, "shape", ())


def _unless_traced(test: Test) -> Test:
    """A test of values that admits what has none yet: tracers, and shapes."""

    def admits(value: object) -> bool:
        return not is_concrete(value) or bool(np.all(test(np.asarray(value))))

    return admits


def _range(noun: str, test: Test, kind: Test = _is_scalar) -> Rule:
    return Rule(noun, kind, _unless_traced(test))


def _is_index(value: object) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, int) or (_is_scalar(value) and np.issubdtype(getattr(value, "dtype", float), np.integer))


def _are_indices(value: object) -> bool:
    return _is_index(value) or (_is_real(value) and np.issubdtype(getattr(value, "dtype", float), np.integer))


def _is_function(value: object) -> bool:
    """A callable, no class: that is most often a module without the call that makes one."""
    return callable(value) and not inspect.isclass(value)


def function_of(arguments: str) -> Rule:
    """The rule of a function that is called with arguments of these names."""
    count = len(arguments.split(", "))

    def callable_so(value: Callable[..., object]) -> bool:
        try:
            inspect.signature(value).bind(*range(count))
        except TypeError:
            return False
        except ValueError:  # what is built in has no signature
            return True
        return True

    return Rule(f"a function ({arguments})", _is_function, callable_so)


def _all(noun: str, test: Test, axes: Sequence[int] | None = None) -> Rule:
    """A number, or an array of numbers, that pass a test, with one of these numbers of axes."""
    passes = _unless_traced(test)
    return Rule(noun, _are_real, lambda x: (axes is None or np.ndim(x) in axes) and passes(x), array=True)


def _is_key(value: object) -> bool:
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    return bool(jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)) or value.dtype == np.uint32


# NaN fails every comparison, and so each of these but the ones that say so; infinity is none of these numbers where it is no limit.
Number = Annotated[Any, _range("a number", lambda x: ~np.isnan(x))]
Positive = Annotated[Any, _range("a positive number", lambda x: (x > 0) & np.isfinite(x))]
PositiveOrInfinite = Annotated[Any, _range("a positive number or infinity", lambda x: x > 0)]
NonNegative = Annotated[Any, _range("a number that is not negative", lambda x: (x >= 0) & np.isfinite(x))]
NonZero = Annotated[Any, _range("a number other than zero", lambda x: (x != 0) & ~np.isnan(x))]
Fraction = Annotated[Any, _range("a number from 0 to 1", lambda x: (x >= 0) & (x <= 1))]
Share = Annotated[Any, _range("a number from 0 to less than 1", lambda x: (x >= 0) & (x < 1))]
Numbers = Annotated[Any, Rule("an array of numbers", _are_real, array=True)]
Finite = Annotated[Any, _all("an array of finite numbers", np.isfinite)]
Vector = Annotated[Any, _all("finite numbers, (n,)", np.isfinite, (0, 1))]
Matrix = Annotated[Any, _all("a matrix of finite numbers", np.isfinite, (2,))]
Direction = Annotated[
    Any, _all("a direction, finite numbers not all of them zero", lambda x: np.isfinite(x) & np.any(x))
]
NoNaN = Annotated[Any, _all("a number or an array of numbers, none of them NaN", lambda x: ~np.isnan(x))]
AllPositive = Annotated[Any, _all("positive, a number or an array of numbers", lambda x: x > 0)]
AllNonNegative = Annotated[
    Any, _all("a number or an array of finite numbers, none of them negative", lambda x: (x >= 0) & np.isfinite(x))
]
Limits = Annotated[Any, _all("a number or an array of numbers, none of them negative", lambda x: x >= 0)]
Indices = Annotated[Any, Rule("an integer, or an array of integers", _are_indices)]
Key = Annotated[Any, Rule("a key of `jax.random`", _is_key)]
Count = Annotated[Any, _range("a positive integer", lambda x: x > 0, _is_index)]
Whole = Annotated[Any, _range("an integer that is not negative", lambda x: x >= 0, _is_index)]
Text = Annotated[str, Rule("text", lambda x: isinstance(x, str))]
FunctionOfState = Annotated[Any, function_of("t, q, params")]
FunctionOfMotion = Annotated[Any, function_of("t, q, v, params")]
FunctionOfTime = Annotated[Any, function_of("t, params")]
FunctionOfForce = Annotated[Any, function_of("motion")]
Guard = Annotated[Any, function_of("t, q, v, reaction, params")]


# Rules of annotations


def _rule(annotation: object) -> Rule | None:
    """What an annotation says; None where it says nothing."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return next((x for x in arguments[1:] if isinstance(x, Rule)), None)
    if origin is Union or origin is types.UnionType:
        return _either(arguments)
    if origin is Literal:
        return Rule(_or([repr(x) for x in arguments]), lambda x: isinstance(x, str), lambda x: x in arguments)
    if origin in (Sequence, Collection, tuple, list):
        return _of_entries(origin, arguments)
    if origin in (Mapping, dict):
        return _mapping(_rule(arguments[0]), _rule(arguments[1]))
    # `Callable[[A], B]` has the origin `collections.abc.Callable`.
    if annotation is Callable or origin is Callable or origin is Callable.__class__:
        return Rule("a function", _is_function)
    return _simple(annotation)


def _of_entries(origin: object, arguments: Sequence[object]) -> Rule:
    """Of a tuple of fixed length, or of a sequence of any."""
    if origin is tuple and arguments and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        return _several(f"a tuple of {len(arguments)} entries", arguments, (tuple, list))
    return _sequence(_rule(arguments[0]) if arguments else None)


def _simple(annotation: object) -> Rule | None:
    if annotation is None or annotation is type(None):
        return Rule("None", lambda x: x is None)
    if annotation is bool:
        return Rule("True or False", lambda x: isinstance(x, bool | np.bool_))
    if annotation is int:
        return Rule("an integer", _is_index)
    if annotation is float:
        return _rule(Number)
    if annotation is str:
        return Rule("text that is not empty", lambda x: isinstance(x, str), bool)
    kind = typing.get_origin(annotation) or annotation
    if kind is os.PathLike:
        return Rule("a path", lambda x: isinstance(x, os.PathLike))
    if not inspect.isclass(kind) or kind in (object, Any):
        return None
    if issubclass(kind, AbstractArray):
        return _array(kind)
    return Rule(_article(_kind_name(kind)), lambda x: isinstance(x, kind))


def _array(annotation: type[AbstractArray]) -> Rule:
    """An array with as many axes as are annotated."""
    axes = None if "*" in annotation.dim_str or "..." in annotation.dim_str else annotation.dim_str.split()
    fits = lambda x: axes is None or np.ndim(x) == len(axes)
    if axes is None:
        return Rule("an array of numbers", _are_real, fits, array=True)
    return Rule(f"an array of shape ({', '.join(axes)})", _are_real, fits, tuple(axes), True)


def _either(annotations: Sequence[object]) -> Rule | None:
    rules = [rule for x in annotations if (rule := _rule(x)) is not None]
    # One that says nothing admits everything.
    if len(rules) < len(annotations):
        return None
    kind = lambda x: any(rule.kind(x) for rule in rules)
    axes = next((rule.axes for rule in rules if rule.axes), ())
    array = any(rule.array for rule in rules)
    return Rule(_or([rule.noun for rule in rules]), kind, lambda x: any(rule.admits(x) for rule in rules), axes, array)


def _is_collection(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _sequence(entry: Rule | None) -> Rule:
    if entry is None:
        return Rule("a sequence", lambda x: _is_collection(x) or hasattr(x, "shape"))
    kind = lambda xs: _is_collection(xs) and all(entry.kind(x) for x in xs)
    return Rule(f"a sequence, each entry {entry.noun}", kind, lambda xs: all(entry.value(x) for x in xs))


def _several(noun: str, annotations: Sequence[object], kind: tuple[type, ...]) -> Rule:
    rules = [_rule(x) for x in annotations]
    fits = lambda xs: (
        len(xs) == len(rules) and all(rule is None or rule.admits(x) for rule, x in zip(rules, xs, strict=True))
    )
    return Rule(noun, lambda xs: isinstance(xs, kind) and fits(xs))


def _mapping(key: Rule | None, value: Rule | None) -> Rule:
    rules = [(rule, which) for rule, which in ((key, 0), (value, 1)) if rule is not None]
    holds = lambda xs, test: all(getattr(rule, test)(pair[which]) for rule, which in rules for pair in xs.items())
    words = ", ".join(f"each {('key', 'value')[which]} {rule.noun}" for rule, which in rules)
    noun = f"a dictionary, {words}" if words else "a dictionary"
    return Rule(noun, lambda x: isinstance(x, Mapping) and holds(x, "kind"), lambda x: holds(x, "value"))


# Words


def _or(words: Sequence[str]) -> str:
    words = list(dict.fromkeys(words))
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _article(word: str) -> str:
    return ("an " if word[0] in "AEIOUaeio" else "a ") + word


def _kind_name(kind: type) -> str:
    """The name of a class, with that of its package where the other one has a class of this name too."""
    package = next((x for x in TWINS if f".{x}." in kind.__module__), "")
    return f"{package} {kind.__name__}".lstrip()


def _description(value: object) -> str:
    if inspect.isclass(value):
        return f"the class {value.__name__}"
    if isinstance(value, str | int | float | complex | np.generic | None):
        return repr(value)[:SHOWN]
    if isinstance(value, jax.Array | np.ndarray) and not isinstance(value, Tracer) and not _is_key(value):
        value = np.asarray(value).tolist()
    if isinstance(value, float | list | tuple | Mapping):
        shown = " ".join(repr(value).split())
        return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"
    if inspect.isfunction(value):
        return f"a function {inspect.signature(value)}"
    return _article(_kind_name(type(value)))


def refusal(rule: Rule, argument: str, value: object) -> Exception:
    """The error for a value that a rule does not admit."""
    kind = ValueError if rule.kind(value) else TypeError
    hint = "; its method `build` gives a System" if "System" in rule.noun and hasattr(value, "build") else ""
    return kind(f"Argument {argument} must be {rule.noun}, but is {_description(value)}{hint}.")


# Doors


def _count(axis: str, others: Sequence[object]) -> int | None:
    """How long an axis is: as many as one of several objects, or its system, says of that name."""
    owners = [owner for x in others for owner in (x, getattr(x, "system", None))]
    counts = [count for owner in owners if isinstance(count := getattr(owner, axis, None), int)]
    return counts[0] if counts else None


def _check_lengths(rule: Rule, argument: str, value: Any, others: Sequence[object]) -> None:
    """Refuses an array of which an axis is longer or shorter than others say."""
    shape = np.shape(value)
    for axis, length in zip(rule.axes, shape, strict=True):
        count = _count(axis, others)
        if count not in (None, length):
            raise ValueError(f"Argument {argument} must be {rule.noun}, {axis} = {count}, but has shape {shape}.")


def _element(owner: object, values: Mapping[str, object]) -> str:
    """Of which object the argument is, in words."""
    name = values.get("name")
    kind = (owner if inspect.isclass(owner) else type(owner)).__name__
    return f" of {kind}" + (f" '{name}'" if isinstance(name, str) and name else "")


def _as_array(rule: Rule, value: object) -> object:
    """A value that a rule admits: nested sequences of numbers as an array, if it is to be one."""
    if not (rule.array and isinstance(value, list | tuple | range) and len(value) and _are_real(value)):
        return value
    return arrays_of(value).asarray(value)


class _Door:
    """The rules of a function's arguments, read at its first call: annotations may name classes that are defined later."""

    def __init__(self, fn: Callable[..., Any]):
        self.fn = inspect.unwrap(fn)
        kinds = inspect.Parameter
        self.parameters = inspect.signature(self.fn).parameters
        every = [(name, x.kind) for name, x in self.parameters.items()]
        self.positional = tuple(n for n, k in every if k in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD))
        self.rest = next((n for n, k in every if k is kinds.VAR_POSITIONAL), None)

    @functools.cached_property
    def rules(self) -> dict[str, tuple[Rule, object]]:
        rules = {}
        for name, parameter in self.parameters.items():
            annotation = parameter.annotation
            if isinstance(annotation, str):
                annotation = self.fn.__globals__.get(annotation, parameter.empty)
            rule = None if annotation is parameter.empty else _rule(annotation)
            if rule is not None and parameter.kind is not parameter.VAR_KEYWORD:
                rules[name] = rule, parameter.default
        return rules

    def admitted(
        self, args: tuple[object, ...], keywords: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments with which the function is called: those that were given, sequences of numbers as arrays."""
        rest = [] if self.rest is None else [self.rest] * max(0, len(args) - len(self.positional))
        named = list(zip((*self.positional, *rest), args, strict=False))
        makes = self.fn.__name__ == "__init__" and args
        own = makes or (args and inspect.isclass(args[0]))
        arguments: list[tuple[str, object]] = []
        for name, value in (*named, *keywords.items()):
            rule, default = self.rules.get(name, (None, None))
            if rule is not None and value is not default:
                if not rule.admits(value):
                    whose = _element(args[0], dict(named) | keywords) if own else ""
                    raise refusal(rule, f"`{name}`{whose}", value)
                if rule.axes and np.ndim(value) == len(rule.axes):  # pyright: ignore[reportArgumentType]
                    _check_lengths(rule, f"`{name}`", value, [x for other, x in named if other != name])
                # What is made shows what it was given.
                value = value if makes else _as_array(rule, value)
            arguments.append((name, value))
        return tuple(value for _, value in arguments[: len(named)]) + args[len(named) :], dict(arguments[len(named) :])


def contract(fn: F) -> F:
    """The function, which refuses arguments that its annotations do not admit, and gets arrays for sequences of numbers where these are asked for.

    What is annotated as `Any`, and defaults, are not looked at.

    Raises:
        TypeError, ValueError: naming the argument, what it must be, and what it is.
    """
    door = _Door(fn)

    @functools.wraps(fn)
    def checked(*args: object, **keywords: object) -> object:
        args, keywords = door.admitted(args, keywords)
        return fn(*args, **keywords)

    return typing.cast(F, checked)


@functools.cache
def _rules_of_making(kind: type) -> dict[str, tuple[Rule, object]]:
    return _Door(kind.__init__).rules


def check_argument(owner: object, argument: str, value: object) -> None:
    """Refuses a new value of what an object was made with, unless the annotation of that argument admits it."""
    rule, _ = _rules_of_making(type(owner)).get(argument, (None, None))
    if rule is not None and not rule.admits(value):
        raise refusal(rule, f"`{argument}`{_element(owner, vars(owner))}", value)


@functools.cache
def _field_rules(kind: type[eqx.Module]) -> dict[str, tuple[Rule, object]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    rules = {x.name: (_rule(hints[x.name]), x.default) for x in kind.__dataclass_fields__.values() if x.init}
    return {name: (rule, default) for name, (rule, default) in rules.items() if rule is not None}


def check_fields(module: eqx.Module) -> None:
    """Refuses fields of a module, whose `__init__` is the dataclass's, that their annotations do not admit."""
    for name, (rule, default) in _field_rules(type(module)).items():
        value = getattr(module, name)
        if value is not default and not rule.admits(value):
            raise refusal(rule, f"`{name}`{_element(module, vars(module))}", value)
