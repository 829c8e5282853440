"""Mechanisms as MJCF."""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import quoteattr

import numpy as np
from jax.typing import ArrayLike

from .. import spatial
from ..foundations import Number, Text, as_jax, contract, listing
from ..mechanism import AbstractActuator, AbstractForce, AbstractJoint, Marker, matrix_quaternion, names_of
from .graph import WORLD
from .tree_writer import ROOT, TreeWriter

# What MuJoCo calls the joints of a tree, and its equalities. A hinge that closes a loop has no word of its own: two `connect` at two
# points of its axis move alike, but have six rows, of which five are independent.
TREE = {spatial.Revolute: "hinge", spatial.Prismatic: "slide", spatial.Spherical: "ball", spatial.Fixed: ""}
LOOPS = {spatial.Spherical: "connect", spatial.Fixed: "weld"}
SINGLE = (spatial.Revolute, spatial.Prismatic)
# The least mass in kg, and moment of inertia in kg m², of a body that moves: `mjMINVAL` of MuJoCo, below which its compiler refuses a model.
LEAST_INERTIA = 1e-15
# The part of the largest moment that is added to all moments of flat bodies: some units of rounding of the turns and eigenvalues on the way.
FLAT = 1e-14


@contract
def to_mjcf(
    mechanism: spatial.Mechanism,
    *,
    name: Text = "mechanism",
    cut: Sequence[str] = (),
    poses: Mapping[str, Mapping[str, Number]] | None = None,
) -> str:
    """A mechanism in space as MJCF; `jaxmb.load` and MuJoCo read the same masses, forces and rows of it.

    Joints of the tree are hinges, slides, balls and free bodies; balls that close loops become `connect`, fixed joints
    `weld`, gears equalities of joints, springs and dampers between points tendons, and distances tendons of constant
    length. The frame of a body is that of its joint; points are sites.

    Args:
        mechanism: with joints that the format has.
        name: of the model.
        cut: names of joints that must close loops, as in `Mechanism.build`.
        poses: keyframes: by name, the coordinates of a pose by name, as in `Model.poses`; those not named are as in the pose that the file draws.

    Raises:
        ValueError: naming a coordinate that the tree does not have, or an element that the format cannot express: a hinge that closes a loop,
            a driver, a body without inertia.

    Example:
        >>> import jaxmb as jm
        >>> rod = jm.spatial.Body("rod", mass=1.0, inertia=(0.1, 0.1, 0.01), com=(0.5, 0.0, 0.0))
        >>> pendulum = jm.spatial.Mechanism([rod], [jm.spatial.Revolute("pivot", "ground", "rod", axis=(0.0, 1.0, 0.0))])
        >>> print(jm.models.to_mjcf(pendulum).splitlines()[5].strip())
        <joint name="pivot" type="hinge" axis="0 0 1"/>
    """
    return MjcfWriter(mechanism, name, cut, poses or {}).text()


