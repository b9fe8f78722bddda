"""A real HTTP endpoint on loopback that speaks OpenAI's chat completions and follows a script."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_server import QuietHandler, serve_http


@dataclass(frozen=True)
class Say:
    """One scripted answer. `raw` replaces the whole body; `close` drops the connection instead,
    `half` in the middle of the body; `drip_s` is waited between its bytes."""

    content: str | None = "{}"
    status: int = 200
    finish: str = "stop"
    refusal: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    raw: str | bytes | None = None
    close: bool = False
    half: bool = False
    drip_s: float = 0.0


Script = Callable[[dict[str, Any], int], Say]


@dataclass
class Endpoint:
    """The running endpoint: its base URL, and every request body it received, in order."""

    url: str
    requests: list[dict[str, Any]]
    most_at_once: int = 0


@contextmanager
def openai_endpoint(script: Script | Sequence[Say]) -> Iterator[Endpoint]:
    """Serves `script(body, number)`, or the given answers in order (the last one repeats)."""
    follow = script if callable(script) else answer_in_order(list(script))
    state = Endpoint("", [])
    lock, now = threading.Lock(), 0

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            nonlocal now
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                state.requests.append(body)
                number = len(state.requests)
                now += 1
                state.most_at_once = max(state.most_at_once, now)
            say = follow(body, number)
            time.sleep(say.delay_s)
            with lock:
                now -= 1
            if say.close:
                self.close_connection = True
                return
            content = say.raw if say.raw is not None else make_payload(body, say)
            payload = content if isinstance(content, bytes) else content.encode()
            self.send_response(say.status)
            for name, value in {"content-type": "application/json", **say.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self._send(payload, say)

        def _send(self, payload: bytes, say: Say) -> None:
            if say.half:
                self.wfile.write(payload[: len(payload) // 2])
                self.close_connection = True
            elif say.drip_s:
                for byte in payload:
                    self.wfile.write(bytes([byte]))
                    time.sleep(say.drip_s)
            else:
                self.wfile.write(payload)

    with serve_http(Handler) as base:
        state.url = f"{base}/v1"
        yield state


def answer_in_order(answers: list[Any]) -> Callable[[dict[str, Any], int], Any]:
    """A script of these answers, of which the last repeats."""
    return lambda _body, number: answers[min(number, len(answers)) - 1]


def make_payload(body: dict[str, Any], say: Say) -> str:
    """The JSON of a response to a request that is answered so."""
    if say.status != 200:
        return json.dumps({"error": {"message": say.content, "type": "error", "code": None}})
    asked = sum(len(str(message.get("content") or "").split()) for message in body["messages"])
    written = len((say.content or "").split())
    usage = {"prompt_tokens": asked, "completion_tokens": written, "total_tokens": asked + written}
    message = {"role": "assistant", "content": say.content, "refusal": say.refusal}
    choice = {"index": 0, "finish_reason": say.finish, "message": message}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"]}
    return json.dumps({**head, "choices": [choice], "usage": usage})
