"""Compiled twin of `protocols/hcg.py` and its clocks."""
