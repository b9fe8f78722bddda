"""The report holds what was measured, and says what was not."""

from pathlib import Path

from training.report import write_report

FIGURE = {"value": 0.4, "low": 0.3, "high": 0.5, "n": 90}
GAIN = {"value": 0.1, "low": 0.01, "high": 0.2, "n": 90}
CARD = {
    "name": "m" * 64, "pairs": 12, "loss_first": 2.0, "loss_last": 1.0, "losses": [2.0, 1.5, 1.0],
    "steps": 3, "seconds": 1.5, "device": "cpu", "tokens_per_s": 10, "step_ms": 5.0, "peak_mb": 9,
    "base": "tiny",
}  # fmt: skip
MANIFEST = {
    "training_set": "s" * 64, "rows": {"train": 12, "test": 6}, "tools": {"train": 4, "test": 2},
    "servers": {"train": ["a"], "test": ["b"]}, "dropped": {"leak": 1},
    "providers": {"offline": 18},
}  # fmt: skip
BOTH = {"candidate": FIGURE, "incumbent": FIGURE}
RECALL = {
    "candidate": "m" * 64, "incumbent": "base", "n": 90, "servers": 5, "tools": 30, "pool": 313,
    "recall_at_1": BOTH, "recall_at_5": BOTH, "gain_at_1": GAIN, "gain_at_5": GAIN,
}  # fmt: skip
CALLS = {
    "candidate": "m" * 64, "incumbent": "baseline:bm25+slots", "n": 90, "servers": 5, "tools": 30,
    "chance": 0.25, "parsed": BOTH, "valid": BOTH, "tool_ok": BOTH, "ast_ok": BOTH, "gain": GAIN,
    "errors": {"no_call": 3},
}  # fmt: skip


def test_a_full_report_has_figures_intervals_and_plots(tmp_path: Path) -> None:
    path = write_report(
        tmp_path,
        "2026-01-02",
        manifest=MANIFEST,
        retriever_card=CARD,
        retriever=RECALL,
        caller_card=CARD,
        caller=CALLS,
        champions=[
            {
                "role": "retriever",
                "model": "m" * 64,
                "last_candidate": {"model": "m" * 64, "promoted": True, "why": "better"},
            }
        ],
        release={"release": "r" * 64},
        drift={"changed": 1, "new": 2, "gone": 3, "known": 300},
    )
    text = path.read_text()
    assert "| Recall@1 | 0.400 [0.300, 0.500] | 0.400 [0.300, 0.500] | +0.100" in text
    assert "random scores Tool 0.250" in text
    assert "no evidence" in text
    assert "offline provider" in text
    assert "1 changed, 2 new, 3 gone of 300" in text
    for name in ("loss", "recall", "caller"):
        assert (path.parent / f"{name}.png").stat().st_size > 5_000
        assert f"{name}.png" in text
    assert (path.parent / "figures.json").exists()


def test_what_was_not_done_is_said(tmp_path: Path) -> None:
    path = write_report(
        tmp_path,
        "n",
        manifest=MANIFEST,
        retriever_card=None,
        retriever=None,
        caller_card=None,
        caller=None,
    )
    text = path.read_text()
    assert text.count("Not trained tonight.") == 2
    assert text.count("Not evaluated tonight.") == 2
    assert "png" not in text


def test_a_tiny_note_stands_only_beside_the_tiny_model(tmp_path: Path) -> None:
    path = write_report(
        tmp_path,
        "n",
        manifest=MANIFEST,
        retriever_card=None,
        retriever=None,
        caller_card={**CARD, "base": "/models/other"},
        caller=CALLS,
    )
    assert "no evidence" not in path.read_text()


def test_a_night_before_the_first_training_set_has_a_report_that_says_so(tmp_path: Path) -> None:
    path = write_report(
        tmp_path,
        "night",
        manifest={},
        retriever_card=None,
        retriever=None,
        caller_card=None,
        caller=None,
    )
    text = path.read_text()
    assert "None yet" in text
    assert text.count("Not trained tonight.") == 2
