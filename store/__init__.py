"""The truth: job rows, their transitions, the stores that keep them and the leases that carry them."""
