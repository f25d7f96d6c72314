"""Overlapping live groups: one process, one store and one connection per partner for many groups."""
