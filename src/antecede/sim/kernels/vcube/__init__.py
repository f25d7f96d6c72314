"""Compiled twins of `protocols/vcube.py`."""
