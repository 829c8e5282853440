"""Random mechanisms: a pose of each body is drawn first, then where joints are, so that every loop is closed as it is drawn."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Link:
    """Mass properties about the centre of mass and the pose of the frame, in the axes of which `com` and `inertia` are."""

    mass: float
    inertia: np.ndarray
    com: np.ndarray
    x: np.ndarray
    turn: np.ndarray


@dataclasses.dataclass
class Connection:
    """A joint between bodies a and b, 0 the ground, by its frames (position, rotation) in the axes of both; `size` is a length or radius."""

    kind: str
    a: int
    b: int
    frame_a: tuple
    frame_b: tuple
    size: float = 0.0


@dataclasses.dataclass
class Case:
    """A mechanism without units. `drives` are (joint, (f₀, rate, amplitude, frequency)), springs (a, b, at a, at b, stiffness, damping, length), `speed` that of the start."""

    dim: int
    links: list
    gravity: np.ndarray
    connections: list = dataclasses.field(default_factory=list)
    springs: list = dataclasses.field(default_factory=list)
    drives: list = dataclasses.field(default_factory=list)
    speed: float = 1.0


def about(axis, angle):
    """A rotation by Rodrigues' formula."""
    x, y, z = axis
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


class Draw:
    """A mechanism as it is drawn."""

    def __init__(self, rng, dim, gravity=True):
        self.rng = rng
        self.case = Case(dim, [], np.zeros(3))
        self.case.gravity = self.flat(rng.normal(size=3)) * gravity

    def flat(self, x):
        return x if self.case.dim == 3 else x * np.array([1.0, 1.0, 0.0])

    def place(self):
        return self.flat(self.rng.uniform(-1, 1, 3))

    def turn(self):
        if self.case.dim == 2:
            return about((0.0, 0.0, 1.0), self.rng.uniform(-np.pi, np.pi))
        q, r = np.linalg.qr(self.rng.normal(size=(3, 3)))
        q = q * np.sign(np.diag(r))
        return q if np.linalg.det(q) > 0 else -q

    def body(self, share=1.0, com=True, x=None):
        """A body of a random box's inertia; `share` of the mass of others."""
        rng = self.rng
        mass = share * 10 ** rng.uniform(-0.5, 0.5)
        sides = rng.uniform(0.2, 1.0, 3) ** 2
        axes = self.turn()
        inertia = axes @ np.diag(mass * (sides.sum() - sides) / 6) @ axes.T
        place = self.place() if x is None else x
        self.case.links.append(Link(mass, inertia, 0.5 * self.place() * com, place, self.turn()))
        return len(self.case.links)

    def local(self, body, x, turn):
        if body == 0:
            return x, turn
        link = self.case.links[body - 1]
        return link.turn.T @ (x - link.x), link.turn.T @ turn

    def joint(self, kind, a, b, x=None, turn=None, size=0.0):
        """A joint at a place and a frame of the world, or at random ones, and at a random value of its coordinates. Returns its number."""
        x, turn = self.place() if x is None else x, self.turn() if turn is None else turn
        shift, rotation = self.coordinates(kind)
        frame_b = (x + turn @ shift, turn @ rotation)
        connection = Connection(kind, a, b, self.local(a, x, turn), self.local(b, *frame_b), size)
        self.case.connections.append(connection)
        return len(self.case.connections) - 1

    def coordinates(self, kind):
        """Where frame b is in frame a, for random coordinates of the joint."""
        rng, zero = self.rng, np.zeros(3)
        angle, other, (x, y, z) = *rng.uniform(-2, 2, 2), rng.uniform(-0.5, 0.5, 3)
        about_z = about((0.0, 0.0, 1.0), angle)
        plane = self.case.dim == 2
        return {
            "Revolute": (zero, about_z),
            "Prismatic": (np.array([x, 0, 0] if plane else [0, 0, z]), np.eye(3)),
            "PointOnLine": (np.array([x, 0, 0]), about_z) if plane else (np.array([0, 0, z]), self.turn()),
            "Fixed": (zero, np.eye(3)),
            "Cylindrical": (np.array([0, 0, z]), about_z),
            "Universal": (zero, about_z @ about((1.0, 0.0, 0.0), other)),
            "Spherical": (zero, self.turn()),
            "Planar": (np.array([x, y, 0]), about_z),
            "PointOnPlane": (np.array([x, y, 0]), self.turn()),
            "KnifeEdge": (zero, np.eye(3)),
        }[kind]

    def rod(self, a, b, at_a=None, at_b=None):
        """A distance between two places."""
        at_a, at_b = (self.place() if x is None else x for x in (at_a, at_b))
        frames = self.local(a, at_a, np.eye(3)), self.local(b, at_b, np.eye(3))
        self.case.connections.append(Connection("Distance", a, b, *frames, float(np.linalg.norm(at_a - at_b))))

    def spring(self, a, b):
        """A spring and damper, with its ends far enough apart that they do not meet."""
        at_a, at_b = self.place(), self.place()
        at_b = at_b + 1.5 * (at_b - at_a) / np.linalg.norm(at_b - at_a)
        stiffness, damping, length = self.rng.uniform((1, 0.1, 0.2), (5, 0.5, 1.0))
        ends = self.local(a, at_a, np.eye(3))[0], self.local(b, at_b, np.eye(3))[0]
        self.case.springs.append((a, b, *ends, stiffness, damping, length))

    def drive(self, joint):
        """The angle of a hinge as a function of time, from where it is."""
        connection = self.case.connections[joint]
        a, b = (self.world(connection.a, connection.frame_a)[1], self.world(connection.b, connection.frame_b)[1])
        now = a.T @ b
        rate, amplitude, frequency = self.rng.uniform((-1, 0.1, 0.5), (1, 0.4, 2))
        self.case.drives.append((joint, (np.arctan2(now[1, 0], now[0, 0]), rate, amplitude, frequency)))

    def world(self, body, frame):
        if body == 0:
            return frame
        link = self.case.links[body - 1]
        return link.x + link.turn @ frame[0], link.turn @ frame[1]


