"""Motions of the reference whose joints are locked, released and braked on the way: jumps and dry friction written out by hand."""

import dataclasses
import itertools

import numpy as np
from scipy.integrate import solve_ivp

from hard.reference import (
    ATOL,
    RANK,
    RTOL,
    Unsolved,
    acceleration,
    corrected,
    cross,
    forces,
    lowest,
    rates_of,
    rows_at,
)
from hard.rows import arm

SAME_TIME = 1e-12
STILL = 1e-9  # speeds below this are rounding
BESIDE = 1e-3  # least singular value, beside which the reference gives up
DETERMINED = 1e-6  # part of a row that others leave
LONGEST = 0.02  # step in which a zero of a speed or load is looked for
MOST = 15_000, 30  # evaluations of a stretch, and stretches, after which it gives up


@dataclasses.dataclass
class Happening:
    """A joint is locked, released or braked by a force, at a time; or locked where it has gone a `way`."""

    kind: str
    joint: int
    at: float | None = None
    force: float = 0.0
    way: float = 0.0


class Hinge:
    """The coordinate s of a hinge or a slide."""

    def __init__(self, case, model, number):
        c = case.connections[number]
        self.model, self.a, self.b, self.turns = model, c.a, c.b, c.kind == "Revolute"
        self.direction = c.frame_a[1][:, 2 if self.turns or case.dim == 3 else 0]
        self.at_a, self.at_b = arm(case, c.a, c.frame_a[0]), arm(case, c.b, c.frame_b[0])
        side = np.cross(self.direction, np.eye(3)[np.argmin(np.abs(self.direction))])
        self.side = side / np.linalg.norm(side)

    def _frames(self, y):
        x, r = self.model.poses(y)
        s_a, s_b = r[self.a] @ self.at_a, r[self.b] @ self.at_b
        return r, r[self.a] @ self.direction, s_a, s_b, x[self.b] + s_b - x[self.a] - s_a

    def rate(self, y):
        """The row of ṡ."""
        _, u, s_a, s_b, d = self._frames(y)
        row = np.zeros((self.model.n + 1, 6))
        if self.turns:
            row[self.b, 3:], row[self.a, 3:] = u, -u
        else:
            row[self.b], row[self.a] = (
                np.concatenate([u, cross(s_b, u)]),
                np.concatenate([-u, cross(u, d) - cross(s_a, u)]),
            )
        return row[1:, self.model.columns].ravel()

    def held(self, y):
        """What holds it where it is: a kind of `Rows`, and the entry."""
        r, u, _, _, d = self._frames(y)
        if self.turns:
            return "across", (self.a, self.b, self.side, r[self.b].T @ r[self.a] @ np.cross(self.direction, self.side))
        return "along", (self.a, self.b, self.at_a, self.at_b, self.direction, d @ u)

    def way(self, y, start):
        """How far it has gone, less than half a turn."""
        (r, u, _, _, d), (r0, u0, _, _, d0) = self._frames(y), self._frames(start)
        if not self.turns:
            return d @ u - d0 @ u0
        turned = r[self.a].T @ r[self.b] @ (r0[self.a].T @ r0[self.b]).T @ self.side
        return np.arctan2(np.cross(self.direction, self.side) @ turned, self.side @ turned)


def jumped(model, t, y, u):
    """Velocities after rows have begun to act, and the energy lost."""
    mass, _ = forces(model, y, u)
    jacobian, drift, *_ = rows_at(model, t, y, u)
    root = np.linalg.inv(np.linalg.cholesky(mass)).T
    rows = jacobian @ root
    size = np.linalg.norm(rows, axis=1)
    after = u - root @ np.linalg.pinv(rows / size[:, None], RANK) @ ((jacobian @ u + drift) / size)
    return after, 0.5 * (u @ mass @ u - after @ mass @ after)


