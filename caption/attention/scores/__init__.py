"""Scores, which measure the similarity of a query and a region, one per file."""
