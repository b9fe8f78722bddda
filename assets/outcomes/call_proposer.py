"""Calls that a language model proposes for a tool of which the rules found no useful one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.outcomes.exploration import ProposedCall, ValuePool
from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.role_schemas import CallProposals
from assets.synthesis.tables import dump_text
from assets.synthesis.writing.row_builder import show_contract
from warehouse.item_failure import try_item
from warehouse.json_types import Contract, Json
from warehouse.llm.client import LLM, LLMError
from warehouse.sanitize.untrusted_text import drop_surrogates

_ROLE = "generator"
_UNUSABLE = ("truncated", "refused", "empty", "non_json", "wrong_shape")  # answers that were paid
_MOST_VALUES, _MOST_REFUSED = 120, 6  # that a prompt shows


@dataclass(frozen=True)
class CallProposer:
    """Asks the generator once a tool. The answers are in the ledger; seed: of the requests."""

    llm: LLM
    seed: int

    @property
    def identity(self) -> dict[str, Any]:
        """What decides its proposals."""
        return {**self.llm.identity(_ROLE), "prompt": read_prompt("explore").digest}

    async def propose(
        self,
        contract: Contract,
        pool: ValuePool,
        refused: Sequence[tuple[Mapping[str, Json], str]],
        count: int,
    ) -> list[ProposedCall]:
        """At most `count` calls that fit the contract; [] where the answer cannot be used.
        refused: (arguments, what the server said). Raises LLMError where no answer comes, and
        BudgetExceeded."""
        name, prompt = str(contract.get("name")), read_prompt("explore")
        existing = [
            f"{item.key}: {json.dumps(item.value, ensure_ascii=False)} ({item.source})"
            for item in pool.values[:_MOST_VALUES]
        ]
        refusals = [f"{dump_text(dict(values))}: {why}" for values, why in refused[-_MOST_REFUSED:]]
        texts = {
            "contract": show_contract(contract),
            # Half a pair stands in keys of what a server answers as JSON.
            "values": drop_surrogates("\n".join(existing)) or "(none)",
            "refused": "\n".join(refusals) or "(none)",
            "count": str(count),
        }
        messages = prompt.make_messages(mark=make_marker(*texts.values()), **texts)
        try:
            reply = await self.llm.complete(_ROLE, messages, schema=CallProposals, seed=self.seed)
        except LLMError as error:
            if error.kind in _UNUSABLE:
                return []
            raise
        calls = reply.value.calls[:count]
        # A value that JSON cannot hold, such as NaN, has no canonical text.
        fitting = [
            arguments
            for arguments in calls
            if try_item(partial(dump_text, arguments), lambda _: "")
            and not find_problems(contract, arguments)
        ]
        return [ProposedCall(name, item, pool.find_sources(contract, item)) for item in fitting]
