"""Logs of other programs: their tables under our column names, their logs and graphs as dependency tables."""
