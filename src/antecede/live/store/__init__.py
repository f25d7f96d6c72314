"""Durable state of a live member: the journal and its group commit."""
