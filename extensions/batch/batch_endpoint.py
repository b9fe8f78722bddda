"""The Batch API of one endpoint, through the `openai` SDK; a file's line is a request or a
result."""

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic_core import from_json

from warehouse.ledger.batch_records import BatchRecord
from warehouse.llm.endpoint import (
    classify_error,
    drop_refused,
    find_rejected,
    make_body,
    read_choice,
)
from warehouse.llm.roles import (
    LLMError,
    ModelCompletion,
    NoAnswer,
    PreparedRequest,
    Role,
    classify_status,
)
from warehouse.sanitize.untrusted_text import drop_surrogates

URL = "/v1/chat/completions"
LONGEST = 8 << 20  # bytes of one result, as of one answer that comes direct
# Why a batch gave no answer to a request, beside the kinds of LLMError.
CANCELLED, REJECTED, INVALID, UNREADABLE = "cancelled", "rejected", "invalid_batch", "unreadable"
_CODES = {"batch_expired": "timeout", "batch_cancelled": CANCELLED}
_LIMITS = ("max_tokens", "max_completion_tokens")
_FAILURE = re.compile(r"batch (\w+): ")


@dataclass(frozen=True)
class RequestResult:
    """A request's completion, or its failure. refused: optional parameter that was refused."""

    key: str
    completion: ModelCompletion | None
    kind: str = ""
    message: str = ""
    refused: str = ""

    @property
    def error(self) -> str:
        return describe_failure(self.kind, self.message)


def describe_failure(kind: str, message: str) -> str:
    """Why a batch gave no answer, as `list_kinds` reads it again."""
    return f"batch {kind}: {' '.join(message.split())[:300]}"


def list_kinds(failures: Collection[str]) -> list[str]:
    """Kinds of these failures; a cancelled or unsent batch says nothing about the request."""
    kinds = [match[1] for failure in failures if (match := _FAILURE.match(failure))]
    return [kind for kind in kinds if kind != CANCELLED]


def make_line(prepared: PreparedRequest, dropped: Collection[str]) -> bytes:
    """The line of one request; its key is the `custom_id`. dropped: parameters left out."""
    request = prepared.request
    body = drop_refused({"model": request.role.model, **make_body(request)}, dropped)
    line = {"custom_id": prepared.key, "method": "POST", "url": URL, "body": body}
    return json.dumps(line).encode() + b"\n"


def read_limits(file: bytes) -> dict[str, int]:
    """Key -> the tokens that its request may be answered with, of a file that `make_line` made."""
    limits = {}
    for line in file.splitlines():
        row = from_json(line)
        limits[row["custom_id"]] = next(
            (row["body"][name] for name in _LIMITS if name in row["body"]), 0
        )
    return limits


def split_lines(chunks: Iterator[bytes]) -> Iterator[bytes | None]:
    """Lines of a file in parts, without empty ones; None for one longer than LONGEST."""
    pieces, size, skipping = list[bytes](), 0, False
    for part in chunks:
        *ends, tail = part.split(b"\n")
        for end in ends:
            line, pieces, size = b"".join([*pieces, end]), [], 0
            if len(line) > LONGEST and not skipping:
                yield None
            elif line.strip() and not skipping:
                yield line
            skipping = False
        pieces, size = [*pieces, tail] if not skipping else [], size + len(tail)
        if size > LONGEST and not skipping:
            yield None
            pieces, skipping = [], True
    last = b"".join(pieces)
    if last.strip() and not skipping:
        yield last


def read_result(line: bytes, role: Role, dropped: Collection[str]) -> RequestResult | None:
    """What one line of an output or error file says; None for what is no line of one."""
    try:
        row = from_json(line)
        key, response, error = row["custom_id"], row.get("response"), row.get("error")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(key, str):
        return None
    if not isinstance(response, dict):
        details = error if isinstance(error, dict) else {}
        code, message = str(details.get("code") or ""), str(details.get("message") or "no response")
        kind = _CODES.get(code, "bad_request" if "invalid" in code else "server_error")
        return RequestResult(key, None, kind, drop_surrogates(f"{code} {message}".strip()))
    return _read_response(key, response, role, dropped)


