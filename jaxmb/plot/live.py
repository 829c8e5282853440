"""A window in a browser that shows states as they come, and in which joints are dragged."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

from ..foundations import RESULTS, Number, Positive, Whole, contract, expect_concrete, listing, optional
from ..kinematics import try_assemble
from ..mechanism import linkage_of
from ..system import State, System, check_state
from .colour import to_rgb
from .primitive import Primitive
from .scene import SIZE, Scene
from .solid import triangles
from .view import View

# Coordinates that are angles are dragged by half a turn to both sides, others by so many sizes of the mechanism.
TURN, SHIFT = np.pi, 1.0
# Of the eye from the centre of what is seen, in its radii.
DISTANCE = 1.8
# Of bodies in the plane above each other, in sizes of the mechanism.
LEVEL = 2e-3


class LiveWindow:
    """A window of `live`.

    Attributes:
        url: where a browser finds it.
        state: what it shows.
    """

    def __init__(self, system: System, state: State, scene: Scene, viser: ModuleType, port: int):
        self._system, self._scene, self._lock, self._busy = system, scene, threading.Lock(), False
        self._nodes: dict[str, dict[str, Any]] = {}
        self._server = viser.ViserServer(host="127.0.0.1", port=port, verbose=False)
        self.url = f"http://127.0.0.1:{self._server.get_port()}"
        self._server.scene.set_up_direction("+y" if scene.dim == 2 else "+z")
        axes = View("perspective", scene.centre, scene.radius).axes
        towards = np.array([0.0, 0.0, 1.0]) if scene.dim == 2 or axes is None else axes[2]
        centre, camera = _in_space(scene.centre[None])[0], self._server.initial_camera
        camera.look_at, camera.position = centre, centre + DISTANCE * scene.radius * towards
        named = zip(("ground", *linkage_of(system).bodies), scene.bodies(), strict=True)
        self._bodies = [self._body(i, name, pieces) for i, (name, pieces) in enumerate(named)]
        self._message = self._server.gui.add_markdown("")
        self.state = state
        units = linkage_of(system).units[0]
        # Components of a quaternion are no joint that one could drag.
        self._sliders = {
            name: self._slider(i, units[i]) for i, name in enumerate(system.coordinates) if units[i] != "1"
        }
        self.show(state)

    @contract
    def show(self, state: State) -> None:
        """Shows another state, for example from your own loop; sliders follow.

        Args:
            state: a single state of the system.

        Raises:
            ValueError: for a state of another system.
        """
        check_state(self._system, state)
        with self._lock:
            self._message.content = ""
            self._draw(state)

    @contract
    def drag(self, coordinate: str, value: Number) -> bool:
        """Moves a coordinate, and all others so that loops stay closed, as its slider does.

        Args:
            coordinate: its name; it takes the value.
            value: in rad or m.

        Returns:
            Whether there is such a pose near the one shown; if not, the pose stays, and the window says so.

        Raises:
            ValueError: for a name that no coordinate has.
        """
        names = self._system.coordinates
        if coordinate not in names:
            raise ValueError(
                f"Argument `coordinate` must be a coordinate out of {listing(names)}, but is '{coordinate}'."
            )
        with self._lock:
            q = self.state.q.at[names.index(coordinate)].set(value)
            attempt = try_assemble(self._system, q, jnp.zeros_like(self.state.v), t=self.state.t, hold=[coordinate])
            closes = bool(attempt.result == RESULTS.successful)
            self._message.content = (
                "" if closes else f"No pose with {coordinate} = {float(value):.4g} closes all loops."
            )
            self._draw(attempt.state if closes else self.state)
            return closes

    def close(self) -> None:
        """Closes the window."""
        self._server.stop()

    def _draw(self, state: State) -> None:
        self.state, scene = state, self._scene
        now = scene.at(scene.trajectory(jax.tree.map(lambda x: jnp.asarray(x)[None], state)), 0)
        for frame, pose in zip(self._bodies, now.poses, strict=True):
            frame.wxyz, frame.position = _placed(pose)
        before, after = scene.symbols(now)
        self._pieces("/behind", before, -1)
        self._pieces("/symbols", after, len(self._bodies))
        with self._silently():
            for name, slider in self._sliders.items():
                value = float(state.q[self._system.coordinates.index(name)])
                slider.value = min(max(value, slider.min), slider.max)

    def _body(self, number: int, name: str, pieces: Sequence[Primitive]) -> Any:
        frame = self._server.scene.add_frame(f"/bodies/{name}", show_axes=False)
        self._pieces(f"/bodies/{name}", pieces, number)
        return frame

    def _pieces(self, path: str, pieces: Sequence[Primitive], level: int) -> None:
        """Faces as one mesh for each colour, lines as one node for each width."""
        lines, faces = defaultdict(list), defaultdict(list)
        for k, piece in enumerate(pieces):
            colour, alpha = piece.colour if isinstance(piece.colour, tuple) else (piece.colour, 1.0)
            # In the plane what is drawn later lies above what is drawn before.
            height = 0.0 if self._scene.dim == 3 else self._scene.radius * (LEVEL * level + LEVEL * k / len(pieces))
            loops = [_in_space(loop, height) for loop in piece.loops]
            if piece.fills:
                faces[colour, alpha].append(np.concatenate(loops)[triangles(loops)].reshape(-1, 3))
            else:
                segments = np.stack([loops[0][:-1], loops[0][1:]], axis=1)
                lines[piece.width].append((segments, np.broadcast_to(255 * to_rgb(colour), segments.shape)))
        scene, nodes = self._server.scene, {}
        for k, (width, parts) in enumerate(lines.items()):
            points, colours = (np.concatenate(x) for x in zip(*parts, strict=True))
            name = f"{path}/lines{k}"
            nodes[name] = scene.add_line_segments(
                name, points, colours.astype(np.uint8), thickness=width, thickness_units="screen"
            )
        for k, ((colour, alpha), parts) in enumerate(faces.items()):
            corners = np.concatenate(parts)
            rgb, numbers = (255 * to_rgb(colour)).astype(int), np.arange(len(corners)).reshape(-1, 3)
            name = f"{path}/faces{k}"
            nodes[name] = scene.add_mesh_simple(
                name, corners, numbers, color=tuple(rgb), opacity=alpha, flat_shading=True, side="double"
            )
        # A node of a name takes the place of the one before; what has none now would stay.
        for name, node in self._nodes.get(path, {}).items():
            if name not in nodes:
                node.remove()
        self._nodes[path] = nodes

    def _slider(self, index: int, unit: str) -> Any:
        name, value = self._system.coordinates[index], float(self.state.q[index])
        reach = TURN if unit == "rad" else SHIFT * self._scene.radius
        slider = self._server.gui.add_slider(f"{name} in {unit}", value - reach, value + reach, reach / 500, value)

        def moved(_: Any) -> None:
            if not self._busy:
                self.drag(name, slider.value)

        slider.on_update(moved)
        return slider

    @contextlib.contextmanager
    def _silently(self) -> Iterator[None]:
        """Sliders that follow drag nothing."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


