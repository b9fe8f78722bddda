"""A sidecar that follows a script, and what it was asked."""

from collections.abc import Callable, Sequence

from serving.repair.tools import ProposedCall, RevisionRequest

Script = Callable[[RevisionRequest], ProposedCall | None]


class ScriptedReviser:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[RevisionRequest] = []

    def __call__(self, request: RevisionRequest) -> ProposedCall | None:
        return self.revise_requests([request])[0]

    def revise_requests(self, requests: Sequence[RevisionRequest]) -> list[ProposedCall | None]:
        self.asked += requests
        return [self.script(request) for request in requests]
