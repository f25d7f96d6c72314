"""Putting rows into causal order: each after every row that it depends on.

`links` reads from columns who depends on whom, `settle` decides about every row that is at hand, `table` does
so with a whole table, and `group` with rows as they come, keeping what waits and a record of what came out.
"""
