"""Lines of a batch's files: one request each on the way out, one result each on the way back."""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from warehouse.llm.endpoint import drop_refused, find_rejected, make_body, read_choice
from warehouse.llm.request_keys import Prepared
from warehouse.llm.roles import Completion, Role, classify_status
from warehouse.sanitize.escape import drop_surrogates

URL = "/v1/chat/completions"
LONGEST = 8 << 20  # bytes of one result, as of one answer that comes direct
# Why a batch gave no answer to a request, beside the kinds of LLMError.
CANCELLED, REJECTED, INVALID, UNREADABLE = "cancelled", "rejected", "invalid_batch", "unreadable"
_CODES = {"batch_expired": "timeout", "batch_cancelled": CANCELLED}
_LIMITS = ("max_tokens", "max_completion_tokens")
_FAILURE = re.compile(r"batch (\w+): ")


@dataclass(frozen=True)
class Result:
    """What a batch says of one request: its completion, or why there is none. refused: the optional
    parameter that the endpoint complains of."""

    key: str
    completion: Completion | None
    kind: str = ""
    message: str = ""
    refused: str = ""

    @property
    def error(self) -> str:
        """As the ledger keeps it."""
        return describe_failure(self.kind, self.message)


def describe_failure(kind: str, message: str) -> str:
    """Why a batch gave no answer, as `list_kinds` reads it again."""
    return f"batch {kind}: {' '.join(message.split())[:300]}"


def list_kinds(failures: Collection[str]) -> list[str]:
    """The kinds of these failures; without those that say nothing about the request: a batch that
    was cancelled, or never sent."""
    kinds = [match[1] for failure in failures if (match := _FAILURE.match(failure))]
    return [kind for kind in kinds if kind != CANCELLED]


def make_line(prepared: Prepared, dropped: Collection[str]) -> bytes:
    """The line of one request; its key is the `custom_id`. dropped: parameters left out."""
    request = prepared.request
    body = drop_refused({"model": request.role.model, **make_body(request)}, dropped)
    line = {"custom_id": prepared.key, "method": "POST", "url": URL, "body": body}
    return json.dumps(line).encode() + b"\n"


def read_limits(file: bytes) -> dict[str, int]:
    """Key -> the tokens that its request may be answered with, of a file that `make_line` made."""
    found = {}
    for line in file.splitlines():
        row = from_json(line)
        found[row["custom_id"]] = next(
            (row["body"][name] for name in _LIMITS if name in row["body"]), 0
        )
    return found


def split_lines(parts: Iterator[bytes]) -> Iterator[bytes | None]:
    """The lines of a file that comes in parts, empty ones left out; None in the place of one that
    is longer than LONGEST, which is never held as a whole."""
    held, size, skipping = list[bytes](), 0, False
    for part in parts:
        *ends, rest = part.split(b"\n")
        for end in ends:
            line, held, size = b"".join([*held, end]), [], 0
            if len(line) > LONGEST and not skipping:
                yield None
            elif line.strip() and not skipping:
                yield line
            skipping = False
        held, size = [*held, rest] if not skipping else [], size + len(rest)
        if size > LONGEST and not skipping:
            yield None
            held, skipping = [], True
    last = b"".join(held)
    if last.strip() and not skipping:
        yield last


def read_result(line: bytes, role: Role, dropped: Collection[str]) -> Result | None:
    """What one line of an output or error file says; None for what is no line of one."""
    try:
        row = from_json(line)
        key, response, error = row["custom_id"], row.get("response"), row.get("error")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(key, str):
        return None
    if not isinstance(response, dict):
        found = error if isinstance(error, dict) else {}
        code, message = str(found.get("code") or ""), str(found.get("message") or "no response")
        kind = _CODES.get(code, "bad_request" if "invalid" in code else "server_error")
        return Result(key, None, kind, drop_surrogates(f"{code} {message}".strip()))
    return _read_response(key, response, role, dropped)


def _read_response(
    key: str, response: dict[str, Any], role: Role, dropped: Collection[str]
) -> Result:
    status, body = response.get("status_code"), response.get("body")
    if status == 200:
        try:
            return Result(key, read_choice(body, role).completion)
        except (ValueError, AttributeError) as flaw:
            return Result(key, None, UNREADABLE, drop_surrogates(str(flaw)))
    error = body.get("error") if isinstance(body, dict) else None
    message = str(error.get("message") if isinstance(error, dict) else body)[:1000]
    number = status if isinstance(status, int) and not isinstance(status, bool) else 500
    refused = find_rejected(number, message, dropped) or ""
    kind = REJECTED if refused else classify_status(number, message)[0]
    return Result(key, None, kind, drop_surrogates(f"HTTP {number}: {message}"), refused)
