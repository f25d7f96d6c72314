"""Shapes of networks: who is joined to whom, and along which tree a message travels."""
