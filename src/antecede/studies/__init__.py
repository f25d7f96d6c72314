"""Studies: what to run, and how to show it."""
