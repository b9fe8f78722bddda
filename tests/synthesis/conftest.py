"""Clients for the tests of synthesis: offline, or against an endpoint on loopback."""

from pathlib import Path

import pytest

from tests.synthesis.scripted import offline_llm
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM
from warehouse.storage.blobs import Blobs


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "state" / "ledger.db", Blobs(tmp_path / "blobs"))


@pytest.fixture
def offline(ledger: Ledger) -> LLM:
    return offline_llm(ledger)
