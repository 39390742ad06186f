"""Checking a data set before training on it."""
