"""Random sequences of everything that can happen to a queue, against a plain model, state compared after each step."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from store.valkey.entries import Ack, Burial, Delay, Offer, Release, Renewal
from store.valkey.keys import PARTS
from store.valkey.leases import Leases
from tests.leases import inside, model
from tests.leases.conftest import Connections
from tests.leases.inside import Inside
from tests.leases.model import Model

HOUR = 3_600_000
MEMBERS = ["j:1", "j:2", "m:1", "m:2"]
SCORES = st.sampled_from(["100", "200", "5001700000000000", "8999999999999999"])
LETTERS = st.binary(min_size=1, max_size=3)
HOURS = st.integers(1, 3)


def offers(draw: st.DrawFn) -> Offer:
    member = draw(st.sampled_from(MEMBERS))
    return Offer(member, draw(SCORES), draw(LETTERS) if member.startswith("m:") else b"")


class Machine(RuleBasedStateMachine):
    leases: Leases
    inside_of: Callable[[str], Inside]

    def __init__(self) -> None:
        super().__init__()
        self.queue = f"model {{{uuid.uuid4()}}}"
        self.inside = type(self).inside_of(self.queue)
        self.model = Model()
        self.made = 0

    def teardown(self) -> None:
        for part in PARTS:
            self.inside.command("DEL", part)

    def tokens(self, data: st.DataObject) -> tuple[str, str]:
        """A member and a token: mostly one that holds it, sometimes not."""
        member = data.draw(st.sampled_from(sorted(self.model.flight) or MEMBERS))
        holder = self.model.flight[member].token if member in self.model.flight else "nobody"
        return member, data.draw(st.sampled_from([holder, holder, holder, "t1", "stale"]))

    @rule(
        batch=st.lists(st.composite(offers)(), min_size=1, max_size=4), watermark=st.integers(0, 4), force=st.booleans()
    )
    def offer(self, batch: list[Offer], watermark: int, force: bool) -> None:
        expected = self.model.offer(batch, watermark, force)
        assert self.leases.offer(self.queue, batch, watermark=watermark, force=force) == expected

    @rule(member=st.sampled_from(["m:1", "m:2"]), hours=HOURS, score=SCORES, letter=LETTERS)
    def delay(self, member: str, hours: int, score: str, letter: bytes) -> None:
        batch = [Delay(member, hours * HOUR, score, letter)]
        self.model.delay(batch, hours)
        self.leases.delay(self.queue, batch)

    @rule(fresh=st.integers(0, 3), data=st.data())
    def claim(self, fresh: int, data: st.DataObject) -> None:
        old = data.draw(st.lists(st.sampled_from([f"t{n}" for n in range(self.made + 1)]), unique=True, max_size=2))
        new = [f"t{self.made + 1 + n}" for n in range(fresh)]
        self.made += fresh
        tokens = (old + new) or ["t0"]
        expected = self.model.claim(tokens, 1, 2)
        claims = self.leases.claim(self.queue, tokens, short_ms=HOUR, full_ms=2 * HOUR)
        assert claims.taken == expected
        assert claims.ready == len(self.model.ready)
        assert (claims.next_ms is None) == (not self.model.flight and not self.model.delayed)
        assert claims.next_ms != 0  # all that was over is taken care of

    @rule(data=st.data(), hours=HOURS)
    def renew(self, data: st.DataObject, hours: int) -> None:
        renewal = Renewal(*self.tokens(data), hours * HOUR)
        assert self.leases.renew(self.queue, [renewal]) == [self.model.renew(renewal, hours)]

    @rule(data=st.data(), again=st.booleans(), score=SCORES | st.just(""))
    def ack(self, data: st.DataObject, again: bool, score: str) -> None:
        ack = Ack(*self.tokens(data), again, score)
        assert self.leases.ack(self.queue, [ack]) == [self.model.ack(ack)]

    @rule(data=st.data(), hours=st.integers(0, 3))
    def release(self, data: st.DataObject, hours: int) -> None:
        release = Release(*self.tokens(data), hours * HOUR)
        assert self.leases.release(self.queue, [release]) == [self.model.release(release, hours)]

    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        burial = Burial(*self.tokens(data))
        assert self.leases.bury(self.queue, [burial]) == [self.model.bury(burial)]

    @rule(rarely=st.integers(0, 9))
    def flush(self, rarely: int) -> None:
        if not rarely:
            assert self.leases.flush(self.queue) == self.model.flush()

    @precondition(lambda self: self.model.bell)
    @rule()
    def listen(self) -> None:
        assert self.leases.block(self.queue, 1.0)
        self.model.bell = False

    @rule(rarely=st.integers(0, 9))
    def lose_everything(self, rarely: int) -> None:
        if not rarely:
            self.teardown()
            self.model = Model()

    @precondition(lambda self: self.model.flight)
    @rule(data=st.data())
    def a_lease_runs_out(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.model.flight)))
        if self.model.flight[member].until != model.LONG_AGO:
            self.inside.lapse(member)
            self.model.flight[member].until = model.LONG_AGO

    @precondition(lambda self: self.model.delayed)
    @rule(data=st.data())
    def a_delay_is_over(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.model.delayed)))
        due, score = self.model.delayed[member]
        if due != model.LONG_AGO:
            self.inside.mature(member)
            self.model.delayed[member] = (model.LONG_AGO, score)

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        seen, said = self.inside.everything(), self.model
        assert seen["ready"] == said.ready
        assert seen["again"] == said.again
        now = self.inside.millis()
        assert hours(seen["leases"], now) == {member: one.until for member, one in said.flight.items()}
        assert seen["tokens"] == {member: f"{one.score:016}{one.token}".encode() for member, one in said.flight.items()}
        assert seen["held"] == {one.token: member.encode() for member, one in said.flight.items()}
        assert hours(seen["delayed"], now) == {member: due for member, (due, _) in said.delayed.items()}
        scores = {member: int(score) for member, score in seen["scores"].items()}
        assert scores == {member: score for member, (_, score) in said.delayed.items()}
        assert seen["envelopes"] == said.letters
        assert {member: int(count) for member, count in seen["lost"].items()} == said.lost
        assert seen["graves"] == said.dead
        assert seen["dead"].keys() == said.dead.keys()
        assert seen["bell"] == ({"length": 1} if said.bell else {})


def hours(moments: dict[str, int], now: int) -> dict[str, int]:
    """What the model calls these moments; a test takes much less than an hour."""
    return {
        member: model.LONG_AGO if moment == inside.LONG_AGO else -((now - moment) // HOUR)
        for member, moment in moments.items()
    }


@pytest.mark.parametrize(("way", "examples"), [("server", 60), ("cluster", 8)], indirect=["way"])
def test_whatever_happens_the_scripts_do_what_the_model_says(
    url: str, examples: int, leases: Leases, connections: Connections, request: pytest.FixtureRequest
) -> None:
    bare = connections.at(url)[1]
    played = type(
        "Played", (Machine,), {"leases": leases, "inside_of": staticmethod(lambda queue: Inside(bare, queue))}
    )
    number = random.SystemRandom().getrandbits(64)
    request.node.add_report_section("call", "seed", f"to play the same again: number = {number}")
    run_state_machine_as_test(
        seed(number)(played),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # making a failure smaller takes minutes: do it by hand, with the seed
            suppress_health_check=list(HealthCheck),
        ),
    )
