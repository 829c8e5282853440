"""What a computation can report."""

import diffrax as dfx


class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """Diffrax's results and those of constrained dynamics; each carries its message."""

    contradictory_constraints = (
        "The constraints contradict each other: no acceleration satisfies all rows. `residuals` and the `rank` of an "
        "acceleration tell which; check constraints that fix the same motion twice with different values."
    )
    undetermined_motion = (
        "The motion is not determined: at a pose where constraints become dependent, several motions lead on and the velocity "
        "(zero at a bifurcation) chooses none of them. `diagnose` names the rows. Start beside the pose, or with a velocity "
        "along the motion that is meant."
    )
    unfit_choice = (
        "A choice of the formulation does not fit this pose: the rows that are left after elimination, or the independent "
        "coordinates, no longer determine the motion. Choose others, or let the formulation choose."
    )
    events_exhausted = (
        "More events happened than `max_events`. If they come ever faster (a ball that bounces to rest), the model has no motion "
        "beyond that point; else raise `max_events`."
    )
    position_mismatch = (
        "A constraint that is activated does not fit the position then. Activate it where its residual is zero, by a guard, "
        "or have positions assembled by `assemble=True`."
    )
    inconsistent_state = "The initial state violates its constraints or holds numbers that are not finite. Make it with `jaxmb.assemble`."
    projection_failed = (
        "The state could not be brought back onto the constraints within the tolerance of the drift correction. Reduce "
        "the step size or the tolerance of the step size controller, or raise `iterations` of `jaxmb.Projection`."
    )
