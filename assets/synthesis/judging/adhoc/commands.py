"""`toolmill verify` and `toolmill judge`: a person's rows in, one verdict per row out, in order."""

from collections.abc import Callable, Sequence

import numpy as np

from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import Golden, make_single_row
from assets.synthesis.judging.adhoc.files import Given, Tools
from assets.synthesis.judging.judge import judge
from assets.synthesis.verify.filters import compute_cosines, make_echo_finding
from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.verify import decide, verify
from warehouse.item_failure import tell_failure
from warehouse.json_types import Json
from warehouse.llm.client import LLM

Embed = Callable[[Sequence[str]], np.ndarray]
_BESIDE = 12  # tools of the same server that the judge is shown


def verify_rows(
    rows: Sequence[Given], tools: Tools, embed: Embed, policy: SynthesisPolicy
) -> list[dict[str, Json]]:
    """{tool_id, verdict, flaws, score: None, reasons} per row, by rules alone.

    A row about a tool that the tools file does not hold is a verdict too: `reject`, with the flaw
    `unknown_tool` or `unusable_tool`.
    """
    found = [_find_flaws(row, tools) for row in rows]
    open_to_copying = [at for at, one in enumerate(found) if not any(f.certain for f in one)]
    texts = [
        (rows[at].instruction, str(tools.by_id[rows[at].tool_id].get("description") or ""))
        for at in open_to_copying
    ]
    for at, cosine in zip(open_to_copying, compute_cosines(texts, embed), strict=True):
        if echo := make_echo_finding(cosine, policy.copies_above):
            found[at].append(echo)
    return [_make_verdict(row, one) for row, one in zip(rows, found, strict=True)]


def judge_rows(
    rows: Sequence[Given], tools: Tools, embed: Embed, llm: LLM, policy: SynthesisPolicy
) -> list[dict[str, Json]]:
    """As `verify_rows`, and the judge's score, verdict and reasons for what the rules left.

    A row that the judge gave no usable answer for stays `unsure`, with the failure as its reason.
    """
    results = verify_rows(rows, tools, embed, policy)
    asked = [
        _make_pair_row(at, row, one["verdict"], tools)
        for at, (row, one) in enumerate(zip(rows, results, strict=True))
        if one["verdict"] != "reject"
    ]
    for judgement in judge(asked, tools.contracts, llm, policy):
        one = results[int(judgement["pair_id"])]
        one["judge"] = judgement["judge"]
        if judgement["status"] == "ok":
            one |= {"verdict": judgement["verdict"], "score": judgement["score"]}
            one["reasons"].append(judgement["reasons"])
        else:
            one["verdict"] = "unsure"
            why = tell_failure(judgement["error_kind"], judgement["hint"])
            one["reasons"].append(f"not judged: {why}")
    return results


def _find_flaws(row: Given, tools: Tools) -> list[Finding]:
    contract = tools.by_id.get(row.tool_id)
    if contract is None:
        kind = "unusable_tool" if row.tool_id in tools.unusable else "unknown_tool"
        reason = tools.unusable.get(row.tool_id) or f"{row.tool_id[:200]} is not among the tools"
        return [Finding(kind, "tool_id", reason)]
    return list(verify(contract, row.instruction, row.arguments, server=row.server).findings)


def _make_verdict(row: Given, findings: Sequence[Finding]) -> dict[str, Json]:
    decision = decide(findings)
    return {
        "tool_id": row.tool_id,
        "verdict": decision.verdict,
        "flaws": decision.kinds,
        "score": None,
        "reasons": [f"{f.kind} at {f.path or 'the text'}: {f.reason}" for f in findings],
    }


def _make_pair_row(at: int, row: Given, verdict: str, tools: Tools) -> dict[str, Json]:
    """The row of PAIRS that the judge reads; `pair_id` is its place."""
    digest = tools.digests[row.tool_id]
    beside = [tools.digests[other] for other in tools.list_server_tools(row.server)][: _BESIDE + 1]
    call = Golden(row.server, row.tool, digest, dict(row.arguments))
    made = make_single_row(call, row.instruction, beside)
    return {**made, "pair_id": str(at), "verdict": verdict}
