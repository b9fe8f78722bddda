"""Summaries of callers as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from training.evaluation.caller.summary import MEASURES
from warehouse.sanitize.escape import keep_cell, make_markdown_table

Json = Mapping[str, Any]
_NAMES = {
    "parsed": "Parsed",
    "valid": "Valid",
    "tool_ok": "Tool",
    "name_f1": "Param-name F1",
    "value_f1": "Param-value F1",
    "ast_ok": "AST",
}


def as_markdown(summaries: Sequence[Json]) -> str:
    """All comparisons, one after another."""
    return "\n\n".join(_render_summary(each) for each in summaries) + "\n"


def format_interval_or_missing(figure: Json, *, signed: bool = False) -> str:
    """`0.512 [0.430, 0.590]`, or "not measured"."""
    if not figure["n"]:
        return "not measured"
    sign = "+" if signed else ""
    return f"{figure['value']:{sign}.3f} [{figure['low']:{sign}.3f}, {figure['high']:{sign}.3f}]"


def _render_summary(told: Json) -> str:
    names = [shorten_label(told["candidate"]), shorten_label(told["incumbent"])]
    cells = [
        [
            cell["split"],
            _describe_offered_tools(cell),
            cell["distractors"],
            f"{cell['n']} ({cell['tools']})",
            _NAMES[name],
            *_list_paired_cells(cell[name]),
        ]
        for cell in told["cells"]
        for name in MEASURES
    ]
    header = ["split", "candidates", "distractors", "n (tools)", "measure", *names, "difference"]
    more = [
        [name, three["gain"]["n"], *_list_paired_cells(three)]
        for name, three in _list_other_rates(told)
    ]
    lines = [
        f"## {shorten_label(told['candidate'])} against {shorten_label(told['incumbent'])}",
        f"{told['items']} items of training set `{str(told['training_set'])[:12]}` that both"
        " answered; 95% intervals by bootstrap over tools; differences are paired.",
        "",
        make_markdown_table(header, cells, keep_cell),
        "",
        make_markdown_table(["beside the cells", "n", *names, "difference"], more, keep_cell),
    ]
    lines += [
        "",
        _render_invariance(told),
        "",
        _render_cost(told),
        "",
        f"Errors: {_format_kind_counts(told['errors'])}.",
    ]
    if told["failures"]:
        each = [f"{who} {_format_kind_counts(kinds)}" for who, kinds in told["failures"].items()]
        lines.append(f"Without an answer, in no figure: {'; '.join(each)}.")
    lines.append(f"Execution rate: {told['mcp_bench']['execution_success_rate']}.")
    lines.append(f"{told['signature']['told'][:1].upper()}{told['signature']['told'][1:]}.")
    return "\n".join(lines)


def _list_other_rates(told: Json) -> list[tuple[str, Json]]:
    """Irrelevance, phantom calls and MCP-Bench's rates."""
    without, gone, bench = told["irrelevance"], told["phantom"], told["mcp_bench"]
    return [
        ("No call where no tool fits", without["no_tool"]),
        ("No call where the right tool is not offered", without["not_offered"]),
        ("Phantom calls (lower is better): tool gone", gone["gone"]),
        ("Phantom calls: renamed in a snapshot", gone["renamed"]),
        ("Phantom calls: renamed in the prompt", gone["renamed_here"]),
        ("MCP-Bench valid_tool_name_rate", bench["valid_tool_name_rate"]),
        ("MCP-Bench input_schema_compliance", bench["input_schema_compliance"]),
    ]


def _render_invariance(told: Json) -> str:
    rows = [
        [each["perturbation"].replace("_", " "), _NAMES[each["measure"]], each["n"],
         _format_drop_points(each["drop_candidate"]), _format_drop_points(each["drop_incumbent"])]
        for each in told["invariance"]
    ]  # fmt: skip
    drops = [f"{shorten_label(told[who])} drops" for who in ("candidate", "incumbent")]
    return make_markdown_table(["changed", "measure", "n", *drops], rows, keep_cell)


def _format_drop_points(figure: Json) -> str:
    if not figure["n"]:
        return "not measured"
    value, low, high = (100 * figure[name] for name in ("value", "low", "high"))
    return f"{value:.1f} points [{low:.1f}, {high:.1f}]"


def _list_paired_cells(figures: Json) -> list[str]:
    both = [format_interval_or_missing(figures[who]) for who in ("candidate", "incumbent")]
    return [*both, format_interval_or_missing(figures["gain"], signed=True)]


def _describe_offered_tools(cell: Json) -> str:
    """How many tools the prompt was to hold, how many there were, how many it held."""
    told = str(cell["candidates"])
    if cell["offered"] < cell["candidates"]:
        told += f" ({cell['offered']:.0f} exist)"
    return told if cell["shown"] >= cell["offered"] else f"{told} ({cell['shown']:.1f} fitted)"


def _render_cost(told: Json) -> str:
    parts = []
    for who in ("candidate", "incumbent"):
        held = told["cost"][who]
        parts.append(
            f"{shorten_label(told[who])}: {held['prompt_tokens']:.0f} +"
            f" {held['completion_tokens']:.0f}"
            f" tokens, {held['seconds']:.3f} s, {held['usd']:.6f} USD"
        )
    return f"Per item: {'; '.join(parts)}."


def _format_kind_counts(kinds: Json) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in kinds.items()) or "none"


def shorten_label(model: str) -> str:
    """A digest by its first twelve characters, any other label whole."""
    return model[:12] if len(model) == 64 else model
