"""The rung of a model in the proxy: who is asked about calls that the ladder leaves, how long."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from extensions.proxy.upstream import Headers
from serving.repair.revision import ProposedCall, Revise, RevisionRequest


class OpenRevise(Protocol):
    """Who rewrites drafts for one request; headers: as they are sent to the upstream, so that its
    model is asked with the client's own key. Called in threads."""

    def __call__(self, headers: Headers) -> Revise: ...


def guard_model(revise: Revise) -> OpenRevise:
    """One model that runs here for all requests: it revises one draft at a time."""
    turn = threading.Lock()

    def revise_in_turn(request: RevisionRequest) -> ProposedCall | None:
        with turn:
            return revise(request)

    return lambda headers: revise_in_turn


@dataclass(frozen=True)
class Reviser:
    """label: as clients are told it. timeout_s: of one call; a later answer is not used."""

    label: str
    open: OpenRevise
    timeout_s: float = 20.0

    def begin_request(
        self, headers: Iterable[tuple[bytes, bytes]], count: Callable[[str], None]
    ) -> "Revising":
        """For the calls of one request. count: notes the outcome of a call: repaired or left."""
        return Revising(self.label, self.open([*headers]), self.timeout_s, count)


@dataclass(frozen=True)
class Revising:
    """A reviser for one request."""

    label: str
    revise: Revise
    timeout_s: float
    count: Callable[[str], None]
