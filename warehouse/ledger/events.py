"""The events of a ledger's journal: one shape each, checked as they are read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_core import from_json

_Count = Annotated[int, Field(ge=0, lt=2**62)]  # SQLite holds 63 bits, and the next id is one more
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Dollars = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e12)]


class Started(BaseModel, strict=True):
    """An attempt that holds a part of a budget. Times are epoch seconds."""

    id: _Count
    key: str
    stage: str
    partition: str
    run_id: str
    started_at: _Number
    scope: str
    reserved_usd: _Dollars
    batch: str = ""  # the file of requests that it went with, where it went with one


class Done(Started):
    """An effect that was received; the blob is "" where a later one has its place."""

    finished_at: _Number
    model: str
    prompt_tokens: _Count
    completion_tokens: _Count
    usd: _Dollars
    blob: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]


class Ended(BaseModel, strict=True):
    """The end of an attempt of which nothing was received."""

    id: _Count


class Forgotten(BaseModel, strict=True):
    """An effect that is due again."""

    key: str


class Budget(BaseModel, strict=True):
    """The most that a scope may cost."""

    scope: str
    usd: _Dollars


class Run(BaseModel, strict=True):
    """A run of a scope, opened or closed."""

    scope: str
    number: _Count
    id: str
    opened_at: _Number
    closed_at: _Number | None


class Batch(BaseModel, strict=True):
    """A file of requests for a provider's Batch API, and how far it is. Times are epoch seconds,
    prices US dollars per million tokens with the batch's discount in them.

    state: gathering (by the process `pid`), ready (to be sent; it may have been), sent, and at the
    end harvested, dropped (never sent) or given_up.
    """

    name: str  # in the provider's metadata: by it a batch is found again
    state: str
    stage: str  # of the run, as its progress is named: pairs, judgements, summaries, readmes
    partition: str
    role: str
    model: str
    base_url: str
    window: str
    usd_in: _Dollars
    usd_out: _Dollars
    opened_at: _Number
    pid: _Count
    process: str
    requests: _Count = 0
    blob: str = ""  # the file itself
    dropped: list[str] = []  # optional parameters that the endpoint refused, left out of it
    file_id: str = ""
    tried_at: _Number = 0.0  # when its creation was last asked for, with an answer or without
    batch_id: str = ""
    sent_at: _Number = 0.0
    status: str = ""  # as the provider last said
    completed_at: _Number = 0.0  # by the provider's clock
    reads: _Count = 0  # of its results that came to less than the provider counts
    answered: _Count = 0
    failed: _Count = 0
    unknown: _Count = 0
    ignored: _Count = 0  # answers under ids that are not its own, or that came twice
    usd: _Dollars = 0.0
    refused: list[str] = []  # optional parameters that its errors complain of
    problem: str = ""  # the last thing that went wrong, in one line


_KINDS: dict[str, type[BaseModel]] = {
    "done": Done,
    "started": Started,
    "unknown": Ended,
    "failed": Ended,
    "forgotten": Forgotten,
    "budget": Budget,
    "run": Run,
    "batch": Batch,
}
DONE, STARTED, RUN = (tuple(kind.model_fields) for kind in (Done, Started, Run))
EFFECT = ("key", "stage", "blob", "finished_at")

Event = tuple[str, dict[str, Any]]  # kind and row


def read_events(path: Path, start: int = 0, end: int | None = None) -> Iterator[Event | None]:
    """The lines from byte `start` on, those that begin before byte `end`, as they were written;
    None for one that is no event."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        place = start
        for line in file:
            if end is not None and place >= end:
                return
            place += len(line)
            if line.strip():
                yield _parse_event(line)


def _parse_event(line: bytes) -> Event | None:
    try:
        row = from_json(line)
        kind = row.pop("is")
        return kind, _KINDS[kind].model_validate(row).model_dump()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
