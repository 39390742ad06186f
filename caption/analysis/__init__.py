"""Analyses of attention maps: do they lie on the objects that the words name, and do the words depend on them?

Each question has its own module. Nothing is imported here, so that one module does not load the others.
"""
