"""programs: random programs by `jaxmb.lanes` against JAX: values, derivatives of both modes, and what is not finite."""

import numpy as np
from test_kernels import assert_to_rounding, compared_with_jax

from hard.row import Figure, cpu_time

PROGRAMS = 60  # at ordinary numbers, and as many at others
# Kinks, ties, beyond the domains of functions, and no numbers.
POOL = np.array([0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan, 1e9, -1e-9])


def within(found, expected, rounding):
    """Whether finite results agree to what rounding of each operation leaves open."""
    try:
        assert_to_rounding(found, expected, rounding)
    except AssertionError:
        return False
    return True


def figures(share, seed):
    """The row's figures."""
    result, off, lost, cases = [], 0, 0, 0
    with cpu_time(result):
        for k in range(max(1, round(PROGRAMS * share))):
            for special in (False, True):
                # Seeds beyond those of the tests, which hold these laws for the first sixty.
                rng = np.random.default_rng([seed + 1, k, special])
                x = rng.normal(size=(24, 3) if special else (9, 3))
                if special:
                    x = np.where(rng.uniform(size=x.shape) < 0.6, rng.choice(POOL, x.shape), x)
                    x[:6, 1] = x[:6, 0]
                for exact, kind, found, expected, rounding in compared_with_jax(rng, 12 if special else 20, x):
                    cases += 1
                    if not within(found, expected, rounding):
                        off += 1
                        print(f"programs program {k}, special {special}, exact {exact}, {kind}: off", flush=True)
                    if kind == "value" and not np.isnan(found[np.isnan(expected)]).all():
                        lost += 1
                        print(f"programs program {k}, special {special}, exact {exact}: a NaN is lost", flush=True)
        result += [
            Figure(
                "programs",
                "values and derivatives of random programs that differ from JAX's by more than rounding",
                "0",
                f"{off}",
                cases,
                off == 0,
            ),
            Figure("programs", "of these, values in which a NaN is lost", "0", f"{lost}", cases, lost == 0),
        ]
    return result
