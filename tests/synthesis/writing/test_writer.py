"""Private tools stay where their owner wants them."""

from pathlib import Path

import dagster as dg
import pytest

from assets.marketplaces.adapters.private import NotApproved
from assets.synthesis.defs import pairs
from assets.synthesis.writing.writer import PairWriter
from tests.vectors.conftest import WordEmbedder
from warehouse.llm.client import Role
from warehouse.store import Warehouse

ELSEWHERE = Role("generator", model="m", base_url="https://models.example/v1", api_key="k")


def warehouse(home: Path) -> Warehouse:
    return Warehouse(home=home, state=home / "state", run_id="test")


def test_private_tools_are_sent_to_no_endpoint_that_is_not_approved(tmp_path: Path) -> None:
    writer = PairWriter((Role("caller"), ELSEWHERE))
    with pytest.raises(NotApproved, match=r"'generator' .*models\.example.*PRIVATE__APPROVED"):
        writer.make_llm(warehouse(tmp_path), "private")
    assert writer.make_llm(warehouse(tmp_path), "registry")
    approved = PairWriter((ELSEWHERE,), approved=("https://models.example/v1",))
    assert approved.make_llm(warehouse(tmp_path), "private")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "http://localhost:8000/v1"])
def test_a_model_on_this_machine_and_the_offline_rules_need_no_approval(
    url: str, tmp_path: Path
) -> None:
    writer = PairWriter((Role("generator"), Role("judge", model="m", base_url=url)))
    assert writer.make_llm(warehouse(tmp_path), "private")


def test_the_default_endpoint_of_the_client_is_not_approved_either(tmp_path: Path) -> None:
    with pytest.raises(NotApproved):
        PairWriter((Role("generator", model="m"),)).make_llm(warehouse(tmp_path), "private")


def test_the_asset_refuses_and_publishes_nothing(tmp_path: Path) -> None:
    result = dg.materialize(
        [pairs],
        partition_key="private",
        resources={
            "warehouse": warehouse(tmp_path),
            "writer": PairWriter((ELSEWHERE,)),
            "embedder": WordEmbedder(),
        },
        raise_on_error=False,
    )
    assert not result.success
    [check] = [
        evaluation for evaluation in result.get_asset_check_evaluations() if not evaluation.passed
    ]
    assert check.check_name == "approved_endpoint"
    assert "models.example" in (check.description or "")
    assert warehouse(tmp_path).tables.head("pairs", "private") is None
