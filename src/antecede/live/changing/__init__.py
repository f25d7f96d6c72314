"""Live groups whose members come and go (decision 29): the sans-IO core, and what runs it on sockets."""
