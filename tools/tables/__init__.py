"""The tables of docs/results, trained, tested and written by one command: `python -m tools.tables`."""