def _read_response(
    key: str, response: dict[str, Any], role: Role, dropped: Collection[str]
) -> RequestResult:
    status, body = response.get("status_code"), response.get("body")
    if status == 200:
        try:
            return RequestResult(key, read_choice(body, role).completion)
        except (ValueError, AttributeError) as flaw:
            return RequestResult(key, None, UNREADABLE, drop_surrogates(str(flaw)))
    error = body.get("error") if isinstance(body, dict) else None
    message = str(error.get("message") if isinstance(error, dict) else body)[:1000]
    number = status if isinstance(status, int) and not isinstance(status, bool) else 500
    refused = find_rejected(number, message, dropped) or ""
    kind = REJECTED if refused else classify_status(number, message)[0]
    return RequestResult(key, None, kind, drop_surrogates(f"HTTP {number}: {message}"), refused)


MARK = "toolmill_batch"  # the name of our own name in a batch's metadata
ENDED = ("completed", "failed", "expired", "cancelled")
_MOST_BYTES = 8 << 20  # of what is no file
_MOST_DOWNLOADED = 2 << 30  # ten times the largest file of requests
_LONGEST_DOWNLOAD_S = 3600.0
_PAGE, _MOST_PAGES = 100, 20


@dataclass(frozen=True)
class BatchStatus:
    """How far a batch is, as its provider says. Times are epoch seconds, 0 where it says none."""

    id: str
    status: str
    mark: str = ""
    created_at: float = 0.0
    ended_at: float = 0.0
    completed: int = 0
    failed: int = 0
    files: tuple[str, ...] = ()  # of output, then of errors
    errors: tuple[tuple[str, str, int | None], ...] = ()  # (code, message, line of the file)


