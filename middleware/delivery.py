"""What our consumers hand to Dramatiq's workers."""

from __future__ import annotations

import dramatiq
from dramatiq import Message, MessageProxy

from middleware.holding import Holding


class Delivery(MessageProxy):
    """An ordinary message under its lease in Valkey."""

    def __init__(self, message: Message[object], member: str, token: str) -> None:
        super().__init__(message)
        self.member = member
        self.token = token


class JobDelivery(MessageProxy):
    """A claimed row, dressed as a message without arguments: the row holds all there is to know."""

    def __init__(self, holding: Holding, queue: str) -> None:
        job = holding.job
        super().__init__(
            dramatiq.Message(
                queue_name=queue, actor_name=job.job_type, args=(), kwargs={}, options={}, message_id=job.id
            )
        )
        self.holding = holding
