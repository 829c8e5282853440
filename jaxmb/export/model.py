"""What is exported of a stepper: its functions as programs on single numbers, and the names of their numbers."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..fit.parameter import Parameter, Unknowns
from ..fit.problem import build_system
from ..fit.reading import reading
from ..fit.target import Setup
from ..foundations import as_parameters, calling, expect_different, strong
from ..lanes import NotScalarError, Program, Shaped, entries
from ..simulation import RegularStep, StepMethod, Stepper, regular_step
from ..system import Names, State, System, canonical

# So many operations a function may have: some megabytes of text.
LARGEST = 150_000
# What is read of a state, (system, state) ↦ a number or (k,).
Output = Callable[[System, Any], Array]


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of (t, x, u, p), or (t, x, before, u, p), as a program.

    Attributes:
        program: the program.
        results: names of its results; "doubtful" and "open" are truth values.
    """

    program: Program
    results: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """How many numbers each result has."""
        return {name: entries(s.shape) for name, s in zip(self.results, self.program.results, strict=True)}


# Of each function its results; of those behind which there is a derivative along a direction the tangent has twice as many numbers.
RESULTS = {
    "begin": ("rate", "lambda", "basis", "doubtful"),
    "rate": ("rate", "doubtful"),
    "end": ("rate", "corrected", "basis", "doubtful", "open"),
    "outputs": ("y",),
    "inputs": ("input",),
}
DIFFERENTIABLE = ("rate", "corrected", "lambda", "y", "input")


