"""Precomputed regions: encode photos once, train many times."""
