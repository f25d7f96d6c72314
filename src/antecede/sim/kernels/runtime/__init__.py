"""Data structures that all event kernels share."""
