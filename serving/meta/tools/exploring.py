"""Exploring: now and then another tool than the best ranked stands first, with its probability.

Of a share of the searches the first place is drawn, each tool that may be explored being as likely
as another; the rest keep their order. So the log tells with which probability each tool stood
first, and what another order would have brought can be estimated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from serving.meta.access.policy import ExplorationSettings, MetaPolicy, Token
from serving.meta.tools.consent import explain_consent

if TYPE_CHECKING:
    from serving.router import Answer, Ask, Hit, Router


@dataclass(frozen=True)
class Draw:
    """Which tool stands first. candidates: the tools that might, in the order of the ranking;
    one where nothing was drawn. propensity: with which probability this one does."""

    candidates: tuple[str, ...]
    propensity: float

    def as_facts(self) -> dict[str, object]:
        """As the line of a search holds it."""
        return {"candidates": self.candidates, "propensity": self.propensity}


def is_exploring(token: Token, policy: MetaPolicy) -> bool:
    """Whether searches of this token are explored: never where the log may not keep them, since
    nothing could be learned from it."""
    return policy.exploration.share > 0 and token.remember != "digest"


def make_wide_ask(ask: "Ask", exploration: ExplorationSettings) -> "Ask":
    """The question for as many hits as there are to draw from."""
    return replace(ask, k=max(ask.k, exploration.depth)) if _may_draw(ask) else ask


def draw_first(
    answer: "Answer", ask: "Ask", router: "Router", policy: MetaPolicy, dice: Random
) -> "tuple[Answer, Draw]":
    """The answer to `ask` out of that to its `make_wide_ask`, with its first hit drawn."""
    hits = answer.hits
    wanted = ask.k if _may_draw(ask) else len(hits)
    share, depth = policy.exploration.share, policy.exploration.depth
    open_to = _list_open(hits[:depth], router, policy) if _may_draw(ask) else []
    # Where the best is none to be explored, as one that writes, another kind of tool is no answer.
    if answer.no_tool or len(open_to) < 2 or open_to[0] != 0:
        head = tuple(hit.tool_id for hit in hits[:1])
        return replace(answer, hits=hits[:wanted]), Draw(head, 1.0)
    first = dice.choice(open_to) if dice.random() < share else 0
    order = [hits[first], *hits[:first], *hits[first + 1 :]]
    candidates = tuple(hits[at].tool_id for at in open_to)
    propensity = share / len(open_to) + (1 - share if first == 0 else 0)
    return replace(answer, hits=order[:wanted]), Draw(candidates, propensity)


def _may_draw(ask: "Ask") -> bool:
    """Whether the order is ours and the number of hits does not depend on their scores."""
    return ask.strategy == "ours" and not ask.stretch and not ask.trim


def _list_open(hits: "Sequence[Hit]", router: "Router", policy: MetaPolicy) -> list[int]:
    """The places of the hits that may be explored: tools that run unasked, so neither one that may
    change something or does not say that it only reads, nor a flagged or unverified one."""
    places = (router.index.place_of(hit.tool_id) for hit in hits)
    return [
        at
        for at, place in enumerate(places)
        if place is not None and explain_consent(router.index.tools[place], policy) is None
    ]
