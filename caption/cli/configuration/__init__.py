"""Options and configurations of the `caption` command, and messages about their faults."""
