"""Blame: whom a failed call is laid to, over injected faults of every kind.

    python -m benchmarks.bench_blame

Faults are injected by a small server in the real sandbox: what it says (`blame_faults.json`, in the
words of libraries and services), what its code really does (writes outside, opens a connection,
divides by zero, hangs, dies), and what goes wrong on our side of a call. Printed: right of n by who
is to blame, with 95% intervals, and each that was laid to another. The words were read while the
rules were written; a first sight is in docs/benchmarks.md.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from assets.outcomes.outcome import classify_outcome
from assets.servers.calls import stdio_connection
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import PackageError
from tests.serving.calling import PATIENT, Bench, LaunchedServer
from tests.support.untrusted_server import POLICY
from warehouse.statistics import wilson_interval

VALUES = {
    "path": "/home/user/data/q3 report.xlsx",
    "sheet_name": "Revenue 2025",
    "city": "Atlantis",
    "row": 4711,
    "unit": "cubit",
}
SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "url": {}, **{n: {} for n in VALUES}},
}
CONTRACT = {"name": "do", "inputSchema": SCHEMA, "outputSchema": {"type": "object"}}
SERVER = """
import socket, subprocess, threading, datetime, urllib.request, zoneinfo, re, tempfile
FAULTS = json.load(open("/srv/server/faults.json"))
SCHEMA = {schema!r}
def do(m, x):
    fault, arguments = FAULTS[x], m["params"]["arguments"]
    if fault["how"] == "code":
        try:
            exec(fault["text"], {{**globals(), "m": m, "arguments": arguments}})
        except Exception as error:
            say(m, f"{{type(error).__name__}}: {{error}}", isError=True)
    elif fault["how"] == "rpc":
        error = {{"code": fault["code"], "message": fault["text"]}}
        send({{"jsonrpc": "2.0", "id": m["id"], "error": error}})
    else:
        say(m, fault["text"], isError=fault["how"] == "error", structuredContent={{}})
