"""The root folder as one object: tables, blobs and the ledger, handed to every package.

<home>/home.json             the layout's version (`warehouse/home.py`)
<home>/blobs  <home>/tables  <home>/lance  <home>/models  <home>/reports …
<state>/ledger.db, memo.db   local only: SQLite cannot be shared by machines (the ledger's database
                             may be a Postgres instead)
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from warehouse.home import claim_home, describe_unwritable
from warehouse.ledger.crawl_state import CrawlMemo
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs
from warehouse.storage.tables import Tables


@dataclass(frozen=True)
class Warehouse:
    """All stores under one data folder (`home`) and one local folder (`state`)."""

    home: Path
    state: Path
    run_id: str = "-"
    budget_usd: float | None = None
    ledger_url: str | None = field(default=None, repr=False)  # it may hold a password

    @cached_property
    def blobs(self) -> Blobs:
        claim_home(self.home)
        return Blobs(self.home / "blobs")

    @cached_property
    def tables(self) -> Tables:
        claim_home(self.home)
        return Tables(self.home / "tables")

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, opened on first use in each process. Raises LedgerUnavailable."""
        path = self.state / "ledger.db"
        ledger = Ledger(path, self.blobs, run_id=self.run_id, url=self.ledger_url)
        if self.budget_usd is not None:
            ledger.set_budget("usd", self.budget_usd)
        return ledger

    @cached_property
    def memo(self) -> CrawlMemo:
        """What crawls remember between runs, opened on first use in each process."""
        claim_home(self.home)
        return CrawlMemo(self.state / "memo.db")

    def check_writable(self) -> None:
        """Raises HomeUnavailable if the folder is not writable, or is another version's."""
        claim_home(self.home)
        for folder in (self.home, self.state):
            probe = folder / ".writable"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                probe.write_bytes(b"x" * 65536)
                probe.unlink()
            except OSError as error:
                raise describe_unwritable(folder, error) from error
