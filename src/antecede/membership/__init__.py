"""Dynamic groups: members join, leave, are removed, and return, without a pause in broadcasting."""
