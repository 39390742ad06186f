"""Importers: trained decoders of other packages become checkpoints of this one, with equal log-probabilities and α."""
