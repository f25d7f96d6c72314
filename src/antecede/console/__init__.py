"""The console: a page for watching a live group. It asks the members and merges their answers."""
