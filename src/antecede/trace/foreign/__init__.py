"""What other programs leave: their tables under our names, their logs and graphs as dependency tables."""
