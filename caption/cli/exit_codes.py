"""Exit codes of the `caption` command."""

DONE = 0
SOME_FAILED = 1
"""Some inputs failed, each named with its reason, and the others were answered; or an internal error."""
WRONG_USAGE = 2
INTERRUPTED = 130
"""Stopped by Ctrl-C: 128 plus the number of the signal, as in shells."""
