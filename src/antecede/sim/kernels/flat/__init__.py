"""Compiled twins of the flat protocols."""
