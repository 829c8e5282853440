"""Motions of a planar four-bar by MuJoCo, an engine that knows nothing of this package, as records for identification.

Needs MuJoCo 4.0 and NumPy only:

    python tests/data/make_fourbar_encoder.py            # writes fourbar_encoder.npz and fourbar_encoder.json beside itself
    python tests/data/make_fourbar_encoder.py --check    # prints what is left when steps are halved and the loop is stiffened

Crank AB, coupler BC and rocker DC in the plane (x, y); A = (0, 0), D = (d, 0), gravity g along −y. Angles θ₁, θ₂, θ₃ of AB, BC and
DC are absolute: from +x, counter-clockwise. The loop is closed at C:

    l₁ e(θ₁) + l₂ e(θ₂) = (d, 0) + l₃ e(θ₃),    e(θ) = (cos θ, sin θ).

Body i has mass mᵢ, its centre at aᵢ e(θᵢ) from A, B, D, and the moment of inertia Jᵢ about it. With Lagrange's multipliers λ of
the loop φ = 0 the motion obeys

    d/dt ∂L/∂θ̇ − ∂L/∂θ + (∂φ/∂θ)ᵀ λ = Q,    L = Σ ½ mᵢ |ċᵢ|² + ½ Jᵢ θ̇ᵢ² − mᵢ g yᵢ,
    Q₁ = τ(t) − k_A θ̇₁ + k_B (θ̇₂ − θ̇₁),    Q₂ = −k_B (θ̇₂ − θ̇₁),    Q₃ = −k_D θ̇₃,
    τ(t) = Σⱼ Tⱼ sin(2π fⱼ t + pⱼ),  j = 1, 2, 3.

The friction is viscous, in the hinges A, B and D; in C, where MuJoCo closes the loop by a constraint, there is none.

MuJoCo's constraint is soft: r̈ is (1 − z) times what it would be without it plus z (−K r − C ṙ), with z ≤ 0.9999, so that the gap at C
settles to about 1e-4 r̈₀/K, which a stiff K makes as small as one likes, while forces and motion are those of the equations above.
"""

import json
import pathlib
import sys

import mujoco
import numpy as np

GROUND, LENGTHS, GRAVITY = 0.5, (0.15, 0.45, 0.35), 9.81  # d, l in m, g in m/s²
MASSES = (0.3, 0.45, 0.4)  # kg
CENTRES = (0.06, 0.2, 0.19)  # a in m, along the rods
INERTIAS = (8e-4, 9e-3, 4.5e-3)  # J in kg m²
DAMPING = (2e-3, 1e-3, 3e-3)  # k at A, B, D in N m s/rad

# By experiment: crank angle in rad and speed in rad/s at t = 0, and T in N m, f in Hz, p in rad of the motor's three sines.
NONE = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
EXPERIMENTS = {
    "rest": (1.0, 0.0, NONE),
    "spin": (3.5, 24.0, NONE),
    "driven": (2.0, 0.0, ((0.35, 0.3, 0.2), (0.5, 1.6, 3.7), (0.8, 0.3, -0.9))),
    "validation": (-1.2, 3.0, ((0.7, 0.3, 0.3), (0.9, 2.3, 3.4), (0.2, -1.0, 0.7))),
}

RATE, DURATION = 200, 2.0  # samples per s, s
STEPS = 400  # of the integration, per sample
STIFFNESS = 1e8  # K in 1/s²; C is 2 √K


def xml(step, stiffness):
    """The four-bar in MuJoCo's language; all bodies lie along +x where their angle is zero."""
    body = lambda i, name, at, inside="": (
        f'<body name="{name}" pos="{at} 0 0"><joint type="hinge" axis="0 0 1" damping="{DAMPING[i]}"/>'
        f'<inertial pos="{CENTRES[i]} 0 0" mass="{MASSES[i]}" diaginertia="{INERTIAS[i]} {INERTIAS[i]} {INERTIAS[i]}"/>'
        f'<site name="end of {name}" pos="{LENGTHS[i]} 0 0"/>{inside}</body>'
    )
    return f"""
    <mujoco>
      <compiler angle="radian"/>
      <option gravity="0 {-GRAVITY} 0" timestep="{step!r}" integrator="RK4" solver="Newton" tolerance="1e-14" iterations="100"/>
      <worldbody>{body(0, "crank", 0, body(1, "coupler", LENGTHS[0]))}{body(2, "rocker", GROUND)}</worldbody>
      <equality>
        <connect site1="end of coupler" site2="end of rocker" solimp="0.9999 0.9999 1 0.5 1"
                 solref="{-stiffness!r} {-2 * stiffness**0.5!r}"/>
      </equality>
      <actuator><motor joint="crank hinge"/></actuator>
    </mujoco>""".replace('<joint type="hinge"', '<joint name="crank hinge" type="hinge"', 1)


def torque(sines, t):
    """τ(t)."""
    return sum(T * np.sin(2 * np.pi * f * t + p) for T, f, p in zip(*sines, strict=True))


def closed(angle, speed):
    """θ and θ̇ of all three for the crank's; C is where two circles meet, on the left of the line from B to D."""
    l1, l2, l3 = LENGTHS
    b, db = l1 * np.exp(1j * angle), 1j * l1 * np.exp(1j * angle) * speed
    gap = GROUND - b
    along = (abs(gap) ** 2 + l2**2 - l3**2) / (2 * abs(gap))
    c = b + gap / abs(gap) * (along + 1j * np.sqrt(l2**2 - along**2))
    coupler, rocker = c - b, c - GROUND
    # db + i θ̇₂ coupler = i θ̇₃ rocker; each side is multiplied by the conjugate that leaves one unknown.
    speed2 = -(db * rocker.conjugate()).real / (1j * coupler * rocker.conjugate()).real
    speed3 = (db * coupler.conjugate()).real / (1j * rocker * coupler.conjugate()).real
    return np.array([angle, np.angle(coupler), np.angle(rocker)]), np.array([speed, speed2, speed3])


