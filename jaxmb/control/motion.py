"""The motion law: inputs that give an output its acceleration."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ..foundations import Limits, NonNegative, TextInNotebooks, contract, positive_or_one, program, quotient
from ..linalg import PseudoInverse, invert, metric_root
from .affine import Drive, drive
from .output import OutputRows
from .plant import Plant


class Command(TextInNotebooks, eqx.Module):
    """Inputs of a control law, and how far they meet its demand.

    Attributes:
        u: inputs (nu,).
        vdot: v̇ (nv,) that they give the model; forces that depend on them in another way than B u are those at u = 0.
        residual: by how much θ̈, or ω̇, falls short of what was demanded (k_θ,).
        missed: ‖s − D B u‖/‖s‖, the part of the demanded acceleration that is missed, in the metric of M.
        chart: smallest singular value of J Dᵀ, rows in units of ‖J_i M^(−1/2)‖: zero where the outputs do not determine the motion.
        actuation: smallest singular value of D B W^(1/2) in the directions of the outputs, in units of ‖M^(−1/2) B W^(1/2)‖:
            zero where the actuators cannot move them.
        zero_dynamics: number of freedoms that are not controlled, since no output depends on them; they may be unstable.
        surplus: number of outputs beyond the freedoms, which can only be met together by chance.
    """

    u: Float[Array, " nu"]
    vdot: Float[Array, " nv"]
    residual: Float[Array, " k"]
    missed: Float[Array, ""]
    chart: Float[Array, ""]
    actuation: Float[Array, ""]
    zero_dynamics: Int[Array, ""]
    surplus: Int[Array, ""]


class Chart(eqx.Module):
    """An output as coordinates of the motion, J Dᵀ s = θ̈ + Γ − J v̇₀.

    Attributes:
        drive: how the inputs move the mechanism.
        matrix: J Dᵀ (k_θ, nv).
        target: s (nv,) of what is demanded, the smallest.
        free: v̇₀ (nv,).
        projector: Π (nv, nv) on the directions s that the outputs tell of.
        inverse: of J Dᵀ with rows in units of their own.
        expected: how many singular values must not vanish.
    """

    drive: Drive
    matrix: Float[Array, "k nv"]
    target: Float[Array, " nv"]
    free: Float[Array, " nv"]
    projector: Float[Array, "nv nv"]
    inverse: PseudoInverse
    expected: Int[Array, ""]

    @property
    def by_input(self) -> Float[Array, "nv nu"]:
        """Π D B W^(1/2)."""
        return self.projector @ self.drive.by_input

    def actuation(self, damping: Array | float | None = None) -> PseudoInverse:
        """The inverse of Π D B W^(1/2), values in the units of inputs."""
        outside = jnp.eye(self.projector.shape[0], dtype=self.projector.dtype) - self.projector
        return invert(self.by_input, self.drive.rank_tol, self.drive.size, damping=damping, outside=outside)


def chart(
    plant: Plant,
    rows: OutputRows,
    w: Float[Array, " k"],
    limits: Limits | None = None,
    damping: Array | float | None = None,
) -> Chart:
    """What a demanded θ̈, or ω̇, means for the motion: s = (J Dᵀ)⁺ (w + Γ − J v̇₀); arguments as in `motion_law`."""
    count, freedoms = rows.value.shape[0], plant.freedoms
    if jnp.shape(w) != (count,):
        raise ValueError(
            f"Argument `w` must have a number for each of {count} rows of the output, but has shape {jnp.shape(w)}."
        )
    actuators, free = drive(plant, limits), plant.respond().vdot
    # Rows of an output are compared by what they would be without constraints, so that metres and radians do not
    # matter.
    root = lax.stop_gradient(metric_root(plant.terms.mass, plant.terms.jacobian))
    sizes = positive_or_one(jnp.linalg.norm(lax.stop_gradient(rows.jacobian) @ root.T, axis=1))
    matrix = rows.jacobian @ actuators.basis.T
    scaled = matrix / sizes[:, None]
    inverse = invert(scaled, actuators.rank_tol, damping=damping)
    target = inverse.inverse @ ((w + rows.gamma - rows.jacobian @ free) / sizes)
    # With as many outputs as freedoms all directions count, also where the outputs tell them badly.
    own = inverse.inverse if damping is None else invert(scaled, actuators.rank_tol).inverse
    projector = jnp.where(count >= freedoms, actuators.live, own @ scaled)
    return Chart(
        drive=actuators,
        matrix=matrix,
        target=target,
        free=free,
        projector=projector,
        inverse=inverse,
        expected=jnp.minimum(count, freedoms),
    )


@contract
@program
def motion_law(
    plant: Plant,
    rows: OutputRows,
    w: Float[Array, " k"],
    *,
    limits: Limits | None = None,
    preferred: Float[Array, " nu"] | None = None,
    damping: NonNegative | None = None,
) -> Command:
    """The inputs that give the output the acceleration w: J v̇ = w + Γ.

    With D M Dᵀ = I and the rows of D in null(C),

        s = (J Dᵀ)⁺ (w + Γ − J v̇₀),   u = u_p + W^(1/2) (Π D B W^(1/2))⁺ (s − D B u_p),

    Π is the projector on the directions on which the output depends, I if there are as many outputs as freedoms. It is
    W^(1/2) (J Y B W^(1/2))⁺ (w + Γ − J v̇₀), the input of least W^(−1/2)-norm, wherever w can be reached, and gives the acceleration
    nearest to the demanded one in the metric of M where it cannot. Not every joint needs an actuator (Aghili 2005, eqs. 45, 46
    and 62, here with ‖u‖, not ‖B u‖, as small as possible).

    Args:
        plant: the mechanism at an instant.
        rows: the output there, by `output_rows`.
        w: θ̈, or ω̇ (k_θ,), for example `tracking(…).law(stiffness, damping)`.
        limits: W^(1/2) (nu,), the largest inputs, by which efforts are compared; 0 for one that must not be used; 1 for each if
            None.
        preferred: u_p (nu,), an input to stay close to; zero by default.
        damping: σ₀, below which singular values of J Dᵀ and D B W^(1/2), without units as in `Command`, are damped, so that u stays bounded
            where the outputs do not determine the motion or the actuators cannot move it; none by default.

    Raises:
        ValueError: for arguments of another shape.

    Example:
        >>> import jax.numpy as jnp, jaxmb as jm
        >>> system = jm.System(("x", "y"), mass=lambda t, q, p: 2 * jnp.eye(2),
        ...                    constraints=[jm.Holonomic("line", lambda t, q, p: q[0] - q[1])],
        ...                    actuation=lambda t, q, p: jnp.array([[1.0], [0.0]]))
        >>> plant = jm.control.Plant.at(system, jm.assemble(system, [0.0, 0.0]))
        >>> rows = jm.control.output_rows(plant, "y")
        >>> w = jm.control.tracking(plant, rows, 0.5).law(stiffness=4.0, damping=3.0)
        >>> found = jm.control.motion_law(plant, rows, w)
        >>> round(float(found.u[0]), 6), round(float(plant.respond(found.u).vdot[1]), 6)
        (8.0, 2.0)
    """
    target_chart = chart(plant, rows, w, limits, damping)
    actuation = target_chart.actuation(damping)
    by_input, limits = target_chart.drive.by_input, target_chart.drive.limits
    x = preferred_input(preferred, limits)
    # The least change of u_p, not the least u: (…)⁺ acts on what u_p leaves to be done.
    x = x + actuation.inverse @ (target_chart.projector @ (target_chart.target - by_input @ x))
    return command(plant, rows, w, target_chart, actuation, limits * x, by_input @ x)


def command(
    plant: Plant,
    rows: OutputRows,
    w: Float[Array, " k"],
    chart: Chart,
    actuation: PseudoInverse,
    u: Float[Array, " nu"],
    motion: Float[Array, " nv"],
) -> Command:
    """The record of inputs that move the mechanism by s = `motion`."""
    vdot = chart.free + chart.drive.basis.T @ motion
    missing = jnp.linalg.norm(chart.projector @ (chart.target - motion))
    demanded = jnp.linalg.norm(chart.target)
    freedoms, count = plant.freedoms, rows.value.shape[0]
    return Command(
        u=u,
        vdot=vdot,
        residual=w + rows.gamma - rows.jacobian @ vdot,
        # A report, not a quantity to be optimised: its derivative at zero does not exist.
        missed=lax.stop_gradient(quotient(missing, demanded)),
        chart=chart.inverse.value(chart.expected),
        actuation=actuation.value(chart.expected) / chart.drive.size,
        zero_dynamics=freedoms - jnp.minimum(chart.inverse.rank, freedoms),
        # An array like the other counts, which depend on the rank at this pose.
        surplus=jnp.maximum(count - freedoms, 0),
    )


def preferred_input(preferred: Array | None, limits: Float[Array, " nu"]) -> Float[Array, " nu"]:
    """W^(−1/2) u_p; zero where the limit is."""
    if preferred is None:
        return jnp.zeros_like(limits)
    return quotient(preferred, limits)