@contract
def live(
    system: System, state: State, *, port: Whole = 8080, points: bool = True, symbols: Positive = SIZE
) -> LiveWindow:
    """Opens a window in a browser that shows a mechanism, can be turned with the mouse, and has a slider for each joint coordinate.

    A slider moves its joint and, by `try_assemble`, all others, so that loops stay closed. `LiveWindow.show` shows the
    states of your own loop as they come. It draws what `draw` draws, without arrow heads and dots. It is visible on
    this computer only. It needs viser, `pip install jaxmb[live]`.

    Args:
        system: built from a mechanism.
        state: a single state to begin with.
        port: port on which it is served, or the next free one.
        points: whether named points belong to the shapes of the bodies; as in `draw`.
        symbols: the size of symbols, as in `draw`.

    Returns:
        A `LiveWindow`, whose `url` a browser opens.

    Raises:
        ImportError: without viser.
        TypeError: for a system that was not built from a mechanism.
        ValueError: for more than one state.
    """
    expect_concrete(system=system, state=state)
    scene = Scene(system, points, symbols)
    check_state(system, state)
    scene.frame(scene.trajectory(jax.tree.map(lambda x: jnp.asarray(x)[None], state)))
    return LiveWindow(system, state, scene, optional("viser", "live"), port)


def _in_space(points: np.ndarray, height: float = 0.0) -> np.ndarray:
    """Points (n, d) of the plane, at a height above it, or of space, in space."""
    return np.pad(points, ((0, 0), (0, 3 - points.shape[1])), constant_values=height)


def _placed(pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quaternion (w, x, y, z) and the position in space of a pose."""
    turn = np.eye(3)
    turn[: len(pose) - 1, : len(pose) - 1] = pose[:-1, :-1]
    return Rotation.from_matrix(turn).as_quat()[[3, 0, 1, 2]], _in_space(pose[None, :-1, -1])[0]
