"""Charts and pages from tables. Nothing here computes a result."""
