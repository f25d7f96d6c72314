"""Live groups of `hcg` and `basic`: subgroups on real, linear and vector clocks, joined by gateways."""
