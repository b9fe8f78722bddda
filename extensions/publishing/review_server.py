"""The page on which a person labels a sample, on loopback. Its address holds a token, so no other
site can speak for that person; third-party text is set as text, and no other script runs."""

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from extensions.publishing.review import PairReview, ReviewError, show_row
from warehouse.json_types import Contract, Json

BODY_CAP = 16_384  # bytes of a label with its note
_PAGE = Path(__file__).parent


@dataclass
class ReviewSite:
    review: PairReview
    contracts: Mapping[str, Contract]
    report: Callable[[], Json]
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    on_finish: Callable[[], None] = lambda: None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/?token={self.token}"

    def make_app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._guard(self._serve_page)),
                Route("/api/state", self._guard(self._serve_state)),
                Route("/api/rows/{place:int}", self._guard(self._serve_row)),
                Route("/api/labels", self._guard(self._save_label), methods=["POST"]),
                Route("/api/finish", self._guard(self._finish), methods=["POST"]),
            ]
        )

    def _guard(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            refused = self._find_refusal(request)
            response = _make_error(403, refused) if refused else await answer(request)
            response.headers.setdefault("Content-Security-Policy", "default-src 'none'")
            response.headers.update(_HEADERS)
            return response

        return guarded

    def _find_refusal(self, request: Request) -> str | None:
        if request.headers.get("host") != f"127.0.0.1:{self.port}":
            return "another host was asked for"
        token = request.headers.get("x-review-token") or request.query_params.get("token") or ""
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return "the token of the address is missing or wrong; open the printed address"
        if request.method == "POST" and request.headers.get("origin") != self.origin:
            return "sent by another page"
        return None

    async def _serve_page(self, _: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        text = (_PAGE / "review.html").read_text(encoding="utf-8")
        script = (_PAGE / "review.js").read_text(encoding="utf-8")
        text = text.replace("/*SCRIPT*/", script).replace("NONCE", nonce)
        policy = (
            f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}';"
            " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
            " frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy}
        return Response(text, media_type="text/html; charset=utf-8", headers=headers)

    async def _serve_state(self, _: Request) -> Response:
        rows, labels = self.review.rows, self.review.labels
        state = {
            "labels": [labels.get(row["pair_id"], {}).get("label") for row in rows],
            "next": self.review.find_first_open(),
            "stage": self.review.of.stage,
        }
        return _make_json(state)

    async def _serve_row(self, request: Request) -> Response:
        place = int(request.path_params["place"])
        if place >= len(self.review.rows):
            return _make_error(404, f"row {place}, there are {len(self.review.rows)}")
        row = self.review.rows[place]
        entry = self.review.labels.get(row["pair_id"], {})
        label = {"label": entry.get("label"), "note": entry.get("note", "")}
        return _make_json({"place": place, **show_row(row, self.contracts), "given": label})

    async def _save_label(self, request: Request) -> Response:
        try:
            body = await _read_body(request)
            place, label, note = body["place"], body["label"], body.get("note", "")
            if not (type(place) is int and isinstance(label, str) and isinstance(note, str)):
                raise ReviewError("expected place (number), label and note (texts)")
            self.review.add_label(place, label, note)
        except (ReviewError, KeyError) as error:
            return _make_error(400, f"no label: {error}")
        return await self._serve_state(request)

    async def _finish(self, _: Request) -> Response:
        report = self.report()
        self.on_finish()
        return _make_json(report)


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


async def _read_body(request: Request) -> dict[str, Json]:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_CAP:
            raise ReviewError(f"more than {BODY_CAP} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ReviewError("not JSON") from error
    if not isinstance(body, dict):
        raise ReviewError("expected a JSON object")
    return body


def _make_json(value: Json) -> Response:
    """JSON that is ASCII, so that no half of a surrogate pair stops it."""
    return Response(json.dumps(value), media_type="application/json")


def _make_error(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)


def serve_review(site: ReviewSite, listening: Any) -> None:
    """Serves until the reviewer finishes, or Ctrl-C. `listening`: a bound socket of `site.port`."""
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(site.make_app(), log_level="error", server_header=False, date_header=False)
    )

    def finish() -> None:
        server.should_exit = True

    site.on_finish = finish
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        return  # the labels are kept; the report follows
