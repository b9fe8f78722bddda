"""The meta-server over stdio with functions as its tools: `… meta_stdio PLACE CONSENT`."""

import sys
from pathlib import Path

from serving.meta import MetaPolicy, run_stdio
from tests.serving.meta_world import World, served


class Printing(World):
    """A world whose caller prints, as libraries do."""

    def __init__(self, place: Path, consent: str) -> None:
        super().__init__(place, MetaPolicy(poll_s=0.05, consent=consent))  # type: ignore[arg-type]
        inner = self.caller.call

        async def call(*args, **named):
            print("printed by a careless library")
            return await inner(*args, **named)

        self.caller.call = call  # type: ignore[method-assign]


if __name__ == "__main__":
    world = Printing(Path(sys.argv[1]), sys.argv[2])
    run_stdio(served(world.place), world.caller, world.policy, world.outcomes)
    (world.place / "closed").write_text(str(world.caller.closed))
