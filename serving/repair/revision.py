"""The rung `revise`: a model that rewrites a draft, behind one protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assets.contracts.repair.problems import Problem
from serving.repair.tools import Candidate


@dataclass(frozen=True)
class RevisionRequest:
    """What a model is given. conversation: messages {role, content}. candidates: the tools that the
    draft may be meant for, likeliest first. name, arguments: the draft after the rungs before.
    problems: what validation says of it, [] where the tool itself is unknown."""

    conversation: Sequence[Mapping[str, Any]]
    candidates: Sequence[Candidate]
    name: str
    arguments: Any
    problems: Sequence[Problem]


@dataclass(frozen=True)
class ProposedCall:
    """A rewritten call, or a question in place of one: what the user should say first."""

    name: str
    arguments: Any
    question: str | None = None


class Revise(Protocol):
    """Rewrites a draft; None leaves it. What it returns is checked like any draft: a call that
    does not fit, whose required values neither conversation, draft nor contract holds, that
    confirms what the draft does not or lacks what guards it, is refused. An exception counts as
    None."""

    def __call__(self, request: RevisionRequest) -> ProposedCall | None: ...
