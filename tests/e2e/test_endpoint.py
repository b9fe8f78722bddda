"""A real endpoint by settings alone: the nightly assets ask it over HTTP, within the budget.

What the endpoint says comes from the offline grammar, so this proves the path, not a model.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.contracts.canonical import DIGEST_PREFIX
from assets.contracts.quarantined_tools import CLEAR
from assets.synthesis.judging.mutants import read_known_good
from assets.synthesis.offline.provider import answer_requests
from assets.synthesis.tables import JUDGEMENTS, PAIRS, TASKS
from orchestration.definitions import build_defs
from tests.e2e.runs import list_failed_checks
from tests.support.openai_endpoint import Endpoint, Say, openai_endpoint
from warehouse.storage.digest import canonical_json, sha256
from warehouse.store import Warehouse

SCORES = ("clarity", "specificity", "relevance", "completeness", "correctness", "realism", "score")
CITY = {"city": {"type": "string", "description": "Name of the city, e.g. Lisbon."}}
MONEY: dict[str, Any] = {"amount": {"type": "number", "description": "How much."}}
MONEY["currency"] = {"type": "string", "enum": ["EUR", "USD", "JPY"]}
NOTE = {"note_id": {"type": "integer", "description": "The note's number."}}
TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "get_forecast": ("Forecasts the weather of a city for the coming days.", CITY),
    "convert_currency": ("Converts an amount of money from one currency into another.", MONEY),
    "delete_note": ("Deletes a note for good.", NOTE),
}


@cache
def list_good() -> list[tuple[str, str]]:
    """(request, arguments as a prompt shows them) of the known-good pairs and of the writer's."""
    pairs = [(row["instruction"], json.loads(row["arguments"])) for row in read_known_good()[0]]
    for row in snapshot_rows():
        written = answer_requests({"contract": json.loads(row["contract"]), "count": 3}, 0)
        pairs += [(each["instruction"], each["values"]) for each in written["requests"]]
    return [(text, json.dumps(arguments, ensure_ascii=False)) for text, arguments in pairs]


def say(body: dict[str, Any], number: int) -> Say:
    """Answers as the role that the prompt speaks to; every seventh answer is fenced."""
    asked = "\n".join(message["content"] for message in body["messages"])
    if body["model"] in ("judge", "yes-man"):
        shown = (text in asked and arguments in asked for text, arguments in list_good())
        score = 8 if body["model"] == "yes-man" or any(shown) else 2
        return Say(json.dumps({"reasons": "As I read it.", **dict.fromkeys(SCORES, score)}))
    match = re.search(r"^BEGIN \S+ tool\n(.*?)\nEND ", asked, re.DOTALL | re.MULTILINE)
    assert match, asked[-500:]
    written = answer_requests({"contract": json.loads(match[1]), "count": 3}, 0)["requests"]
    if body["model"] == "writer":
        answer: Any = {"requests": written}
    else:
        mine = next(each for each in written if each["instruction"] in asked)
        answer = {"arguments": mine["values"]}
    text = json.dumps(answer)
    return Say(f"```json\n{text}\n```" if number % 7 == 0 else text)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with openai_endpoint(say) as running:
        yield running


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint) -> Warehouse:
    """A home with two servers' snapshots, and settings that point at the endpoint."""
    monkeypatch.chdir(tmp_path)
    settings = {
        "OPENAI_BASE_URL": endpoint.url,
        "OPENAI_API_KEY": "test-key",
        "TOOLMILL_HOME": str(tmp_path / "home"),
        "TOOLMILL_SYNTHESIS__EVOLVE_SHARE": "0",
        **{f"TOOLMILL_SYNTHESIS__TASKS__{task}".upper(): "0" for task in TASKS[1:]},
    }
    for role, model in (("GENERATOR", "writer"), ("CALLER", "caller"), ("JUDGE", "judge")):
        for name, value in (("MODEL", model), ("USD_IN", "1"), ("USD_OUT", "2")):
            settings[f"TOOLMILL_ROLES__{role}__{name}"] = value
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    result = Warehouse(home=tmp_path / "home", state=tmp_path / "home" / "state")
    staged = result.tables.stage(CLEAR, CLEAR.frame(snapshot_rows()), "registry")
    result.tables.promote(staged, "test", [])
    return result


def snapshot_rows() -> list[dict[str, Any]]:
    rows = []
    for name, (description, properties) in TOOLS.items():
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        body = {"name": name, "description": description, "inputSchema": schema}
        text = canonical_json(body)
        named = {"marketplace": "registry", "server_id": "npm:demo", "tool": name}
        digest = DIGEST_PREFIX + sha256(text)
        rows.append({**named, "contract_digest": digest, "contract": text.decode()})
    return rows


def synthesise() -> dg.ExecuteInProcessResult:
    job = build_defs().resolve_job_def("nightly")
    assets = [dg.AssetKey("pairs"), dg.AssetKey("judgements")]
    with dg.DagsterInstance.ephemeral() as instance:
        return job.execute_in_process(
            instance=instance, partition_key="registry", asset_selection=assets,
            raise_on_error=False,
        )  # fmt: skip


def test_pairs_and_judgements_come_from_the_endpoint_with_their_price(warehouse, endpoint):
    result = synthesise()
    assert result.success, list_failed_checks(result)
    pairs = warehouse.tables.read(PAIRS)
    assert set(pairs["model"]) == {"writer"}
    assert "offline" not in set(pairs["provider"])
    assert set(pairs["status"]) == {"ok"}
    assert set(warehouse.tables.read(JUDGEMENTS)["judge"]) == {"model:judge"}
    paid = sum(cost["usd"] for cost in warehouse.ledger.costs())
    assert 0 < paid == pytest.approx(warehouse.ledger.spent())
    sent = len(endpoint.requests)
    assert synthesise().success
    assert len(endpoint.requests) == sent


def test_a_judge_that_approves_everything_accepts_nothing_in_its_name(warehouse, monkeypatch):
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__MODEL", "yes-man")
    result = synthesise()
    assert not result.success
    failed = list_failed_checks(result)["judgements"]
    assert "judge_adds_to_the_rules" in failed
    assert "wrong_tool 0 of" in failed
    assert warehouse.tables.head("judgements", "registry") is None


def test_a_budget_of_zero_sends_nothing_and_says_so(warehouse, endpoint, monkeypatch):
    monkeypatch.setenv("TOOLMILL_BUDGET_USD", "0")
    result = synthesise()
    assert not result.success
    assert endpoint.requests == []
    assert "budget" in list_failed_checks(result)["pairs"]
    assert warehouse.tables.head("pairs", "registry") is None
