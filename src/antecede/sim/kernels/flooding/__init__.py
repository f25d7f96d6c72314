"""Compiled twin of `protocols/flooding.py`."""
