"""Repositories behind TLS: access certificates from an auth server, and copies that are read as any repository is."""
