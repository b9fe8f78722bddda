"""Reply: what a handler of a replica answers, before it becomes an HTTP response."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

JSON, XML, HTML = "application/json", "application/xml", "text/html; charset=utf-8"


@dataclass(frozen=True)
class ReplicaReply:
    """A body and what goes with it. `last`: the last page of a list; `validators`: a client may
    ask whether it changed; `edited`: when it did last (RFC 3339)."""

    body: bytes
    media_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    last: bool = False
    validators: bool = False
    edited: str | None = None

    def make_response(self, request: Request, *, validators: bool) -> Response:
        """The HTTP response: 304 without a body where the client holds this already."""
        headers = dict(self.headers)
        if self.validators and validators and self.status == 200:
            result = {"etag": f'"{sha256(self.body).hexdigest()[:32]}"'}
            if self.edited:
                when = datetime.fromisoformat(self.edited)
                result["last-modified"] = format_datetime(when, usegmt=True)
            headers |= result
            if _is_held(request, headers):
                return Response(status_code=304, headers=headers)
        return Response(self.body, self.status, headers, media_type=self.media_type)


def reply_json(value: Any, status: int = 200, **facts: Any) -> ReplicaReply:
    """A reply in JSON, not escaped to ASCII, as most sites send it."""
    return ReplicaReply(json.dumps(value, ensure_ascii=False).encode(), JSON, status, **facts)


def reply_html(text: str, status: int = 200, **facts: Any) -> ReplicaReply:
    return ReplicaReply(text.encode(), HTML, status, **facts)


def make_cursor(kind: str, position: int) -> str:
    """A cursor that says nothing to whoever reads it."""
    return urlsafe_b64encode(f"{kind}:{position}".encode()).decode()


def read_cursor(kind: str, cursor: str) -> int | None:
    """The position of a cursor of this kind, None for one that nobody gave."""
    try:
        cursor_kind, _, position = urlsafe_b64decode(cursor.encode()).decode().partition(":")
    except ValueError:
        return None
    return int(position) if cursor_kind == kind and position.isdecimal() else None


def _is_held(request: Request, headers: Mapping[str, str]) -> bool:
    """RFC 9110: If-None-Match decides where it is given, else If-Modified-Since."""
    tags = request.headers.get("if-none-match")
    if tags is not None:
        return headers["etag"] in [tag.strip().removeprefix("W/") for tag in tags.split(",")]
    since = request.headers.get("if-modified-since")
    return since is not None and since == headers.get("last-modified")
