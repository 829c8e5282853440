"""What was traced, kept for the latest problems only."""

import functools

# Of so many problems, such as different systems: enough for those that a program goes back and forth between; of a small mechanism 16 MiB each.
LATEST = 32
latest = functools.lru_cache(maxsize=LATEST)
