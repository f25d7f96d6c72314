"""Authentication of members: certificates, tokens and shared secrets."""
