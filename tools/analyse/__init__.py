"""Whether models look at what they name, and whether that is why they name it: `python -m tools.analyse`."""
