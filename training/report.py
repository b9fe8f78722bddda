"""The night's training report: what was measured, on how much, beside which baseline.

What belongs here: Markdown and plots from summaries and cards. What does not: measuring, and any
claim that a summary does not hold.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warehouse.files import write_atomically

Json = Mapping[str, Any]
_TINY_NOTE = (
    "The tiny causal model was initialised and trained here from tool contracts. It proves that"
    " training, saving, loading, generating and scoring work; it is no evidence of what a"
    " pretrained base model would learn."
)
_CALLER_ROWS = (
    ("Parsed as a call", "parsed"),
    ("Valid call", "valid"),
    ("Tool", "tool_ok"),
    ("AST", "ast_ok"),
)
_OFFLINE_NOTE = (
    "The instructions were written by the offline provider (grammar and schemas), not by a"
    " language model or by people, on both sides of the split: these figures say how well the"
    " retriever serves requests of that kind."
)


def write_report(
    home: Path,
    night: str,
    *,
    manifest: Json,
    retriever_card: Json | None,
    retriever: Json | None,
    caller_card: Json | None,
    caller: Json | None,
    champions: Sequence[Json] = (),
    release: Json | None = None,
    drift: Json | None = None,
) -> Path:
    """Writes `<home>/reports/<night>/report.md` with its plots; returns the Markdown's path.

    `retriever` is a `recall_summary`, `caller` a `call_summary`, the cards are those of the
    trained models; what is None was not done and the report says so.
    """
    folder = home / "reports" / night
    folder.mkdir(parents=True, exist_ok=True)
    parts = [
        f"# Training report, {night}",
        _set_part(manifest),
        _retriever_part(retriever_card, retriever, manifest),
        _caller_part(caller_card, caller),
        _champion_part(champions, release, drift),
    ]
    for name, draw in _plots(retriever_card, retriever, caller_card, caller).items():
        draw(folder / f"{name}.png")
    path = folder / "report.md"
    write_atomically(path, "\n\n".join(part for part in parts if part).encode() + b"\n")
    facts = {"retriever": retriever, "caller": caller, "release": release, "drift": drift}
    write_atomically(folder / "figures.json", json.dumps(facts, indent=1).encode())
    return path


def inlined(path: Path) -> str:
    """A report with its plots as data URLs, so that a page which has no files shows them."""
    text = path.read_text()
    for plot in sorted(path.parent.glob("*.png")):
        data = base64.b64encode(plot.read_bytes()).decode()
        text = text.replace(f"({plot.name})", f"(data:image/png;base64,{data})")
    return text


def _set_part(manifest: Json) -> str:
    if not manifest:
        return "## Training set\nNone yet: it needs accepted pairs of servers on both sides."
    rows, tools, servers = manifest["rows"], manifest["tools"], manifest["servers"]
    lines = [
        "## Training set",
        f"`{manifest['training_set'][:16]}`, split by server: no server is on both sides.",
        "",
        "| split | servers | tools | pairs |",
        "| --- | --- | --- | --- |",
        *(f"| {s} | {len(servers[s])} | {tools[s]} | {rows[s]} |" for s in rows),
    ]
    if manifest["dropped"]:
        told = ", ".join(f"{count} {reason}" for reason, count in manifest["dropped"].items())
        lines += ["", f"Left out: {told}."]
    return "\n".join(lines)


def _retriever_part(card: Json | None, summary: Json | None, manifest: Json) -> str:
    lines = ["## Retriever (LoRA of MiniLM)"]
    lines.append(_card_line(card) if card else "Not trained tonight.")
    if not summary:
        return "\n".join([*lines, "", "Not evaluated tonight."])
    lines += [
        "",
        f"{summary['n']} instructions for {summary['tools']} tools of {summary['servers']} servers"
        f" that were not trained on, ranked among {summary['pool']} tools."
        " 95% intervals by bootstrap over tools.",
        "",
        f"| | {_short(summary['incumbent'])} | {_short(summary['candidate'])} | paired gain |",
        "| --- | --- | --- | --- |",
    ]
    for k in (1, 5):
        both, gain = summary[f"recall_at_{k}"], summary[f"gain_at_{k}"]
        told = f"{_interval(both['incumbent'])} | {_interval(both['candidate'])}"
        lines.append(f"| Recall@{k} | {told} | {_interval(gain, signed=True)} |")
    lines += ["", "![recall](recall.png)"] + (["![loss](loss.png)"] if card else [])
    if "offline" in manifest.get("providers", {}):
        lines += ["", _OFFLINE_NOTE]
    return "\n".join(lines)


def _caller_part(card: Json | None, summary: Json | None) -> str:
    lines = ["## Caller (LoRA of a causal model)"]
    lines.append(_card_line(card) if card else "Not trained tonight.")
    if not summary:
        return "\n".join([*lines, "", "Not evaluated tonight."])
    lines += [
        "",
        f"{summary['n']} instructions for {summary['tools']} tools of {summary['servers']} servers"
        f" that were not trained on; choosing at random scores Tool {summary['chance']:.3f}.",
        "",
        f"| | {_short(summary['incumbent'])} | {_short(summary['candidate'])} |",
        "| --- | --- | --- |",
    ]
    for name, measure in _CALLER_ROWS:
        both = summary[measure]
        told = f"{_interval(both['incumbent'])} | {_interval(both['candidate'])}"
        lines.append(f"| {name} | {told} |")
    lines += ["", f"Paired gain in AST: {_interval(summary['gain'], signed=True)}."]
    if summary["errors"]:
        told = ", ".join(f"{kind} {count}" for kind, count in summary["errors"].items())
        lines.append(f"Errors of the trained caller: {told}.")
    lines += ["", "![caller](caller.png)"]
    if card and card.get("base") == "tiny":
        lines += ["", _TINY_NOTE]
    return "\n".join(lines)


def _champion_part(champions: Sequence[Json], release: Json | None, drift: Json | None) -> str:
    lines = ["## Champions and release"]
    for each in champions:
        attempt = each.get("last_candidate") or {}
        told = f"- {each['role']}: `{_short(each['model'])}`"
        if attempt:
            verdict = "promoted" if attempt["promoted"] else "not promoted"
            told += f"; last candidate `{_short(attempt['model'])}` {verdict} ({attempt['why']})"
        lines.append(told)
    if release:
        lines.append(f"- release: `{release['release'][:16]}`")
    if drift:
        lines.append(
            f"- drift since the last training: {drift['changed']} changed, {drift['new']} new,"
            f" {drift['gone']} gone of {drift['known']} contracts"
        )
    return "\n".join(lines)


def _card_line(card: Json) -> str:
    return (
        f"`{card['name'][:16]}` on {card['pairs']} pairs: loss {card['loss_first']} to"
        f" {card['loss_last']} in {card['steps']} steps, {card['seconds']} s on {card['device']}"
        f" ({card['tokens_per_s']} tokens/s, {card['step_ms']} ms a step, peak {card['peak_mb']}"
        " MB)."
    )


def _interval(figure: Json, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    return f"{figure['value']:{sign}.3f} [{figure['low']:{sign}.3f}, {figure['high']:{sign}.3f}]"


def _short(model: str) -> str:
    return model if len(model) < 32 else model[:12]


def _plots(
    retriever_card: Json | None,
    retriever: Json | None,
    caller_card: Json | None,
    caller: Json | None,
) -> dict[str, Any]:
    plots: dict[str, Any] = {}
    if retriever_card:
        plots["loss"] = lambda path: _loss(path, retriever_card, caller_card)
    if retriever:
        groups = {f"Recall@{k}": retriever[f"recall_at_{k}"] for k in (1, 5)}
        names = (_short(retriever["incumbent"]), _short(retriever["candidate"]))
        plots["recall"] = lambda path: _bars(path, groups, names, "servers not trained on")
    if caller:
        held = {name.split()[0]: caller[measure] for name, measure in _CALLER_ROWS}
        both = (_short(caller["incumbent"]), _short(caller["candidate"]))
        plots["caller"] = lambda path: _bars(path, held, both, "servers not trained on")
    return plots


def _loss(path: Path, retriever: Json, caller: Json | None) -> None:
    figure, axes = _canvas()
    axes.plot(retriever["losses"], label="retriever")
    if caller:
        axes.plot(caller["losses"], label="caller (LoRA)")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    _save(figure, axes, path)


def _bars(path: Path, groups: Mapping[str, Json], names: tuple[str, str], title: str) -> None:
    figure, axes = _canvas()
    for offset, (who, label) in enumerate(zip(("incumbent", "candidate"), names, strict=True)):
        values = [group[who]["value"] for group in groups.values()]
        below = [group[who]["value"] - group[who]["low"] for group in groups.values()]
        above = [group[who]["high"] - group[who]["value"] for group in groups.values()]
        places = [i + 0.36 * offset for i in range(len(groups))]
        axes.bar(places, values, 0.34, label=label, yerr=[below, above], capsize=3)
    axes.set_xticks([i + 0.18 for i in range(len(groups))], list(groups))
    axes.set_ylim(0, 1)
    axes.set_title(title)
    _save(figure, axes, path)


def _canvas() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
