"""Compiled twin of `protocols/pc.py`."""
