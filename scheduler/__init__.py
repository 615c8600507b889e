"""The reconcile shift, recurring jobs and sweeps."""