class Switched:
    """One such motion: what is held, and a brake, which slides in a direction, or holds where that is zero."""

    def __init__(self, case, model, y, u, happenings):
        self.model, self.t, self.y, self.u, self.start = model, 0.0, y, u, y
        self.hinges = {h.joint: Hinge(case, model, h.joint) for h in happenings}
        self.timed, self.guards = [h for h in happenings if h.at is not None], [h for h in happenings if h.at is None]
        self.held, self.brake, self.sliding, self.lost = {}, None, 0.0, 0.0

    def now(self, without=None):
        """The model as it is now."""
        held = [entry for name, entry in self.held.items() if name != without]
        more = {
            kind: getattr(self.model.rows, kind) + [x for k, x in held if k == kind] for kind in ("across", "along")
        }
        braked = self.brake is not None and self.sliding
        drags = ((self.hinges[self.brake.joint].rate, -self.brake.force * self.sliding),) if braked else ()
        return dataclasses.replace(self.model, rows=dataclasses.replace(self.model.rows, **more), drags=drags)

    def speed(self, y, u):
        """ṡ of what is braked."""
        return self.hinges[self.brake.joint].rate(y) @ u

    def load(self, t, y, u):
        """The force along s with which the brake holds, and which part of its row others leave."""
        row, rows = self.hinges[self.brake.joint].rate(y), rows_at(self.now("brake"), t, y, u)[0]
        size = np.linalg.norm(rows, axis=1)[:, None]
        left = row - np.linalg.pinv(rows / size, RANK) @ (rows / size @ row) if len(rows) else row
        force = acceleration(self.now(), t, y, u)[1]
        return force @ left / (left @ left), np.linalg.norm(left) / np.linalg.norm(row)

    def run(self, ts):
        """States (y, u) at all times, the first that of the start."""
        saved, stretches = [(self.y, self.u)], itertools.count()
        for end in ts[1:]:
            while self.t < end - SAME_TIME:
                if next(stretches) > MOST[1]:
                    raise Unsolved
                due = [h for h in self.timed if h.at <= self.t + SAME_TIME]
                self.timed = [h for h in self.timed if h not in due]
                if due:
                    self.happen(due)
                self.stretch(min([end, *(h.at for h in self.timed)]))
            saved.append((self.y, self.u))
        return saved

    def stretch(self, end):
        """On to a time, or to what happens before."""
        model, size, left, ends = self.now(), len(self.y), itertools.count(MOST[0], -1), []

        def slope(t, state):
            if next(left) < 0:
                raise Unsolved
            y, u = state[:size], state[size:]
            return np.concatenate([rates_of(model, y, u), acceleration(model, t, y, u)[0]])

        def at_zero(value, happens, direction=1.0):
            event = lambda t, state: value(t, state[:size], state[size:])
            event.terminal, event.direction = True, direction
            ends.append((event, happens))

        for h in self.guards:
            goes = lambda t, y, u, h=h: np.sign(h.way) * self.hinges[h.joint].way(y, self.start) - abs(h.way)
            at_zero(goes, lambda h=h: (self.guards.remove(h), self.happen([h])))
        if self.brake is not None and self.sliding:
            at_zero(lambda t, y, u: self.speed(y, u) * self.sliding, self.rest, -1.0)
        elif self.brake is not None:
            at_zero(lambda t, y, u: abs(self.load(t, y, u)[0]) - self.brake.force, self.slip)
        events = [event for event, _ in ends] or None
        options = {"method": "DOP853", "rtol": RTOL, "atol": ATOL, "events": events}
        run = solve_ivp(slope, (self.t, end), np.concatenate([self.y, self.u]), max_step=LONGEST, **options)
        if not run.success:
            raise Unsolved
        self.t = run.t[-1]
        self.y, self.u = corrected(model, self.t, run.y[:size, -1], run.y[size:, -1])
        if lowest(rows_at(model, self.t, self.y, self.u)[0]) < BESIDE:
            raise Unsolved
        for times, (_, happens) in zip(run.t_events or (), ends, strict=True):
            if len(times):
                happens()

    def happen(self, due):
        """A dry force bears no impulse: what a brake holds is free while others are stopped."""
        for h in due:
            if h.kind == "lock":
                self.held[h.joint] = self.hinges[h.joint].held(self.y)
            elif h.kind == "release":
                self.held.pop(h.joint, None)  # a guard may not have been reached
            else:
                self.brake = h
        holds = self.held.pop("brake", None)
        if any(h.kind == "lock" for h in due):
            self.u, loss = jumped(self.now(), self.t, self.y, self.u)
            self.lost += loss
        if self.brake is None:
            return
        if self.load(self.t, self.y, self.u)[1] < DETERMINED:
            self.brake, self.sliding = None, 0.0  # no force on it moves anything
        elif abs(self.speed(self.y, self.u)) > STILL * (1 + np.abs(self.u).max()):
            self.sliding = np.sign(self.speed(self.y, self.u))
        elif holds is not None:
            self.rest()
        else:
            raise Unsolved

    def rest(self):
        """What has come to rest is held, if the brake can."""
        self.held["brake"], self.sliding = self.hinges[self.brake.joint].held(self.y), 0.0
        self.u = jumped(self.now(), self.t, self.y, self.u)[0]
        if abs(self.load(self.t, self.y, self.u)[0]) > self.brake.force:
            self.slip()

    def slip(self):
        """It goes the way in which it is drawn."""
        self.sliding = -np.sign(self.load(self.t, self.y, self.u)[0])
        del self.held["brake"]
