"""Definitions for all packages: regions, trees of tensors, parts, boxes, errors; `runtime` reads and writes files."""
