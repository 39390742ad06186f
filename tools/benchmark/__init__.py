"""What training, search and their parts cost: `python -m tools.benchmark`, which writes docs/results/performance.md."""