def ring(draw, bodies, kinds):
    """Bodies in a row, and joints between them and at both ends, the ground."""
    for kind, a, b in zip(kinds, [0, *bodies], [*bodies, 0], strict=True):
        draw.joint(kind, a, b)


# Of the plane


def planar_tree(rng):
    draw = Draw(rng, 2)
    one, two, three, four, five = (draw.body() for _ in range(5))
    for kind, a, b in zip(
        ("Revolute", "Revolute", "Prismatic", "Revolute", "PointOnLine"),
        (0, one, one, two, three),
        (one, two, three, four, five),
        strict=True,
    ):
        draw.joint(kind, a, b)
    draw.spring(0, three)
    draw.spring(two, five)
    return draw


def light(rng):
    """The mass of a light link in units of the others."""
    return 10 ** -rng.uniform(6, 12)


def fourbar(rng, share=1.0):
    draw = Draw(rng, 2)
    bodies = [draw.body(), draw.body(share), draw.body()]
    ring(draw, bodies, ["Revolute"] * 4)
    draw.spring(0, bodies[2])
    return draw


def light_fourbar(rng):
    return fourbar(rng, light(rng))


def massless_fourbar(rng):
    return fourbar(rng, 0.0)


def near_parallelogram(rng):
    """A fast four-bar whose cranks agree but for a millionth of a millionth to a hundredth: it folds flat, or turns off just before."""
    draw = Draw(rng, 2)
    one, coupler, two = (draw.body() for _ in range(3))
    foot, base, arm = draw.place(), draw.place(), draw.place()
    other = foot + base + (1 + 10.0 ** rng.uniform(-12, -2)) * arm
    draw.joint("Revolute", 0, one, foot)
    draw.joint("Revolute", one, coupler, foot + arm)
    draw.joint("Revolute", coupler, two, other)
    draw.joint("Revolute", two, 0, foot + base)
    draw.spring(0, two)
    draw.case.speed = 5.0
    return draw


def slider_crank(rng):
    draw = Draw(rng, 2)
    bodies = [draw.body() for _ in range(3)]
    ring(draw, bodies, ["Revolute", "Revolute", "Revolute", "Prismatic"])
    draw.spring(0, bodies[2])
    return draw


def fivebar(rng):
    draw = Draw(rng, 2)
    bodies = [draw.body() for _ in range(4)]
    ring(draw, bodies, ["Revolute"] * 5)
    draw.spring(0, bodies[1])
    draw.spring(0, bodies[2])
    return draw


def driven_fivebar(rng):
    draw = fivebar(rng)
    draw.drive(0)
    return draw


def watt(rng):
    draw = Draw(rng, 2)
    one, two, three, four, five = (draw.body() for _ in range(5))
    for a, b in ((0, one), (one, two), (two, three), (three, 0), (two, four), (four, five), (five, three)):
        draw.joint("Revolute", a, b)
    draw.spring(0, four)
    return draw


def stephenson(rng):
    draw = Draw(rng, 2)
    one, two, three, four, five = draw.body(), draw.body(light(rng)), draw.body(), draw.body(), draw.body(light(rng))
    for a, b in ((0, one), (one, two), (two, three), (three, 0), (two, four), (four, five), (five, 0)):
        draw.joint("Revolute", a, b)
    draw.spring(0, four)
    return draw


def parallelogram(rng, share=1.0):
    """Three equal cranks, of which one is superfluous."""
    draw = Draw(rng, 2)
    top, arm = draw.body(), draw.place()
    for _ in range(3):
        foot, crank = draw.place(), draw.body(share)
        draw.joint("Revolute", 0, crank, foot)
        draw.joint("Revolute", crank, top, foot + arm)
    draw.spring(0, top)
    return draw


