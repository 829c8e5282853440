"""Whether a thread is within some part of the code."""

import threading


class Within(threading.local):
    """True within `with`, in the same thread only."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1

    def __bool__(self) -> bool:
        return self.depth > 0
