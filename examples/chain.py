"""A hanging chain of twelve links: small oscillations, and a fall from a level pose."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from gallery import bar, check, save

import jaxmb as jm

N, LENGTH, GRAVITY = 12, 1.2, 9.81
LINK = LENGTH / N


def chain(angle):
    """Links of 1 kg, all at an angle from the horizontal."""
    along = LINK * np.array([np.cos(angle), np.sin(angle)])
    bodies = [bar(f"link{i}", i * along, (i + 1) * along) for i in range(N)]
    joints = [jm.planar.Revolute("pin0", "ground", "link0.a")]
    joints += [jm.planar.Revolute(f"pin{i}", f"link{i - 1}.b", f"link{i}.a") for i in range(1, N)]
    return jm.planar.Mechanism(bodies, joints, gravity=(0.0, -GRAVITY))


def frequencies():
    """Of small oscillations in Hz, from M θ̈ + K θ = 0 of the links' angles; row k of `arms` is the shift of centre k."""
    arms = np.tril(np.ones((N, N)), -1) + 0.5 * np.eye(N)
    mass = LINK**2 * (arms.T @ arms + np.eye(N) / 12)
    return np.sqrt(scipy.linalg.eigh(GRAVITY * LINK * np.diag(arms.sum(axis=0)), mass, eigvals_only=True)) / (2 * np.pi)


def main():
    hanging = chain(-np.pi / 2).build()
    modes = jm.linearise(hanging, jm.assemble(hanging)).modes()
    found = np.unique(np.round([mode.frequency for mode in modes], 12))  # those of pairs of eigenvalues once
    rope = 2.404825557695773 / 2 * np.sqrt(GRAVITY / LENGTH) / (2 * np.pi)  # zero of J₀ (D. Bernoulli 1733)
    print(f"slowest oscillation {found[0]:.4f} Hz, of a rope of that length {rope:.4f} Hz")
    falling, ts = chain(-0.3).build(), jnp.linspace(0.0, 1.0, 21)
    controller = dfx.PIDController(rtol=1e-9, atol=1e-9)
    solution = jm.simulate(falling, jm.assemble(falling), ts, stepsize_controller=controller, max_steps=20_000)
    check(
        [
            ("frequencies, relative to those by hand", np.abs(found / frequencies() - 1).max(), 1e-9),
            ("slowest one, relative to the rope's", abs(found[0] / rope - 1), 1e-2),
            ("energy balance, J", jnp.abs(jm.energy(falling, solution).balance).max(), 1e-6),
        ]
    )
    save(jm.plot.draw(falling, solution.state(7), forces=True), "chain")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
