"""Speed as ratios in one run: Dramaturg on each store against plain Dramatiq, same no-op job, same machine."""
