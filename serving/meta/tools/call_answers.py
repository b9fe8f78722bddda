"""Called: the answers of call_tool, one for each way a call can end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.meta.context import Reply, shorten_version
from serving.meta.tools.tool_results import limit_result
from serving.meta.untrusted_text import Bounded, dump_json, mark_text, show_line
from warehouse.sanitize.quote import escape_name, quote_name, quote_text

_PROBLEMS = 20


@dataclass
class Attempt:
    """One request to call a tool, and what its outcome will say."""

    call_id: str
    tool_id: str
    token: str
    index: str | None = None
    facts: dict[str, Any] = field(default_factory=lambda: {"status": "cancelled"})

    def note_end(self, status: str, **facts: Any) -> None:
        """How it ended; the last word counts."""
        self.facts.update({"status": status, **facts})

    def make_outcome(self) -> dict[str, Any]:
        """As it is recorded."""
        named = {"call_id": self.call_id, "tool_id": self.tool_id, "token": self.token}
        return {**named, "index": self.index, **self.facts}


def answer_returned(attempt: Attempt, result: Any, steps: tuple[str, ...], most: int) -> Reply:
    """What the tool returned, its own error included; `most` characters of it."""
    of = quote_name(attempt.tool_id, 200)
    blocks, text, data, cut = limit_result(result.content, result.structured, of, most)
    facts: dict[str, Any] = {"text": text} if text or data is None else {}
    if data is not None:
        facts["structured"] = data
        if text == "":
            blocks[0] = {"type": "text", "text": mark_text(dump_json(data), of)}
    if cut:
        facts["cut"] = True
    if result.problems:  # of structured content against its own schema
        facts["problems"] = _list_problems(result.problems)
    facts |= _describe_findings(result)
    head = "\n".join([_write_head(attempt, steps, cut), *_write_warnings(result)])
    reply = make_answer(attempt, {**facts, **_describe_steps(steps)}, head)
    reply.blocks, reply.is_error = blocks, result.status == "tool_error"
    return reply


def answer_invalid(attempt: Attempt, problems: Any, steps: tuple[str, ...], repair: bool) -> Reply:
    """Arguments that do not fit the contract, field by field. repair: whether it was tried."""
    listed = _list_problems(problems)
    attempt.note_end("invalid_arguments", error_kind="invalid_arguments", blame="caller")
    # Names and allowed values in a problem are the contract's: third-party words again.
    lines = [
        f"- {one.get('path') or 'arguments'}: found {one.get('found')}; expected"
        f" {one.get('expected')}; {one.get('fix')}"
        for one in listed
    ]
    fix = "fix them" if repair else "fix them, or send repair=true"
    message = f"{len(problems)} problem(s) in the arguments; nothing was run; {fix}"
    error = {"kind": "invalid_arguments", "field": "arguments", "message": message}
    facts = {"problems": listed, "error": error, **_describe_steps(steps)}
    reply = make_answer(attempt, facts, "\n".join([_write_head(attempt, steps), message]))
    reply.blocks = [{"type": "text", "text": mark_text("\n".join(lines), "the contract")}]
    reply.is_error = True
    return reply


def answer_refused(attempt: Attempt, kind: str, why: str, fix: str) -> Reply:
    """A call that the policy does not let run."""
    attempt.note_end("refused", error_kind=kind, blame="us")
    message = f"not run: {why}; to allow it: {fix}" if kind == "no_consent" else f"{why}; {fix}"
    reply = make_answer(
        attempt, {"reason": message, "error": {"kind": kind, "message": message}}, message
    )
    reply.is_error = True
    return reply


def answer_blocked(attempt: Attempt, result: Any) -> Reply:
    """A result that the policy does not hand on."""
    attempt.note_end("failed", error_kind="result_blocked", blame=result.blame or "tool")
    why = "; ".join(_write_warnings(result))
    fix = 'the call was made; whoever runs this server can set serve.calls.results to "mark"'
    error = {"kind": "result_blocked", "message": f"the result is not handed on: {why}; {fix}"}
    facts = {"error": error, **_describe_findings(result)}
    reply = make_answer(attempt, facts, f"{_write_head(attempt, ())}\n{error['message']}")
    reply.is_error = True
    return reply


def answer_failed(
    attempt: Attempt, kind: str, hint: str, blame: str | None, result: Any = None
) -> Reply:
    """A call without an answer. The hint may hold a server's last words."""
    message = show_line(hint, 600)
    error = {"kind": kind, "message": message, **({"blame": blame} if blame else {})}
    head = [_write_head(attempt, ()), *(_write_warnings(result) if result else [])]
    facts = {"error": error, **(_describe_findings(result) if result else {})}
    reply = make_answer(attempt, facts, "\n".join([*head, quote_text(message)]))
    reply.is_error = True
    return reply


def make_answer(attempt: Attempt, fields: Mapping[str, Any], text: str) -> Reply:
    """What every answer says, and `fields`."""
    facts = attempt.facts
    shared: dict[str, Any] = {
        "index": attempt.index,
        "call_id": attempt.call_id,
        "tool_id": escape_name(attempt.tool_id, 400),
        "status": facts["status"],
    }
    if "seconds" in facts:
        shared["seconds"] = round(facts["seconds"], 3)
    return Reply({**shared, **fields}, text=text)


def _describe_findings(result: Any) -> dict[str, Any]:
    """The high ones and keys taken out, without words of the result: those stand in it."""
    findings = [
        finding for finding in result.findings if finding.rule in (*result.alarming, "issued_key")
    ]
    listed = [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "field": finding.field[:200],
            "why": finding.why,
        }
        for finding in findings[:_PROBLEMS]
    ]
    return {"findings": listed} if listed else {}


def _write_warnings(result: Any) -> list[str]:
    lines = []
    if result.alarming:
        rules = ", ".join(result.alarming)
        lines.append(f"warning: the result holds what looks like orders to a model ({rules})")
    if any(finding.rule == "issued_key" for finding in result.findings):
        lines.append("keys in the form of their issuer were taken out of the result")
    if result.unread:
        lines.append("warning: not all of the result was scanned: it is too large")
    return lines


def _list_problems(problems: Any) -> list[dict[str, Any]]:
    copy = Bounded(8_000, longest=300)
    return [copy(dict(problem)) for problem in list(problems)[:_PROBLEMS]]


def _write_head(attempt: Attempt, steps: tuple[str, ...], cut: bool = False) -> str:
    seconds = attempt.facts.get("seconds")
    took = f" in {seconds:.1f} s" if seconds is not None else ""
    lines = [
        f"call {attempt.call_id} in index {shorten_version(attempt.index)}:"
        f" {attempt.facts['status']}{took}",
        *(f"repaired: {show_line(step, 300)}" for step in steps),
        *(["parts of the result were left out: it is too large"] if cut else []),
    ]
    return "\n".join(lines)


def _describe_steps(steps: tuple[str, ...]) -> dict[str, Any]:
    return {"repaired": [show_line(step, 300) for step in steps]} if steps else {}
