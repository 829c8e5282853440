"""Functions over batches of any size."""

from .batched import batched as batched
