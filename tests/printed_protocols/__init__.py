"""The papers' protocols with one rule as it is printed, or as it might be read: each fails.

`docs/protocols/errata.py` finds the smallest run in which each does. A member is restored from what it has
saved at every step of a `check`, so the whole state of a variant is in its fields, and a part that another
class replaces is declared with that class.
"""
