"""Trainings whose scores the documents quote: `python -m tools.reproduce`."""
