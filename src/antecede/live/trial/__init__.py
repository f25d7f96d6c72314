"""Groups of real processes under faults and load, for trials and benchmarks."""
