"""Reviewing by hand: the sample, labels that survive, a page for one person, and the report."""

import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.publishing.review import (
    AFTER,
    BEFORE,
    PairReview,
    ReviewError,
    ReviewSample,
    draw_sample,
    measure_agreement,
    open_review,
    report_review,
)
from extensions.publishing.review_server import ReviewSite, serve_review
from tests.synthesis.export_rows import judged_pairs

PAIRS, JUDGEMENTS, CONTRACTS = judged_pairs()
OF = ReviewSample(BEFORE, 10)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def served(review: PairReview) -> Iterator[ReviewSite]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    site = ReviewSite(review, CONTRACTS, lambda: report_review(review, JUDGEMENTS), port)
    thread = threading.Thread(target=serve_review, args=(site, listening), daemon=True)
    thread.start()
    httpx2.get(site.url, timeout=60)
    try:
        yield site
    finally:
        site.on_finish()
        thread.join(60)
        assert not thread.is_alive()


def test_the_sample_is_drawn_by_seed_from_written_or_from_accepted_pairs():
    assert draw_sample(PAIRS, JUDGEMENTS, OF) == draw_sample(reversed(PAIRS), JUDGEMENTS, OF)
    accepted = {row["pair_id"] for row in JUDGEMENTS if row["verdict"] == "accept"}
    after = draw_sample(PAIRS, JUDGEMENTS, ReviewSample(AFTER, 1000))
    assert {row["pair_id"] for row in after} == accepted
    assert len(draw_sample(PAIRS, JUDGEMENTS, ReviewSample(BEFORE, 1000))) == len(PAIRS)


def test_labels_survive_a_kill_in_the_middle_of_a_line(tmp_path):
    first = open_review(tmp_path, PAIRS, JUDGEMENTS, OF)
    first.add_label(0, "good", "")
    first.add_label(1, "bad", "half\u2028a line \ud800")
    with first.path.open("ab") as file:
        file.write(b'{"pair_id": "p1:cut')
    again = open_review(tmp_path, PAIRS, JUDGEMENTS, OF)
    assert (again.rows, again.labels) == (first.rows, first.labels)
    assert again.find_first_open() == 2
    again.add_label(1, "good", "on second thought")
    last = open_review(tmp_path, PAIRS, JUDGEMENTS, OF)
    assert last.labels[last.rows[1]["pair_id"]]["label"] == "good"


def test_a_review_goes_on_over_the_rows_it_drew_and_no_pairs_or_a_spoilt_file_are_said(tmp_path):
    first = open_review(tmp_path, PAIRS, JUDGEMENTS, OF)
    gone = first.rows[0]["pair_id"]
    again = open_review(tmp_path, [row for row in PAIRS if row["pair_id"] != gone], JUDGEMENTS, OF)
    assert again.gone == 1
    assert [row["pair_id"] for row in again.rows] == [row["pair_id"] for row in first.rows[1:]]
    with pytest.raises(ReviewError, match="no written pairs"):
        open_review(tmp_path / "none", [], [], OF)
    assert not (tmp_path / "none").exists()
    open_review(tmp_path, PAIRS, JUDGEMENTS, OF).path.write_text("[]\n")
    with pytest.raises(ReviewError, match="no review"):
        open_review(tmp_path, PAIRS, JUDGEMENTS, OF)


def test_the_report_holds_agreement_and_names_every_difference(tmp_path):
    review = open_review(tmp_path, PAIRS, JUDGEMENTS, ReviewSample(BEFORE, 1000))
    accepted = {row["pair_id"]: row["verdict"] == "accept" for row in JUDGEMENTS}
    for place, row in enumerate(review.rows):
        agrees = place != 3
        review.add_label(place, "good" if accepted[row["pair_id"]] == agrees else "bad", "n")
    review.add_label(0, "skip", "")
    found, n = report_review(review, JUDGEMENTS), len(PAIRS) - 1
    assert (found["labelled"]["skip"], found["filters_and_judge"]["n"]) == (1, n)
    assert found["filters_and_judge"]["accuracy"]["hits"] == n - 1
    assert 0.8 < found["filters_and_judge"]["kappa"] < 1
    assert [one["pair_id"] for one in found["disagreements"]] == [review.rows[3]["pair_id"]]
    json.dumps(found)
    silent = [{**row, "status": "failed", "verdict": None} for row in JUDGEMENTS]
    undecided = report_review(review, silent)
    agreement = undecided["filters_and_judge"]
    assert (undecided["undecided"], agreement["n"], agreement["kappa"]) == (n, 0, None)


@pytest.fixture
def review(tmp_path: Path) -> PairReview:
    return open_review(tmp_path, PAIRS, JUDGEMENTS, OF)


def test_a_label_is_on_disk_before_the_answer_and_the_judge_stays_hidden(review):
    with served(review) as site, httpx2.Client(base_url=site.origin) as client:
        client.headers.update({"x-review-token": site.token, "origin": site.origin})
        for place in range(len(review.rows)):
            shown = client.get(f"/api/rows/{place}").text
            assert not {"verdict", "flaws", "score", "reasons"} & json.loads(shown).keys()
            assert "SECRET-REASON" not in shown
        answer = client.post("/api/labels", json={"place": 0, "label": "bad", "note": "why"})
        assert answer.json()["labels"][0] == "bad"
        assert json.loads(review.path.read_text().splitlines()[-1])["note"] == "why"
        assert client.post("/api/finish", json={}).json()["labelled"]["bad"] == 1


