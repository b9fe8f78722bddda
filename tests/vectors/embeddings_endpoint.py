"""A real HTTP endpoint on loopback that speaks OpenAI's embeddings and follows a script."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import sleep
from typing import Any

from tests.support.http_server import QuietHandler, serve_http
from tests.support.openai_endpoint import answer_in_order
from warehouse.storage.digest import sha256


@dataclass(frozen=True)
class Say:
    """One answer. None in `body`: real vectors; `drop` closes the connection instead; `drip_s` is
    waited before each byte."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    drip_s: float = 0.0


@dataclass
class Endpoint:
    """Its base URL, and (path, headers, body) of each request."""

    url: str = ""
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def texts(self) -> list[str]:
        return [text for _, _, body in self.asked for text in body["input"]]


Script = Callable[[dict[str, Any], int], Say]


def vector(text: str, dim: int = 8) -> list[float]:
    """A vector of any length that only the text decides."""
    return [int(sha256(text.encode())[at * 4 : at * 4 + 4], 16) - 30_000.5 for at in range(dim)]


def vectors(body: dict[str, Any], dim: int = 8) -> dict[str, Any]:
    """The usual answer; its items come in another order than the texts."""
    data = [
        {"object": "embedding", "index": at, "embedding": vector(text, dim)}
        for at, text in enumerate(body["input"])
    ]
    return {"object": "list", "model": body["model"], "data": data[::-1]}


@contextmanager
def embeddings_endpoint(script: Script | Sequence[Say] = (Say(),)) -> Iterator[Endpoint]:
    """Answers by `script(body, number)`, or the given ones in order (the last one repeats)."""
    answers = script if callable(script) else answer_in_order(list(script))
    state, lock = Endpoint(), threading.Lock()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                state.asked.append((self.path, dict(self.headers.items()), body))
                say = answers(body, len(state.asked))
            if say.drop:
                self.close_connection = True
                return
            content = vectors(body) if say.body is None else say.body
            text = content if isinstance(content, str | bytes) else json.dumps(content)
            payload = text if isinstance(text, bytes) else text.encode()
            self.send_response(say.status)
            for name, value in {"content-length": str(len(payload)), **say.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in [payload] if not say.drip_s else [bytes([byte]) for byte in payload]:
                sleep(say.drip_s)
                self.wfile.write(piece)

    with serve_http(Handler) as base:
        state.url = f"{base}/v1"
        yield state
