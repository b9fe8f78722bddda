"""find_tools: words in, ids of tools out."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from serving.discovery.hit_text import estimate_tokens
from serving.meta.access.policy import Token
from serving.meta.context import Desk, Reply
from serving.meta.tools.answer_size import fit_answer
from serving.meta.tools.arguments import Fields
from serving.meta.tools.questions import Question, drop_shown, read_questions
from serving.meta.tools.remembering import keep_client, note_search
from serving.meta.tools.schemas import FIND, INPUTS, LEAST_TOKENS, MAX_EXCLUDE, MAX_TOKENS
from serving.meta.untrusted_text import show_line, write_parameters
from warehouse.sanitize.quote import escape_exact, escape_name, read_name

if TYPE_CHECKING:
    from serving.router import Answer, Hit, Router

_SAYS = 140  # characters of a hit's line
_NEAREST = 3  # hits that are shown although none seems to suit


async def find_tools(
    desk: Desk, token: Token, given: Mapping[str, Any], client: str | None = None
) -> Reply:
    """The answer. Raises BadField, BadQuery, IndexMissing or IndexBroken. client: as it names
    itself.

    MCP-Zero's active loop through one tool: `requests` in the model's words, `shown` what came in
    earlier rounds, `max_tokens` what this round may still cost, `stop` that no other round helps.
    """
    fields = Fields(given, INPUTS[FIND]["properties"])
    questions = read_questions(fields, token, keep_client(token, client).get("client"))
    shown = [read_name(one) for one in fields.texts("shown", MAX_EXCLUDE)]
    with_parameters = fields.flag("parameters")
    most = fields.number("max_tokens", MAX_TOKENS, LEAST_TOKENS, MAX_TOKENS)
    router = await desk.router()
    here = [name for name in shown if await desk.tool(router, token, name) is not None]
    gone = [escape_name(name, 400) for name in sorted({*shown} - {*here})]
    asks = [
        drop_shown(question.ask, router, here) for question in questions if question.ask is not None
    ]
    found = iter(await desk.work_for(token, router.find_many, asks) if asks else [])
    answers = [next(found) if question.ask else None for question in questions]
    rows = [
        _make_row(router, one, answer, with_parameters)
        for one, answer in zip(questions, answers, strict=True)
    ]
    version = router.index.version
    rows, gone, text = fit_answer(version, rows, gone, most)
    for one, row, answer in zip(questions, rows, answers, strict=False):  # some left out
        if answer:
            seen = [hit.tool_id for hit in answer.hits[: len(row["hits"])]]
            await note_search(desk, token, router, one, seen, client)
    facts: dict[str, Any] = {"index": version, "answers": rows, "tokens": estimate_tokens(text)}
    if gone:
        facts["gone"] = gone
    if len(rows) < len(questions):
        facts["requests_left_out"] = len(questions) - len(rows)
    if (shown or most < MAX_TOKENS) and asks and not any(row["hits"] for row in rows):
        cut = "requests_left_out" in facts or any("left_out" in row for row in rows)
        facts["stop"] = "max_tokens" if cut else "nothing_new"
    return Reply(facts, text=text)


def _make_row(
    router: "Router", question: Question, answer: "Answer | None", with_parameters: bool
) -> dict[str, Any]:
    problems = [
        show_line(one, 200) for one in (*question.problems, *(answer.notes if answer else ()))
    ]
    notes = {"problems": problems} if problems else {}
    if answer is None:
        return {"asked": question.asked, "hits": [], "no_tool": True, **notes}
    hits = answer.hits[:_NEAREST] if answer.no_tool else answer.hits
    return {
        "asked": question.asked,
        "hits": [_describe_hit(hit, router, with_parameters) for hit in hits],
        "no_tool": bool(answer.no_tool),
        "suitable": round(float(answer.suitable), 3),
        **notes,
    }


def _describe_hit(hit: "Hit", router: "Router", with_parameters: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "tool_id": escape_name(hit.tool_id, 400),
        "says": show_line(hit.description, _SAYS),
        "score": round(float(hit.score), 3),
    }
    place = router.index.place_of(hit.tool_id)
    if with_parameters and place is not None:
        row["parameters"] = write_parameters(router.index.contract(place))
    if hit.reliability is not None:
        row["reliability"] = asdict(hit.reliability)
    if hit.flags:
        row["flags"] = [escape_exact(flag, 60) for flag in hit.flags[:8]]
    return row
