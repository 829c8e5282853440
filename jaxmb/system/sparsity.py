"""Which entries of M and C may not be zero, read off the functions of a system."""

from jaxtyping import Array

from ..foundations import Blank, counted, default_float, shapes_of
from ..lanes import NotScalarError, Shaped, latest, sparsity
from ..linalg import Layout
from .system import System
from .terms import velocity_residual

# Dense linear algebra of so many operations is as quick as sparse one of none, and so much quicker one by one.
LEAST, FASTER = 60_000, 6
# Compiled code does the operations that are left one by one in any case; up to here dense code does, whose way back is compiled too.
SMALL = 15_000


def dense_work(system: System) -> int:
    """About how many operations the linear algebra of a stage takes if nothing is zero."""
    n, m = system.nv, system.m
    return n**3 // 3 + m * n**2 + m**2 * n


def with_layout(system: System) -> System:
    """The system with its layout, if that pays."""
    layout = layout_of(system, False)
    return system if isinstance(layout, str) else system.with_layout(layout)


def layout_of(system: System, force: bool, compiled: bool = False) -> Layout | str:
    """Which entries of M and C may not be zero, or why that is of no use, as `compiled` code or else; `force` also where it does not pay."""
    dense, (least, faster) = dense_work(system), (SMALL, 1) if compiled else (LEAST, FASTER)
    if not system.m or (dense < least and not force):
        velocities, rows = counted(system.nv, "velocity", "velocities"), counted(system.m, "row")
        return f"{velocities} and {rows} are too few"
    blank, parameters = Blank.of(system)
    if not blank.hashable:
        return "part of the system is neither an array nor hashable"
    layout = _layout(blank, shapes_of(parameters), system.nq, system.nv)
    if isinstance(layout, str) or force or (0 if compiled else least) + faster * layout.work < dense:
        return layout
    return "M and C have too many entries that may not be zero"


def linear_algebra(system: System) -> str:
    """How linear algebra of steps is done by default, and why."""
    layout = layout_of(system, False)
    if not isinstance(layout, str):
        return f"sparse: {layout}"
    compiled_layout = layout_of(system, False, compiled=True)
    return f"dense: {layout}" if isinstance(compiled_layout, str) else f"sparse in compiled code: {compiled_layout}"


@latest
def _layout(blank: Blank, parameters: tuple[Shaped, ...], nq: int, nv: int) -> Layout | str:
    # The velocity residual and M v are traced as functions of v: which entries of C and M may not be zero is which numbers depend on
    # which velocities, at any pose.
    def rows(v: Array, t: Array, q: Array, *arrays: Array) -> Array:
        return velocity_residual(blank.filled(arrays), t, q, v)

    def momenta(v: Array, t: Array, q: Array, *arrays: Array) -> Array:
        return blank.filled(arrays).mass_products(t, q, v[None])[0]

    t, q, v = (Shaped(shape, default_float()) for shape in ((), (nq,), (nv,)))
    try:
        jacobian, mass = (sparsity(fn, v, t, q, *parameters)[0] for fn in (rows, momenta))
    except NotScalarError as error:
        return str(error)
    return Layout.of(mass, jacobian)
