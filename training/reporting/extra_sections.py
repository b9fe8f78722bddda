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
from warehouse.sanitize.markdown import (
    Markdown,
    escape_markdown,
    fill_markdown,
    join_markdown,
    mark_markdown,
    quote_text,
)

T = TypeVar("T")
_KINDS = ("exact", "contained", "overlap", "near", "any")


def render_ablation_part(ablations: Markdown | None) -> Markdown:
    """`ablations`: Markdown of `ablation_table.py`, or None; its headings a level down."""
    text = escape_markdown(ablations or "").strip()
    if not text:
        return Markdown("")
    lower = mark_markdown(re.sub(r"(?m)^(#+ )", r"#\1", text))
    return lower if lower.startswith("## Ablations") else fill_markdown("## Ablations\n{}", lower)


def render_contamination_part(kept: Sequence[Json]) -> Markdown:
    """How much of each outside set repeats our training pairs."""
    rows, lost = _render_each_result(kept, _make_contamination_row)
    head = ["set", "items", "training texts", *_KINDS[:-1], Markdown("**any**")]
    named = dict.fromkeys(rule for rule, _ in rows)
    rules = [fill_markdown("Rules: {}.", rule) for rule in named]
    lines = [*format_table(head, [row for _, row in rows]), Markdown(""), *rules, *lost]
    return _join_part(Markdown("## Contamination of outside sets by our pairs"), lines, kept)


def render_outside_part(kept: Sequence[Json]) -> Markdown:
    """Callers on BFCL-format data, by its rules and by ours."""
    found, lost = _render_each_result(
        kept, lambda held: (_make_outside_table_row(held), _render_categories(held))
    )
    head = ["set", "model", "n", "BFCL's rules", "… clean part", "our rules", "… clean part"]
    lines = format_table([*head, "paired, BFCL's rules"], [row for row, _ in found])
    for _, categories in found:
        lines += [Markdown(""), *categories]
    lines += [*_list_rules(kept), *lost]
    return _join_part(Markdown("## Outside data (BFCL format)"), lines, kept)


def render_agent_part(kept: Sequence[Json]) -> Markdown:
    """The small model's first call before a larger model, against the larger one alone."""
    found, lost = _render_each_result(kept, _render_agent_result)
    lines = [line for lines in found for line in lines]
    lines += [*_list_rules(kept), *lost]
    return _join_part(Markdown("## Initial-call agent"), lines, kept)


def _join_part(title: Markdown, lines: Sequence[Markdown], kept: Sequence[Json]) -> Markdown:
    return join_markdown("\n", [title, *lines]) if kept else Markdown("")


