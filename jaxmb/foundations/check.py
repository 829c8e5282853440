"""Refusals: an error at once where the values are known, one from inside the compiled program where they are traced."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

T = TypeVar("T")


class Check(eqx.Module):
    """A quantity that must not exceed a limit, or one for each of several names, and the sentence to say if it does.

    Attributes:
        amount: the measured quantity, or one for each name (k,); a value that is not a number fails.
        limit: the largest admissible amount.
        text: what must be; `{}` stands for the amount, which is left out where it is traced, and `{name}` for the name.
        names: the names.
    """

    amount: Float[Array, "*k"]
    limit: float = eqx.field(static=True)
    text: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def holds(self) -> Array:
        """Whether all amounts are within the limit."""
        return jnp.all(self.amount <= self.limit)

    def sentences(self) -> list[str]:
        """The sentence for each amount, if known with its figure."""
        texts = [self.text.replace("{name}", name) for name in self.names] or [self.text]
        if not is_concrete(self.amount):
            return [text.replace("{}", "too large") for text in texts]
        amounts = np.ravel(self.amount)
        return [text.replace("{}", f"{float(x):.3g}") for text, x in zip(texts, amounts, strict=True)]


def all_hold(checks: Sequence[Check]) -> Array:
    """Whether every check holds."""
    return jnp.all(jnp.array([c.holds for c in checks], bool))


def enforce(value: T, checks: Sequence[Check]) -> T:
    """Returns `value` if all checks hold and raises otherwise, with all that fail in one message.

    Raises:
        ValueError: at once, where the amounts are known; otherwise the compiled program raises Equinox's run-time error.
    """
    checks = [c for c in checks if c.amount.size]
    known = [c for c in checks if is_concrete(c.amount)]
    failed = [
        text
        for c in known
        for text, holds in zip(c.sentences(), np.ravel(np.asarray(c.amount)) <= c.limit, strict=True)
        if not holds
    ]
    if failed:
        raise ValueError("\n".join(failed))
    for check in checks:
        if not is_concrete(check.amount):
            wrong = ~(jnp.ravel(check.amount) <= check.limit)
            value = eqx.branched_error_if(value, jnp.any(wrong), jnp.argmax(wrong), check.sentences())
    return value


def is_concrete(*trees: Any) -> bool:
    """Whether no leaf is a tracer."""
    return not any(isinstance(x, Tracer) for x in jax.tree_util.tree_leaves(trees))


def listing(items: Iterable[Any]) -> str:
    """'a', 'b' and 'c'."""
    words = [repr(str(x)) for x in items]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else "none"


def shape_of(argument: str, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Evaluates the shape of ``fn(*args)`` without values; an error inside names the argument."""
    try:
        return jax.eval_shape(fn, *args)
    except Exception as error:
        shapes = ", ".join(str(getattr(a, "shape", "params")) for a in args)
        raise ValueError(
            f"Argument `{argument}` must be callable with arguments of shapes {shapes}, but raised "
            f"{type(error).__name__}: {error}"
        ) from error
