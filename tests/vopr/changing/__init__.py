"""Whole members of groups that change, simulated like those of fixed groups: the same disk and network."""
