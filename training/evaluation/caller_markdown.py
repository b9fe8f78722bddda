"""A comparison of two callers as Markdown: for `toolmill evaluate` and for a run's report."""

from collections.abc import Sequence
from typing import Any

from training.figures import (
    Json,
    format_counts,
    format_interval,
    format_points,
    format_table,
    shorten_model,
    split_name,
    split_order,
    with_n,
)
from warehouse.sanitize.markdown import (
    Markdown,
    escape_markdown,
    fill_markdown,
    join_markdown,
    quote_text,
)

_EMPTY = Markdown("")
MEASURES = (
    ("Parsed as a call", "parsed"),
    ("Valid call", "valid"),
    ("Tool", "tool_ok"),
    ("Param-name F1", "name_f1"),
    ("Param-value F1", "value_f1"),
    ("AST", "ast_ok"),
)
_CELL = MEASURES[2:]
CHANGES = {
    "renamed_tool": "tool renamed",
    "renamed_parameters": "parameters renamed",
    "reordered_parameters": "parameters reordered",
}


def as_markdown(summaries: Sequence[Json]) -> Markdown:
    """All comparisons, one after another."""
    return fill_markdown("{}\n", join_markdown("\n\n", map(_render_summary, summaries)))


def render_comparison(summary: Json) -> list[Markdown]:
    """The lines of a summary."""
    both = [shorten_model(summary["incumbent"]), shorten_model(summary["candidate"])]
    head = [
        [name, *(format_interval(summary[key][who]) for who in ("incumbent", "candidate"))]
        for name, key in MEASURES
    ]
    lines = [
        fill_markdown(
            "{n} instructions for {tools} tools of {servers} servers that were not trained on;"
            " choosing at random scores Tool {chance:.3f}. 95% intervals by bootstrap over tools.",
            **{name: summary[name] for name in ("n", "tools", "servers", "chance")},
        ),
        _EMPTY,
        *format_table(["", *both], head),
        _EMPTY,
        fill_markdown("Paired gain in AST: {}.", with_n(summary["gain"], signed=True)),
    ]
    return [
        *lines,
        *_render_cells(summary),
        *_render_other_rates(summary),
        *_render_invariance(summary),
        *_render_cost(summary),
        *_render_errors(summary),
    ]


def _render_summary(summary: Json) -> Markdown:
    names = [shorten_model(summary[who]) for who in ("candidate", "incumbent")]
    lines = [
        fill_markdown("## {} against {}", *names),
        fill_markdown(
            "{} items of training set {} that both answered.",
            summary["items"],
            quote_text(str(summary["training_set"])[:12]),
        ),
        _EMPTY,
        *render_comparison(summary),
    ]
    return join_markdown("\n", lines)


def _render_cells(summary: Json) -> list[Markdown]:
    """A row per cell and model."""
    names = ("split", "candidates", "distractors")
    rows = []
    for cell in sorted(
        summary["cells"],
        key=lambda cell: (split_order(cell["split"]), *(cell[name] for name in names)),
    ):
        facts = [split_name(cell["split"]), _describe_offered(cell), cell["distractors"], cell["n"]]
        for who in ("candidate", "incumbent"):
            figures = [format_interval(cell[key][who]) for _, key in _CELL]
            rows.append([*facts, shorten_model(summary[who]), *figures])
            facts = [""] * 4
    head = ["split", "candidates", "distractors", "n", "model", *(name for name, _ in _CELL)]
    title = Markdown("Every split, number of candidates and kind of distractors:")
    return [_EMPTY, title, _EMPTY, *format_table(head, rows)] if rows else []


def _describe_offered(cell: Json) -> Markdown:
    """How many tools the prompt was to hold, how many there were, how many it held."""
    text = escape_markdown(cell["candidates"])
    if cell["offered"] < cell["candidates"]:
        text = fill_markdown("{} ({:.0f} exist)", text, cell["offered"])
    if cell["shown"] >= cell["offered"]:
        return text
    return fill_markdown("{} ({:.1f} fitted)", text, cell["shown"])


def _render_other_rates(summary: Json) -> list[Markdown]:
    """Irrelevance, questions and phantom calls."""
    without, gone = summary["irrelevance"], summary["phantom"]
    rates: list[tuple[str, Any]] = [
        ("No call where none is right (irrelevance)", without.get("all")),
        ("… written as no-tool requests", without.get("no_tool")),
        ("… with the right tool taken away", without.get("not_offered")),
        ("Asks for a value that the request lacks", summary.get("ask_back")),
        ("Phantom calls (lower is better)", gone.get("all")),
        ("… to tools that are gone", gone.get("gone")),
        ("… to tools renamed in a snapshot", gone.get("renamed")),
        ("… to tools renamed for the test", gone.get("renamed_here")),
    ]
    rows = []
    for name, figures in rates:
        if figures:
            both = [format_interval(figures[who]) for who in ("incumbent", "candidate")]
            gain = format_interval(figures["gain"], signed=True)
            rows.append([name, figures["candidate"]["n"], *both, gain])
    return [_EMPTY, *format_table(["", "n", *_list_names(summary), "paired difference"], rows)]


def _render_invariance(summary: Json) -> list[Markdown]:
    rows = [
        [
            CHANGES.get(each["perturbation"], each["perturbation"]),
            {"ast_ok": "AST", "tool_ok": "Tool"}[each["measure"]],
            each["drop_candidate"]["n"],
            format_points(each["drop_incumbent"]),
            format_points(each["drop_candidate"]),
        ]
        for each in summary["invariance"]
        if each["drop_candidate"]["n"]
    ]
    head = ["Drop in points when", "measure", "n", *_list_names(summary)]
    return [_EMPTY, *format_table(head, rows)] if rows else []


def _render_cost(summary: Json) -> list[Markdown]:
    rows = []
    for who in ("incumbent", "candidate"):
        cost = summary["cost"][who]
        rows.append(
            [
                *(shorten_model(summary[who]), cost["n"], f"{cost['prompt_tokens']:,.0f}"),
                *(f"{cost['completion_tokens']:,.1f}", f"{cost['seconds']:.3f}"),
                f"{cost['usd']:.6f}",
            ]
        )
    head = ["Mean per item", "n", "prompt tokens", "completion tokens", "seconds", "USD"]
    return [_EMPTY, *format_table(head, rows)]


def _render_errors(summary: Json) -> list[Markdown]:
    """Errors, and questions without an answer."""
    lines: list[Markdown] = []
    if summary["errors"]:
        candidate = shorten_model(summary["candidate"])
        errors = fill_markdown("Errors of {}: {}.", candidate, format_counts(summary["errors"]))
        lines += [_EMPTY, errors]
    for who, counts in summary["failures"].items():
        failures = (shorten_model(summary[who]), format_counts(counts))
        lines += [_EMPTY, fill_markdown("Without an answer, in no figure: {}: {}.", *failures)]
    return lines


def _list_names(summary: Json) -> list[str]:
    return [shorten_model(summary[who]) for who in ("incumbent", "candidate")]
