"""The `caption` command. Verbs import what they need when they are called."""
