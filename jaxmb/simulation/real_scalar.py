"""One number, as Diffrax and Optimistix pass it."""

import numpy as np
from jax import Array

# Narrower than JAX's `ArrayLike`: a time is never complex.
RealScalar = int | float | np.ndarray | Array
Integer = int | np.ndarray | Array
