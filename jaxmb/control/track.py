"""Tracking by projected inverse dynamics."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..foundations import as_function, default_float
from ..system import System
from .controller import AbstractController, joint_names
from .motion import Command, motion_law
from .output import AbstractOutput, OutputRows, Tracking, as_output, output_rows, row_counts, tracking
from .plant import Plant

Scalar = Float[Array, ""]


class Track(AbstractController):
    """An output follows a reference: computed torque for any mechanism, with loops, redundant constraints and passive joints.

    The inputs give the output the acceleration w = θ̈_d + G_D ė + G_P e + G_I ∫e dt, e = θ_d − θ, by `motion_law` (Aghili 2005,
    eqs. 45, 46), of the least weighted norm, so that ë + G_D ė + G_P e + G_I ∫e dt = 0 where the model is right and w can be reached. Of
    a velocity w = ω̇_d + G_D (ω_d − ω). With places as the output it is operational-space control, with joint coordinates that of
    computed torque.

    Args:
        output: what follows: names of joint coordinates, a function θ(t, q, params), or an output of `jaxmb.control`.
        reference: θ_d or ω_d, numbers, or a function of time that is differentiated twice.
        stiffness: G_P in 1/s², a number, (k,) or (k, k).
        damping: G_D in 1/s, likewise.
        integral: G_I in 1/s³, likewise; none by default.
        joints: names of joint coordinates at which the inputs act, as torques and forces; None for the system's own inputs.
        limits: W^(1/2) (nu,), the largest inputs, by which efforts are compared; 0 for one that must not be used.
        preferred: an input (nu,) to stay close to.
        regularisation: σ₀, below which singular values are damped, see `motion_law`; none by default.
        model: a system with the same coordinates, constraints and inputs by which the law computes; the plant itself if None.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> cart = jm.System(1, mass=lambda t, q, p: 2 * jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
        >>> law = jm.control.Track("q0", jnp.sin, stiffness=4.0, damping=4.0)
        >>> run = jm.simulate(cart, jm.assemble(cart, [0.0], [1.0]), [0.0, 1.0], control=law)
        >>> bool(abs(run.q[-1, 0] - jnp.sin(1.0)) < 1e-8)
        True
    """

    target: AbstractOutput
    reference: Any
    stiffness: Float[Array, "..."]
    damping: Float[Array, "..."]
    integral: Float[Array, "..."] | None
    joints: tuple[str, ...] | None = eqx.field(static=True)
    limits: Float[Array, " nu"] | None
    preferred: Float[Array, " nu"] | None
    regularisation: Scalar | None
    model: System | None

    def __init__(
        self,
        output: Any,
        reference: Any,
        stiffness: Any,
        damping: Any,
        integral: Any = None,
        *,
        joints: Any = None,
        limits: Any = None,
        preferred: Any = None,
        regularisation: Any = None,
        model: System | None = None,
    ):
        numbers: Any = lambda x: None if x is None else jnp.asarray(x, default_float())
        self.target = as_output(output)
        self.reference = as_function(reference, "reference") if callable(reference) else numbers(reference)
        self.stiffness, self.damping, self.integral = numbers(stiffness), numbers(damping), numbers(integral)
        self.joints = joint_names(joints)
        self.limits, self.preferred, self.regularisation = (numbers(x) for x in (limits, preferred, regularisation))
        self.model = None if model is None else model.acting_at(self.joints)

    @property
    def acts_at(self) -> tuple[str, ...] | None:
        """The joints."""
        return self.joints

    def init(self, system: System) -> Any:
        """∫e dt."""
        if self.integral is None:
            return ()
        return jnp.zeros(sum(row_counts(system, self.target.rows(system))))

    def seen(self, plant: Plant) -> tuple[Plant, OutputRows, Tracking]:
        """The plant by the model, the output, and how far it is from what it should be."""
        plant = plant if self.model is None else plant.of(self.model)
        rows = output_rows(plant, self.target)
        return plant, rows, tracking(plant, rows, self.reference)

    def demand(self, errors: Tracking, z: Any) -> Float[Array, " k"]:
        """W."""
        w = errors.law(self.stiffness, self.damping)
        if self.integral is None:
            return w
        return w + (self.integral @ z if self.integral.ndim == 2 else self.integral * z)

    def command(self, plant: Plant, z: Any = ()) -> Command:
        """The inputs, and what can be said of them at this instant.

        Args:
            plant: the mechanism at an instant, for example `jaxmb.control.Plant.at(system, state)`.
            z: ∫e dt (k,), if there is one.
        """
        plant, rows, errors = self.seen(plant)
        return motion_law(plant, rows, self.demand(errors, z), **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `motion_law` and `hybrid_law`."""
        return {"limits": self.limits, "preferred": self.preferred, "damping": self.regularisation}

    def output(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], z: Any, plant: Plant
    ) -> Float[Array, " nu"]:
        """U."""
        return self.command(plant, z).u

    def rate(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], z: Any, plant: Plant, response: Any
    ) -> Any:
        """E."""
        return () if self.integral is None else self.seen(plant)[2].error
