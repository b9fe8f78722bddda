"""What a remote server sends is counted, and refused beyond a bound."""

from dataclasses import dataclass

import httpx2

from assets.servers.probe.failure_kinds import Failure

MIB = 1024 * 1024


class Refused(httpx2.TransportError):
    """What we do not send or read on; says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@dataclass
class Meter:
    """Counts what comes in. A stream of empty compressed blocks decodes to nothing and a bomb is
    small on the wire, so both are counted."""

    limit: int
    wire: int = 0
    decoded: int = 0

    def add(self, *, wire: int = 0, decoded: int = 0) -> None:
        self.wire, self.decoded = self.wire + wire, self.decoded + decoded
        if max(self.wire, self.decoded) > self.limit:
            raise Refused(Failure("oversize", f"more than {self.limit // MIB} MB in all"))
