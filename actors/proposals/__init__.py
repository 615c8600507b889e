"""Proposals of git repositories: the first consumer of the job system."""
