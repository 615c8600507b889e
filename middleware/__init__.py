"""What surrounds a run: the broker, the job decorator, the fence and its companions."""
