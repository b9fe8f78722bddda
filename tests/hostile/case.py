"""One hostile server: what it does, and the result it must have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GOOD = "serve([tool('a'), tool('b')])"


@dataclass(frozen=True)
class Case:
    """kind: of the taxonomy, or None where its tools are listed all the same; then `tools` are
    their names. limits: fields of SandboxPolicy that differ from the suite's; list_s: seconds for
    the list, more where a sound end needs work that a busy machine is slow at."""

    source: str
    kind: str | None = None
    tools: tuple[str, ...] = ("a", "b")
    limits: Mapping[str, Any] = field(default_factory=dict)
    list_s: float = 1.5


def answering(what: str, before: str = "") -> str:
    """The handshake, then `what` for the first `tools/list` (`m`), then silence."""
    return f"welcome(read()); read(); m = read()\n{before}\n{what}\ntime.sleep(600)"


def raw(listed: str) -> str:
    """Answers `tools/list` with this text for the list of tools, as it stands."""
    text = f'{{"jsonrpc": "2.0", "id": %d, "result": {{"tools": {listed}}}}}\\n'
    return answering(f"os.write(1, ({text!r} % m['id']).replace('\\\\n', chr(10)).encode())")
