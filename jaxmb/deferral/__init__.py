"""Parts of a program that are compiled when they are first needed."""

from .fallback import defers, with_fallback
