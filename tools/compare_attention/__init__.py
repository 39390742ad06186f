"""The comparison of attention mechanisms on Shapes: see `tools.compare_attention.__main__`."""
