"""A deterministic world that drives protocol objects: same seed, same trace, on every machine."""
