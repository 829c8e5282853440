"""Andrews' squeezer: seven bodies, seven angles, three loops, one degree of freedom.

The definition, with its 42 numbers, is that of Schiehlen's Multibody Systems Handbook (1990) as the IVP test set and the
IFToMM benchmark library (A03) use it.
"""

import jax.numpy as jnp
from jax.scipy.linalg import block_diag

import jaxmb as jm

ANGLES = ("beta", "Theta", "gamma", "Phi", "delta", "Omega", "epsilon")
BETA_0 = -0.0617138900142764

# kg, kg m², m, N/m and N m: masses, inertias, fixed points, lengths, centres of mass, spring, motor torque.
PARAMS = {
    "m1": 0.04325, "m2": 0.00365, "m3": 0.02373, "m4": 0.00706, "m5": 0.07050, "m6": 0.00706, "m7": 0.05498,
    "i1": 2.194e-6, "i2": 4.410e-7, "i3": 5.255e-6, "i4": 5.667e-7, "i5": 1.169e-5, "i6": 5.667e-7, "i7": 1.912e-5,
    "xa": -0.06934, "ya": -0.00227, "xb": -0.03635, "yb": 0.03273, "xc": 0.014, "yc": 0.072,
    "d": 28e-3, "e": 2e-2, "rr": 7e-3, "ss": 35e-3, "u": 4e-2, "zf": 2e-2, "zt": 4e-2,
    "da": 115e-4, "ea": 1421e-5, "fa": 1421e-5, "ra": 92e-5, "sa": 1874e-5, "sb": 1043e-5, "sc": 18e-3, "sd": 2e-2,
    "ta": 2308e-5, "tb": 916e-5, "ua": 1228e-5, "ub": 449e-5,
    "c0": 4530.0, "l0": 7785e-5, "mom": 33e-3,
}  # fmt: skip


def along(angle):
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def across(angle):
    return jnp.stack([-jnp.sin(angle), jnp.cos(angle)])


def mass(t, q, p):
    """The mass matrix: bodies that share no angle are blocks of their own."""
    _, theta, _, phi, _, omega, _ = q
    x, z = p["e"] - p["ea"], p["zf"] - p["fa"]
    crank = p["m1"] * p["ra"] ** 2 + p["i1"]
    coupled = p["m2"] * (p["da"] ** 2 - p["da"] * p["rr"] * jnp.cos(theta)) + p["i2"]
    both = p["m2"] * (p["rr"] ** 2 - 2 * p["da"] * p["rr"] * jnp.cos(theta) + p["da"] ** 2) + p["i2"]
    crank_and_rod = [[crank + both, coupled], [coupled, p["m2"] * p["da"] ** 2 + p["i2"]]]
    plate = [[p["m3"] * (p["sa"] ** 2 + p["sb"] ** 2) + p["i3"]]]
    coupled = p["m4"] * (x**2 + p["zt"] * x * jnp.sin(phi)) + p["i4"]
    both = p["m4"] * (p["zt"] ** 2 + 2 * p["zt"] * x * jnp.sin(phi) + x**2) + p["i4"]
    rocker = p["m5"] * (p["ta"] ** 2 + p["tb"] ** 2) + p["i5"]
    upper_arm = [[p["m4"] * x**2 + p["i4"], coupled], [coupled, both + rocker]]
    coupled = p["m6"] * (z**2 - p["u"] * z * jnp.sin(omega)) + p["i6"]
    both = p["m6"] * (z**2 - 2 * p["u"] * z * jnp.sin(omega) + p["u"] ** 2) + p["i6"]
    rocker = p["m7"] * (p["ua"] ** 2 + p["ub"] ** 2) + p["i7"]
    lower_arm = [[p["m6"] * z**2 + p["i6"], coupled], [coupled, both + rocker]]
    return block_diag(*(jnp.array(block) for block in (crank_and_rod, plate, upper_arm, lower_arm)))


def common_pin(q, p):
    """The pin E in which rod, plate and both arms meet, reached from the crank."""
    return crank_pin(q, p) - p["d"] * along(q[0] + q[1])


def crank_pin(q, p):
    return p["rr"] * along(q[0])


def spring_end(q, p):
    """The corner D of the plate that the spring pulls at."""
    return jnp.stack([p["xb"], p["yb"]]) + p["sd"] * along(q[2]) - p["sc"] * across(q[2])


def spring_energy(t, q, p):
    length = jnp.linalg.norm(spring_end(q, p) - jnp.stack([p["xc"], p["yc"]]))
    return p["c0"] * (length - p["l0"]) ** 2 / 2


def motor(t, q, v, p):
    return jnp.zeros(7).at[0].set(p["mom"])


def plate_loop(t, q, p):
    return common_pin(q, p) + p["ss"] * across(q[2]) - jnp.stack([p["xb"], p["yb"]])


def upper_loop(t, q, p):
    elbow = common_pin(q, p) + p["e"] * across(q[3] + q[4])
    return elbow - p["zt"] * along(q[4]) - jnp.stack([p["xa"], p["ya"]])


def lower_loop(t, q, p):
    elbow = common_pin(q, p) - p["zf"] * along(q[5] + q[6])
    return elbow + p["u"] * across(q[6]) - jnp.stack([p["xa"], p["ya"]])


def joints(q, p):
    """All joints by letter: O, A, B and C are fixed, D is the moving end of the spring, F the crank pin."""
    fixed = {k: jnp.stack([p["x" + k.lower()], p["y" + k.lower()]]) for k in "ABC"}
    moving = {
        "D": spring_end(q, p),
        "E": common_pin(q, p),
        "F": crank_pin(q, p),
        "G": fixed["A"] + p["zt"] * along(q[4]),
        "H": fixed["A"] - p["u"] * across(q[6]),
    }
    return {"O": jnp.zeros(2)} | fixed | moving


def build():
    """The squeezer and its state of rest at the crank angle of the benchmark."""
    system = jm.System(
        ANGLES,
        mass=mass,
        force=motor,
        potential=spring_energy,
        constraints=(
            jm.Holonomic("plate", plate_loop),
            jm.Holonomic("upper arm", upper_loop),
            jm.Holonomic("lower arm", lower_loop),
        ),
        params=PARAMS,
    )
    guess = [BETA_0, 0.0, 0.46, 0.22, 0.49, -0.22, 1.23]
    return system, jm.assemble(system, guess, hold=["beta"])
