"""Mechanisms as text, and back.

A text is data: reading it makes elements of a fixed list of classes and runs nothing else.
"""

from .language import ELEMENTS, Language
from .read import read
from .write import write
