"""``dramaturg up``: the main job on a real repository, with everything that it needs, on this machine."""
