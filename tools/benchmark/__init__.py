"""The cost of training, search and their parts: `python -m tools.benchmark` writes docs/results/benchmarks.md."""
