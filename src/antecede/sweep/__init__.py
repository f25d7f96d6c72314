"""Sweeps: grids of scenarios run as Spark tasks, and the tables they leave."""
