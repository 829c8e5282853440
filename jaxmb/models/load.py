"""Models from files."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Literal

import equinox as eqx
import numpy as np

from ..foundations import Finite, Number, contract, toml_table
from ..mechanism import AbstractMechanism, as_vector
from .document import MAX_BYTES, XmlElement, document
from .elements import MechanismBuilder
from .folder import Folder
from .graph import ModelGraph
from .mjcf import mjcf_graph
from .model import Model
from .repair import with_closed_loops
from .sdf import sdf_graph
from .sidecar import add_loops, sidecar_table
from .urdf import urdf_graph

USD = (".usd", ".usda", ".usdc", ".usdz")
SIDECARS = (".yaml", ".yml")


@contract
def load(
    path: str | os.PathLike[str],
    *,
    base: Literal["fixed", "free"] = "fixed",
    gravity: Finite | None = None,
    exclude: Sequence[str] = (),
    repair: bool = False,
    stops: Mapping[str, tuple[Number, Number]] | None = None,
    loops: str | os.PathLike[str] | None = None,
    allow: Sequence[str | os.PathLike[str]] = (),
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
) -> Model:
    """A mechanism of a URDF, of an MJCF, of an SDF, or of a text written by jaxmb, with everything else that the file contains.

    The file is data: nothing in it is run, and nothing outside its folder is opened. Contents that a mechanism does not hold
    are listed in the notes, which `print(model)` shows.

    Args:
        path: the file; its root element, or its suffix, determines the format.
        base: how the root link of a URDF is held: "fixed" to the ground, or "free"; files of other formats say so themselves.
        gravity: its acceleration (3,) in m/s², or (2,) for a text in the plane, instead of the file's; for URDF, which has none, (0, 0, −9.81) by default.
        exclude: names of elements that are not read: links, or bodies, with what ties them to others, joints, loops and the like.
        repair: whether inertias that no body can have are replaced by the nearest possible ones, and ends of loops that stay open by the
            rounding of the file's numbers are moved to where they close, with a note; if not, they are rejected, here and by
            `Model.assemble`. For the repair a model with loops is assembled once, which takes seconds.
        stops: stiffness in N/m or N m/rad and damping in s/m or s/rad of a `JointStop` at the limits of each joint, by its name, or by
            "revolute" and "prismatic" for all of a kind; not for texts written by jaxmb. By default joints move beyond their limits.
        loops: for URDF, a YAML file of loops, `closed_loop` and `type`; by default the one beside it that has its name, if it is
            there.
        allow: further folders in which files may lie.
        packages: the folders of packages, by name, for "package://name/file".

    Returns:
        The `Model`: its `mechanism`, `build()` with the tree of the file, keyframes and limits.

    Raises:
        ValueError: with file, line, element and reason: broken XML, names that are not there or not unique, cycles, numbers that
            are not finite, axes of zero length, masses and inertias that no body has, joints that move nothing, files elsewhere.

    Example:
        >>> import pathlib, tempfile, jaxmb as jm
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "pendulum.urdf"
        >>> _ = path.write_text('''<robot name="pendulum"><link name="base"/><link name="rod"><inertial>
        ...   <origin xyz="0 0 -0.5"/><mass value="2"/><inertia ixx="0.2" iyy="0.2" izz="0.01"/></inertial></link>
        ...   <joint name="pivot" type="continuous"><parent link="base"/><child link="rod"/><axis xyz="0 1 0"/></joint></robot>''')
        >>> model = jm.load(path)
        >>> system = model.build()
        >>> system.coordinates, round(float(jm.evaluate(system, model.assemble(system)).mass[0, 0]), 3)
        (('pivot',), 0.7)
    """
    path = pathlib.Path(path)
    if path.suffix.lower() in USD:
        raise ValueError(
            f"{path} must be URDF, MJCF, SDF or a text of `Mechanism.to_text`, but is USD, which is not supported; convert it to URDF or MJCF first."
        )
    if path.suffix.lower() == ".nc":
        raise ValueError(
            f"{path} must be URDF, MJCF, SDF or a text of `Mechanism.to_text`, but is netCDF, in which runs are kept; `jaxmb view` shows a run that "
            "`jaxmb simulate` has written."
        )
    if not path.is_file():
        raise ValueError(f"Argument `path` must be a file, but '{path}' is none.")
    # Before it is read: a file of many gigabytes would fill the memory first.
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} must not be longer than {MAX_BYTES} bytes, but is.")
    if path.suffix.lower() == ".toml":
        _expect_urdf("a text of `Mechanism.to_text`", base, loops)
        if stops:
            raise ValueError(
                "Argument `stops` must be None for a text of `Mechanism.to_text`, which can contain a `JointStop`, but is not."
            )
        return _model_of_text(path, gravity, tuple(exclude))
    folder = Folder.of(path, tuple(allow), packages)
    root = document(path.read_bytes(), path)
    format_name, graph = _graph(root, folder, base, tuple(exclude), loops)
    if gravity is not None:
        # The argument wins over the file, which may have been written for another planet, or for none as URDF is.
        graph.gravity = np.asarray(as_vector(gravity, "gravity", (3,)), float)
    return _model_of_graph(path, format_name, graph, repair, stops or {})


def _graph(
    root: XmlElement, folder: Folder, base: str, exclude: tuple[str, ...], loops: str | os.PathLike[str] | None
) -> tuple[str, ModelGraph]:
    """The name of the format, and the graph."""
    if root.tag == "robot":
        graph = urdf_graph(root, folder, base, exclude)
        beside = _sidecar(root.file, folder, loops)
        if beside is not None:
            add_loops(graph, sidecar_table(beside.read_bytes(), beside), beside)
        return "URDF", graph
    readers = {"mujoco": ("MJCF", mjcf_graph), "sdf": ("SDF", sdf_graph)}
    if root.tag in readers:
        format_name, read = readers[root.tag]
        _expect_urdf(format_name, base, loops)
        return format_name, read(root, folder, exclude)
    raise root.refusal("must be a <robot> of URDF, a <mujoco> of MJCF or an <sdf>, but is none of them.")


def _expect_urdf(format_name: str, base: str, loops: str | os.PathLike[str] | None) -> None:
    """Refuses what only a URDF leaves to the caller: other formats say themselves how bodies are held and where loops close."""
    for argument, differs, default in (("base", base != "fixed", "'fixed'"), ("loops", loops is not None, "None")):
        if differs:
            raise ValueError(
                f"Argument `{argument}` must be {default} for {format_name}, since it is for URDF only, but is not."
            )


def _sidecar(path: pathlib.Path, folder: Folder, loops: str | os.PathLike[str] | None) -> pathlib.Path | None:
    """The file of loops: as given, or that of the same name if there is one with loops."""
    if loops is not None:
        if not pathlib.Path(loops).is_file():
            raise ValueError(f"Argument `loops` must be a file, but '{loops}' is none.")
        return pathlib.Path(loops)
    for suffix in SIDECARS:
        beside = path.with_suffix(suffix)
        data = folder.read(beside.name, f"{path}, with the file of loops beside it,")
        # Other YAML files beside a model are common, such as those of controllers; only one that lists loops is
        # meant.
        if data is not None and b"closed_loop" in data:
            return beside
    return None


def mechanism_of_text(text: str, where: str) -> AbstractMechanism:
    """The mechanism of a text, in the plane or in space.

    Raises:
        ValueError: beginning with `where`, for a text that is none.
    """
    # Here, since which of both is needed is known from the text only.
    from .. import planar, spatial

    try:
        space = toml_table(text).get("space")
        kind: type[AbstractMechanism] = planar.Mechanism if space == "plane" else spatial.Mechanism
        return kind.from_text(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _model_of_text(path: pathlib.Path, gravity: Finite | None, exclude: tuple[str, ...]) -> Model:
    """The model of a mechanism as text, in the plane or in space."""
    mechanism = mechanism_of_text(path.read_text(encoding="utf-8"), str(path))
    if gravity is not None:
        acceleration = as_vector(gravity, "gravity", mechanism.gravity.shape)
        mechanism = eqx.tree_at(lambda m: m.gravity, mechanism, acceleration)
    mechanism = mechanism.without(*exclude) if exclude else mechanism
    markers = {body.name: body.name for body in mechanism.bodies}
    return Model(name=path.stem, path=path, format="text", mechanism=mechanism, markers=markers)


def _model_of_graph(
    path: pathlib.Path, format_name: str, graph: ModelGraph, repair: bool, stops: Mapping[str, tuple[Number, Number]]
) -> Model:
    build = MechanismBuilder(graph, repair, stops)
    mechanism = build.mechanism()
    for what, name in build.names.changes:
        graph.note("renamed", f"{what} to '{name}'", "names must differ from all others, and have no dots")
    loops = tuple(build.names.of("joint", joint.name) for joint in build.shown if joint.closes)
    poses = {name: build.coordinates(values) for name, values in graph.poses.items()}
    if repair and loops:
        mechanism, shifts = with_closed_loops(mechanism, loops, next(iter(poses.values()), {}))
        for name, shift in shifts.items():
            graph.note(
                "approximated", f"joint '{name}'", f"its end is moved by {shift:.1e} m, by which the loop stayed open"
            )
    return Model(
        name=graph.name,
        path=path,
        format=format_name,
        mechanism=mechanism,
        loops=loops,
        markers=build.link_markers,
        poses=poses,
        limits=build.of_joints("limits"),
        notes=tuple(graph.notes),
    )