def _render_each_result(
    kept: Sequence[Json], words: Callable[[Json], T]
) -> tuple[list[T], list[Markdown]]:
    """(what `words` makes of each result, a line for each that it can make nothing of): what
    another version kept costs its own lines, never the report."""
    found: list[T] = []
    lost: list[Markdown] = []
    for each in kept:
        try:
            found.append(words(each["result"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            template = "{} was kept by another version ({}) and is not shown: run it again."
            name = quote_text(each.get("name"))
            lost += [Markdown(""), fill_markdown(template, name, type(error).__name__)]
    return found, lost


def _list_rules(kept: Sequence[Json]) -> list[Markdown]:
    rules = kept[-1]["result"].get("rules") if kept else None
    named = rules if isinstance(rules, Mapping) else {}
    return [Markdown(""), *(fill_markdown("- {}: {}", *rule) for rule in named.items())]


def _make_contamination_row(held: Json) -> tuple[str, list[Any]]:
    rates = [format_interval(held["rates"][kind]) for kind in _KINDS]
    return held["rules"], [held["set"], held["n"], held["trained"], *rates]


def _make_outside_table_row(held: Json) -> list[Any]:
    figures = [held[rule][part] for rule in ("bfcl", "ours") for part in ("all", "clean")]
    intervals = [format_interval(figure) for figure in figures]
    return [
        held["set"],
        shorten_model(held["model"]),
        held["n"],
        *intervals,
        _format_difference(held),
    ]


_ON_REQUEST = {
    "agent": Markdown("the initial-call agent against a larger model (`toolmill agent-eval`)"),
    "outside": Markdown("data of others in BFCL's format (`--bfcl-data`)"),
    "contamination": Markdown("contamination of an outside set (`toolmill contamination`)"),
    "ablations": Markdown("ablations"),
}


def render_not_run_part(facts: Mapping[str, Any]) -> Markdown:
    """What nobody should take for measured. `facts`: those of `write_report`."""
    parts = [*_list_models_not_run(facts), *_list_sets_not_run(facts)]
    parts += [what for name, what in _ON_REQUEST.items() if not facts.get(name)]
    lines = [fill_markdown("- {}: not run.", part) for part in parts]
    none = Markdown("Nothing that this report has a place for.")
    return join_markdown("\n", [Markdown("## What was not run"), *(lines or [none])])


def _list_models_not_run(facts: Mapping[str, Any]) -> list[str]:
    results = []
    for role in ("retriever", "caller"):
        card = facts.get(f"{role}_card")
        if not card:
            results.append(f"training of the {role}")
        elif card.get("device") == "cpu":
            results.append(f"training of the {role} on a GPU")
        if not facts.get(role):
            results.append(f"evaluation of the {role}")
    return results


def _list_sets_not_run(facts: Mapping[str, Any]) -> list[str]:
    manifest, caller = facts.get("manifest") or {}, facts.get("caller") or {}
    results = [
        f"the split {split_name(split)}, without pairs" for split in manifest.get("empty") or ()
    ]
    if manifest.get("rows") and "unseen_time" not in manifest["rows"]:
        results.append("the split unseen by time, without a cut-off date")
    bench = caller.get("mcp_bench") or {}
    results += [f"MCP-Bench's {name}" for name, held in bench.items() if isinstance(held, str)]
    phantom = caller.get("phantom") or {}
    results += [
        f"phantom calls, {name} tools (none in the snapshots)"
        for name, held in phantom.items()
        if name in ("gone", "renamed") and not held["candidate"]["n"]
    ]
    return results


def _format_difference(held: Json) -> Markdown:
    if held.get("against") in (None, held["model"]):
        return NONE
    interval = format_interval(held["difference"], signed=True)
    return fill_markdown("{} against {}", interval, shorten_model(held["against"]))


def _render_categories(held: Json) -> list[Markdown]:
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
        line = fill_markdown("No answer came, in no figure: {}.", format_counts(held["failures"]))
        lines += [Markdown(""), line]
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


def _render_agent_result(held: Json) -> list[Markdown]:
    rows = []
    for name, key, digits in _AGENT:
        both = [format_interval(held[key][arm], digits=digits) for arm in _ARMS]
        gain = format_interval(held[key]["difference"], signed=True, digits=digits)
        rows.append([name, *both, gain])
    first = held["first_call"]
    empty, ended = Markdown(""), held["ended"]
    return [
        fill_markdown(
            "{} makes the first call, {} goes on: {} tasks of {} tools of {} servers that run"
            " here.",
            *(quote_text(shorten_model(held[who])) for who in ("small", "larger")),
            *(held[name] for name in ("n", "tools", "servers")),
        ),
        empty,
        *format_table(["", "larger alone", "small first", "paired difference"], rows),
        empty,
        fill_markdown(
            "The small model's own call is right: {}; it used {:,} + {:,} tokens in all.",
            with_n(first["right"]),
            first["prompt_tokens"],
            first["completion_tokens"],
        ),
        fill_markdown(
            "Ended, larger alone: {}; small first: {}.", *(format_counts(ended[a]) for a in _ARMS)
        ),
        fill_markdown("Left out: {}.", format_counts(held.get("left_out") or {}) or "nothing"),
        *([fill_markdown("Stopped early: {}.", held["stopped"])] if held.get("stopped") else []),
        empty,
    ]
