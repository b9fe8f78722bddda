"""What a row cost and under which licence its sources stand."""

from collections.abc import Sequence
from typing import Any

from warehouse.json_types import Json, JsonObject
from warehouse.llm.client import Reply


def make_receipt(step: str, role: str, reply: Reply[Any], seed: int) -> dict[str, Json]:
    return {
        "step": step,
        "role": role,
        "model": reply.model,
        "seed": seed,
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "usd": reply.usd,
    }


def share_receipt(step: JsonObject, shares: int, place: int) -> dict[str, Json]:
    """One part of a receipt; what does not divide goes to the first parts, so that all add up."""
    parts = {
        name: step[name] // shares + (place < step[name] % shares)
        for name in ("prompt_tokens", "completion_tokens")
    }
    return {**step, **parts, "usd": step["usd"] / shares}


def join_licences(rows: Sequence[JsonObject]) -> str | None:
    """The licences of all sources as one SPDX expression; None where one is not known."""
    known = [row.get("license") for row in rows]
    if not all(known):
        return None
    return " AND ".join(sorted({str(name) for name in known}))
