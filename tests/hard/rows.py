"""What the reference integrates: the rows of drawn mechanisms, written out from the geometry of their joints."""

import numpy as np

from hard.reference import Model, Rows


def model_of(case):
    """The reference's model, and its coordinates as drawn."""
    rows = Rows()
    for connection in case.connections:
        add_rows(case, connection, rows)
    for joint, law in case.drives:
        connection = case.connections[joint]
        turn_a, turn_b = connection.frame_a[1], connection.frame_b[1]
        rows.turn.append((connection.a, connection.b, turn_a[:, 0], turn_a[:, 1], turn_b[:, 0], law_of(law)))
    springs = [(a, b, arm(case, a, at_a), arm(case, b, at_b), *data) for a, b, at_a, at_b, *data in case.springs]
    masses = np.array([link.mass for link in case.links])
    model = Model(case.dim, masses, np.array([link.inertia for link in case.links]), case.gravity, rows, springs)
    centres = [link.x + link.turn @ link.com for link in case.links]
    return model, np.concatenate([np.ravel(centres), *(quaternion(link.turn) for link in case.links)])


def law_of(law):
    start, rate, amplitude, frequency = law
    return lambda t: (
        start + rate * t + amplitude * np.sin(frequency * t),
        rate + amplitude * frequency * np.cos(frequency * t),
    )


def quaternion(turn):
    """Of a rotation matrix, by its largest entry."""
    whole = np.array(
        [
            [1 + np.trace(turn), turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]],
            [0, 1 + 2 * turn[0, 0] - np.trace(turn), turn[0, 1] + turn[1, 0], turn[0, 2] + turn[2, 0]],
            [0, 0, 1 + 2 * turn[1, 1] - np.trace(turn), turn[1, 2] + turn[2, 1]],
            [0, 0, 0, 1 + 2 * turn[2, 2] - np.trace(turn)],
        ]
    )
    whole = whole + np.triu(whole, 1).T
    q = whole[np.argmax(np.diag(whole))]
    return q / np.linalg.norm(q)


def arm(case, body, place):
    """A place in the axes of a body, from its centre of mass."""
    return place if body == 0 else place - case.links[body - 1].com


def add_rows(case, connection, rows):
    """The rows of a joint from its geometry."""
    c, a, b = connection, connection.a, connection.b
    s_a, s_b = arm(case, a, c.frame_a[0]), arm(case, b, c.frame_b[0])
    (ax, ay, az), (bx, by, bz) = c.frame_a[1].T, c.frame_b[1].T
    meet = lambda: rows.meet.append((a, b, s_a, s_b, (0, 1) if case.dim == 2 else (0, 1, 2)))
    across = lambda *pairs: rows.across.extend((a, b, *pair) for pair in pairs)
    along = lambda *axes: rows.along.extend((a, b, s_a, s_b, axis, 0.0) for axis in axes)
    if c.kind in ("Revolute", "Universal", "Spherical"):
        meet()
    if case.dim == 2:
        if c.kind in ("Prismatic", "PointOnLine"):
            along(ay)
        if c.kind == "Prismatic":
            across((ax, by))
    else:
        along(
            *{
                "Prismatic": (ax, ay),
                "Cylindrical": (ax, ay),
                "PointOnLine": (ax, ay),
                "Planar": (az,),
                "PointOnPlane": (az,),
            }.get(c.kind, ())
        )
        across(*{"Universal": ((az, bx),)}.get(c.kind, ()))
        if c.kind in ("Revolute", "Prismatic", "Cylindrical", "Planar"):
            across((ax, bz), (ay, bz))
        if c.kind == "Prismatic":
            across((ax, by))
    if c.kind == "Distance":
        rows.apart.append((a, b, s_a, s_b, c.size))
    if c.kind == "KnifeEdge":
        rows.slip.append((b, s_b, by, False))
    if c.kind == "RollingWheel":
        rows.along.append((a, b, s_a, s_b, ay, c.size))
        rows.slip.append((b, -c.size * ay, ax, True))
