"""The report holds what was measured, and says what was not."""

import json
from pathlib import Path
from typing import Any

from extensions.bench.ablation_run import ABLATIONS
from tests.extensions.bench.test_agent import publish
from tests.training.report_figures import (
    CARD,
    MANIFEST,
    MODEL,
    OTHER,
    RECALL,
    both,
    call_rows,
    calls,
    figure,
)  # fmt: skip
from training.adapter_table import read_last_summary
from training.caller.shipped import GENERAL
from training.evaluation.caller_table import CALLER_EVALUATION
from training.figures import format_table, sort_by_split
from training.gates import as_rows
from training.reporting.report import inline_plots, render_ablations, write_report
from training.role import BASELINE, check_gates
from warehouse.sanitize.markdown import Markdown

NOTHING: dict[str, Any] = dict.fromkeys(("retriever_card", "retriever", "caller_card", "caller"))
NOTHING["manifest"] = MANIFEST


_FIGURES = {"value": 0.02, "low": 0.01, "high": 0.04, "threshold": 0.01, "fired": True}
_UNMEASURED = {**dict.fromkeys(("value", "low", "high", "p_value")), "n": 0, "fired": False}
DRIFT_ROWS = [
    {**_FIGURES, "signal": "contracts", "n": 302, "p_value": None, "why": "some moved"},
    {**_UNMEASURED, "signal": "retriever_decay", "threshold": 0.01, "why": "no item was ranked"},
]  # fmt: skip


def written(home: Path, **facts: Any) -> str:
    return write_report(home, "n", {**NOTHING, **facts}).read_text()


def test_a_full_report_has_figures_intervals_and_a_plot(tmp_path):
    caller = calls()
    gates = as_rows(check_gates("caller", caller))
    attempt = {"model": MODEL, "promoted": False, "why": "no better", "gates": gates}
    splits = {
        name: {"n": n, "recall_at_1": both(), "gain_at_1": figure(0.1)}
        for name, n in (("unseen_server", 90), ("seen_tool", 40))
    }
    facts = {
        "manifest": MANIFEST, "retriever_card": CARD, "retriever": {**RECALL, "splits": splits},
        "caller_card": CARD, "caller": caller,
        "champions": [{"role": "caller", "model": OTHER, "last_candidate": attempt}],
        "release": {"release": "r" * 64}, "drift": DRIFT_ROWS,
        "ablations": Markdown("| arm | AST |\n| --- | --- |\n| raw | 0.2 |"),
    }  # fmt: skip
    path = write_report(tmp_path, "2026-01-02", facts)
    text = path.read_text()
    assert "| Recall@1 | 0.400 [0.300, 0.500] | 0.500 [0.400, 0.600] | +0.100" in text
    assert text.index("| seen tool | 40 |") < text.index("| unseen server | 90 |")
    assert "random scores Tool 0.100" in text
    assert "offline provider" in text
    assert "| Contracts that moved | 0.020 [0.010, 0.040] | 0.01 | – | 302 | fired |" in text
    assert "| Retriever's frozen items lost | – | 0.01 | – | – |  | no item was ranked |" in text
    assert "## Ablations\n| arm | AST |" in text
    assert (path.parent / "loss.png").stat().st_size > 2_000  # in few colours
    assert "\n![loss](loss.png)\n" in text
    figures = json.loads((path.parent / "figures.json").read_text())
    assert figures["caller"]["cells"] == caller["cells"]
    shown = inline_plots(path)
    assert shown.count("data:image/png;base64,") == 1
    assert ".png)" not in shown


def test_what_was_not_done_is_said_and_a_figure_of_nothing_is_no_zero_and_no_plot(tmp_path):
    text = written(tmp_path, manifest={**MANIFEST, "empty": ["unseen_tool"]})
    assert text.count("Not trained in this run.") == 2
    assert text.count("Not evaluated in this run.") == 2
    assert "png" not in text
    assert not list((tmp_path / "reports" / "n").glob("*.png"))
    assert "No pairs, so nothing is measured there: unseen tool." in text
    none = {"value": 0.0, "low": 0.0, "high": 0.0, "n": 0}
    empty = {"candidate": none, "incumbent": none, "gain": none}
    names = ("parsed", "valid", "tool_ok", "name_f1", "value_f1", "ast_ok")
    caller = {**calls(), "cells": [], "invariance": [], "n": 0, "gain": none}
    caller |= dict.fromkeys(names, empty) | {"phantom": {"gone": empty}}
    text = written(tmp_path, caller=caller, caller_card={**CARD, "losses": [1.0]})
    assert "| AST | – | – |" in text
    assert "Paired gain in AST: not measured (n=0)." in text
    assert "png" not in text


def test_what_serves_untrained_is_reported_beside_nothing_trained(warehouse):
    assert read_last_summary(warehouse, "caller") is None
    rows = call_rows(GENERAL, 0.7) + call_rows(BASELINE, 0.4)
    publish(warehouse, CALLER_EVALUATION, rows)
    caller = read_last_summary(warehouse, "caller")
    assert caller["candidate"] == GENERAL
    alone = {**RECALL, "candidate": "base", "incumbent": "base"}
    text = written(warehouse.home, caller=caller, retriever=alone)
    assert text.count("Not trained in this run.") == 2
    assert "|  | base |\n" in text
    assert "| Recall@1 | 0.400 [0.300, 0.500] |\n" in text


def test_the_training_set_is_told_by_split_task_and_leak_and_no_text_breaks_a_table(tmp_path):
    tasks = {"train": {"single": 10, "no_tool": 2}, "unseen_server": {"single": 6}}
    leaks = {"near_duplicate": {"found": 3, "examples": []}}
    text = written(tmp_path, manifest={**MANIFEST, "tasks": tasks, "leaks": leaks})
    assert "| split | servers | tools | pairs | no_tool | single |" in text
    assert "| unseen server | 1 | 2 | 6 | 0 | 6 |" in text
    assert "found and taken out of training: near_duplicate 3." in text
    assert format_table(["a"], [["x|y\nz"]])[2] == "| x&#124;y&#92;u&#123;a&#125;z |"
    assert format_table(["a"], []) == []
    assert [name for name, _ in sort_by_split({"odd": 1, "train": 2, "seen_tool": 3})] == [
        "train", "seen_tool", "odd",
    ]  # fmt: skip


def test_ablations_are_a_part_of_the_report(warehouse):
    assert render_ablations(warehouse) is None
    common = {"role": "retriever", "split": "unseen_server", "minutes": 1.0, "pool": 60}
    common |= {"pairs": 100, "model": "m" * 64, "training_set": "s" * 64}
    arms = (("untrained", 0), ("filtered", 7), ("raw", 7))
    rows = [
        {
            **common, "arm": arm, "seed": seed, "item_id": f"i{n}", "server_id": f"s{n % 3}",
            "tool": f"t{n % 5}", "text_digest": f"d{n % 5}", "rank": 1 + (n + len(arm)) % 3,
        }
        for arm, seed in arms
        for n in range(20)
    ]  # fmt: skip
    publish(warehouse, ABLATIONS, rows)
    facts = {**NOTHING, "ablations": render_ablations(warehouse)}
    part = write_report(warehouse.home, "n", facts).read_text().partition("\n## Ablations\n")[2]
    assert "### Retriever" in part
    assert "20 items" in part
