"""Whole members of changing groups, simulated with the same disk and network as those of fixed groups."""
