"""Leases in Valkey: who may try a job, and where ordinary messages wait. Nothing here is the truth about a job."""
