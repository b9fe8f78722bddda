"""The tools that a server's README names, where its marketplace lists none: a claim about a server
that nobody launched, like every listed contract.

    README -> generator role through the ledger, or rules offline -> what stands in the README
"""

import asyncio
from dataclasses import asdict, dataclass, field
from typing import Any

from assets.synthesis.prompts import make_marker, read_prompt
from assets.synthesis.readme.answer import ReadmeTools, select_grounded
from assets.synthesis.readme.offline import read_tools
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.client import LLM, OFFLINE, LLMError
from warehouse.sanitize.redact import redact

PROMPT, ROLE = "readme_tools", "generator"
LONGEST = 40_000  # characters of a README that are read
_SEED = 7


@dataclass(frozen=True)
class Extracted:
    """The tools of one README, and who read it. A README that could not be read is `failed`."""

    server: str
    tools: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    provider: str = OFFLINE
    model: str = OFFLINE
    usd: float = 0.0
    status: str = "ok"
    error_kind: str | None = None
    hint: str | None = None

    def as_server(self) -> dict[str, Any]:
        """As a line of a servers file, which `toolmill index` takes: nobody launched it."""
        facts = asdict(self)
        return {
            "qualified_name": facts.pop("server"),
            "source": "readme",
            "unverified": True,
            **facts,
        }


def extract_tools(server: str, readme: str, llm: LLM | None = None) -> Extracted:
    """The tools that a README names. Secrets are redacted before anything reads it; without `llm`,
    or where its generator is offline, rules read it.

    Raises LLMError for faults of the settings only.
    """
    text = redact(readme[:LONGEST])
    if llm is None or llm.role(ROLE).model == OFFLINE:
        tools, left = select_grounded(read_tools(text), text)
        return Extracted(server, tools, left)
    return asyncio.run(_ask_and_close(server, text, llm))


async def _ask_and_close(server: str, text: str, llm: LLM) -> Extracted:
    try:
        return await ask_model(server, text, llm)
    finally:
        await llm.aclose()


async def ask_model(server: str, text: str, llm: LLM) -> Extracted:
    """The tools that the generator reads out of a redacted README. Raises LLMError for faults of
    the settings only."""
    role, asked = llm.role(ROLE), read_prompt(PROMPT)
    values = {"server": server, "readme": text}
    about: dict[str, Any] = {"provider": role.provider, "model": role.model}
    try:
        messages = asked.make_messages(mark=make_marker(*values.values()), **values)
        reply = await llm.complete(ROLE, messages, schema=ReadmeTools, seed=_SEED)
    except (LLMError, BudgetExceeded) as error:
        if isinstance(error, LLMError) and error.kind in ("unknown_role", "no_provider"):
            raise
        kind = error.kind if isinstance(error, LLMError) else "budget"
        return Extracted(server, status="failed", error_kind=kind, hint=str(error)[:300], **about)
    tools, left = select_grounded(reply.value, text)
    return Extracted(server, tools, left, **{**about, "model": reply.model}, usd=reply.usd or 0.0)
