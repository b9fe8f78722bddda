"""The meta-server as a process, its tools functions: `… meta_process PLACE CONSENT [http]`."""

import sys
from pathlib import Path

from serving.meta.policy import HttpSettings, MetaPolicy
from serving.meta.transports import run_http, run_stdio
from tests.serving.meta_server import MetaServer, served


class Printing(MetaServer):
    """A meta-server whose caller prints, as libraries do."""

    def __init__(self, place: Path, consent: str) -> None:
        super().__init__(place, MetaPolicy(poll_s=0.05, consent=consent))  # type: ignore[arg-type]
        inner = self.caller.call

        async def call(*args, **named):
            print("printed by a careless library")
            return await inner(*args, **named)

        self.caller.call = call  # type: ignore[method-assign]


def main(place: Path, consent: str, *http: str) -> None:
    meta = Printing(place, consent)
    parts = (served(place), meta.caller, meta.policy, meta.outcomes)
    try:
        if http:
            announced = place / "address.part"
            run_http(*parts, HttpSettings(port=0), ready=lambda address: _tell(announced, address))
        else:
            run_stdio(*parts)
    finally:
        (place / "closed").write_text(str(meta.caller.closed))


def _tell(path: Path, address: str) -> None:
    path.write_text(address)
    path.rename(path.with_name("address"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
