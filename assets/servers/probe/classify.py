"""The verdict on one launch: which failure, if any, the evidence amounts to."""

from dataclasses import dataclass

from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.stderr_patterns import classify_last_words, classify_text
from assets.servers.probe.transcript import Transcript
from assets.servers.sandbox.watchdog import Breach

_BREACHES = {
    "memory": "out_of_memory",
    "processes": "too_many_processes",
    "disk": "disk_full",
}


@dataclass(frozen=True)
class Evidence:
    """All that is known when a launch is over. `failure` is how the conversation ended, None when
    it reached its end; `answered` whether `initialize` was; `exited` whether the server ended by
    itself, then with `code` or `signal`."""

    transcript: Transcript
    failure: Failure | None
    breach: Breach | None = None
    answered: bool = False
    exited: bool = False
    code: int | None = None
    signal: str | None = None


def classify_evidence(seen: Evidence) -> Failure | None:
    """The strongest evidence first: a limit that was passed, an exit, then the conversation."""
    transcript, breach, failure = seen.transcript, seen.breach, seen.failure
    # What went wrong after the last list of tools was only asked for besides.
    if transcript.oversize and failure:
        return Failure("oversize", transcript.oversize)
    if transcript.broken and failure:
        return Failure("protocol_error", transcript.broken)
    if breach and breach.limit in _BREACHES:
        return Failure(_BREACHES[breach.limit], breach.found)
    if breach:
        return Failure("timeout_list" if seen.answered else "timeout_start", breach.found)
    if failure is None:
        return None if any([transcript.tools, *transcript.earlier]) else Failure("no_tools", "")
    if failure.kind in ("timeout_start", "timeout_list", "oversize"):
        if failure.kind != "oversize" and transcript.noise > transcript.greeted:
            detail = (
                f"{transcript.noise} lines that are no JSON-RPC, first {transcript.first_noise}"
            )
            return Failure("protocol_error", detail)
        return failure if failure.kind == "oversize" else _explain_timeout(failure, transcript)
    if seen.exited:
        return classify_last_words(
            make_printable(transcript.stderr) + transcript.first_noise, seen.code, seen.signal
        )
    if "code -32601" in failure.detail and seen.answered:
        return Failure("no_tools", "tools/list is not a method of this server")
    if "code" in failure.detail and not transcript.ended:
        return _classify_refusal(failure)
    if transcript.ended:
        return Failure("protocol_error", "it closed its standard output and went on running")
    return failure


def _explain_timeout(failure: Failure, transcript: Transcript) -> Failure:
    """A server that hangs has often said why."""
    cause = classify_text(make_printable(transcript.stderr))
    return Failure(cause.kind, f"{failure.detail}, {cause.detail}") if cause else failure


def _classify_refusal(failure: Failure) -> Failure:
    """An error answer may say the same things a dying server says."""
    cause = classify_text(failure.detail)
    return Failure(cause.kind, f"answered {failure.detail!r}") if cause else failure


def make_printable(data: bytes) -> str:
    """Text without control characters: it ends up in logs and tables."""
    text = data.decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)
