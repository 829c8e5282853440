"""Parts of a program that are compiled when they are first needed."""

from .fallback import defers as defers
from .fallback import with_fallback as with_fallback
