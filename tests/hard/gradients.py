"""gradients: gradients of end states by lengths, masses and starts: both modes, and differences; and second derivatives."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmb as jm
from hard.row import Figure, cpu_time

DRAWS = 60
MODES, DIFFERENCES = 1e-11, 1e-6  # relative to the largest entry of a gradient
STEP = 2e-3  # of differences of fourth order, relative
TIGHT = dfx.PIDController(rtol=1e-11, atol=1e-12)


def slider_crank(x):
    """By length of the rod, masses, angle and speed."""
    P = jm.planar
    mechanism = P.Mechanism(
        [
            P.Body.rod("crank", mass=x[1], length=0.3),
            P.Body.rod("rod", mass=x[2], length=x[0], position=(0.3, 0.0)),
            P.Body("slider", mass=3.0, inertia=0.1, position=(1.1, 0.0)),
        ],
        [
            P.Revolute("O", "ground", "crank.a"),
            P.Revolute("A", "crank.b", "rod.a"),
            P.Revolute("B", "rod.b", "slider"),
            P.Prismatic("guide", "ground", "slider"),
        ],
        gravity=(0.0, -9.81),
    )
    return mechanism.build(), "O", x[3], x[4]


def three_cranks(x):
    """One equal crank too many: by their length, masses, angle and speed."""
    P = jm.planar
    cranks = [P.Body.rod(f"crank{k}", x[1], x[0], position=(k - 1.0, 0.0), angle=1.2) for k in range(3)]
    feet = [P.Revolute(f"foot{k}", ("ground", (k - 1.0, 0.0)), f"crank{k}.a") for k in range(3)]
    heads = [P.Revolute(f"head{k}", f"crank{k}.b", ("table", (k - 1.0, 0.0))) for k in range(3)]
    table = P.Body("table", mass=x[2], inertia=1.0, position=(0.2, 0.8))
    return P.Mechanism([*cranks, table], [*feet, *heads], gravity=(0.0, -9.81)).build(), "foot0", 1.2 + 0.2 * x[3], x[4]


# Middle and spread of what is drawn.
MECHANISMS = {
    "slider-crank": (slider_crank, (0.8, 1.5, 1.0, 0.4, 3.0), (0.15, 0.8, 0.6, 0.3, 2.0)),
    "three cranks": (three_cranks, (0.8, 1.5, 4.0, 0.4, -0.3), (0.15, 0.8, 2.0, 0.3, 0.2)),
}


def end(build, x, adjoint):
    """A number of the state at the end, and whether the run came there."""
    system, driver, angle, speed = build(x)
    state = jm.assemble(system, {driver: angle}, {driver: speed}, hold=[driver], hold_velocity=[driver], throw=False)
    solution = jm.simulate(system, state, jnp.array([0.3]), stepsize_controller=TIGHT, adjoint=adjoint, throw=False)
    return jnp.sum(jnp.cos(solution.q[-1] * jnp.arange(1.0, 1.0 + system.nq))), solution.result == jm.RESULTS.successful


def derivatives(build, x):
    """Reverse, forward, and differences of a batch, (n, 5) each, and whether all runs came to their end."""
    over = lambda fn: jax.jit(jax.vmap(fn), compiler_options=jm.compiler_options())
    back, done = over(jax.grad(lambda x: end(build, x, None), has_aux=True))(x)
    forward = over(jax.jacfwd(lambda x: end(build, x, dfx.ForwardMode())[0]))(x)
    value = over(lambda x: end(build, x, None)[0])
    columns = []
    for k in range(x.shape[1]):
        along = np.zeros_like(x)
        along[:, k] = STEP * np.abs(x[:, k])
        near, far = (np.asarray(value(x + n * along) - value(x - n * along)) for n in (1, 2))
        columns.append((8 * near - far) / (12 * along[:, k]))
    return np.asarray(back), np.asarray(forward), np.stack(columns, axis=1), np.asarray(done)


def second_derivatives(build, x, along):
    """Of a batch along a direction: forward over forward mode, and differences of reverse mode, (n,) each."""
    over = lambda fn: jax.jit(jax.vmap(fn), compiler_options=jm.compiler_options())
    slope = lambda x: jax.jvp(lambda x: end(build, x, dfx.ForwardMode())[0], (x,), (along,))[1]
    forward = over(lambda x: jax.jvp(slope, (x,), (along,))[1])(x)
    back = over(lambda x: jax.grad(lambda x: end(build, x, None)[0])(x) @ along)
    near, far = (np.asarray(back(x + n * STEP * along) - back(x - n * STEP * along)) for n in (1, 2))
    return np.asarray(forward), (8 * near - far) / (12 * STEP)


def figures(share, seed):
    """The row's figures."""
    result, worst, apart, curved, told, cases = [], 0.0, 0.0, 0.0, 0, 0
    wrong = {MODES: 0, DIFFERENCES: 0, "second": 0}
    with cpu_time(result):
        for name, (build, middle, spread) in list(MECHANISMS.items())[: 2 if share >= 0.25 else 1]:
            rng, count = np.random.default_rng(seed), max(2, round(DRAWS * share))
            x = np.array(middle) + np.array(spread) * rng.uniform(-1, 1, (count, len(middle)))
            back, forward, differences, done = derivatives(build, x)
            size = np.abs(forward).max(axis=1)
            modes, steps = (np.abs(back - y).max(axis=1) / size for y in (forward, differences))
            for i in range(count):
                if done[i] and not (modes[i] <= MODES and steps[i] <= DIFFERENCES):
                    print(
                        f"gradients {name} {i}: modes {modes[i]:.1e}, differences {steps[i]:.1e} at {x[i]}", flush=True
                    )
            cases, told = cases + count, told + int((~done).sum())
            worst, apart = max(worst, modes[done].max()), max(apart, steps[done].max())
            wrong[MODES] += int((~(modes[done] <= MODES)).sum())
            wrong[DIFFERENCES] += int((~(steps[done] <= DIFFERENCES)).sum())
            second, expected = second_derivatives(build, x, np.array(spread) * rng.uniform(-1, 1, len(spread)))
            off = np.abs(second - expected)[done] / np.maximum(
                np.abs(expected[done]), np.median(np.abs(expected[done]))
            )
            curved = max(curved, off.max())
            wrong["second"] += int((~(off <= DIFFERENCES)).sum())
        result += [
            Figure(
                "gradients",
                f"reverse and forward mode apart by more than {MODES:g}",
                "0",
                f"{wrong[MODES]} (largest {worst:.1e})",
                cases - told,
                wrong[MODES] == 0,
            ),
            Figure(
                "gradients",
                f"gradient and differences apart by more than {DIFFERENCES:g}",
                "0",
                f"{wrong[DIFFERENCES]} (largest {apart:.1e})",
                cases - told,
                wrong[DIFFERENCES] == 0,
            ),
            Figure(
                "gradients",
                f"second derivatives, forward over forward mode, and differences apart by more than {DIFFERENCES:g}",
                "0",
                f"{wrong['second']} (largest {curved:.1e})",
                cases - told,
                wrong["second"] == 0,
            ),
            Figure("gradients", "runs told to have failed", "0", f"{told}", cases, told == 0),
        ]
    return result
