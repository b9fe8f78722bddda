"""A provider's exports against the ledger, per day and model."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import invoke_toolmill
from warehouse.errors import UnusableInput
from warehouse.ledger import usage_file
from warehouse.ledger.attempts import Outcome
from warehouse.ledger.ledger import Ledger
from warehouse.ledger.reconcile import reconcile_usage
from warehouse.ledger.usage_file import Usage, read_usage
from warehouse.storage.blobs import Blobs
from warehouse.store import Warehouse

TODAY = time.strftime("%Y-%m-%d", time.gmtime())
USAGE = (
    "start_time,end_time,start_time_iso,num_model_requests,model,batch,input_tokens,output_tokens\n"
    "1759622400,1759708800,2025-10-05T00:00:00+00:00,5,m-1,True,1000,500\n"
    "1759708800,1759795200,2025-10-06T00:00:00+00:00,,,,,\n"
)
COSTS = (
    "start_time\tstart_time_iso\tamount_value\tamount_currency\tline_item\n"
    '1759622400\t2025-10-05T00:00:00+00:00\t0.25\tusd\t"m-1, input"\n'
    '1759622400\t2025-10-05T00:00:00+00:00\t0.5\tusd\t"m-1, output"\n'
)
PAGE: dict[str, Any] = {
    "object": "page",
    "data": [
        {
            "start_time": 1759622400,
            "results": [
                {"model": "m-1", "input_tokens": 7, "output_tokens": 3, "num_model_requests": 1}
            ],
        },
        {
            "start_time": 1759708800,
            "results": [{"amount": {"value": 0.06, "currency": "usd"}, "line_item": None}],
        },
    ],
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "state" / "ledger.db", Blobs(tmp_path / "blobs"))


def pay(ledger: Ledger, key: str, model: str = "m-1", tokens: int = 100) -> None:
    outcome = Outcome(b"{}", model, tokens, tokens // 2, tokens / 1000)
    ledger.once("llm:judge", key, lambda: outcome, reserve_usd=1.0)


def write(folder: Path, text: str) -> Path:
    path = folder / "usage.csv"
    path.write_text(text)
    return path


def test_exports_of_usage_and_costs_are_read(tmp_path: Path) -> None:
    assert read_usage(write(tmp_path, USAGE)) == [Usage("2025-10-05", "m-1", 5, 1000, 500)]
    assert read_usage(write(tmp_path, COSTS)) == [
        Usage("2025-10-05", "m-1", usd=0.25),
        Usage("2025-10-05", "m-1", usd=0.5),
    ]
    expected = [Usage("2025-10-05", "m-1", 1, 7, 3), Usage("2025-10-06", "", usd=0.06)]
    assert read_usage(write(tmp_path, json.dumps(PAGE))) == expected
    assert read_usage(write(tmp_path, json.dumps([PAGE]))) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day,words\n2025-10-05,5\n", "row 1: found columns day, words; expected start_time"),
        ("start_time,model,input_tokens\n1759622400,m,-5\n", "input_tokens is '-5', expected"),
        ("start_time,model,input_tokens\n1759622400,m,nan\n", "input_tokens is 'nan', expected"),
        ("start_time,model,input_tokens\nyesterday,m,5\n", "row 1: could not convert"),
        ("start_time,model,input_tokens\n1e300,m,5\n", "row 1: "),
        ("model,input_tokens\nm,5\n", "row 1: time data"),
        ("start_time,amount_value,amount_currency\n1759622400,1,eur\n", "amounts in 'eur'"),
        ("", "no usage in it"),
        ("{", "not pages of usage"),
        ('{"data": 5}', "not pages of usage"),
        ("[" * 100_000, "not pages of usage"),
        ("[[]]", "not pages of usage"),
    ],
)
def test_what_is_no_export_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UnusableInput, match=message):
        read_usage(write(tmp_path, text))


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "usage.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnusableInput, match="cannot be read as text"):
        read_usage(tmp_path / "usage.csv")
    with pytest.raises(UnusableInput, match="No such file"):
        read_usage(tmp_path / "none.csv")


def test_equal_accounts_are_within_and_a_difference_is_named(ledger: Ledger) -> None:
    pay(ledger, "a")
    pay(ledger, "b")
    pay(ledger, "c", "m-2")
    counted = [Usage(TODAY, "m-1", 3, 200, 100, 0.2), Usage(TODAY, "m-2", 1, 110, 50, 0.1)]
    found = reconcile_usage(ledger, counted, 0.01)
    assert [(line.model, line.within) for line in found.days] == [("m-1", True), ("m-2", False)]
    assert found.days[0].difference == {
        "requests": 1, "prompt_tokens": 0, "completion_tokens": 0, "usd": 0.0,
    }  # fmt: skip
    assert found.days[1].difference["prompt_tokens"] == 10
    assert all(line.within for line in reconcile_usage(ledger, counted, 0.1).days)
    assert [line.model for line in reconcile_usage(ledger, counted, 0.01, ["m-2"]).days] == ["m-2"]


def test_what_only_one_side_has_differs(ledger: Ledger) -> None:
    pay(ledger, "a")
    found = reconcile_usage(ledger, [Usage(TODAY, "m-2", 1, 10, 5)], 0.5)
    assert [(line.model, line.within) for line in found.days] == [("m-1", False), ("m-2", False)]
    assert found.days[0].difference["prompt_tokens"] == -100
    assert found.days[1].ledger == {}


def test_days_that_the_file_does_not_cover_are_left_out(ledger: Ledger) -> None:
    pay(ledger, "a")
    found = reconcile_usage(ledger, [Usage("2020-01-01", "m-1", 1, 10, 5)], 0.5)
    assert [(line.day, line.ledger) for line in found.days] == [("2020-01-01", {})]


def test_costs_that_name_no_model_are_held_against_the_sum(ledger: Ledger) -> None:
    pay(ledger, "a")
    pay(ledger, "b", "m-2")
    [line] = reconcile_usage(ledger, [Usage(TODAY, "", usd=0.2)], 0.01).days
    assert (line.model, line.within, line.difference) == ("", True, {"usd": 0.0})


def test_unknown_attempts_stand_beside_the_days(ledger: Ledger) -> None:
    class Cut(Exception):
        maybe_paid = True

    def send() -> Outcome:
        raise Cut

    with pytest.raises(Cut):
        ledger.once("llm:judge", "a", send, reserve_usd=0.25)
    found = reconcile_usage(ledger, [Usage(TODAY, "m-1", 1, 10, 5)], 0.5)
    assert found.unknown == [{"day": TODAY, "attempts": 1, "reserved_usd": 0.25}]


def test_answers_of_a_batch_count_on_the_day_of_the_provider(ledger: Ledger) -> None:
    batch = ledger.batches.open(
        "tm-1", stage="pairs", partition="_", role="judge", model="m-1", base_url="",
        window="24h", usd_in=0.5, usd_out=1.0,
    )  # fmt: skip
    ledger.batches.claim(batch, "llm:judge", "key", reserve_usd=1.0, scope="usd")
    [attempt] = ledger.batches.list_waiting("tm-1").values()
    ledger.batches.finish([(attempt, Outcome(b"{}", "m-1", 10, 5, 0.01))])
    ledger.batches.update(batch, state="harvested", completed_at=1759622400.0)
    [line] = reconcile_usage(ledger, [Usage("2025-10-05", "m-1", 1, 10, 5, 0.01)], 0.01).days
    assert line.within
    assert line.ledger["prompt_tokens"] == 10


def test_the_command_exits_1_beyond_the_tolerance(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ledger = Warehouse(home=home, state=home / "state").ledger
    pay(ledger, "a")
    ledger.close()
    start = int(time.time())
    path = write(tmp_path, f"start_time,model,input_tokens,output_tokens\n{start},m-1,100,50\n")
    good = invoke_toolmill("ledger", "reconcile", str(path), home=home)
    assert (good.returncode, json.loads(good.stdout)["days"][0]["within"]) == (0, True)
    path.write_text(path.read_text().replace("100", "150"))
    bad = invoke_toolmill("ledger", "reconcile", str(path), home=home)
    assert bad.returncode == 1
    assert "1 of 1 lines differ by more than 1.0%" in bad.stderr
    lax = invoke_toolmill("ledger", "reconcile", str(path), "--tolerance", "0.5", home=home)
    assert lax.returncode == 0


def test_a_pipe_is_read_no_further_than_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_file, "_MOST_BYTES", 4000)
    pipe = tmp_path / "usage"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"x" * 5000), daemon=True)
    writer.start()
    with pytest.raises(UnusableInput, match="more than 4,000 bytes"):
        read_usage(pipe)
    writer.join(60)
