"""A real HTTP endpoint on loopback that speaks OpenAI's files and batches, and follows a script.

What is uploaded and created stays as it was sent; a batch ends when the test says so (`end`).
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_server import QuietHandler, serve_http
from tests.support.openai_endpoint import Say, Script, make_payload

Body = dict[str, Any]
Lines = list[Body]


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead of, or (`after`) in spite of, what it asks for."""

    status: int = 0  # an HTTP status; 0: the connection is dropped
    message: str = "out of order"
    after: bool = False


@dataclass
class BatchServer:
    """The running endpoint. answered: how often each request of a batch was answered, and so
    billed; log: (method, path) of every request."""

    url: str = ""
    script: Script = lambda body, number: Say()
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, Body] = field(default_factory=dict)
    direct: Lines = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    log: list[tuple[str, str]] = field(default_factory=list)
    faults: dict[tuple[str, str], list[Fault]] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)  # file -> bytes after which it breaks off
    hidden: set[str] = field(default_factory=set)  # batches that no list shows

    def read_requests(self, batch: Body) -> Lines:
        text = self.files[batch["input_file_id"]].decode()
        return [json.loads(line) for line in text.splitlines()]

    def running(self) -> Lines:
        ended = ("completed", "failed", "expired", "cancelled")
        return [item for item in self.batches.values() if item["status"] not in ended]

    def end(self, status: str = "completed", *, share=1.0, alter=lambda lines: lines, errors=()):
        """Ends every batch that runs: the first `share` of its requests answered by the script,
        the others in the error file where the batch expired or was cancelled. `alter` changes the
        lines of the output, `errors` are those of validation."""
        for batch in self.running():
            requests = self.read_requests(batch)
            done = requests[: round(share * len(requests))]
            output = [] if status == "failed" else alter([self._answer(item) for item in done])
            refused = [x for x in output if x.get("response", {}).get("status_code") != 200]
            if status in ("expired", "cancelled"):
                error = {"code": f"batch_{status}", "message": "It could not be executed."}
                left = [x["custom_id"] for x in requests[len(done) :]]
                refused += [{"custom_id": key, "response": None, "error": error} for key in left]
            good = [item for item in output if item not in refused]
            completed = len(done) - sum(item in refused for item in output)
            batch |= {
                "status": status,
                "output_file_id": self._keep(good),
                "error_file_id": self._keep(refused),
                "request_counts":
                    {"total": len(requests), "completed": completed, "failed": len(refused)},
                f"{status}_at": int(time.time()),
                "errors": {"object": "list", "data": list(errors)} if errors else None,
            }  # fmt: skip

    def _answer(self, line: Body) -> Body:
        self.answered[line["custom_id"]] += 1
        say = self.script(line["body"], self.answered.total())
        raw = say.raw if say.raw is not None else make_payload(line["body"], say)
        response = {"status_code": say.status, "request_id": "r", "body": json.loads(raw)}
        return {"id": "b", "custom_id": line["custom_id"], "response": response, "error": None}

    def _keep(self, lines: Lines) -> str | None:
        if not lines:
            return None
        name = f"file-{len(self.files)}"
        self.files[name] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return name

    def create(self, body: Body) -> Body:
        name = f"batch_{len(self.batches)}"
        begun = {"id": name, "object": "batch", "status": "validating"}
        counts = {"total": 0, "completed": 0, "failed": 0}
        results = dict.fromkeys(("output_file_id", "error_file_id", "errors", "metadata"))
        facts = {"created_at": int(time.time()), "request_counts": counts}
        self.batches[name] = {**results, **body, **begun, **facts}
        return self.batches[name]


@contextmanager
def batch_endpoint(script: Script | None = None) -> Iterator[BatchServer]:
    """Serves files, batches and chat completions; `script(body, number)` answers each request."""
    state = BatchServer()
    if script is not None:
        state.script = script
    lock = threading.Lock()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self._handle(b"")

        def do_POST(self) -> None:
            self._handle(self.rfile.read(int(self.headers.get("content-length") or 0)))

        def _handle(self, data: bytes) -> None:
            path = urlsplit(self.path).path.removeprefix("/v1")
            kind = "/".join(path.split("/")[:2])
            with lock:
                state.log.append((self.command, path))
                waiting = state.faults.get((self.command, kind)) or []
                fault = waiting.pop(0) if waiting else None
                found = self._answer(path, data) if fault is None or fault.after else None
            if fault is None:
                self._send(*(found or (404, _error("no such thing"))))
            elif fault.status:
                self._send(fault.status, _error(fault.message))
            else:
                self.close_connection = True

        def _answer(self, path: str, data: bytes) -> tuple[int, bytes] | None:
            parts = path.strip("/").split("/")
            if path == "/chat/completions":
                body = json.loads(data)
                state.direct.append(body)
                say = state.script(body, len(state.direct))
                return say.status, make_payload(body, say).encode()
            if path == "/files" and self.command == "POST":
                name = f"file-{len(state.files)}"
                state.files[name] = _read_upload(self.headers["content-type"], data)
                return 200, json.dumps({"id": name, "object": "file"}).encode()
            if parts[0] == "files" and parts[-1] == "content" and parts[1] in state.files:
                return 200, state.files[parts[1]]
            if path == "/batches":
                made = state.create(json.loads(data)) if data else self._list_page()
                return 200, json.dumps(made).encode()
            if parts[0] == "batches" and parts[1] in state.batches:
                batch = state.batches[parts[1]]
                if parts[-1] == "cancel":
                    batch["status"] = "cancelling"
                return 200, json.dumps(batch).encode()
            return None

        def _list_page(self) -> Body:
            query = parse_qs(urlsplit(self.path).query)
            rows = [row for row in state.batches.values() if row["id"] not in state.hidden][::-1]
            after = query.get("after", [""])[0]
            ids = [row["id"] for row in rows]
            start = ids.index(after) + 1 if after in ids else 0
            most = int(query.get("limit", ["20"])[0])
            page = rows[start : start + most]
            return {"object": "list", "data": page, "has_more": start + most < len(rows)}

        def _send(self, status: int, payload: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            most = state.cut.get(urlsplit(self.path).path.split("/")[-2], len(payload))
            self.wfile.write(payload[:most])
            self.close_connection = self.close_connection or most < len(payload)

    with serve_http(Handler) as base:
        state.url = f"{base}/v1"
        yield state


def _read_upload(content_type: str, data: bytes) -> bytes:
    head = f"Content-Type: {content_type}\r\n\r\n"
    message = BytesParser().parsebytes(head.encode() + data)
    parts = {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
        for part in message.get_payload()
    }
    assert parts["purpose"] == b"batch", parts.keys()
    return parts["file"]


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "error", "code": None}}).encode()
