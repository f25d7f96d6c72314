"""Live groups with dynamic membership (decision 29): the sans-IO core, and what runs it on sockets."""
