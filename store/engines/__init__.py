"""Embedded engines: real Valkey and Postgres servers that this project starts, watches and ends itself.

``keeper.py`` is the small process that stands between an owner and its engine and ends the engine when the owner has
gone; ``launch.py`` is the owner's side of it; ``places.py`` and ``sockets.py`` say where things lie;
``valkey.py``, ``cluster.py`` and ``postgres.py`` are what others use.
"""
