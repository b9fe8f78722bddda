"""A loopback endpoint that speaks OpenAI's chat completions: so late, so often wrong.

    python -m benchmarks.loopback_llm --latency 0.3 --errors 0.05

Prints its port on one line and serves until its stdin closes. `GET /stats` answers what it was
asked since the last `GET /reset`: requests, errors, answers by prompt, the most at once.
One process, asyncio, no framework: it must cost less than what it measures.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

REQUESTS = [
    "Could you put the minutes of Tuesday's roof inspection into /srv/notes/roof_0412.md for me?",
    "Our tenant Marek Oyelaran wants 45 minutes in the small room on 14 March 2026, from half past"
    " nine, and I promised him an answer before lunch. Please see to it.",
    "Eight beginners, one sandbank, the second of August 2026. When do we have water at Penmaen?",
]
ANSWER = json.dumps(
    {"requests": [{"kind": "direct", "instruction": text, "values": {}} for text in REQUESTS]}
)


@dataclass
class RequestCounts:
    """What was asked since the last reset."""

    requests: int = 0
    errors: int = 0
    now: int = 0
    most_at_once: int = 0
    answered: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        numbers = {name: value for name, value in vars(self).items() if name != "answered"}
        repeated = sum(times - 1 for times in self.answered.values())
        return {**numbers, "prompts": len(self.answered), "repeated": repeated}


class Server:
    """Counts, waits, answers."""

    def __init__(self, latency_s: float, errors: float) -> None:
        self._latency_s, self._errors = latency_s, errors
        self._seen, self._chance = RequestCounts(), random.Random(7)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*gone):
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1].decode()
                status, body = await self._answer(
                    path, await reader.readexactly(_read_length(head))
                )
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        writer.close()

    async def _answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/reset":
            self._seen, self._chance = RequestCounts(), random.Random(7)
        if not path.endswith("/chat/completions"):
            return 200, json.dumps(self._seen.as_json()).encode()
        seen = self._seen
        seen.requests += 1
        seen.now += 1
        seen.most_at_once = max(seen.most_at_once, seen.now)
        lot = self._chance.random()
        await asyncio.sleep(self._latency_s)
        seen.now -= 1
        if lot < self._errors:
            seen.errors += 1
            return (429 if lot < self._errors / 2 else 500), b'{"error":{"message":"not now"}}'
        asked = json.loads(body)
        seen.answered[sha256(json.dumps(asked["messages"]).encode()).hexdigest()] += 1
        return 200, _make_completion(asked["model"], len(body) // 4)


def _read_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line[15:])
    return 0


def _make_completion(model: str, prompt_tokens: int) -> bytes:
    message = {"role": "assistant", "content": ANSWER}
    used = {"prompt_tokens": prompt_tokens, "completion_tokens": 150}
    return json.dumps(
        {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {**used, "total_tokens": prompt_tokens + 150},
        }
    ).encode()  # fmt: skip


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--errors", type=float, default=0.05)
    chosen = parser.parse_args()
    server = Server(chosen.latency, chosen.errors)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=512)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
