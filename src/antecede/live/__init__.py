"""The live runtime: the `Group` that applications hold, its links and its journal."""