calls(do, [tool("do", inputSchema=SCHEMA, outputSchema={{"type": "object"}})])
"""
# What the server's code does -> who is to blame. The sandbox has no network.
CODE: dict[str, list[str]] = {
    "policy": [
        *(f"open({place!r}, 'w')" for place in ("/etc/x", "/usr/x", "/srv/server/x")),
        *(f"os.makedirs({place!r})" for place in ("/etc/d", "/usr/lib/d", "/srv/server/d", "/d")),
        *(f"socket.create_connection(({host!r}, {port}), 2)" for host, port in (
            ("192.0.2.1", 443), ("api.example.com", 443), ("198.51.100.1", 22), ("127.0.0.1", 5432),
            ("2001:db8::1", 80))),
        *(f"urllib.request.urlopen({url!r}, timeout=2)" for url in (
            "https://api.example.com/v1", "http://203.0.113.254/latest", "https://index.example")),
        *(f"subprocess.run([{name!r}, '--version'], check=True)" for name in (
            "ffmpeg", "libreoffice", "tesseract", "pandoc")),
        "open('/tmp/big', 'wb').write(b'x' * (64 << 20))",
        "held = [tempfile.TemporaryFile() for _ in range(9)]\n"
        "for one in held: one.write(b'x' * (7 << 20)); one.flush()",
        "[threading.Thread(target=time.sleep, args=(9,)).start() for _ in range(400)]",
        "x = [bytearray(8 << 20) for _ in range(400)]",
    ],
    "caller": [
        "open(arguments['path'])",
        "os.listdir(arguments['path'])",
        "zoneinfo.ZoneInfo(arguments['city'])",
        "datetime.date.fromisoformat(arguments['city'])",
        "int(arguments['unit'])",
        "json.loads('{}')[arguments['city']] if False else int(arguments['sheet_name'])",
        "raise ValueError(f\"unknown unit {arguments['unit']!r}\")",
        "raise FileNotFoundError(arguments['path'])",
        "raise LookupError(f\"{arguments['city']} is not in the table\")",
    ],
    "tool": [
        "1 / 0", "[][1]", "{}['results']", "None.items", "undefined_name", "assert 1 == 2",
        "'a' + 1", "raise NotImplementedError", "raise RuntimeError('disk on fire')",
        "json.loads('<')",
        "b'\\xff'.decode()", "(lambda f: f(f))(lambda f: f(f))", "time.sleep(600)",
        "say(m, 'x', structuredContent=None)", "raise OSError('the printer is on fire')",
    ],
    "server": [
        "os._exit(7)", "os.kill(os.getpid(), 11)", "os.kill(os.getpid(), 9)", "sys.exit(1)",
        "answer(m['id'], ['a', 'list'])", "answer(m['id'], {'content': 'text'})",
        "say(m, 'x' * 50_000_000)", "os.write(1, b'{' * 9_000_000)",
        "[os.write(1, b'x\\n' * 10000) for _ in iter(int, 1)]",
        "say(m, 'Unknown tool: do', isError=True)",
    ],
}  # fmt: skip

# HTTP responses inside results that claim success, in other services' forms.
ASKED = {"url": "https://api.example.com/v2/things/77"}
ANSWERS: dict[str, list[str]] = {
    "upstream": [
        '{"status":500,"statusText":"Internal Server Error","data":"","headers":{"via":"1.1 x"}}',
        '{"statusCode":504,"headers":{},"multiValueHeaders":{},"body":"","isBase64Encoded":false}',
        '{"http_status":502,"reason_phrase":"Bad Gateway","body":"<html></html>"}',
        '{"result":{"status_code":503,"headers":{"retry-after":"120"},"text":""}}',
        '{"code":"429","message":"slow down","retryAfter":30}',
        '{"apiVersion":"v1","kind":"Status","code":500,"reason":"InternalError","message":"etcd"}',
        "HTTP/1.1 503 Service Unavailable\nContent-Length: 0\n",
        "HTTP/2 500\nserver: envoy\n\nno healthy host",
        "Response status: 502 Bad Gateway\n\nBody:\n",
        "POST https://api.example.com/v2/things\nStatus code: 500\n\n{}",
        "<!DOCTYPE html>\n<html><head><title>503 Service Unavailable</title></head></html>",
        "<html><body><h1>500 Internal Server Error</h1></body></html>",
        "502 Bad Gateway",
        "Service Unavailable",
    ],
    "caller": [
        '{"status":404,"statusText":"Not Found","headers":{"content-type":"text/plain"}}',
        '{"type":"https://e.example/v","title":"Unprocessable","status":422,"detail":"qty"}',
        '{"statusCode":400,"error":"Bad Request","message":"qty must be a number"}',
        "HTTP/1.1 405 Method Not Allowed\nAllow: GET\n",
        "Status: 404\nBody: {}",
        "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>",
    ],
    "credentials": [
        '{"status":401,"title":"Unauthorized","type":"about:blank"}',
        '{"response":{"statusCode":403,"headers":{}},"request":{"method":"GET"}}',
        "HTTP/1.1 401 Unauthorized\nWWW-Authenticate: Bearer\n",
    ],
}


@dataclass(frozen=True)
class Fault:
    """blame: who it should be laid to. how: error, ok (told without isError), rpc, code."""

    blame: str
    how: str
    text: str
    code: int = 0
    arguments: tuple[tuple[str, Any], ...] = ()


def list_faults() -> list[Fault]:
    """Every fault that the server injects."""
    texts = json.loads(Path(__file__).with_name("blame_faults.json").read_text())
    return [
        *_iter_text_faults(texts),
        *(Fault(who, "code", code, arguments=tuple(VALUES.items()))
          for who, codes in CODE.items() for code in codes),
        *(Fault(who, "ok", text, arguments=tuple(ASKED.items()))
          for who, answers in ANSWERS.items() for text in answers),
        *(Fault("caller", "rpc", text, -32602) for text in ("Invalid params", "bad request")),
        *(Fault("server", "rpc", text, -32601) for text in ("Method not found", "no")),
        *(Fault("tool", "rpc", text, code) for text, code in (("Internal", -32603), ("x", 1))),
    ]  # fmt: skip


def _iter_text_faults(texts_by_blame: dict[str, list[str]]) -> Iterator[Fault]:
    for who, texts in texts_by_blame.items():
        for place, text in enumerate(texts):
            for name, value in VALUES.items() if who == "caller" else [("path", VALUES["path"])]:
                words = text.replace("{value}", str(value)).replace("{name}", name)
                how = "ok" if place % 5 == 4 and words.startswith(("{", "Error")) else "error"
                yield Fault(who, how, words, arguments=((name, value),))


async def inject_faults(faults: list[Fault], running: LaunchedServer) -> list[str | None]:
    """Whom each fault is laid to."""
    found = []
    for place, fault in enumerate(faults):
        arguments = {"x": place, **dict(fault.arguments)}
        slow = "sleep(600)" in fault.text or "create_connection" in fault.text
        result = await running.caller.call(
            running.server_id, "do", CONTRACT, arguments, timeout_s=4.0 if slow else 20.0
        )
        found.append(classify_outcome(result, arguments, offline=True).blame)
    return found


async def inject_own_faults(
    bench: Bench, patch: pytest.MonkeyPatch
) -> list[tuple[str, str | None]]:
    """(what was done on our side of a call, whom it was laid to)."""

    async def ask(running: LaunchedServer) -> str | None:
        return classify_outcome(await running.call(1)).blame

    def raise_error(error: Exception) -> Any:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        return fail

    blamed: list[tuple[str, str | None]] = []
    source = "calls(lambda m, x: say(m, x))"
    for name, error in (
        ("fetch_failed", PackageError("fetch_failed", "no route to the registry")),
        ("not_found", PackageError("not_found", "no such package")),
        ("internal", ZeroDivisionError("a fault of ours")),
    ):
        async with bench.launch(source, recipe={"name": f"own-{name}"}) as running:
            patch.setattr(stdio_connection, "ensure_artifact", raise_error(error))
            blamed.append((name, await ask(running)))
            patch.setattr(stdio_connection, "ensure_artifact", bench._artifact)
    async with bench.launch(source, recipe={"name": "own-closed"}) as running:
        await running.caller.close()
        blamed.append(("closed", await ask(running)))
    async with bench.launch(source, recipe={"name": "own-unknown"}) as running:
        running.caller._recipes = lambda _: None
        blamed.append(("unknown_server", await ask(running)))
    return blamed


def tabulate(rows: list[tuple[str, str | None, str]]) -> dict[str, Any]:
    """Right of n by who is to blame; rows: (who it is, who it was laid to, what was done)."""
    table: dict[str, Any] = {}
    for who in (*dict.fromkeys(who for who, _, _ in rows), "all"):
        own = [(want, got) for want, got, _ in rows if who in (want, "all")]
        right = sum(want == got for want, got in own)
        low, high = wilson_interval(right, len(own))
        table[who] = {"right": right, "n": len(own), "interval": [round(low, 3), round(high, 3)]}
    ours = [got for want, got, _ in rows if want == "policy"]
    wrong = [f"{want} -> {got}: {what[:90]}" for want, got, what in rows if want != got]
    return {"right": table, "policy_faults_laid_to_a_tool": ours.count("tool"), "wrong": wrong}


def main() -> None:
    faults = list_faults()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        bench = Bench(Path(folder), patch)

        async def run() -> list[tuple[str, str | None, str]]:
            policy = DeployPolicy(bench.folder, POLICY, PATIENT)
            async with bench.launch(SERVER.format(schema=SCHEMA), policy=policy) as running:
                listed = [
                    {"how": fault.how, "text": fault.text, "code": fault.code} for fault in faults
                ]
                (bench.folder / "x" / "faults.json").write_text(json.dumps(listed))
                found = await inject_faults(faults, running)
            own = await inject_own_faults(bench, patch)
            rows = [(one.blame, got, one.text) for one, got in zip(faults, found, strict=True)]
            return [*rows, *(("us", got, what) for what, got in own)]

        print(json.dumps(tabulate(asyncio.run(run())), indent=1))


if __name__ == "__main__":
    main()