def massless_cranks(rng):
    return parallelogram(rng, 0.0)


def closed_chain(rng):
    draw = Draw(rng, 2)
    bodies = [draw.body() for _ in range(7)]
    ring(draw, bodies, ["Revolute"] * 8)
    return draw


def slots(rng):
    """Two loops of a pin in a slot, a slider and a rod."""
    draw = Draw(rng, 2)
    one, two, three = (draw.body() for _ in range(3))
    draw.joint("Revolute", 0, one)
    draw.joint("Revolute", 0, two)
    draw.joint("PointOnLine", two, one)
    draw.joint("Prismatic", two, three)
    draw.rod(three, 0)
    return draw


def sleigh(rng):
    """A blade that carries a pendulum, and a spring."""
    draw = Draw(rng, 2, gravity=False)
    one, two = draw.body(), draw.body()
    draw.joint("KnifeEdge", 0, one)
    draw.joint("Revolute", one, two)
    draw.spring(0, two)
    return draw


def wheel(rng):
    """A wheel on a line, and a pendulum on it."""
    draw = Draw(rng, 2)
    radius, turn, x = rng.uniform(0.2, 0.8), draw.turn(), draw.place()
    one = draw.body(com=False, x=x + radius * turn[:, 1])
    draw.case.connections.append(Connection("RollingWheel", 0, one, (x, turn), (np.zeros(3), np.eye(3)), radius))
    two = draw.body()
    draw.joint("Revolute", one, two)
    draw.spring(0, one)
    return draw


# Of space


def spatial_tree(rng):
    draw = Draw(rng, 3)
    bodies = [draw.body() for _ in range(5)]
    for kind, a, b in zip(
        ("Revolute", "Universal", "Spherical", "Cylindrical", "Prismatic"), (0, 1, 2, 1, 4), bodies, strict=True
    ):
        draw.joint(kind, a, b)
    draw.spring(0, bodies[4])
    draw.spring(0, bodies[2])
    return draw


def spatial_fourbar(rng):
    """Revolute, spherical, universal, revolute."""
    draw = Draw(rng, 3)
    bodies = [draw.body(), draw.body(light(rng)), draw.body()]
    ring(draw, bodies, ["Revolute", "Spherical", "Universal", "Revolute"])
    draw.spring(0, bodies[0])
    return draw


def rssr(rng):
    draw = Draw(rng, 3)
    bodies = [draw.body(), draw.body(), draw.body()]
    ring(draw, bodies, ["Revolute", "Spherical", "Spherical", "Revolute"])
    draw.spring(0, bodies[2])
    return draw


def parallel_hinges(rng):
    """A four-bar in space, in a plane of any direction: three rows are redundant."""
    draw = Draw(rng, 3)
    bodies = [draw.body() for _ in range(3)]
    turn = draw.turn()
    for a, b in zip([0, *bodies], [*bodies, 0], strict=True):
        draw.joint("Revolute", a, b, turn=turn)
    draw.spring(0, bodies[1])
    return draw


def platform(rng):
    """A platform on three legs with universal and ball joints."""
    draw = Draw(rng, 3)
    top = draw.body()
    for _ in range(3):
        leg = draw.body()
        draw.joint("Universal", 0, leg)
        draw.joint("Spherical", leg, top)
    draw.spring(0, top)
    return draw


def stewart(rng):
    """A platform on five rods and a spring."""
    draw = Draw(rng, 3)
    top = draw.body()
    for _ in range(5):
        foot = draw.place() - np.array([0.0, 0.0, 2.0])
        draw.rod(0, top, foot, draw.place())
    draw.spring(0, top)
    return draw


def guides(rng):
    """A cylindrical guide, a wire, a plane on a plane and a ball on a plane, tied by a hinge and a rod."""
    draw = Draw(rng, 3)
    one, two, three = (draw.body() for _ in range(3))
    draw.joint("Cylindrical", 0, one)
    draw.joint("Revolute", one, two)
    draw.joint("PointOnLine", 0, two)
    draw.joint("Planar", 0, three)
    draw.joint("PointOnPlane", three, one)
    draw.rod(two, three)
    draw.spring(0, one)
    return draw


def driven_rssr(rng):
    draw = rssr(rng)
    draw.drive(0)
    return draw


TOPOLOGIES = {
    fn.__name__: fn
    for fn in (
        *(
            fourbar,
            near_parallelogram,
            slider_crank,
            parallelogram,
            parallel_hinges,
            spatial_fourbar,
            rssr,
            fivebar,
            driven_fivebar,
            planar_tree,
        ),
        *(light_fourbar, massless_fourbar, watt, stephenson, massless_cranks, closed_chain, slots, sleigh, wheel),
        *(spatial_tree, platform, stewart, guides, driven_rssr),
    )
}
