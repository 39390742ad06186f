"""Utilities for all packages: files, signals, progress, prefetching in threads, processes, Ray."""
