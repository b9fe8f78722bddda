"""A machine that works on a home until it is killed: value after value, paid for and committed."""

import sys
from pathlib import Path

from extensions.scale.bucket.bucket import open_bucket
from tests.extensions.scale.bucket_home.machines import TABLE, open_machine, open_store, write_rows


def work(place: Path, url: str) -> None:
    machine = open_machine(open_bucket(url), place, told=[])
    with machine.hold():
        rows = open_store(machine).tables.read(TABLE)["value"].to_list()
        value = rows[0] if rows else 0
        while True:
            value += 1
            write_rows(machine, value, paid=f"effect {value}")
            for part in range(20):  # so that a commit takes a while
                path = machine.home / "reports" / f"{part}.html"
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"{value} {part}")
            machine.commit()
            print(value, flush=True)


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2])
