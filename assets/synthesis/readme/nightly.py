"""The tools of servers that neither ran nor are listed with tools, by their READMEs, in a run.

listings -> READMEs on GitHub -> generator role through the ledger, or rules -> tools by listing
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assets.marketplaces.listing import PRIVATE, Listing
from assets.synthesis.readme.extract import ROLE, Extracted, ask_model, extract_tools
from assets.synthesis.readme.fetch import fetch_readmes, make_readme_url
from assets.synthesis.readme.policy import ReadmeOptions
from assets.synthesis.writing.endpoints import Writer
from warehouse.item_failure import INTERNAL, try_item
from warehouse.llm.batch import run_batch
from warehouse.llm.client import LLM, OFFLINE
from warehouse.progress import Progress
from warehouse.store import Warehouse


@dataclass(frozen=True)
class Readmes:
    """Who reads READMEs, and how many. Without `writer` none is read."""

    options: ReadmeOptions = field(default_factory=ReadmeOptions)
    writer: Writer | None = None
    user_agent: str = "toolmill"

    def list_tools(
        self, warehouse: Warehouse, listings: Sequence[Listing], progress: Progress | None = None
    ) -> tuple[dict[str, tuple[list[dict[str, Any]], str]], dict[str, int]]:
        """(listing id -> its README's tools and who read them; figures). A README that several
        servers share is of none of them. Raises LLMError for faults of the settings only."""
        if self.writer is None or not self.options.enabled:
            return {}, {}
        by_url: dict[str, list[str]] = {}
        for one in listings:
            url = make_readme_url(self.options.base_url, one.repository, one.subfolder)
            if url and one.marketplace != PRIVATE:
                by_url.setdefault(url, []).append(one.listing_id)
        owners = {url: names[0] for url, names in sorted(by_url.items()) if len(names) == 1}
        texts, left = fetch_readmes(
            list(owners), self.options, warehouse.ledger, self.user_agent, time.time()
        )
        due = [(owners[url], text) for url, text in sorted(texts.items()) if text.strip()]
        read = _read_all(due, self.writer.make_llm(warehouse, "_"), progress)
        found = {one.server: (one.tools, _describe_reader(one)) for one in read if one.tools}
        failed = sum(one.status != "ok" for one in read)
        return found, {"readmes": len(due), "readmes_failed": failed, "readmes_left": left}


def _read_all(
    due: Sequence[tuple[str, str]], llm: LLM, progress: Progress | None
) -> list[Extracted]:
    if llm.role(ROLE).model == OFFLINE:
        return [try_item(partial(extract_tools, *one), partial(_make_failed, one)) for one in due]
    return run_batch(
        due,
        partial(_ask_one, llm),
        llm,
        fail=_make_failed,
        workers=llm.role(ROLE).concurrency,
        stage="readmes",
        progress=progress,
    )


async def _ask_one(llm: LLM, one: tuple[str, str]) -> Extracted:
    return await ask_model(*one, llm)


def _make_failed(one: tuple[str, str], hint: str) -> Extracted:
    return Extracted(one[0], status="failed", error_kind=INTERNAL, hint=hint)


def _describe_reader(one: Extracted) -> str:
    return OFFLINE if one.model == OFFLINE else f"{one.provider} {one.model}"
