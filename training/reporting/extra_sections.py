"""What a report says beyond a run's models: outside sets, the agent, ablations, what was not
run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from training.figures import (
    NONE,
    Json,
    format_counts,
    format_interval,
    format_table,
    shorten_model,
    split_name,
    with_n,
)

T = TypeVar("T")
_KINDS = ("exact", "contained", "overlap", "near", "any")


def render_ablation_part(ablations: str | None) -> str:
    """`ablations`: Markdown of `ablations/table.py`, or None; its headings a level down."""
    text = (ablations or "").strip()
    if not text:
        return ""
    lower = re.sub(r"(?m)^(#+ )", r"#\1", text)
    return lower if lower.startswith("## Ablations") else f"## Ablations\n{lower}"


def render_contamination_part(kept: Sequence[Json]) -> str:
    """How much of each outside set repeats our training pairs."""
    rows, lost = _render_each_result(kept, _make_contamination_row)
    head = ["set", "items", "training texts", *_KINDS[:-1], "**any**"]
    rules = [f"Rules: {rule}." for rule in dict.fromkeys(rule for rule, _ in rows)]
    lines = [*format_table(head, [row for _, row in rows]), "", *rules, *lost]
    return "\n".join(["## Contamination of outside sets by our pairs", *lines]) if kept else ""


def render_outside_part(kept: Sequence[Json]) -> str:
    """Callers on BFCL-format data, by its rules and by ours."""
    found, lost = _render_each_result(
        kept, lambda held: (_make_outside_table_row(held), _render_categories(held))
    )
    head = ["set", "model", "n", "BFCL's rules", "… clean part", "our rules", "… clean part"]
    lines = format_table([*head, "paired, BFCL's rules"], [row for row, _ in found])
    for _, categories in found:
        lines += ["", *categories]
    lines += [*_list_rules(kept), *lost]
    return "\n".join(["## Outside data (BFCL format)", *lines]) if kept else ""


def render_agent_part(kept: Sequence[Json]) -> str:
    """The small model's first call before a larger model, against the larger one alone."""
    found, lost = _render_each_result(kept, _render_agent_result)
    lines = [line for lines in found for line in lines]
    return "\n".join(["## Initial-call agent", *lines, *_list_rules(kept), *lost]) if kept else ""


