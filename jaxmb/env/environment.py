"""Episodes of a mechanism for learning control: observations, rewards and ends, as pure functions."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..foundations import (
    RESULTS,
    SUCCESS,
    AllNonNegative,
    Count,
    Key,
    NoNaN,
    Numbers,
    TextInNotebooks,
    as_floats,
    as_function,
    calling,
    contract,
    counted,
    expect_shape,
    function_of,
    is_concrete,
    listing,
    lower_limits,
    outline,
    strong,
)
from ..simulation import Stepper, start_spread
from ..system import State as MechanismState
from ..system import System

Reward = Float[Array, ""] | dict[str, Float[Array, ""]]
OfState, OfStep, OfDraw = (function_of(x) for x in ("system, state", "system, state, action", "rng, system"))
OfInputs = function_of("system, state, u")


class State(TextInNotebooks, eqx.Module):
    """A point of an episode, with the field names of MuJoCo Playground and Brax.

    Attributes:
        data: the mechanism's state; NaN from a failed step on.
        obs: the observation (n,); after a failed step, the one before it.
        reward: of the step to here; zero at the start, and for a step that failed.
        done: 1 where the episode is over, else 0.
        metrics: terms of the reward by name.
        info: `result`, the result of the step, as in `Solution.result`; `rng`, an unused key; `steps` since the start and
            `truncation`, 1 where the time is up and nothing else ends the episode, if there is an `episode_length`; `system`, the one
            drawn for the episode, if there is a `randomise`.
    """

    data: MechanismState
    obs: Float[Array, "... n"]
    reward: Float[Array, "..."]
    done: Float[Array, "..."]
    metrics: dict[str, Float[Array, "..."]]
    info: dict[str, PyTree]

    def replace(self, **fields: PyTree) -> "State":
        """The state with other values of some fields."""
        return dataclasses.replace(self, **fields)


class Environment(TextInNotebooks, eqx.Module):
    """Episodes of a mechanism: `state = env.reset(rng)`, `state = env.step(state, action)`; a pytree, for `jit`, `vmap`, `scan` and `grad`.

    An action a is clipped to [−1, 1] and becomes the inputs u = lower + (upper − lower) (a + 1)/2 of the stepper, which are held over its
    step. No error is raised if a step fails, or if an action is not finite: the episode is over, `info["result"]` tells why, and other
    lanes of a batch are not affected.

    Args:
        stepper: made by `jaxmb.stepper` without `control`; its dt is the time between two actions, and starts are drawn around its state.
        observe: `observe(system, state)` returns an array (n,); or `observe(system, state, u)`, with the inputs (nu,) of the step to here,
            zero at the start, for sensors of accelerations.
        reward: `reward(system, state, action)`, a number, or a dictionary of numbers whose sum it is, of the state after the step and the action
            (nu,) within [−1, 1].
        upper: inputs for an action of 1, a number or (nu,).
        lower: inputs for an action of −1; −upper by default.
        done: `done(system, state)`, whether the episode ends; never by default.
        randomise: `randomise(rng, system)` returns the system of an episode, the same with other numbers; what it draws, such as a target, is
            read by the other functions as `system.params`.
        spread: standard deviations, or ranges, of the starts, as in `Stepper.reset`.
        episode_length: steps after which an episode is over; None for no limit, as Brax's wrappers need it, which count steps themselves.

    Raises:
        TypeError, ValueError: for arguments that do not fit.

    Example:
        >>> import jax, jax.numpy as jnp, jaxmb as jm
        >>> P = jm.planar
        >>> rod = P.Mechanism([P.Body.rod("rod", 1.0, 1.0)], [P.Revolute("pivot", "ground", "rod.a")], actuators=[P.Motor("drive", "pivot")],
        ...                   gravity=(0.0, -9.81)).build()
        >>> env = jm.env.Environment(jm.stepper(rod, jm.assemble(rod, {"pivot": -1.5}), 0.05), lambda system, state: jnp.append(state.q, state.v),
        ...                          lambda system, state, action: jnp.sin(state.q[0]), upper=10.0)
        >>> state = env.step(env.reset(jax.random.key(0)), jnp.ones(1))
        >>> state.obs.shape, float(state.done)
        ((2,), 0.0)
    """

    stepper: Stepper
    observe: Callable[..., Array]
    reward: Callable[..., Reward]
    done: Callable[..., Array] | None
    randomise: Callable[..., System] | None
    upper: Float[Array, " nu"]
    lower: Float[Array, " nu"]
    spread: Float[Array, "*nq"] | dict[str, Float[Array, "..."]]
    episode_length: int | None = eqx.field(static=True)
    _sees_inputs: bool = eqx.field(static=True)

    @contract
    def __init__(
        self,
        stepper: Stepper,
        observe: Annotated[Any, OfState] | Annotated[Any, OfInputs],
        reward: Annotated[Any, OfStep],
        upper: NoNaN,
        lower: NoNaN | None = None,
        *,
        done: Annotated[Any, OfState] | None = None,
        randomise: Annotated[Any, OfDraw] | None = None,
        spread: AllNonNegative | Mapping[str, Numbers] = 0.1,
        episode_length: Count | None = 1000,
    ):
        self.stepper = stepper
        self.observe, self.reward = as_function(observe, "observe"), as_function(reward, "reward")
        self.done, self.randomise = as_function(done, "done"), as_function(randomise, "randomise")
        self._sees_inputs = not OfState.value(observe)
        self.upper, self.lower = _limits(stepper, upper, lower)
        start_spread(stepper.system, spread)
        self.spread = jax.tree.map(as_floats, spread, is_leaf=lambda x: x is not spread)
        self.episode_length = None if episode_length is None else int(episode_length)
        _check(self)

    def __str__(self) -> str:
        observed, actions = counted(self.observation_size, "observed number"), counted(self.action_size, "action")
        return outline(self, f"Environment: {observed}, {actions}")

    # By identity, so that `jax.jit(env.step)` works as it does with other environments: arrays have no hash.
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def action_size(self) -> int:
        """How many numbers an action has."""
        return self.stepper.system.nu

    @property
    def observation_size(self) -> int:
        """How many numbers an observation has."""
        zero = jnp.zeros(self.action_size)
        return jax.eval_shape(self._observed, self.stepper.system, _reference(self.stepper), zero).shape[0]

    @property
    def dt(self) -> Float[Array, ""]:
        """Time between two actions in s."""
        return self.stepper.dt

    @property
    def unwrapped(self) -> "Environment":
        """The environment itself."""
        return self

    @contract
    def reset(self, rng: Key) -> State:
        """The start of an episode.

        Args:
            rng: a key of `jax.random`; equal keys make equal starts.
        """
        rest, of_system, of_start = jax.random.split(rng, 3)
        info: dict[str, PyTree] = {"rng": rest}
        system = self.stepper.system
        if self.randomise is not None:
            system = info["system"] = _checked_draw(self.randomise(of_system, system), system)
        data = dataclasses.replace(self.stepper, system=system).reset(of_start, self.spread)
        success = jnp.all(jnp.isfinite(data.q)) & jnp.all(jnp.isfinite(data.v))
        usable = _either(success, data, _reference(self.stepper))
        info["result"] = RESULTS.where(success, SUCCESS, RESULTS.no_assembly)
        if self.episode_length is not None:
            info |= {"steps": jnp.zeros((), jnp.int32), "truncation": _number(False)}
        _, metrics = jax.tree.map(jnp.zeros_like, self._rewarded(system, usable, jnp.zeros(self.action_size)))
        return State(
            data=data,
            obs=self._observed(system, usable, jnp.zeros(self.action_size)),
            reward=_number(False),
            done=_number(~success),
            metrics=metrics,
            info=info,
        )

    def step(self, state: State, action: Numbers) -> State:
        """The state after a step.

        Args:
            state: a single one; batches by `jax.vmap`.
            action: (nu,), cut off at −1 and 1.

        Raises:
            ValueError: for an action of another shape, and a state of another environment.
        """
        action = as_floats(action)
        expect_shape("`action`, one number for each input,", action, (self.action_size,))
        action = jnp.clip(action, -1, 1)
        expected = [
            name for name, draw in (("system", self.randomise), ("steps", self.episode_length)) if draw is not None
        ]
        absent = [name for name in expected if name not in state.info]
        if absent:
            raise ValueError(
                f"Argument `state` must be one of this environment, with {listing(absent)} in `info`, but is without."
            )
        system = state.info.get("system", self.stepper.system)
        u = self.lower + (self.upper - self.lower) * (action + 1) / 2
        data, result = dataclasses.replace(self.stepper, system=system).with_result(state.data, u)
        success = jnp.asarray(result == RESULTS.successful)
        # Functions of the user see numbers only: a derivative by NaN is NaN, though nobody uses its value, and spoils the gradient of a batch.
        usable, action = _either(success, data, _reference(self.stepper)), jnp.where(success, action, 0)
        only = lambda x: jnp.where(success, x, 0)
        reward, metrics = jax.tree.map(only, self._rewarded(system, usable, action))
        over = ~success if self.done is None else ~success | (jnp.asarray(self.done(system, usable)) != 0)
        info = state.info | {"result": result}
        if self.episode_length is not None:
            info["steps"] = state.info["steps"] + 1
            late = info["steps"] >= self.episode_length
            info["truncation"] = _number(late & ~over)
            over = over | late
        observed = self._observed(system, usable, jnp.where(success, u, 0))
        if observed.shape != state.obs.shape:
            raise ValueError(
                f"Argument `state` must be one of this environment, which observes {observed.shape[0]} numbers, but has observed shape {state.obs.shape}."
            )
        obs = jnp.where(success, observed, state.obs)
        return State(data=data, obs=obs, reward=reward, done=_number(over), metrics=metrics, info=info)

    def _observed(self, system: System, data: MechanismState, u: Float[Array, " nu"]) -> Array:
        more = (u,) if self._sees_inputs else ()
        return as_floats(self.observe(system, data, *more))

    def _rewarded(self, system: System, data: MechanismState, action: Array) -> tuple[Array, dict[str, Array]]:
        """The reward and its terms by name."""
        reward = self.reward(system, data, action)
        terms = dict(reward) if isinstance(reward, Mapping) else {}
        numbers = [*map(as_floats, terms.values() if terms else [reward])]
        return sum(numbers, _number(False)), dict(zip(terms, numbers, strict=bool(terms)))


def _number(flag: Bool[Array, ""] | bool) -> Float[Array, ""]:
    """1 or 0, as Brax and MuJoCo Playground have flags."""
    return as_floats(flag)


def _reference(stepper: Stepper) -> MechanismState:
    """The state that a stepper was made with."""
    assert stepper.state is not None
    return stepper.state


def _either(condition: Bool[Array, ""], one: MechanismState, other: MechanismState) -> MechanismState:
    """The first state, with coordinates and velocities of the other one unless the condition is met."""
    return dataclasses.replace(one, q=jnp.where(condition, one.q, other.q), v=jnp.where(condition, one.v, other.v))


# Checks


def _limits(stepper: Stepper, upper: NoNaN, lower: NoNaN | None) -> tuple[Array, Array]:
    """Both limits (nu,)."""
    nu = stepper.system.nu
    high = as_floats(upper)
    limits = {"upper": high} if lower is None else {"upper": high, "lower": as_floats(lower)}
    for name, x in limits.items():
        expect_shape(f"`{name}`", x, (), (nu,))
        if is_concrete(x) and not bool(jnp.all(jnp.isfinite(x))):
            raise ValueError(f"Argument `{name}` must be finite, since actions are parts of it, but is {x}.")
    low = lower_limits(high, lower, apart=True)
    return jnp.broadcast_to(high, (nu,)), jnp.broadcast_to(low, (nu,))


def _checked_draw(system: object, original: System) -> System:
    """A system that was drawn, if it has the structure of the original one."""
    if not isinstance(system, System):
        raise TypeError(f"Argument `randomise` must return a System, but returns {type(system).__name__}.")
    structure = lambda x: (x.coordinates, x.velocities, x.nu, tuple(x.rows.items()))
    if structure(system) != structure(original):
        raise ValueError(
            "Argument `randomise` must return the system with other numbers, but returns one with other coordinates, rows or inputs."
        )
    return strong(system)


def _check(env: Environment) -> None:
    """Looks at what the functions return, without running them."""
    stepper = env.stepper
    if stepper.control is not None or not stepper.system.nu:
        why = "has a `control`" if stepper.control is not None else "is one of a system without actuators"
        raise ValueError(f"Argument `stepper` must take inputs, but {why}.")
    at, u = (stepper.system, _reference(stepper)), jnp.zeros(stepper.system.nu)
    observed = _returned("observe", env.observe, *at, *((u,) if env._sees_inputs else ()))
    # A list of numbers becomes an array.
    observed = jax.eval_shape(env._observed, *at, u) if isinstance(observed, list | tuple) else observed
    _expect(observed, 1, "Argument `observe` must return an array (n,)")
    reward = _returned("reward", env.reward, *at, u)
    for name, x in reward.items() if isinstance(reward, Mapping) else [("", reward)]:
        _expect(x, 0, "Argument `reward` must return numbers", f" as '{name}'" if name else "")
    if env.done is not None:
        _expect(_returned("done", env.done, *at), 0, "Argument `done` must return one truth value")


def _returned(name: str, fn: Callable[..., PyTree], *args: PyTree) -> PyTree:
    with calling(name):
        return jax.eval_shape(fn, *args)


def _expect(returned: PyTree, axes: int, requirement: str, where: str = "") -> None:
    if not isinstance(returned, jax.ShapeDtypeStruct):
        raise ValueError(f"{requirement}, but returns a {type(returned).__name__}{where}.")
    if len(returned.shape) != axes:
        raise ValueError(f"{requirement}, but returns an array of shape {returned.shape}{where}.")