@dataclasses.dataclass(frozen=True)
class Model:
    """A stepper to be exported.

    Attributes:
        step: the stepper.
        state: where it begins.
        readings: what the outputs read, by name.
        unknowns: the numbers that stay arguments.
        setup: what these are numbers of.
        build: from a model to its system.
    """

    step: Stepper
    state: State
    readings: dict[str, Output]
    unknowns: Unknowns
    setup: Setup
    build: Callable[[PyTree], System]

    @classmethod
    def of(
        cls,
        step: Stepper,
        outputs: Mapping[str, str | Output] | Sequence[str],
        parameters: Sequence[str],
        model: PyTree,
        build: Callable[[PyTree], System] | None,
    ) -> "Model":
        """Of a stepper, with outputs and parameters by name.

        Raises:
            ValueError: for names that lead nowhere, and a model that is not the stepper's.
        """
        build = build or build_system
        setup = Setup(strong(as_parameters(step.system if model is None else model)), step.control)
        if model is not None:
            with calling("build"):
                _check_same(step.system, build(setup.model))
        unknowns = Unknowns.of([Parameter(name, scale=1.0) for name in parameters], setup)
        state = step.start()
        system = step.system.in_mode(state.mode)
        expect_different("`outputs`", outputs)
        named = outputs if isinstance(outputs, Mapping) else {name: name for name in outputs}
        readings = {name: reading(of, system, f"`outputs`, '{name}'") for name, of in named.items()}
        return cls(
            step=step,
            state=strong(state),
            readings=readings,
            unknowns=unknowns,
            setup=setup,
            build=build,
        )

    # Sizes

    @property
    def dtype(self) -> np.dtype:
        """Of all numbers."""
        return np.dtype(self.state.q.dtype)

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self.state.q.shape[0]

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return self.state.v.shape[0]

    @property
    def nz(self) -> int:
        """Number of what the controller remembers."""
        return 0 if self.state.control is None else self.state.control.shape[0]

    @property
    def n(self) -> int:
        """Length of x."""
        return self.nq + self.nv + self.nz

    @property
    def starts(self) -> dict[str, int]:
        """From which number of x on coordinates, velocities, and what the controller remembers stand."""
        return {"q": 0, "v": self.nq, "z": self.nq + self.nv}

    @property
    def nu(self) -> int:
        """Number of inputs that are arguments; none with a controller."""
        return 0 if self.step.control is not None else self.step.system.nu

    @property
    def m(self) -> int:
        """Number of rows."""
        return len(self.names.rows)

    @property
    def method(self) -> StepMethod:
        """That of the stepper."""
        return StepMethod.of(self.step)

    @functools.cached_property
    def nominal(self) -> np.ndarray:
        """The parameters' numbers."""
        values = [np.ravel(np.asarray(x)) for x in self.unknowns.nominal.values()]
        return np.concatenate([np.zeros(0), *values]).astype(self.dtype)

    @functools.cached_property
    def output_names(self) -> tuple[str, ...]:
        """A name for each number of the outputs."""
        names = []
        for name, fn in self.readings.items():
            shape = jax.eval_shape(
                lambda n=name, fn=fn: _read(n, fn, self.system, self.bare(self.state.t, self.x))
            ).shape
            names += [f"{name}[{', '.join(map(str, i))}]" if i else name for i in np.ndindex(*shape)]
        return tuple(names)

    @functools.cached_property
    def names(self) -> Names:
        """Of coordinates, velocities, inputs and rows."""
        return Names.of(self.actuated.in_mode(self.state.mode))

    # Numbers

    @property
    def system(self) -> System:
        """The stepper's, in the mode of its state."""
        return self.step.system.in_mode(self.state.mode)

    @property
    def actuated(self) -> System:
        """The stepper's, with the inputs that its controller makes."""
        control = self.step.control
        return self.step.system if control is None else self.step.system.acting_at(control.acts_at)

    @property
    def x(self) -> Float[Array, " n"]:
        """The state at the start."""
        return self.vector(self.state)

    def vector(self, state: State) -> Float[Array, " n"]:
        """The numbers of a state."""
        return jnp.concatenate([state.q, state.v, *(() if state.control is None else (state.control,))])

    def state_at(self, state: State, t: Array, x: Float[Array, " n"]) -> State:
        """A state at another place."""
        q, v, z = jnp.split(x, [self.nq, self.nq + self.nv])
        return dataclasses.replace(state, t=t, q=q, v=v, control=z if self.nz else None)

    def bare(self, t: Array, x: Float[Array, " n"]) -> State:
        """A state, without its mode, of the system in that mode."""
        return dataclasses.replace(self.state_at(self.state, t, x), mode=None)

    def stepper_at(self, p: Float[Array, " np"]) -> Stepper:
        """The stepper with other parameters."""
        if not self.unknowns.names:
            return dataclasses.replace(self.step, system=canonical(self.step.system))
        setup = self.unknowns.applied(self.setup, self.unknowns.values(p))
        with calling("build"):
            system = canonical(self.build(setup.model))
        return dataclasses.replace(self.step, system=system, control=setup.control)

    def regular(self, u: Float[Array, " nu"], p: Float[Array, " np"]) -> RegularStep:
        """The functions of its steps."""
        return regular_step(self.stepper_at(p), self.state, u if self.nu else None)

    def read(self, system: System, state: State) -> list[Array]:
        """The outputs at a state without a mode."""
        return [jnp.ravel(_read(name, fn, system, state)) for name, fn in self.readings.items()]

    # Programs

    def functions(self, derivatives: bool) -> dict[str, Function]:
        """All functions, and those of their derivatives along a direction.

        Raises:
            ValueError: where one is no program on single numbers.
        """
        chosen = [name for name in RESULTS if self._has(name)]
        out = {name: self._program(name, False) for name in chosen}
        return out | ({f"{name}_tangent": self._program(name, True) for name in chosen} if derivatives else {})

    def _has(self, name: str) -> bool:
        return {"outputs": bool(self.readings), "inputs": self.step.control is not None}.get(name, True)

    def _program(self, name: str, tangent: bool) -> Function:
        number = lambda *shape: Shaped(shape, self.dtype)
        factor = 2 if tangent else 1
        n, nu, np_ = factor * self.n, factor * self.nu, factor * self.nominal.size
        before = (number(*self._basis_shape),) if name == "end" else ()
        fn = functools.partial(self._tangent if tangent else self._value, name)
        try:
            program = Program.of(
                fn, number(), number(n), *before, number(nu), number(np_), largest=LARGEST, library=True
            )
        except NotScalarError as error:
            raise ValueError(
                f"Argument `step` must be made of functions of numbers whose length is known, but its {name} is not: {error}. Export fewer bodies, a simpler "
                "controller, or the program of XLA by `jaxmb.export.stablehlo`."
            ) from None
        return Function(program, RESULTS[name])

    @functools.cached_property
    def _basis_shape(self) -> tuple[int, ...]:
        u, p = jnp.zeros(self.nu, self.dtype), jnp.asarray(self.nominal)
        begin = lambda: self.regular(u, p).begin(self.state.t, self.x)
        return jax.eval_shape(begin)[2].shape

    def _value(self, name: str, t: Array, x: Array, *others: Array) -> list[Array]:
        *before, u, p = others
        if name == "outputs":
            system = self.stepper_at(p).system.in_mode(self.state.mode)
            return [jnp.concatenate(self.read(system, self.bare(t, x)))]
        results = getattr(self.regular(u, p), name)(t, x, *before)
        return list(results) if isinstance(results, tuple) else [results]

    def _tangent(self, name: str, t: Array, x: Array, *others: Array) -> list[Array]:
        """Results with derivatives behind them, of (x, ẋ), (u, u̇) and (p, ṗ)."""
        *before, u, p = others
        values, dots = zip(*(jnp.split(a, 2) for a in (x, u, p)), strict=True)
        fn = lambda x, u, p: self._value(name, t, x, *before, u, p)
        results, changes = jax.jvp(fn, values, dots)
        both = zip(RESULTS[name], results, changes, strict=True)
        return [jnp.concatenate([a, b]) if what in DIFFERENTIABLE else a for what, a, b in both]


def _read(name: str, fn: Output, system: System, state: State) -> Array:
    """An output at a state."""
    with calling("outputs", f", '{name}',"):
        value: Any = fn(system, state)
    if not isinstance(value, float | int | Array):
        raise TypeError(
            f"Argument `outputs`, '{name}', must return a number or an array, but returns a {type(value).__name__}."
        )
    return jnp.asarray(value)


def _check_same(own: System, other: Any) -> None:
    """Refuses a model whose system is not that of the stepper."""
    alike = isinstance(other, System) and jax.tree.structure(own.params) == jax.tree.structure(other.params)
    if not alike or (own.coordinates, own.velocities, own.rows) != (other.coordinates, other.velocities, other.rows):
        raise ValueError(
            "Argument `model` must build the system of `step`, but builds another one: give what it was built from, and `build` if it was not by "
            "`model.build()`."
        )
    pairs = zip(jax.tree.leaves(own.params), jax.tree.leaves(other.params), strict=True)
    if not all(np.allclose(a, b) for a, b in pairs):
        raise ValueError("Argument `model` must build the system of `step`, but builds one with other numbers.")
