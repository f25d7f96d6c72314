"""What operators see of a live member: metrics, logs, trace."""
