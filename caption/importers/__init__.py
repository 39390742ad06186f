"""Importers: trained decoders of other packages become checkpoints of this one, with equal log-probabilities and α."""

from caption.importers.assemble import Imported, assemble
from caption.importers.encoder import Eyes, eyes

__all__ = ["Eyes", "Imported", "assemble", "eyes"]
