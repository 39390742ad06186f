"""Refiners, which map regions to regions between the encoder and the decoder, and are trained with the decoder."""