HOSTILE = [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}]
HOSTILE += [{"x-review-token": token} for token in ("wrong", "")]
NO_LABELS = [
    *(b"", b"[]", b"{}", b'{"place": 0, "label": "great"}', b'{"place": 99, "label": "good"}'),
    *(b'{"place": -1, "label": "good"}', b'{"place": true, "label": "good"}'),
    *(b'{"place": 0, "label": "good", "note": 1}', b"[" * 9000, b" " * 20_000),
]


def test_nobody_else_can_label_and_a_label_that_says_nothing_is_refused_in_one_line(review):
    with served(review) as site:
        right = {"x-review-token": site.token, "origin": site.origin}
        label, url = {"place": 0, "label": "bad"}, f"{site.origin}/api/labels"
        for change in HOSTILE:
            assert httpx2.post(url, json=label, headers={**right, **change}).status_code == 403
        bare = httpx2.post(url, json=label, headers={"x-review-token": site.token})
        assert bare.status_code == 403
        for body in NO_LABELS:
            answer = httpx2.post(url, content=body, headers=right)
            assert answer.status_code == 400, body
            assert "no label" in answer.json()["error"]
        assert not review.labels


def test_the_page_allows_no_script_but_its_own_and_loads_nothing(review):
    with served(review) as site:
        page = httpx2.get(site.url)
        policy = page.headers["content-security-policy"]
        assert all(part in policy for part in ("default-src 'none'", "frame-ancestors 'none'"))
        assert "unsafe" not in policy
        assert page.headers["referrer-policy"] == "no-referrer"
        assert not re.search("https?://", page.text)
        assert httpx2.get(f"{site.origin}/").status_code == 403


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_person_labels_with_the_keyboard_and_sees_the_agreement(tmp_path):
    from playwright.sync_api import sync_playwright

    review = open_review(tmp_path, PAIRS, JUDGEMENTS, ReviewSample(BEFORE, 1000))
    hostile = PAIRS[0]["pair_id"]
    verdict = {row["pair_id"]: row["verdict"] for row in JUDGEMENTS}
    with served(review) as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        faults: list[Any] = []
        page.on("pageerror", lambda fault: faults.append(fault))
        page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
        page.goto(site.url)
        for place, row in enumerate(review.rows):
            page.wait_for_function(
                "([id, text]) => document.getElementById(id).textContent === text",
                arg=["instruction", row["instruction"]],
            )
            if row["pair_id"] == hostile:
                assert "<script>" in page.inner_text("#instruction")
            if place == 1:
                page.keyboard.press("n")
                page.keyboard.type("good by habit")
                page.keyboard.press("Escape")
            page.keyboard.press("g" if verdict[row["pair_id"]] == "accept" else "b")
        page.wait_for_selector("#done:not([hidden])")
        page.click("#finish")
        page.wait_for_selector("#report:not([hidden])")
        assert "100%" in page.inner_text("#report")
        assert "1.00" in page.inner_text("#report")
        assert page.title() == "Review · Toolmill"
        assert not faults
        browser.close()
    assert len(review.labels) == len(review.rows)
    assert review.labels[review.rows[1]["pair_id"]]["note"] == "good by habit"


def test_kappa_of_the_textbook_table():
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: kappa 0.4, standard error 0.1296."""
    pairs = [(True, True)] * 20 + [(True, False)] * 5
    pairs += [(False, True)] * 10 + [(False, False)] * 15
    result = measure_agreement(pairs)
    assert result["kappa"] == pytest.approx(0.4)
    assert result["kappa_low"] == pytest.approx(0.4 - 1.96 * 0.1296, abs=2e-3)
    assert (result["accuracy"]["hits"], result["accuracy"]["n"]) == (35, 50)
    assert (result["catch"]["hits"], result["catch"]["n"]) == (15, 25)
    assert (result["false_alarms"]["hits"], result["false_alarms"]["n"]) == (5, 25)


def test_kappa_is_not_defined_where_everything_is_the_same():
    for pairs in ([], [(True, True)] * 5, [(False, False)] * 5):
        result = measure_agreement(pairs)
        assert (result["kappa"], result["kappa_low"]) == (None, None)
    assert measure_agreement([])["accuracy"]["value"] is None


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_agreement_is_bounded_and_counts_every_row(pairs):
    result = measure_agreement(pairs)
    assert result["n"] == len(pairs) == result["catch"]["n"] + result["false_alarms"]["n"]
    if result["kappa"] is not None:
        assert result["kappa_low"] is not None
        assert result["kappa_high"] is not None
        assert -1 <= result["kappa_low"] <= result["kappa"] <= result["kappa_high"] <= 1
    assert measure_agreement([(good, good) for good, _ in pairs])["kappa"] in (None, 1.0)
