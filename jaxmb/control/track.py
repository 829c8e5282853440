"""Tracking by projected inverse dynamics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..formulation import AbstractFormulation, formulation_at
from ..foundations import (
    AllNonNegative,
    FunctionOfState,
    Limits,
    NoNaN,
    NonNegative,
    Vector,
    as_floats,
    as_function,
    contract,
    floats_or_none,
    function_of,
    program,
)
from ..system import State, System, joint_names
from .controllability import controllability
from .controller import AbstractJointController
from .instant import AbstractInstant
from .motion import Command, motion_law
from .output import AbstractOutput, OutputRows, Tracking, as_output, output_rows, row_counts, tracking
from .plant import Plant, Response, with_dynamics

Scalar = Float[Array, ""]


class Track(AbstractJointController):
    """An output follows a reference: computed torque for any mechanism, with loops, redundant constraints and passive joints.

    The inputs give the output the acceleration w = θ̈_d + G_D ė + G_P e + G_I ∫e dt, e = θ_d − θ, by `motion_law` (Aghili 2005,
    eqs. 45, 46), with the least weighted norm, so that ë + G_D ė + G_P e + G_I ∫e dt = 0 where the model is right and w can be reached. For a
    velocity w = ω̇_d + G_D (ω_d − ω). With points as the output this is operational-space control, with joint coordinates computed
    torque.

    Args:
        output: the output that follows the reference: names of joint coordinates, a function θ(t, q, params), or an output of `jaxmb.control`.
        reference: θ_d or ω_d, numbers, or a function of time that is differentiated twice.
        stiffness: G_P in 1/s², a number, (k,) or (k, k).
        damping: G_D in 1/s, likewise.
        integral: G_I in 1/s³, likewise; none by default.
        joints: names of joint coordinates at which the inputs act, as torques and forces; None for the system's own inputs.
        limits: W^(1/2) (nu,), the largest inputs, by which efforts are compared; 0 for one that must not be used.
        preferred: an input (nu,) to stay close to.
        regularisation: σ₀, below which singular values are damped, see `motion_law`; none by default.
        model: a system with the same coordinates, constraints and inputs with which the law computes; the plant itself if None.
        dropped: by name of a constraint or lock, the numbers of the rows of the output that are left out while it acts: a lock removes
            freedoms, and as many rows must be dropped.

    Raises:
        ValueError: by `simulate`, if values are known: for more outputs than freedoms at the start. It warns of outputs that do not determine
            the motion, of actuators that cannot move them, and of freedoms that no output depends on.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> cart = jm.System(1, mass=lambda t, q, p: 2 * jnp.eye(1), actuation=lambda t, q, p: jnp.eye(1))
        >>> law = jm.control.Track("q0", jnp.sin, stiffness=4.0, damping=4.0)
        >>> run = jm.simulate(cart, jm.assemble(cart, [0.0], [1.0]), [0.0, 1.0], control=law)
        >>> bool(abs(run.q[-1, 0] - jnp.sin(1.0)) < 1e-8)
        True
    """

    target: AbstractOutput
    reference: Array | Callable[[Scalar], Array]
    stiffness: Float[Array, "..."]
    damping: Float[Array, "..."]
    integral: Float[Array, "..."] | None
    limits: Float[Array, " nu"] | None
    preferred: Float[Array, " nu"] | None
    regularisation: Scalar | None
    model: System | None
    dropped: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)

    @contract
    def __init__(
        self,
        output: AbstractOutput | str | Sequence[AbstractOutput | str | FunctionOfState] | FunctionOfState,
        reference: Vector | Annotated[Any, function_of("t")],
        stiffness: AllNonNegative,
        damping: AllNonNegative,
        integral: AllNonNegative | None = None,
        *,
        joints: str | Sequence[str] | None = None,
        limits: Limits | None = None,
        preferred: NoNaN | None = None,
        regularisation: NonNegative | None = None,
        model: System | None = None,
        dropped: Mapping[str, Sequence[int]] | None = None,
    ):
        self.target = as_output(output)
        self.reference = as_function(reference, "reference") if callable(reference) else as_floats(reference)
        self.stiffness, self.damping = map(as_floats, (stiffness, damping))
        self.integral = floats_or_none(integral)
        self.joints = joint_names(joints)
        self.limits, self.preferred, self.regularisation = map(floats_or_none, (limits, preferred, regularisation))
        self.model = None if model is None else model.acting_at(self.joints)
        self.dropped = tuple((name, tuple(rows)) for name, rows in (dropped or {}).items())

    def init(self, system: System) -> PyTree:
        """∫e dt."""
        if self.integral is None:
            return ()
        return jnp.zeros(sum(row_counts(system, self.target.rows(system))))

    def evaluate(self, plant: Plant) -> tuple[Plant, OutputRows, Tracking]:
        """The plant with the model, the output, and the errors of the output."""
        plant = plant if self.model is None else plant.of(self.model)
        rows = output_rows(plant, self.target)
        errors = tracking(plant, rows, self.reference)
        if self.dropped:
            retained = self._retained(plant.system, rows.value.shape[0])
            rows, errors = jax.tree.map(
                # Zero rows, not fewer rows: which act depends on the mode, that is on values, and shapes must not.
                lambda x: jnp.where(retained.reshape((-1,) + (1,) * (x.ndim - 1)), x, 0),
                (rows, errors),
            )
        return plant, rows, errors

    def _retained(self, system: System, count: int) -> Bool[Array, " k"]:
        """Rows that are not dropped."""
        retained, constraints = jnp.ones(count, bool), system.rows
        for name, rows in self.dropped:
            if name in constraints:  # the row of a lock exists in runs with it only
                acts = jnp.array(True) if system.active is None else system.active[constraints[name].start]
                retained &= ~(acts & jnp.zeros(count, bool).at[jnp.array(rows, int)].set(True))
        return retained

    def demand(self, errors: Tracking, z: PyTree) -> Float[Array, " k"]:
        """The demanded acceleration w of the output."""
        w = errors.law(self.stiffness, self.damping)
        if self.integral is None:
            return w
        return w + (self.integral @ z if self.integral.ndim == 2 else self.integral * z)

    def check(self, system: System, state: State, formulation: AbstractFormulation | None = None) -> list[str]:
        """Whether the output determines the motion, and the actuators can move it."""
        formulation = formulation_at(formulation, system, state)
        command, tol = _command_at(self, system, state, formulation), formulation.rank_tol
        report = lambda: (
            controllability(system, state, limits=self.limits, output=self.target, formulation=formulation).verdicts
        )
        if int(command.surplus) and not self.dropped:
            raise ValueError(
                "Argument `output` must have no more rows than there are freedoms. "
                + " ".join(report())
                + " Name rows in `dropped`."
            )
        # The cheap test first: `controllability` finds names and sentences only where there is something to say.
        if min(float(command.chart), float(command.actuation)) > tol and not int(command.zero_dynamics):
            return []
        return [f"At the start: {text}" for text in report()]

    def check_period(self, period: float) -> list[str]:
        """Whether the hold leaves ë + G_D ė + G_P e = 0 stable: h < 2/G_D and h < 2 G_D/G_P, of each row by itself."""
        if self.stiffness.ndim == 2 or self.damping.ndim == 2:
            return []
        damping, stiffness = np.asarray(self.damping), np.asarray(self.stiffness)
        # Without damping or stiffness a limit is infinite.
        with np.errstate(divide="ignore"):
            # Under a hold over h the error of ë + G_D ė + G_P e = 0 is a map of e and ė; Jury's conditions for both
            # roots within the unit circle are these.
            limit = float(np.min(np.minimum(2 / damping, 2 * damping / stiffness)))
        if period < limit:
            return []
        return [
            f"Samples {period:g} s apart make these gains unstable: the period must be below 2/G_D and 2 G_D/G_P, {limit:g} s."
        ]

    def command(self, plant: Plant, z: PyTree = ()) -> Command:
        """The inputs, and how far they meet the demand at this instant.

        Args:
            plant: the mechanism at an instant, for example `jaxmb.control.Plant.at(system, state)`.
            z: ∫e dt (k,), if there is one.
        """
        plant, rows, errors = self.evaluate(plant)
        return motion_law(plant, rows, self.demand(errors, z), **self.options)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `motion_law` and `hybrid_law`."""
        return {"limits": self.limits, "preferred": self.preferred, "damping": self.regularisation}

    def output(self, plant: AbstractInstant, z: PyTree) -> Float[Array, " nu"]:
        """The inputs u."""
        return self.command(with_dynamics(plant), z).u

    def rate(self, plant: AbstractInstant, z: PyTree, response: Response | None) -> PyTree:
        """The rate of the integral, the error e."""
        return () if self.integral is None else self.evaluate(with_dynamics(plant))[2].error


@program
def _command_at(law: Track, system: System, state: State, formulation: AbstractFormulation) -> Command:
    plant = Plant.at(system, state, formulation)
    return law.command(plant, law.init(plant.system))