def _render_each_result(
    kept: Sequence[Json], words: Callable[[Json], T]
) -> tuple[list[T], list[str]]:
    """(what `words` makes of each result, a line for each that it can make nothing of): what
    another version kept costs its own lines, never the report."""
    found, lost = [], []
    for each in kept:
        try:
            found.append(words(each["result"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told = f"`{each.get('name')}` was kept by another version ({type(error).__name__})"
            lost += ["", f"{told} and is not shown: run it again."]
    return found, lost


def _list_rules(kept: Sequence[Json]) -> list[str]:
    rules = kept[-1]["result"].get("rules") if kept else None
    named = rules if isinstance(rules, Mapping) else {}
    return ["", *(f"- {name}: {told}" for name, told in named.items())]


def _make_contamination_row(held: Json) -> tuple[str, list[Any]]:
    rates = [format_interval(held["rates"][kind]) for kind in _KINDS]
    return held["rules"], [held["set"], held["n"], held["trained"], *rates]


def _make_outside_table_row(held: Json) -> list[Any]:
    figures = [held[rule][part] for rule in ("bfcl", "ours") for part in ("all", "clean")]
    told = [format_interval(one) for one in figures]
    return [held["set"], shorten_model(held["model"]), held["n"], *told, _format_difference(held)]


_ON_REQUEST = {
    "agent": "the initial-call agent against a larger model (`toolmill agent-eval`)",
    "outside": "data of others in BFCL's format (`--bfcl-data`)",
    "contamination": "contamination of an outside set (`toolmill contamination`)",
    "ablations": "ablations",
}


def render_not_run_part(facts: Mapping[str, Any]) -> str:
    """What nobody should take for measured. `facts`: those of `write_report`."""
    told = [*_list_models_not_run(facts), *_list_sets_not_run(facts)]
    told += [what for name, what in _ON_REQUEST.items() if not facts.get(name)]
    lines = [f"- {one}: not run." for one in told]
    return "\n".join(
        ["## What was not run", *(lines or ["Nothing that this report has a place for."])]
    )


def _list_models_not_run(facts: Mapping[str, Any]) -> list[str]:
    told = []
    for role in ("retriever", "caller"):
        card = facts.get(f"{role}_card")
        if not card:
            told.append(f"training of the {role}")
        elif card.get("device") == "cpu":
            told.append(f"training of the {role} on a GPU")
        if not facts.get(role):
            told.append(f"evaluation of the {role}")
    card = facts.get("caller_card")
    if card and card.get("base") == "tiny":
        told.append("a caller on a pretrained base")
    return told


def _list_sets_not_run(facts: Mapping[str, Any]) -> list[str]:
    manifest, caller = facts.get("manifest") or {}, facts.get("caller") or {}
    told = [
        f"the split {split_name(split)}, without pairs" for split in manifest.get("empty") or ()
    ]
    if manifest.get("rows") and "unseen_time" not in manifest["rows"]:
        told.append("the split unseen by time, without a cut-off date")
    bench = caller.get("mcp_bench") or {}
    told += [f"MCP-Bench's {name}" for name, held in bench.items() if isinstance(held, str)]
    phantom = caller.get("phantom") or {}
    told += [
        f"phantom calls, {name} tools (none in the snapshots)"
        for name, held in phantom.items()
        if name in ("gone", "renamed") and not held["candidate"]["n"]
    ]
    return told


def _format_difference(held: Json) -> str:
    if held.get("against") in (None, held["model"]):
        return NONE
    told = format_interval(held["difference"], signed=True)
    return f"{told} against {shorten_model(held['against'])}"


def _render_categories(held: Json) -> list[str]:
    rows = [
        [
            name,
            both["bfcl"]["all"]["n"],
            format_interval(both["bfcl"]["all"]),
            both["bfcl"]["clean"]["n"],
            format_interval(both["bfcl"]["clean"]),
            format_interval(both["ours"]["all"]),
        ]
        for name, both in (held.get("categories") or {}).items()
    ]
    head = [f"{shorten_model(held['model'])} by category", "n", "BFCL's rules", "clean n"]
    lines = format_table([*head, "… clean part", "our rules"], rows)
    if held.get("failures"):
        lines += ["", f"No answer came, in no figure: {format_counts(held['failures'])}."]
    return lines


_ARMS = ("large_alone", "small_first")
_AGENT = (
    ("success", "success", 3),
    ("right call made", "called", 3),
    ("tokens of the larger model", "tokens", 0),
    ("turns of the larger model", "turns", 2),
    ("USD per 1,000 tasks, both models", "usd_per_1000", 2),
    ("seconds", "seconds", 2),
)


def _render_agent_result(held: Json) -> list[str]:
    rows = []
    for name, key, digits in _AGENT:
        both = [format_interval(held[key][arm], digits=digits) for arm in _ARMS]
        gain = format_interval(held[key]["difference"], signed=True, digits=digits)
        rows.append([name, *both, gain])
    first = held["first_call"]
    used = f"{first['prompt_tokens']:,} + {first['completion_tokens']:,}"
    return [
        f"`{shorten_model(held['small'])}` makes the first call,"
        f" `{shorten_model(held['larger'])}` goes on:"
        f" {held['n']} tasks of {held['tools']} tools of {held['servers']} servers that run here.",
        "",
        *format_table(["", "larger alone", "small first", "paired difference"], rows),
        "",
        f"The small model's own call is right: {with_n(first['right'])};"
        f" it used {used} tokens in all.",
        f"Ended, larger alone: {format_counts(held['ended']['large_alone'])};"
        f" small first: {format_counts(held['ended']['small_first'])}.",
        f"Left out: {format_counts(held.get('left_out') or {}) or 'nothing'}.",
        *([f"Stopped early: {held['stopped']}."] if held.get("stopped") else []),
        "",
    ]
