"""Words that no caption taught: see `__main__`."""
