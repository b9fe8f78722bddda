"""Summaries of callers as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from training.evaluation.caller.summary import MEASURES
from warehouse.sanitize.escape import keep_cell, markdown_table

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
    return "\n\n".join(_summary(each) for each in summaries) + "\n"


def interval(figure: Json, *, signed: bool = False) -> str:
    """`0.512 [0.430, 0.590]`, or "not measured"."""
    if not figure["n"]:
        return "not measured"
    sign = "+" if signed else ""
    return f"{figure['value']:{sign}.3f} [{figure['low']:{sign}.3f}, {figure['high']:{sign}.3f}]"


def _summary(told: Json) -> str:
    names = [short(told["candidate"]), short(told["incumbent"])]
    cells = [
        [cell["split"], _offered(cell), cell["distractors"], f"{cell['n']} ({cell['tools']})",
         _NAMES[name], *_three(cell[name])]
        for cell in told["cells"]
        for name in MEASURES
    ]  # fmt: skip
    header = ["split", "candidates", "distractors", "n (tools)", "measure", *names, "difference"]
    more = [[name, three["gain"]["n"], *_three(three)] for name, three in _more(told)]
    lines = [
        f"## {short(told['candidate'])} against {short(told['incumbent'])}",
        f"{told['items']} items of training set `{str(told['training_set'])[:12]}` that both"
        " answered; 95% intervals by bootstrap over tools; differences are paired.",
        "",
        markdown_table(header, cells, keep_cell),
        "",
        markdown_table(["beside the cells", "n", *names, "difference"], more, keep_cell),
    ]
    lines += ["", _invariance(told), "", _cost(told), "", f"Errors: {_counts(told['errors'])}."]
    if told["failures"]:
        each = [f"{who} {_counts(kinds)}" for who, kinds in told["failures"].items()]
        lines.append(f"Without an answer, in no figure: {'; '.join(each)}.")
    lines.append(f"Execution rate: {told['mcp_bench']['execution_success_rate']}.")
    lines.append(f"{told['signature']['told'][:1].upper()}{told['signature']['told'][1:]}.")
    return "\n".join(lines)


def _more(told: Json) -> list[tuple[str, Json]]:
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


def _invariance(told: Json) -> str:
    rows = [
        [each["perturbation"].replace("_", " "), _NAMES[each["measure"]], each["n"],
         _points(each["drop_candidate"]), _points(each["drop_incumbent"])]
        for each in told["invariance"]
    ]  # fmt: skip
    drops = [f"{short(told[who])} drops" for who in ("candidate", "incumbent")]
    return markdown_table(["changed", "measure", "n", *drops], rows, keep_cell)


def _points(figure: Json) -> str:
    if not figure["n"]:
        return "not measured"
    value, low, high = (100 * figure[name] for name in ("value", "low", "high"))
    return f"{value:.1f} points [{low:.1f}, {high:.1f}]"


def _three(figures: Json) -> list[str]:
    both = [interval(figures[who]) for who in ("candidate", "incumbent")]
    return [*both, interval(figures["gain"], signed=True)]


def _offered(cell: Json) -> str:
    """How many tools the prompt was to hold, how many there were, how many it held."""
    told = str(cell["candidates"])
    if cell["offered"] < cell["candidates"]:
        told += f" ({cell['offered']:.0f} exist)"
    return told if cell["shown"] >= cell["offered"] else f"{told} ({cell['shown']:.1f} fitted)"


def _cost(told: Json) -> str:
    parts = []
    for who in ("candidate", "incumbent"):
        held = told["cost"][who]
        parts.append(
            f"{short(told[who])}: {held['prompt_tokens']:.0f} + {held['completion_tokens']:.0f}"
            f" tokens, {held['seconds']:.3f} s, {held['usd']:.6f} USD"
        )
    return f"Per item: {'; '.join(parts)}."


def _counts(kinds: Json) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in kinds.items()) or "none"


def short(model: str) -> str:
    """A digest by its first twelve characters, any other label whole."""
    return model[:12] if len(model) == 64 else model