class BatchEndpoint:
    """Where batches of one role go. Every method raises LLMError: NoAnswer where it is not known
    whether it was done, `not_found` for what the provider does not know."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._clients: dict[int, Any] = {}  # by the bytes that an answer may have

    def upload(self, name: str, data: bytes) -> str:
        file = (f"{name}.jsonl", data, "application/jsonl")
        body = self._call(
            lambda client: client.files.with_raw_response.create(file=file, purpose="batch")
        )
        return _read_id(body)

    def create(self, batch: BatchRecord) -> BatchStatus:
        return self._call_batch(
            lambda batches: batches.create(
                input_file_id=batch.file_id,
                endpoint=URL,
                completion_window=batch.window,
                metadata={MARK: batch.name},
            )
        )

    def find(self, name: str, since: float) -> list[BatchStatus]:
        """Batches of this name, oldest first, created after `since` less a day for their clock."""
        statuses, after = [], None
        for _ in range(_MOST_PAGES):
            page = self._list_page(after)
            statuses += [status for status in page if status.mark == name]
            if len(page) < _PAGE or page[-1].created_at < since - 86_400:
                break
            after = page[-1].id
        # The provider lists the newest first, and its clock counts in seconds.
        statuses.reverse()
        return sorted(statuses, key=lambda status: status.created_at)

    def retrieve(self, batch_id: str) -> BatchStatus:
        return self._call_batch(lambda batches: batches.retrieve(batch_id))

    def cancel(self, batch_id: str) -> BatchStatus:
        return self._call_batch(lambda batches: batches.cancel(batch_id))

    def download(self, file_id: str) -> Iterator[bytes]:
        """A file in parts, at most 2 GiB. Raises LLMError where it breaks off."""
        client, deadline = self._open_client(_MOST_DOWNLOADED), time.monotonic()
        deadline += _LONGEST_DOWNLOAD_S
        try:
            with client.files.with_streaming_response.content(file_id) as response:
                for part in response.iter_bytes():
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"file {file_id} after {_LONGEST_DOWNLOAD_S:.0f} s")
                    yield part
        except Exception as error:
            raise self._make_failure(error) from error

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _list_page(self, after: str | None) -> list[BatchStatus]:
        more = {"after": after} if after else {}
        body = self._call(lambda client: client.batches.with_raw_response.list(limit=_PAGE, **more))
        rows = body.get("data")
        if not isinstance(rows, list):
            raise self._make_failure(ValueError("a list of batches without data"))
        return [_read_status(row) for row in rows]

    def _call_batch(self, ask: Callable[[Any], Any]) -> BatchStatus:
        body = self._call(lambda client: ask(client.batches.with_raw_response))
        try:
            return _read_status(body)
        except ValueError as error:
            raise self._make_failure(error) from error

    def _call(self, ask: Callable[[Any], Any]) -> Any:
        try:
            body = ask(self._open_client(_MOST_BYTES)).http_response.json()
            if not isinstance(body, dict):
                raise ValueError(f"an answer that is {type(body).__name__}, expected an object")
            return body
        except Exception as error:
            raise self._make_failure(error) from error

    def _open_client(self, most_bytes: int) -> Any:
        if most_bytes in self._clients:
            return self._clients[most_bytes]
        from openai import DefaultHttpxClient, OpenAI

        from warehouse.network.egress import SyncConnector
        from warehouse.network.http import HttpTransport

        role = self._role
        base_url = role.base_url or os.environ.get("OPENAI_BASE_URL") or ""
        secret = role.api_key.get_secret_value() if role.api_key else None
        connector = SyncConnector(trusted=[urlsplit(base_url).hostname or ""])
        # A redirect would hand the requests to whom nobody named.
        http = DefaultHttpxClient(
            transport=HttpTransport(connector, most_bytes=most_bytes), follow_redirects=False
        )
        client = OpenAI(
            api_key=secret or ("none" if role.base_url else None),
            base_url=role.base_url,
            max_retries=0,
            timeout=role.timeout_s,
            http_client=http,
        )
        self._clients[most_bytes] = client
        return client

    def _make_failure(self, error: Exception) -> Exception:
        if isinstance(error, LLMError):
            return error
        import httpx2

        broken = isinstance(error, httpx2.HTTPError)  # of a file, which the SDK hands through
        kind, passing = ("endpoint_down", True) if broken else classify_error(error)
        if kind is None:
            return error
        kind = "not_found" if getattr(error, "status_code", None) == 404 else kind
        place = self._role.base_url or "the SDK's default endpoint"
        problem = f"{type(error).__name__} from {place} ({' '.join(str(error).split())[:200]})"
        expected = "an answer of its Batch API"
        hint = (
            f"toolmill batch --harvest goes on; look at base_url and api_key of {self._role.name}"
        )
        if passing:
            return NoAnswer(kind, problem, expected, hint, maybe_paid=True)
        return LLMError(kind, problem, expected, hint)


def _read_id(body: Any) -> str:
    batch_id = body.get("id")
    if not isinstance(batch_id, str) or not 0 < len(batch_id) <= 200:
        raise LLMError("server_error", f"an id that is {str(batch_id)[:30]!r}", "text", "run again")
    return drop_surrogates(batch_id)


def _read_status(body: Any) -> BatchStatus:
    if not isinstance(body, dict) or not isinstance(body.get("status"), str):
        raise ValueError(f"a batch without a status: {str(body)[:100]}")
    counts, marks = body.get("request_counts"), body.get("metadata")
    counts, marks = (field if isinstance(field, dict) else {} for field in (counts, marks))
    files = (body.get("output_file_id"), body.get("error_file_id"))
    return BatchStatus(
        id=_read_id(body),
        status=drop_surrogates(body["status"][:40]),
        mark=str(marks.get(MARK) or ""),
        created_at=_read_number(body.get("created_at")),
        ended_at=max(_read_number(body.get(f"{name}_at")) for name in ENDED),
        completed=int(_read_number(counts.get("completed"))),
        failed=int(_read_number(counts.get("failed"))),
        files=tuple(file for file in files if isinstance(file, str) and file),
        errors=tuple(_read_errors(body.get("errors"))),
    )


def _read_errors(errors: Any) -> Iterator[tuple[str, str, int | None]]:
    rows = errors.get("data") if isinstance(errors, dict) else None
    for row in (rows if isinstance(rows, list) else [])[:1000]:
        if isinstance(row, dict):
            line = row.get("line")
            yield (
                drop_surrogates(str(row.get("code") or "")[:100]),
                drop_surrogates(str(row.get("message") or "")[:300]),
                line if isinstance(line, int) and not isinstance(line, bool) else None,
            )


def _read_number(value: Any) -> float:
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if sound and 0 <= value < 2**40 else 0.0
