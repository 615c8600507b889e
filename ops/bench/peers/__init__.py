"""Other systems, each a program of its own: ``prepare``, ``worker``, ``one N``, ``bulk N`` and ``pace N``.

Each uses its own usual driver and its own recommended settings, with the same no-op job, the same payload and a
concurrency of 8; what they need comes with the extra ``bench``.
"""
