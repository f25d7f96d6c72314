"""Compiled twin of `protocols/freescale.py` and its roles."""
