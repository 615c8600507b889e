"""Faults on real processes: load, a ledger outside of the system, one fault after the other, and an auditor."""
