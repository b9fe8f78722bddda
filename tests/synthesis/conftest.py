"""Clients for the tests of synthesis: offline, or against an endpoint on loopback."""

from pathlib import Path

import pytest

from assets.synthesis.judge import offline_provider
from warehouse.blobs import Blobs
from warehouse.effects.ledger import Ledger
from warehouse.effects.llm import LLM, Role


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "state" / "ledger.db", Blobs(tmp_path / "blobs"))


@pytest.fixture
def offline(ledger: Ledger) -> LLM:
    roles = [Role("generator"), Role("caller", temperature=0.0), Role("judge", temperature=0.0)]
    return LLM(roles, ledger, offline=offline_provider())
