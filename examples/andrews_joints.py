"""Andrews' squeezer (A03) from seven bodies, ten revolute joints, a spring and a motor: the same angles, found by themselves."""

import pathlib

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from andrews_model import ANGLES, BETA_0, PARAMS

import jaxmb as jm
from jaxmb.planar import Body, Load, Mechanism, Revolute, SpringDamper

REFERENCE = pathlib.Path(__file__).parent.parent / "tests" / "data" / "A03_andrews_ivp.npz"
GUESS = dict(zip(ANGLES, (BETA_0, 0.0, 0.46, 0.22, 0.49, -0.22, 1.23), strict=True))


def squeezer(p=PARAMS):
    """The mechanism. A joint of the tree has the name of the angle that it measures.

    Frames lie in the joint closer to ground. Of plate and rockers, which turn about fixed points, only the distance of the
    centre of mass from that point matters as there is no gravity; the published numbers are its components.
    """
    bodies = [
        Body("crank", p["m1"], p["i1"], (p["ra"], 0.0), {"F": (p["rr"], 0.0)}),
        Body("rod", p["m2"], p["i2"], (-p["da"], 0.0), {"E": (-p["d"], 0.0)}),
        Body("plate", p["m3"], p["i3"], (p["sa"], -p["sb"]), {"E": (0.0, -p["ss"]), "D": (p["sd"], -p["sc"])}),
        Body("upper_arm", p["m4"], p["i4"], (0.0, p["ea"] - p["e"]), {"E": (0.0, -p["e"])}),
        Body("upper_rocker", p["m5"], p["i5"], (p["ta"], p["tb"]), {"G": (p["zt"], 0.0)}),
        Body("lower_arm", p["m6"], p["i6"], (p["zf"] - p["fa"], 0.0), {"E": (p["zf"], 0.0)}),
        Body("lower_rocker", p["m7"], p["i7"], (p["ua"], -p["ub"]), {"H": (0.0, -p["u"])}),
    ]
    joints = [
        Revolute("beta", "ground", "crank"),
        Revolute("Theta", "crank.F", "rod"),
        Revolute("gamma", "ground.B", "plate"),
        Revolute("Phi", "upper_rocker.G", "upper_arm"),
        Revolute("delta", "ground.A", "upper_rocker"),
        Revolute("Omega", "lower_rocker.H", "lower_arm"),
        Revolute("epsilon", "ground.A", "lower_rocker"),
        Revolute("plate pin", "rod.E", "plate.E"),
        Revolute("upper pin", "rod.E", "upper_arm.E"),
        Revolute("lower pin", "rod.E", "lower_arm.E"),
    ]
    return Mechanism(
        bodies,
        joints,
        forces=[
            Load("motor", "crank", torque=p["mom"]),
            SpringDamper("spring", "ground.C", "plate.D", stiffness=p["c0"], length=p["l0"]),
        ],
        points={k: (p["x" + k.lower()], p["y" + k.lower()]) for k in "ABC"},
    )


def build():
    """The system in the benchmark's angles and its state of rest."""
    system = squeezer().build(cut=("plate pin", "upper pin", "lower pin"))
    return system, jm.assemble(system, GUESS, hold=["beta"])


def angles(system, values):
    """Coordinates or velocities (..., 7) in the benchmark's order."""
    return values[..., np.array([system.coordinates.index(name) for name in ANGLES])]


def run(system, state, ts):
    """The motion, by steps that end at the saved times and so need no interpolation there."""
    controller = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-12, atol=1e-12), step_ts=ts)
    return jm.simulate(system, state, ts, solver=dfx.Dopri8(), stepsize_controller=controller)


def main():
    reference = np.load(REFERENCE)
    system, state = build()
    solution = run(system, state, reference["t"])
    found, rates = angles(system, solution.q), angles(system, solution.v)
    energy = jm.energy(system, solution)
    gained = energy.total - energy.total[0] - PARAMS["mom"] * (found[:, 0] - found[0, 0])
    pin = jm.position(system, solution, "crank.F")
    meeting = [jm.position(system, solution, f"{body}.E") for body in ("plate", "upper_arm", "lower_arm")]
    gap = jnp.stack(meeting) - jm.position(system, solution, "rod.E")
    table = (
        ("largest error of the angles, rad", found - reference["Y"][:, :7], 1e-9),
        ("largest error of their rates, relative", (rates - reference["Y"][:, 7:14]) / abs(reference["Y"][:, 7:14]).max(), 1e-9),
        ("largest error of the crank pin, m", pin - np.stack([reference["Fx"], reference["Fy"]], axis=1), 1e-11),
        ("largest energy error, J", gained, 1e-11),
        ("largest gap in the common pin, m", gap, 1e-14),
    )  # fmt: skip
    print(f"Andrews' squeezer, {reference['t'][-1]} s, {solution.stats['num_accepted_steps']} steps")
    for label, values, limit in table:
        largest = float(abs(values).max())
        print(f"  {label:<40}{largest:>10.1e}   at most {limit:.0e}")
        assert largest <= limit, f"{label} is {largest:.1e}, more than {limit:.0e}."


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
