"""A model's card: what the hub reads, figures with intervals, third-party text that stays text."""

import json
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from extensions.publishing.card_sections import format_counts_inline, quote_text
from extensions.publishing.model_card import write_card
from tests.support.cases import cases
from tests.training.promotions import BETTER, EQUAL, save_empty_model
from training.gates import as_rows, render_gates_table
from training.role import check_gates
from training.runtime.model_store import get_model_folder
from training.sets.set_audit import save_manifest
from training.sets.training_set import TRAINING_SET
from warehouse.store import Warehouse

EVIL = "x`|</td>\n\n# Owned <script>alert(1)</script> ![i](http://e.vil/p.png) www.e.vil\u202e"
BOTH = {"candidate": BETTER, "incumbent": EQUAL}
SUMMARY: dict[str, Any] = {"candidate": "m1", "incumbent": "base", "n": 90, "tools": 30}
SUMMARY |= {"servers": 5, "gain_at_1": BETTER, "gain_at_5": EQUAL}
UNSEEN = {"n": 90, "pool": 261, "recall_at_1": BOTH, "gain_at_1": BETTER}
SUMMARY["splits"] = {"unseen_server": UNSEEN}


def made(home: Path, name: str = "m1", **facts: Any) -> str:
    """A model, its training set and manifest; one licence and one server are a third party's."""
    tables = Warehouse(home=home, state=home / "state").tables
    rows = [
        {"pair_id": f"p{at}", "server_id": server, "split": split, "license": licence,
         "provider": "offline"}
        for at, (server, split, licence) in enumerate(
            [("npm:a", "train", "MIT"), ("npm:a", "train", "MIT"), (EVIL, "train", EVIL),
             ("npm:b", "train", None), ("npm:c", "unseen_server", "GPL-3.0-only")]
        )
    ]  # fmt: skip
    head = tables.promote(tables.stage(TRAINING_SET, TRAINING_SET.frame(rows)), "run", [])
    counts = {"rows": {"train": 4, "unseen_server": 1}, "tools": {"train": 3, "unseen_server": 1}}
    servers = {"train": ["npm:a", EVIL, "npm:b"], "unseen_server": ["npm:c"]}
    manifest = {"training_set": head.digest, "lance_version": 7, "providers": {"offline": 5}}
    names = {"servers": servers, "contracts": {"npm:a::t": "c1:x"}, "row_digests": {"p0": "d0"}}
    save_manifest(home, {**manifest, **counts, **names})
    about = {"pairs": 4, "steps": 2, "loss_first": 2.0, "loss_last": 1.0, "seconds": 3.0}
    about |= {"device": "cpu", "settings": {"rank": 16, "note": EVIL}}
    return save_empty_model(home, name, training_set=head.digest, **{**about, **facts})


def text_of(home: Path, **given: Any) -> str:
    path = write_card(home, "m1", **given)
    assert path is not None
    return path.read_text()


@cases(
    "base, shown",
    ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
    ("/srv/models/mine", None),
    ("smollm2:abc", None),
    ("a/b\nlicense: mit", None),
    ("../x", None),
)
def test_the_hub_reads_the_front_matter_and_a_base_that_is_its_id(tmp_path, base, shown):
    from huggingface_hub import ModelCard

    made(tmp_path, base=base)
    front = ModelCard.load(str(write_card(tmp_path, "m1"))).data.to_dict()
    assert front.get("base_model") == shown
    assert (front["license"], front["license_name"]) == ("other", "mixed-see-data-and-licences")
    assert front["pipeline_tag"] == "sentence-similarity"
    assert {"mcp", "tool-calling", "retriever"} <= set(front["tags"])
    [dataset] = front["datasets"]
    assert dataset.startswith("toolmill-training-set-")


def test_the_card_counts_what_was_learnt_from_and_names_its_prompts(tmp_path):
    settings = {"query_prompt": None, "document_prompt": None}
    made(tmp_path, settings=settings, prompts={"query": f"ask: {EVIL}", "document": None})
    text = text_of(tmp_path)
    assert '| query_prompt | `"ask: ' in text
    assert "| document_prompt | `null` |" in text
    assert EVIL not in text
    assert "licences: `MIT` 2, `unknown` 1, `xˋ¦</td> # Owned" in text
    assert "GPL" not in text  # held out, not learnt from
    assert "providers: `offline` 4" in text
    assert "| unseen_server | 1 | 1 | 1 |" in text
    assert "5 of 5 pairs were written by the offline provider (a grammar" in text


