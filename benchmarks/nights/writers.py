"""Who writes and judges in a month: the offline rules, metered as an endpoint would, or no answer.

The rules cost nothing. So that dollars can be held against a plan, each answer of theirs is told to
have used a token for four characters, at the prices of `place.py`.
"""

from dataclasses import dataclass, replace
from typing import Any

from assets.synthesis.writing.writer import Writer
from orchestration.factories import make_world_tasks, make_writer
from orchestration.settings.load import load_settings
from warehouse.llm.client import LLM
from warehouse.llm.roles import Completion, LLMError, Request
from warehouse.store import Warehouse

_CHARACTERS = 4  # of a token


def make_month_writer(*, down: bool = False) -> Writer:
    """The writer of the settings, metered; `down`: its endpoint does not answer."""
    settings = load_settings()
    kept = make_writer(settings)
    kind = SilentWriter if down else MeteredWriter
    return kind(kept.roles, kept.policy, kept.approved, make_world_tasks(settings))


class MeteredWriter(Writer):
    """Writers whose answers have tokens."""

    def make_llm(self, warehouse: Warehouse, partition: str, *, batches: bool = False) -> LLM:
        provider = super().make_llm(warehouse, partition).provider(self.roles[0])
        return LLM(self.roles, warehouse.ledger, offline=_Metered(provider), partition=partition)


class SilentWriter(Writer):
    """Writers whose endpoint is down: each request fails as one of an endpoint would."""

    def make_llm(self, warehouse: Warehouse, partition: str, *, batches: bool = False) -> LLM:
        provider = super().make_llm(warehouse, partition).provider(self.roles[0])
        return LLM(self.roles, warehouse.ledger, offline=_Silent(provider), partition=partition)


@dataclass(frozen=True)
class _Metered:
    real: Any

    def version(self) -> str:
        return self.real.version()

    async def answer(self, request: Request) -> Completion:
        found = await self.real.answer(request)
        asked = sum(len(str(message.get("content", ""))) for message in request.messages)
        return replace(
            found,
            prompt_tokens=asked // _CHARACTERS,
            completion_tokens=len(found.text) // _CHARACTERS,
        )


@dataclass(frozen=True)
class _Silent:
    real: Any

    def version(self) -> str:
        return self.real.version()

    async def answer(self, request: Request) -> Completion:
        raise LLMError("endpoint_down", "no answer", "an answer", "wait until it is back")
