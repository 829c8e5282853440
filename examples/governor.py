"""Stiff flyball governor (IFToMM benchmark A05) in four joint coordinates, by an implicit and by an explicit solver."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

import jaxmb as jm

DENSITY = 3000.0
ROD = np.array([0.01, 0.01, 1.0])  # of the shaft along z; of the rods along x
SLIDER = np.array([0.1, 0.1, 0.1])
START = {"slide": 0.5, "hinge1": np.pi / 6, "hinge2": np.pi / 6}


def governor():
    """Shaft, slider and two rods with a ball at the tip of each; springs with dampers from the rods to the slider.

    The angles of the rods are counted from the horizontal downwards.
    """
    rod_mass = DENSITY * float(np.prod(ROD))
    shaft = jm.spatial.Body.box(
        "shaft", rod_mass, ROD, points={"foot": (0.0, 0.0, -0.5), "head": (0.0, 0.0, 0.5)}, position=(0.0, 0.0, 0.5)
    )
    slider = jm.spatial.Body.box("slider", DENSITY * float(np.prod(SLIDER)), SLIDER, position=(0.0, 0.0, 0.5))
    bodies, forces = [shaft, slider], []
    joints = [
        jm.spatial.Revolute("spin", "ground", "shaft.foot"),
        jm.spatial.Prismatic("slide", "shaft.foot", "slider"),
    ]
    for name, side in (("1", 1.0), ("2", -1.0)):
        tip = (0.5 * side, 0.0, 0.0)
        bodies.append(jm.spatial.Body.box(f"rod{name}", rod_mass, ROD[::-1], point_masses=[(5.0, tip)]))
        head, inner = ("shaft", (0.05 * side, 0.0, 0.5)), (f"rod{name}", (-0.5 * side, 0.0, 0.0))
        joints.append(jm.spatial.Revolute(f"hinge{name}", head, inner, axis=(0.0, side, 0.0)))
        forces.append(
            jm.spatial.SpringDamper(f"spring{name}", f"rod{name}", ("slider", (0.05 * side, 0.0, 0.0)), 8e5, 4e4, 0.5)
        )
    return jm.spatial.Mechanism(bodies, joints, forces=forces, gravity=(0.0, 0.0, -9.81))


def start(system):
    """Rods 30° below the horizontal, at rest on the shaft, which turns once a second."""
    return jm.assemble(system, START, {"spin": 2 * np.pi})


def implicit(tolerance):
    """Settings of Kvaerno5, whose root finder takes a new Jacobian at each step and is a hundred times as tight."""
    tight = jnp.asarray(tolerance / 100)  # an array, so that another tolerance does not compile anew
    return dict(
        solver=dfx.Kvaerno5(root_finder=optx.Chord(rtol=tight, atol=tight)),
        stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance),
        max_steps=20_000,
    )


def explicit(tolerance):
    """Settings of Tsit5, whose steps are bound by stability."""
    return dict(
        solver=dfx.Tsit5(),
        stepsize_controller=dfx.PIDController(rtol=tolerance, atol=tolerance),
        max_steps=40_000,
    )


def run(system, settings, end=10.0):
    """The slider's height at the end, the numbers of steps, and the energy balance."""
    solution = jm.simulate(system, start(system), jnp.array([0.0, end]), **settings)
    steps = tuple(int(solution.stats[f"num_{kind}_steps"]) for kind in ("accepted", "rejected"))
    balance = float(jm.energy(system, solution).balance[-1])
    return float(jm.coordinate(system, solution, "slide")[-1]), steps, balance


def main():
    system = governor().build()
    best, steps, balance = run(system, explicit(1e-8))
    print("solver, tolerance   s(10 s)           steps, rejected   energy balance   difference of s")
    print(f"Tsit5, 1e-08        {best:.12f} m {steps[0]:>7} {steps[1]:>9} {balance:>14.1e} J")
    for name, settings, tolerance, limit in (
        ("Tsit5", explicit, 1e-7, 1e-9),
        ("Kvaerno5", implicit, 1e-6, 1e-5),
        ("Kvaerno5", implicit, 1e-8, 1e-7),
        ("Kvaerno5", implicit, 1e-9, 1e-8),
    ):
        height, steps, balance = run(system, settings(tolerance))
        away = abs(height - best)
        label = f"{name}, {tolerance:.0e}"
        figures = f"{label:<20}{height:.12f} m {steps[0]:>7} {steps[1]:>9} {balance:>14.1e} J"
        print(f"{figures} {away:>9.1e} m, at most {limit:.0e}")
        assert away <= limit, f"{label} is {away:.1e} m off."


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
