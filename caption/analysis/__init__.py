"""Questions asked of attention maps: do they lie on the objects that the words name, and do they matter.

Each question has its own module; nothing is imported here, so that asking one does not load the others.
"""
