"""Live groups that overlap: one process, one store, one connection to each partner, many groups."""
