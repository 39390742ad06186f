"""What all rooms share: regions, trees of tensors, parts, boxes, errors; `runtime` reads and writes files."""
