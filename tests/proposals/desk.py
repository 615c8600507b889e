"""A store, a real repository, the ledger over both, and the jobs' handlers run on real rows, one attempt at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from actors.proposals.git import Comparison
from actors.proposals.job import request, scan_repositories, track_repository
from actors.proposals.ledger import Proposals
from actors.proposals.model import Proposal, Registration
from actors.proposals.scanning import Scan, Scanner
from actors.proposals.statements import dialect_of, spelled
from actors.proposals.tracking import RepositoryRef, Tracker
from actors.proposals.view import GitView
from middleware.answers import finish_of, plain_finish
from middleware.failures import describe
from middleware.holding import Holding
from middleware.interrupts import Cancelled
from middleware.job import Payload
from middleware.run import Run
from middleware.runtime import Runtime
from middleware.settings import WorkerSettings
from store import clock
from store.contract import ANY_VERSION, Change, Document, Store
from store.errors import DramaturgError
from store.events import Claim, Finish, Kind
from store.identity import new_id, new_lease_id
from store.job import Job
from store.operations import Item, settle
from store.outcome import Outcome
from store.policy import Policy
from store.settings import StoreSettings
from store.surreal.errors import results
from store.transitions import Answer, Decision, Write
from tests.proposals.repositories import Workshop

INTERVAL = 30.0
NAME = "scribe"


class Reads:
    """Opens real repositories and keeps count of what is read of them."""

    def __init__(self) -> None:
        self.heads: list[list[str]] = []
        self.compared: list[tuple[str, str]] = []
        self.opened = 0
        #: Called before each comparison.
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self, path: Path) -> GitView:
        self.opened += 1
        return _Counted(path, self)

    def forget(self) -> None:
        """Count anew."""
        self.heads, self.compared, self.opened = [], [], 0


class _Counted(GitView):
    def __init__(self, path: Path, reads: Reads) -> None:
        super().__init__(path)
        self._reads = reads

    def heads(self, branches: Iterable[str]) -> dict[str, str | None]:
        wanted = list(branches)
        self._reads.heads.append(wanted)
        return super().heads(wanted)

    def compare(self, base_commit: str, head_commit: str) -> Comparison:
        self._reads.meanwhile()
        self._reads.compared.append((base_commit, head_commit))
        return super().compare(base_commit, head_commit)


class Ran(NamedTuple):
    """One attempt: the claimed row, what the fence made of the outcome, and the row afterwards (None: deleted)."""

    claimed: Job
    finish: Finish
    row: Job | None

    @property
    def left(self) -> Job:
        assert self.row is not None
        return self.row


class Desk:
    """Everything that a test of proposals works with. The repository has ``main`` and, ahead of it, ``feature``."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.workshop = Workshop(folder / "scribe.git")
        start = self.workshop.commit("main", {"a.txt": "one\n"})
        self.workshop.branch("feature", start)
        self.workshop.commit("feature", {"b.txt": "two\n"})
        self.reads = Reads()
        self.proposals = Proposals(store)
        self._runtime = Runtime(StoreSettings(home=folder), WorkerSettings())  # a run only asks it for its settings
        for policy in (track_repository.policy, scan_repositories.policy):
            assert store.put(Document("policy", policy.job_type, ANY_VERSION, policy.document()))

    # --- proposals

    def register(self, name: str = NAME) -> Registration:
        """The repository, registered."""
        return self.proposals.add_repository(name, self.workshop.path)

    def open(self, head: str = "feature", base: str = "main", **more: Any) -> Proposal:
        """A proposal, of a repository that is registered with it."""
        return self.proposals.open(NAME, base, head, f"{head} into {base}", path=self.workshop.path, **more)

    def open_many(self, count: int) -> list[Proposal]:
        """Proposals of branches of their own, each a commit ahead."""
        for number in range(count):
            name = f"topic-{number:03d}"
            self.workshop.commit(name, {f"{name}.txt": name}, parents=[self.tip("main")])
        return [self.open(f"topic-{number:03d}") for number in range(count)]

    def tip(self, branch: str) -> str:
        """Where a branch stands."""
        return str(self.workshop.raw.references[f"refs/heads/{branch}"].target)

    def delete_branch(self, branch: str) -> None:
        self.workshop.raw.references.delete(f"refs/heads/{branch}")

    def make_anew(self) -> None:
        """Another repository takes the place of the first, with branches of the same names."""
        self.workshop.path.rename(self.folder / "moved-away.git")
        self.workshop = Workshop(self.folder / "scribe.git")
        start = self.workshop.commit("main", {"z.txt": "another\n"})
        self.workshop.branch("feature", start)
        self.workshop.commit("feature", {"y.txt": "other\n"})

    def now(self, proposal: Proposal) -> Proposal:
        """The proposal as it stands now."""
        return self.proposals.get(proposal.id)

    # --- jobs

    def job(self, registration: Registration) -> Job | None:
        """The row of a repository's job."""
        return self.store.read([request(registration).id])[0]

    def there(self, registration: Registration) -> Job:
        """The row of a repository's job, which is there."""
        row = self.job(registration)
        assert row is not None
        return row

    def track(
        self,
        registration: Registration,
        *,
        page: int = 50,
        before: Callable[[Run], object] = lambda _: None,
        after: Callable[[], object] = lambda: None,
    ) -> Ran:
        """One attempt of a repository's job, at the moment that it becomes due. ``before`` is called with the run when
        it begins, ``after`` between what the handler did and its finish."""
        tracker = Tracker(self.store, INTERVAL, view=self.reads, page=page, draw=lambda: 0.5)

        def handler(ref: RepositoryRef, run: Run) -> Outcome:
            before(run)
            outcome = tracker.work(ref, run)
            after()
            return outcome

        return self._attempt(request(registration).id, RepositoryRef, handler, track_repository.policy)

    def pass_through(self, registration: Registration, *, page: int = 50) -> list[Ran]:
        """Attempts until one of them doesn't want to go on at once."""
        ran = [self.track(registration, page=page)]
        while ran[-1].row is not None and ran[-1].finish.kind == "again" and ran[-1].finish.delay == 0:
            assert len(ran) < 50
            ran.append(self.track(registration, page=page))
        return ran

    def scan(self, *, page: int = 200) -> Ran:
        """One attempt of the scan at start-up."""
        scanner = Scanner(self.store, request, page=page)
        wake = scan_repositories.request()
        return self._attempt(wake.id, Scan, lambda _, run: scanner.work(run), scan_repositories.policy)

    def _attempt(self, id_: str, payload: type[Payload], handler: Callable[..., Outcome], policy: Policy) -> Ran:
        [row] = self.store.read([id_])
        assert row is not None, "there is no such job"
        assert row.run_at != clock.PARKED, "nobody wants that job to run"
        claim = Claim(id_, new_lease_id(), "desk", 60)
        [claimed] = self.store.claim([claim], now=max(row.run_at, self.store.ping()))
        assert claimed.job is not None
        holding = Holding(claimed.job, policy, id_, 0.0)
        try:
            outcome = handler(payload.model_validate_json(claimed.job.payload), Run(holding, self._runtime))
            finish = finish_of(holding, outcome, self._runtime)
        except Cancelled:
            finish = plain_finish(holding, Kind.CANCELLED)
        except DramaturgError as error:
            finish = plain_finish(holding, Kind.RETRY, failure=describe(error))
        [settled] = settle(self.store, [Item(id_, finish, policy)])
        assert settled.decision is not None
        return Ran(claimed.job, finish, self.store.read([id_])[0])

    # --- the database

    def execute(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """A statement in the spelling of ``statements.py``."""
        with self.store.transaction() as tx:
            return tx.execute(spelled(dialect_of(self.store.dialect), statement), values)

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of ours and of the jobs': what must be the same where nothing was changed."""
        tables = ("repository", "proposal", "proposal_snapshot", "proposal_feed", "job")
        return {name: sorted(self.execute(f"SELECT * FROM {{our}}{name}"), key=repr) for name in tables}

    def delete_job(self, id_: str) -> None:
        """The row is gone, as if an operator had pruned it."""
        [job] = self.store.read([id_])
        assert job is not None
        deletion = Decision(Answer.APPLIED, None, Write(delete=True))
        assert self.store.swap([Change(id_, job.revision, deletion)]) == [True]

    def fill(self, repositories: int, proposals: int) -> None:
        """So many repositories more with so many proposals each, one in fifty of them open."""
        if self.surreal:
            self._fill_surreal(repositories, proposals)
            return
        rows = "json_array_elements(CAST(:rows AS json)) AS value" if self.postgres else "json_each(:rows)"
        first, second = ("CAST(value ->> {} AS uuid)" if self.postgres else "value ->> {}").format(0), "value ->> 1"
        owner = second if not self.postgres else f"CAST({second} AS uuid)"
        ids = [new_id() for _ in range(repositories)]
        self.execute(
            "INSERT INTO {our}repository (id, domain, name, path, incarnation, registered_at) "
            f"SELECT {first}, 'd', {second}, '/r', '1', {{now}} FROM {rows}",
            rows=json.dumps([[id_, f"r{number}"] for number, id_ in enumerate(ids)]),
        )
        made = [[new_id(), id_, "closed" if number % 50 else "open"] for id_ in ids for number in range(proposals)]
        self.execute(
            "INSERT INTO {our}proposal (id, repository_id, title, base, head, state, version, revision, created_at, "
            f"updated_at) SELECT {first}, {owner}, 't', 'main', 'topic', value ->> 2, 1, 1, {{now}}, {{now}} "
            f"FROM {rows}",
            rows=json.dumps(made),
        )
        self.execute("ANALYZE")

    def _fill_surreal(self, repositories: int, proposals: int) -> None:
        names = {new_id(): f"r{number}" for number in range(repositories)}
        self.execute(
            "{{ FOR $row IN $rows {{ CREATE type::record('dramaturg_repository', $row[0]) SET domain = 'd', "
            "name = $row[1], path = '/r', incarnation = '1', registered_at = $now RETURN NONE }} }}",
            rows=[list(row) for row in names.items()],
        )
        for id_ in names:
            self.execute(
                "{{ FOR $row IN $rows {{ CREATE type::record('dramaturg_proposal', $row[0]) SET "
                "repository_id = $owner, title = 't', base = 'main', head = 'topic', state = $row[1], version = 1, "
                "revision = 1, created_at = $now, updated_at = $now RETURN NONE }} }}",
                rows=[[new_id(), "closed" if number % 50 else "open"] for number in range(proposals)],
                owner=id_,
            )

    @property
    def surreal(self) -> bool:
        return self.store.dialect == "surreal"

    @property
    def postgres(self) -> bool:
        return self.store.dialect == "postgres"

    def plan(self, statement: str, **values: Any) -> str:
        """How the database runs a statement of ours."""
        if self.surreal:  # explains statements by themselves only
            words = spelled(dialect_of("surreal"), statement)
            return str(results(self.store._ask(f"EXPLAIN {words}", values))[0])  # type: ignore[attr-defined]
        with self.store.transaction() as tx:
            explain = "EXPLAIN " if self.postgres else "EXPLAIN QUERY PLAN "
            rows = tx.execute(explain + spelled(dialect_of(self.store.dialect), statement), values)
        return "\n".join(str(row[-1]) for row in rows)

    def forbid(self, table: str) -> None:
        """From now on every write on a table fails, as on a disk that is full."""
        if self.surreal:
            self.execute(f"DEFINE EVENT forbid ON {{our}}{table} WHEN $event != 'DELETE' THEN {{{{ THROW 'no' }}}}")
        elif not self.postgres:
            for verb in ("INSERT", "UPDATE"):
                self.execute(
                    f"CREATE TRIGGER forbid_{verb} BEFORE {verb} ON {{our}}{table} BEGIN SELECT RAISE(ABORT, 'no'); END"
                )
        else:
            self.execute(
                "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN RAISE EXCEPTION USING ERRCODE = $$23514$$; END'"
            )
            self.execute(
                f"CREATE TRIGGER forbid BEFORE INSERT OR UPDATE ON {{our}}{table} FOR EACH ROW "
                "EXECUTE FUNCTION forbid()"
            )
