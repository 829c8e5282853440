"""A leg of Theo Jansen's Strandbeest: eleven lengths that turn a crank into a step (his "holy numbers", in m here)."""

import jax
import jax.numpy as jnp
import numpy as np
from gallery import bar, check, meeting, save

import jaxmb as jm

P = jm.planar
A, B, C, D, E, F, G = np.array([38.0, 41.5, 39.3, 40.1, 55.8, 39.4, 36.7]) / 100
H, I, J, K, L, M = np.array([65.7, 49.0, 50.0, 61.9, 7.8, 15.0]) / 100
HIP = np.array([-A, -L])
SPEED = 2 * np.pi  # rad/s


def places(angle):
    """Crank pin, shoulder, knee, back, heel and foot, each (…, 2), by intersections of circles."""
    pin = M * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    shoulder, knee = meeting(pin, J, HIP, B, -1), meeting(pin, K, HIP, C, 1)
    back = meeting(HIP, D, shoulder, E, 1)
    heel = meeting(back, F, knee, G, -1)
    return pin, shoulder, knee, back, heel, meeting(heel, H, knee, I, -1)


def jansen():
    """Wheel, two rods, a thigh and a leg of plate, and two bars, at crank angle 0."""
    pin, shoulder, knee, back, heel, foot = places(0.0)
    plate = lambda name, *corners: P.Body(name, shape=P.Plate(corners), density=5.0)
    bodies = [plate("thigh", HIP, shoulder, back), plate("leg", knee, heel, foot)]
    bodies.append(P.Body("wheel", 1.0, shape=P.Disk(0.18, 0.02), points={"pin": (M, 0.0)}))
    bars = {"upper": (pin, shoulder), "lower": (pin, knee), "strut": (HIP, knee), "link": (back, heel)}
    bodies += [bar(name, *ends, mass=0.2) for name, ends in bars.items()]
    pairs = "ground wheel, ground.hip thigh.c0, ground.hip strut.a, wheel.pin upper.a, wheel.pin lower.a, "
    pairs += "upper.b thigh.c1, lower.b strut.b, strut.b leg.c0, thigh.c2 link.a, link.b leg.c1"
    joints = [P.Revolute(f"pin{i}", *pair.split()) for i, pair in enumerate(pairs.split(", "))]
    drive = P.Driver("drive", "pin0", lambda t, params: SPEED * t)
    return P.Mechanism(bodies, joints, [drive], points={"hip": HIP})


def main():
    system, ts = jansen().build(), jnp.linspace(0.0, 1.0, 49)
    solution = jm.simulate(system, jm.assemble(system), ts)
    found, exact = np.asarray(jm.position(system, solution, "leg.c2")), places(SPEED * np.asarray(ts))[-1]
    low = found[:, 1] < found[:, 1].min() + 0.02
    print(f"a step of {np.ptp(found[low, 0]):.2f} m within 2 cm of the ground, in {low[:-1].mean():.0%} of a turn")
    check([("distance of the foot from that of circles, m", np.abs(found - exact).max(), 1e-9)])
    axes = jm.plot.draw(system, solution.state(6))
    axes.plot(*found.T, "k--", lw=1, zorder=1)
    save(axes, "jansen")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