def test_figures_and_gates_stand_there_once_they_are_measured_and_stay(tmp_path):
    made(tmp_path)
    before = text_of(tmp_path)
    assert all(words in before for words in ("Not evaluated yet.", "Not considered yet."))
    gates = as_rows(check_gates("retriever", SUMMARY))
    text = text_of(tmp_path, summary=SUMMARY, gates=gates)
    both = "0.100 [0.020, 0.200] | 0.000 [-0.050, 0.050]"
    row = f"| unseen_server | 261 | - | 90 | recall_at_1 | {both} | +0.100 [+0.020, +0.200] |"
    assert row in text
    assert render_gates_table(gates) in text
    folder = get_model_folder(tmp_path, "m1")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert text_of(tmp_path) == text  # written again without an evaluation, as by a training
    text_of(tmp_path, summary=SUMMARY, gates=gates)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_caller_s_cells_and_a_sidecar_s_drafts_are_shown(tmp_path):
    made(tmp_path, base="smollm2:abc", role="caller")
    cell = {"split": "seen_tool", "candidates": 10, "distractors": "hard", "n": 90, "servers": 5}
    nothing = {"value": 0.0, "low": 0.0, "high": 0.0, "n": 0}
    cell |= {"tool_ok": {**BOTH, "gain": BETTER}, "ast_ok": {**BOTH, "gain": nothing}}
    summary = {"candidate": "m1", "incumbent": "baseline:bm25+slots", "cells": [cell]}
    text = text_of(tmp_path, summary=summary, gates=[])
    assert "| seen_tool | 10 | hard | 90 | tool_ok | 0.100 [" in text
    assert re.search(r"\| ast_ok \| .* \| – \|", text)
    for words in ('load_caller(Path("var"), "m1")', "base: apache-2.0", "(it learnt 4):"):
        assert words in text
    kinds = {"missing_required": 3, "untouched": 1}
    drafts = {"sources": {"corrupted": 3, "untouched": 1}, "kinds": kinds, "asks": 2}
    lessons = {"rows": 4, "too_long": 1, "drafts": drafts}
    made(tmp_path / "sidecar", base="smollm2:abc", role="sidecar", lessons=lessons)
    text = text_of(tmp_path / "sidecar")
    assert "## Data and licences" in text
    assert "learnt from 4 drafts" in text
    assert "in 2 of them asking is right, and 1 were too long" in text
    assert "- sources: `corrupted` 3, `untouched` 1" in text
    assert "- kinds: `missing_required` 3, `untouched` 1" in text


def test_without_a_manifest_or_with_a_broken_evaluation_the_card_is_written_all_the_same(tmp_path):
    assert write_card(tmp_path, "m1", summary=SUMMARY) is None, "it was never finished"
    assert not (tmp_path / "models").exists()
    save_empty_model(tmp_path, "m1")
    (get_model_folder(tmp_path, "m1") / "evaluation.json").write_text("{half")
    text = text_of(tmp_path)
    assert "its manifest is not kept here" in text
    assert "Not evaluated yet." in text


ALLOWED = {"h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "pre",
           "hr", "strong"}  # fmt: skip


def tags(markdown: str) -> set[str]:
    shown = MarkdownIt("gfm-like", {"linkify": False}).render(markdown)
    return set(re.findall(r"<([a-z0-9]+)", shown))


def test_no_third_party_name_becomes_markup_and_many_are_cut_and_counted(tmp_path):
    made(tmp_path, base=EVIL, device=EVIL)
    summary = {**SUMMARY, "incumbent": EVIL}
    gates = [{"name": "gain", "passed": False, "found": EVIL, "needed": "x"}]
    text = text_of(tmp_path, summary=summary, gates=gates)
    body = text.split("---\n", 2)[2]
    assert "Owned" in body
    assert tags(body) <= ALLOWED
    assert body.count("\n# ") == 1
    assert "Owned" not in text.split("---\n")[1]
    text = format_counts_inline({f"s{at:02}": at for at in range(30)}, 3)
    assert text == "`s29` 29, `s28` 28, `s27` 27, 27 more"
    assert format_counts_inline({}) == "none"
    assert len(quote_text("x" * 5000)) == 102


@given(st.text(max_size=200))
def test_a_quoted_name_is_one_code_span_in_a_cell_whatever_it_holds(name):
    line = f"| a |\n| --- |\n| {quote_text(name)} |\n"
    shown = MarkdownIt("commonmark").enable("table").render(line)
    assert shown.count("<td>") == shown.count("<code>") == 1
    assert not tags(line) - {"table", "thead", "tbody", "tr", "th", "td", "code"}
    json.dumps(quote_text(name)).encode()