def run(name, steps=STEPS, stiffness=STIFFNESS):
    """t, θ (T, 3), θ̇ (T, 3), τ and the gap at C in m of an experiment."""
    angle, speed, sines = EXPERIMENTS[name]
    step, count = 1 / RATE / steps, round(DURATION * RATE) + 1
    model = mujoco.MjModel.from_xml_string(xml(step, stiffness))
    data = mujoco.MjData(model)
    theta, omega = closed(angle, speed)
    relative = np.array([[1, 0, 0], [-1, 1, 0], [0, 0, 1]])  # the coupler's hinge turns against the crank
    data.qpos[:], data.qvel[:] = relative @ theta, relative @ omega
    motion, gaps = np.empty((count, 2, 3)), np.empty(count)

    def motor(model, data):  # called at every stage of a step, at its time
        data.ctrl[0] = torque(sines, data.time)

    mujoco.set_mjcb_control(motor)
    try:
        for sample in range(count):
            motion[sample] = data.qpos, data.qvel
            mujoco.mj_forward(model, data)
            gaps[sample] = np.linalg.norm(data.site("end of coupler").xpos - data.site("end of rocker").xpos)
            for i in range(steps):
                data.time = (sample * steps + i) * step  # without the rounding of a sum
                mujoco.mj_step(model, data)
    finally:
        mujoco.set_mjcb_control(None)
    t = np.arange(count) / RATE
    absolute = motion @ np.linalg.inv(relative).T
    return t, absolute[:, 0], absolute[:, 1], torque(sines, t), gaps


def check():
    """What is left: the gap, and by how much angles and speeds change with other steps and stiffnesses."""
    for name in EXPERIMENTS:
        _, theta, omega, _, gaps = run(name)
        print(
            f"{name}: crank from {theta[:, 0].min():.3f} to {theta[:, 0].max():.3f} rad, at most {abs(omega[:, 0]).max():.1f} rad/s"
        )
        print(f"  {'gap':21} at most {gaps.max():.1e} m")
        others = {
            "half the steps": (STEPS // 2, STIFFNESS),
            "twice the steps": (2 * STEPS, STIFFNESS),
            "a quarter of K": (STEPS, STIFFNESS / 4),
            "4 K, twice the steps": (2 * STEPS, 4 * STIFFNESS),
        }
        for label, how in others.items():
            _, other, speeds, _, gaps = run(name, *how)
            angle, speed = abs(other - theta).max(), abs(speeds - omega).max()
            print(f"  {label:21} angles {angle:.1e} rad, speeds {speed:.1e} rad/s, gap {gaps.max():.1e} m")


def write():
    """The records, and what they are."""
    runs = [run(name) for name in EXPERIMENTS]
    theta, omega = np.stack([r[1] for r in runs]), np.stack([r[2] for r in runs])
    arrays = {
        "t": runs[0][0],
        "crank": theta[:, :, 0],
        "coupler": theta[:, :, 1],
        "rocker": theta[:, :, 2],
        "crank_speed": omega[:, :, 0],
        "torque": np.stack([r[3] for r in runs]),
        "theta_0": theta[:, 0],
        "omega_0": omega[:, 0],
        "sines": np.array([sines for _, _, sines in EXPERIMENTS.values()]),
        "experiments": np.array(list(EXPERIMENTS)),
        "ground": np.array(GROUND),
        "gravity": np.array(GRAVITY),
        "lengths": np.array(LENGTHS),
        "masses": np.array(MASSES),
        "centres": np.array(CENTRES),
        "inertias": np.array(INERTIAS),
        "damping": np.array(DAMPING),
        "mujoco_version": np.array(mujoco.__version__),
    }
    path = pathlib.Path(__file__).with_name("fourbar_encoder")
    np.savez_compressed(path.with_suffix(".npz"), **arrays)
    definition = {
        "problem": "planar four-bar with viscous friction, three rods with centres off their middles; its numbers are chosen here",
        "definition": "equations at the top of make_fourbar_encoder.py; absolute angles from +x, counter-clockwise; SI units; arrays "
        "by experiment have its index first, sines are (experiment, (T, f, p), j); bodies are crank, coupler, rocker, damping is at A, B, D",
        "experiments": list(EXPERIMENTS),
        "method": f"MuJoCo {mujoco.__version__}, RK4 with {STEPS} steps per sample, loop closed by `connect` with K = {STIFFNESS:g} 1/s², "
        "impedance 0.9999",
        "noise": "none",
        "largest_gap": max(float(r[4].max()) for r in runs),
        "est_error": "angles 5e-9 rad, crank speed 3e-7 rad/s, from the change with twice the steps and with 4 K; to a solution of the equations "
        "in the crank's angle alone (explicit closure, DOP853 with tolerance 1e-11) 3.4e-9 rad and 1.7e-7 rad/s",
        "arrays": {name: list(array.shape) for name, array in arrays.items()},
    }
    path.with_suffix(".json").write_text(json.dumps(definition, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    check() if "--check" in sys.argv[1:] else write()
