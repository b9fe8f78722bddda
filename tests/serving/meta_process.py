"""The meta-server as a process, its tools functions: `… meta_process PLACE CONSENT [http]`."""

import sys
from pathlib import Path

from serving.meta.policy import HttpSettings, MetaPolicy
from serving.meta.transports import run_http, run_stdio
from tests.serving.meta_server import MetaServer, served


def main(place: Path, consent: str, *http: str) -> None:
    meta = MetaServer(place, MetaPolicy(poll_s=0.05, consent=consent))  # type: ignore[arg-type]
    inner = meta.caller.call

    async def call(*args, **named):
        print("printed by a careless library")
        return await inner(*args, **named)

    meta.caller.call = call  # type: ignore[method-assign]
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
