"""Operations of a live member: metrics, logs, trace."""
