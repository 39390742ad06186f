"""Options and configurations of the `caption` command, and messages about what is wrong in them."""
