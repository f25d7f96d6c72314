"""The five papers' experiments: what to run, what they print, and how ours compares."""
