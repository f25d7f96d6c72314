"""Sweeps: grids of scenarios run as Spark tasks, and their result tables."""
