"""A rehearsal: the code of a stage over what is there, and nothing is sent, launched or kept.

Its home is a folder of links to the real one, in which a stage may write what it will; its ledger
reads the real one, counts what would be carried out anew, and carries out nothing but rules of the
offline provider, which are pure.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from warehouse.ledger.attempts import Outcome
from warehouse.ledger.ledger import Ledger
from warehouse.llm.roles import LLMError
from warehouse.store import Warehouse

_COPIED = (".json", ".jsonl", ".lock")  # what is rewritten or appended to in place
# Written by the stages that are rehearsed; all else of a home is read.
_WRITTEN = ("lance", "tables", "cache")


class NotSent(RuntimeError):
    """An effect that a rehearsal does not carry out."""


class RehearsedLedger(Ledger):
    """Reads the real ledger. asked: stage -> effects that a run would carry out, each key once.
    launched: the servers that it would launch."""

    def __init__(self, real: Ledger, offline: frozenset[str]) -> None:
        """offline: names of the roles that rules answer for."""
        self.real, self.path, self.blobs, self.run_id = real, real.path, real.blobs, "plan"
        self.asked: Counter[str] = Counter()
        self.launched: set[str] = set()
        self._offline = {f"llm:{name}" for name in offline}
        self._made: dict[str, bytes | None] = {}

    def seen(self, key: str) -> bytes | None:
        return self._made.get(key) or self.real.seen(key)

    def once(
        self,
        stage: str,
        key: str,
        fn: Callable[[], Outcome],
        *,
        partition: str = "_",
        reserve_usd: float = 0.0,
        scope: str = "usd",
    ) -> bytes:
        if (data := self.seen(key)) is not None:
            return data
        self._count(stage, key)
        raise NotSent(f"{stage}: it would be carried out")

    async def once_async(
        self,
        stage: str,
        key: str,
        fn: Callable[[], Awaitable[Outcome]],
        *,
        partition: str = "_",
        reserve_usd: float = 0.0,
        scope: str = "usd",
    ) -> bytes:
        if (data := self.seen(key)) is not None:
            return data
        self._count(stage, key)
        if stage not in self._offline:
            raise LLMError("bad_request", "it is planned", "an answer", "run to send it")
        data = self._made[key] = (await fn()).data
        return data

    def open_run(self, scope: str) -> str:
        """A run date that no effect has: what a run asks of the moving world it asks anew."""
        return "planned"

    def close_run(self, scope: str) -> None:
        """Nothing was opened."""

    def note(self, stage: str, key: str) -> None:
        """Counts an effect that would be carried out, unless it was."""
        if self.seen(key) is None:
            self._count(stage, key)

    def _count(self, stage: str, key: str) -> None:
        if key not in self._made:
            self._made[key] = None
            self.asked[stage] += 1


@contextmanager
def open_rehearsal(real: Warehouse, offline: frozenset[str]) -> Iterator[Warehouse]:
    """A warehouse over the same data, whose writes are thrown away. Errors of what is done with it
    name the real home's files."""
    with tempfile.TemporaryDirectory(prefix="toolmill-plan-") as folder:
        home = Path(folder) / "home"
        _copy_home(real.home, home)
        made = Warehouse(home=home, state=real.state, run_id="plan", budget_usd=real.budget_usd)
        vars(made)["ledger"] = RehearsedLedger(real.ledger, offline)
        try:
            yield made
        except Exception as error:
            _rewrite_paths(error, str(home), str(real.home))
            raise


def _rewrite_paths(error: Exception, home: str, real: str) -> None:
    """In place of those of a folder that is gone when the error is read."""
    error.args = tuple(
        arg.replace(home, real) if isinstance(arg, str) else arg for arg in error.args
    )
    if isinstance(error, OSError) and isinstance(error.filename, str):
        error.filename = error.filename.replace(home, real)


def _copy_home(real: Path, home: Path) -> None:
    home.mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name in _WRITTEN and entry.is_dir():
            shutil.copytree(entry, home / entry.name, copy_function=_copy_file, symlinks=True)
        else:
            (home / entry.name).symlink_to(entry)


def _copy_file(source: str, target: str) -> str:
    """A second name of a file that is only ever replaced; a copy of any other, and across disks."""
    if not source.endswith(_COPIED):
        try:
            os.link(source, target)
            return target
        except OSError:
            pass
    return shutil.copyfile(source, target)
