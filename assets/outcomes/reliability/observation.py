"""One observation: that a tool under one contract did, or did not do, what it was called for."""

from dataclasses import dataclass

EXECUTION = "execution"  # source of calls that Toolmill executes itself
TOKEN = "token:"  # source of calls of a client: followed by its token's name
BLAMED = ("tool", "server")  # whose faults count against a tool
WRONG_TOOL = "wrong_tool"  # kind of a call that the tool answered, and that another one was for


@dataclass(frozen=True)
class Observation:
    """What one call says of one version of a tool. Calls that failed by their caller, missing
    credentials, a policy, a service behind the tool or Toolmill itself are no observations. Of kind
    WRONG_TOOL it was no success for its query, and says nothing about whether the tool works."""

    at: float  # epoch seconds
    tool_id: str
    contract_digest: str
    success: bool
    weight: float = 1.0  # of one call that was seen here; less for what is only claimed
    seconds: float | None = None  # that the call took
    query: str = ""  # the words asked for; "" where they are not kept
    query_key: str = ""  # digest of the words; "" where the call answers no search
    source: str = EXECUTION  # or "token:<name>"
    client: str | None = None  # as it names itself
    kind: str | None = None  # of the outcome, or how it failed
    rank: int | None = None  # among the tools shown, from 1
    call_id: str = ""
    search_id: str = ""
    claimed: bool = False  # told by a client of a call that was not seen here
