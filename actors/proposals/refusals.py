"""What can be wrong with what is asked of proposals, as branches of the tree in ``store/errors.py``.

    Refused
    ├── NotFound
    │   ├── ProposalMissing       there is no proposal of that id
    │   └── RepositoryUnknown     no repository is registered under that name
    ├── ProposalRefused           the proposal's state says no
    └── RepositoryReplaced        the proposal's repository was made anew, or removed, since
    Unavailable
    ├── MergeUncertain            whether a merge was made can't be seen at this moment
    └── RepositoryHidden          a worker can't reach a registered repository

What is wrong with a git repository itself stands in ``errors.py`` beside this file.
"""

from __future__ import annotations

from store.errors import NotFound, Refused, Unavailable


class ProposalMissing(NotFound):
    """There is no proposal of that id."""

    code = "proposal_missing"


class RepositoryUnknown(NotFound):
    """No repository is registered under that name."""

    code = "repository_unknown"


class ProposalRefused(Refused):
    """The proposal's state says no."""

    code = "proposal_refused"


class RepositoryReplaced(Refused):
    """The proposal's repository was made anew under its name, or removed, since the proposal was opened."""

    code = "repository_replaced"


class MergeUncertain(Unavailable):
    """Whether a merge was made can't be seen at this moment; the proposal stays pinned until it is merged again."""

    code = "merge_uncertain"


class RepositoryHidden(Unavailable):
    """A worker can't reach a registered repository: it is gone, or it may not see it."""

    code = "worker_repository_hidden"
