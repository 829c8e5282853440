"""Mechanisms as text, and back.

A text is data: reading it makes elements of a fixed list of classes and runs nothing else.
"""

from .language import ELEMENTS as ELEMENTS
from .language import Language as Language
from .read import read as read
from .write import write as write