class MjcfWriter(TreeWriter):
    """The text of a mechanism."""

    def __init__(
        self,
        mechanism: spatial.Mechanism,
        name: str,
        cut: Sequence[str],
        poses: Mapping[str, Mapping[str, Number]],
    ):
        super().__init__(mechanism, name, cut, "MJCF")
        self.gears = [joint for joint in mechanism.joints if isinstance(joint, spatial.Gear)]
        self.rods = [joint for joint in mechanism.joints if isinstance(joint, spatial.Distance)]
        self._expect_words()
        self.sites: dict[str, list[str]] = {WORLD: [], **{body: [] for body in self.bodies}}
        self.site_names = {ROOT}
        for body, point, at in self.points((ROOT,)):
            self.site_names.add(point)
            self.sites[body].append(f"<site name={quoteattr(point)}{_pose(at)}/>")
        # Ends of loops, tendons and thrusters are sites too: before the bodies, which hold them, are written.
        self.equalities = [self._loop(joint) for n, joint in self.joints.items() if n not in self.in_tree]
        self.equalities += [self._gear(gear) for gear in self.gears]
        self.equalities += [self._held_length(rod) for rod in self.rods]
        springs = [force for force in mechanism.forces if isinstance(force, spatial.SpringDamper)]
        self.tendons = [self._tendon(line) for line in (*springs, *self.rods)]
        self.motors = [self._motor(actuator) for actuator in mechanism.actuators]
        self.keys = [self._key(key, pose) for key, pose in poses.items()]

    def text(self) -> str:
        """The document."""
        gravity = _words(self.mechanism.gravity)
        lines = ['<compiler angle="radian" autolimits="false"/>', f'<option gravity="{gravity}"/>', "<worldbody>"]
        lines += [f"  {line}" for line in self.sites[WORLD]]
        lines += [f"  {line}" for body in self._carried(WORLD) for line in self._body(body)]
        lines.append("</worldbody>")
        groups = {
            "tendon": self.tendons,
            "equality": self.equalities,
            "actuator": self.motors,
            "keyframe": self.keys,
        }
        for tag, parts in groups.items():
            lines += [f"<{tag}>", *(f"  {part}" for part in parts), f"</{tag}>"] if parts else []
        return f"<mujoco model={quoteattr(self.name)}>\n  " + "\n  ".join(lines) + "\n</mujoco>\n"

    # Refusals

    def _expect_words(self) -> None:
        """Refuses elements that the format cannot hold."""
        m = self.mechanism
        springs = [f.joint for f in m.forces if isinstance(f, spatial.JointSpring)]
        twice = lambda f: isinstance(f, spatial.JointSpring) and springs.count(f.joint) > 1
        unsupported = self._unsupported_joints()
        unsupported += [driver.name for driver in m.drivers]
        unsupported += [force.name for force in m.forces if not self._has_words(force) or twice(force)]
        unsupported += [actuator.name for actuator in m.actuators if not self._has_motor(actuator)]
        self.refuse(unsupported)
        if light := self._without_inertia():
            raise ValueError(
                f"Bodies that move must have a mass and inertia to be written as MJCF, but {listing(light)} has none, as what lies between several joints of "
                "one body: replace them by one joint, or give it some."
            )

    def _unsupported_joints(self) -> list[str]:
        joints = self.mechanism.joints
        unsupported = [j.name for j in joints if not isinstance(j, (AbstractJoint, spatial.Gear, spatial.Distance))]
        unsupported += [j.name for n, j in self.joints.items() if type(j) not in (TREE if n in self.in_tree else LOOPS)]
        # A ball seen from the other side has the inverse quaternion as its coordinates.
        flipped = [e.joint for e in self.edges.values() if e.flipped and e.joint is not None]
        unsupported += [name for name in flipped if isinstance(self.joints[name], spatial.Spherical)]
        return unsupported + [g.name for g in self.gears if not all(map(self._is_single, g.joints))]

    def _has_motor(self, actuator: AbstractActuator) -> bool:
        """Whether the format has the input."""
        if isinstance(actuator, spatial.Motor):
            return self._is_single(actuator.joint)
        # The reader, as MuJoCo's users, takes a site of the world for a reference, not for a body that is pushed.
        return isinstance(actuator, spatial.Thruster) and actuator.at.body != WORLD

    def _without_inertia(self) -> list[str]:
        """The bodies that move, and have too little inertia by themselves and with none that is fixed to them."""
        rigid = [
            b for b, e in self.edges.items() if e.joint is not None and isinstance(self.joints[e.joint], spatial.Fixed)
        ]
        small = []
        for body in self.mechanism.bodies:
            mass, _, inertia = self.inertial(body)
            if mass < LEAST_INERTIA or np.linalg.eigvalsh(inertia)[0] < LEAST_INERTIA:
                small.append(body.name)
        heavy = {self.parent(body) for body in rigid}
        return [body for body in small if body not in rigid and body not in heavy]

    def _is_single(self, joint: str) -> bool:
        """Whether a joint is a hinge or a slide of the tree."""
        return joint in self.in_tree and isinstance(self.joints[joint], SINGLE)

    def _has_words(self, force: AbstractForce) -> bool:
        """Whether the format has the force."""
        if isinstance(force, spatial.JointSpring):
            return self._is_single(force.joint)
        if isinstance(force, spatial.JointFriction | spatial.JointInertia):
            moves = self._is_single(force.joint) or isinstance(self.joints.get(force.joint), spatial.Spherical)
            expressible = self.is_expressible(force) if isinstance(force, spatial.JointFriction) else True
            return moves and expressible and force.joint in self.in_tree
        return isinstance(force, spatial.SpringDamper)

    # Bodies

    def _carried(self, parent: str) -> list[str]:
        return [body for body in self.bodies if self.parent(body) == parent]

    def _body(self, body: str) -> list[str]:
        """The lines of a body and of those that it carries."""
        lines = [f"<body name={quoteattr(body)}{_pose(self.start(body))}>"]
        inside = [*self._joint(body), *self._inertial(body), *self.sites[body]]
        inside += [line for child in self._carried(body) for line in self._body(child)]
        return [*lines, *(f"  {line}" for line in inside), "</body>"]

    def _joint(self, body: str) -> list[str]:
        edge = self.edges[body]
        if edge.joint is None:
            return [f"<freejoint name={quoteattr(f'{body}_free')}/>"]
        joint, kind = edge.joint, TREE[type(self.joints[edge.joint])]
        if not kind:
            return []
        # A joint that the tree passes from B to A moves the other way about the same axis.
        numbers = {} if kind == "ball" else {"axis": f"0 0 {-1 if edge.flipped else 1}"}
        springs = [f for f in self.mechanism.forces if isinstance(f, spatial.JointSpring) and f.joint == joint]
        viscous, coulomb = self.friction(joint)
        inertias = [f for f in self.mechanism.forces if isinstance(f, spatial.JointInertia) and f.joint == joint]
        constants = {
            "damping": sum((float(f.damping) for f in springs), viscous),
            "frictionloss": coulomb,
            "armature": sum((float(f.inertia) for f in inertias), 0.0),
            "stiffness": sum((float(f.stiffness) for f in springs), 0.0),
            "springref": sum((float(f.rest) for f in springs), 0.0),
        }
        numbers |= {key: repr(value) for key, value in constants.items() if value}
        words = "".join(f' {key}="{value}"' for key, value in numbers.items())
        return [f'<joint name={quoteattr(joint)} type="{kind}"{words}/>']

    def _inertial(self, body: str) -> list[str]:
        mass, com, inertia = self.inertial(self.mechanism.elements[body])
        if mass == 0 and not inertia.any():
            return []
        frame = self.frames[body]
        turn = frame[:3, :3]
        i = turn.T @ inertia @ turn
        low, middle, high = np.linalg.eigvalsh(i)
        # MuJoCo asks for A + B ≥ C to the last bit, which rounding takes from flat bodies; a multiple of the identity gives it back.
        i = i + np.eye(3) * FLAT * high if low + middle - high < FLAT * high else i
        moments = _words(i[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
        at = _words(turn.T @ (com - frame[:3, 3]))
        return [f'<inertial pos="{at}" mass="{mass!r}" fullinertia="{moments}"/>']

    # What acts between bodies

    def _site(self, owner: str, body: str, local: np.ndarray) -> str:
        """The name of a new site at a pose on a body."""
        candidates = (owner, *(f"{owner}_{i}" for i in range(len(self.site_names) + 1)))
        name = next(n for n in candidates if n not in self.site_names)
        self.site_names.add(name)
        self.sites[body].append(f"<site name={quoteattr(name)}{_pose(self.on_link(body, local))}/>")
        return name

    def _ends(self, name: str, a: tuple[str, np.ndarray], b: tuple[str, np.ndarray]) -> list[str]:
        return [quoteattr(self._site(f"{name}_{end}", *side)) for end, side in (("a", a), ("b", b))]

    def _loop(self, joint: AbstractJoint) -> str:
        a, b = self._ends(joint.name, *self.sides(joint))
        return f"<{LOOPS[type(joint)]} name={quoteattr(joint.name)} site1={a} site2={b}/>"

    def _gear(self, gear: spatial.Gear) -> str:
        first, second = map(quoteattr, gear.joints)
        numbers = f"{float(gear.offset)!r} {float(gear.ratio)!r} 0 0 0"
        return f'<joint name={quoteattr(gear.name)} joint1={second} joint2={first} polycoef="{numbers}"/>'

    def _held_length(self, rod: spatial.Distance) -> str:
        # What is held is how much longer the tendon is than it is drawn.
        a, b = (self._drawn(body) @ self.on_link(body, local) for body, local in map(self._at, (rod.a, rod.b)))
        more = float(rod.length) - float(np.linalg.norm((b - a)[:3, 3]))
        name = quoteattr(rod.name)
        return f'<tendon name={name} tendon1={name} polycoef="{more!r} 0 0 0 0"/>'

    def _drawn(self, body: str) -> np.ndarray:
        """The pose of a link in the world as the file draws it."""
        return np.eye(4) if body == WORLD else self._drawn(self.parent(body)) @ self.start(body)

    def _tendon(self, line: spatial.SpringDamper | spatial.Distance) -> str:
        a, b = self._ends(line.name, *(self._at(marker) for marker in (line.a, line.b)))
        keys = {}
        if isinstance(line, spatial.SpringDamper):
            keys = {"stiffness": line.stiffness, "damping": line.damping, "springlength": line.length}
        words = "".join(f' {key}="{float(value)!r}"' for key, value in keys.items())
        return f"<spatial name={quoteattr(line.name)}{words}><site site={a}/><site site={b}/></spatial>"

    def _at(self, marker: Marker) -> tuple[str, np.ndarray]:
        return marker.body, self.local(marker)

    def _motor(self, actuator: AbstractActuator) -> str:
        name = quoteattr(actuator.name)
        if isinstance(actuator, spatial.Motor):
            return f'<motor name={name} joint={quoteattr(actuator.joint)} gear="{float(actuator.gain)!r}"/>'
        # All others are refused before.
        assert isinstance(actuator, spatial.Thruster)
        site = quoteattr(self._site(f"{actuator.name}_at", *self._at(actuator.at)))
        return f'<motor name={name} site={site} gear="{_words(actuator.direction)} 0 0 0"/>'

    # Keyframes

    def _key(self, name: str, pose: Mapping[str, Number]) -> str:
        """A pose, its coordinates in the order in which bodies are written."""
        drawn = {label: value for body in self._written(WORLD) for label, value in self._coordinates(body).items()}
        if unknown := [label for label in pose if label not in drawn]:
            raise ValueError(
                f"Argument `poses` must name coordinates of the tree, {listing(drawn)}, but '{name}' names {listing(unknown)}."
            )
        return f'<key name={quoteattr(name)} qpos="{_words(np.array([*(drawn | dict(pose)).values()], float))}"/>'

    def _written(self, parent: str) -> list[str]:
        """The bodies that a body carries, with all that those carry, in the order of the file."""
        return [body for child in self._carried(parent) for body in (child, *self._written(child))]

    def _coordinates(self, body: str) -> dict[str, float]:
        """The coordinates by which a body moves on the one that carries it, as the file draws it."""
        joint = self.edges[body].joint
        pair = self.mechanism.free if joint is None else self.joints[joint].pair
        label = body if joint is None else joint
        measured = pair.measure(as_jax(self.start(body) if joint is None else np.eye(4)), as_jax(np.zeros(0)))
        return dict(zip(names_of(label, pair.coordinates), map(float, np.asarray(measured)), strict=True))


def _words(values: ArrayLike) -> str:
    return " ".join(repr(float(x)) for x in np.asarray(values, float))


def _pose(frame: np.ndarray) -> str:
    """The attributes of a pose; none for what is zero."""
    position, rotation = frame[:3, 3], frame[:3, :3]
    words = f' pos="{_words(position)}"' if position.any() else ""
    if np.array_equal(rotation, np.eye(3)):
        return words
    return f'{words} quat="{_words(np.asarray(matrix_quaternion(as_jax(rotation))))}"'
