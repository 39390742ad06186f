"""Alignments, which turn scores into weights, one per file."""
