"""Names, descriptions and errors of others in every page that is written: text alone."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from assets.catalogue.defs import render_tables
from assets.contracts import defs
from assets.synthesis import pair_report
from assets.synthesis.export.formats import FORMATS
from assets.synthesis.export.selection import ExportChoice
from assets.synthesis.export.write import ExportFigures, write_card
from extensions.bench.ablation_table import render_ablation_table
from extensions.publishing.card_sections import CardFacts
from extensions.publishing.model_card import render_card
from tests.support.cases import cases
from tests.support.pages import list_tokens
from tests.training.report_figures import CARD, MANIFEST, calls, figure
from training.evaluation.caller_markdown import as_markdown
from training.reporting.report import inline_plots, write_report

EVIL = "a|b\n\n![x](http://127.0.0.1:9/beacon) <img src=x> [l](http://127.0.0.1:9) `|`"
EVIL += " ![p](recall.png)"


def write_catalogue(home: Path) -> str:
    row = {"gone": None, "name": EVIL, "joined_by": EVIL, "confirmed": None, "catalogue_id": EVIL,
           "marketplaces": [EVIL, "b"]}  # fmt: skip
    return "\n\n".join(render_tables([row]).values())


def write_findings(home: Path) -> str:
    names = ("severity", "rule", "tool", "excerpt", "server_id")
    row = dict.fromkeys(names, EVIL) | {"severity": "high"}
    figures = defs.report_findings([row], 1, 1)
    return f"{figures['by_rule']}\n\n{figures['high']}"


def write_export(home: Path) -> str:
    figures = ExportFigures(pairs=1, lines=1, splits=Counter({EVIL: 1}), servers={EVIL: {EVIL}})
    names = ("task", "kind", "provider", "marketplace", "judge")
    figures.by = {name: Counter({EVIL: 1}) for name in names} | {"license": Counter({"MIT": 1})}
    figures.left_out = Counter({EVIL: 1})
    trial = dict.fromkeys(("marketplace", "judge", "stage", "kind"), EVIL)
    trials = [{**trial, "refused": 1, "n": 2, "low": 0.1, "high": 0.9}]
    facts = {"versions": [(EVIL, EVIL, EVIL)], "trials": trials}
    choice = cast(ExportChoice, SimpleNamespace(commercial_only=False))
    return write_card(FORMATS["trl"], figures, facts, choice, EVIL)


def write_costs(home: Path) -> str:
    names = ("marketplace", "stage", "model")
    row = dict.fromkeys(names, EVIL) | {"tokens": 1, "usd": 0.1, "usd_per_accepted_pair": None}
    return pair_report.tabulate_costs([row])


def write_model_card(home: Path) -> str:
    model = {"name": EVIL, "role": EVIL, "base": EVIL, "device": EVIL, "settings": {EVIL: EVIL}}
    learnt = {name: {EVIL: 1} for name in ("license", "provider", "server_id")}
    gate = {"name": EVIL, "passed": False, "found": EVIL, "needed": EVIL}
    held = {**MANIFEST, "rows": {EVIL: 1}, "servers": {}, "tools": {}}
    summary = {"incumbent": EVIL, "signature": {"verdict": EVIL}, "split": EVIL,
               "n": 1, EVIL: {"candidate": figure(0.5), "incumbent": figure(0.4)}}  # fmt: skip
    return render_card(CardFacts({**CARD, **model}, held, learnt, summary, [gate]))


def write_training_report(home: Path) -> str:
    gate = {"name": EVIL, "passed": True, "found": EVIL, "needed": EVIL}
    attempt = {"model": EVIL, "promoted": False, "why": EVIL, "gates": [gate]}
    facts = {
        "manifest": {**MANIFEST, "dropped": {EVIL: 1}, "empty": [EVIL], "providers": {EVIL: 1}},
        "retriever_card": {**CARD, "device": EVIL}, "retriever": None,
        "caller_card": CARD, "caller": {**calls(), "errors": {EVIL: 1}},
        "champions": [{"role": EVIL, "model": EVIL, "last_candidate": attempt}],
        "release": {"release": EVIL}, "ablations": EVIL,
    }  # fmt: skip
    return inline_plots(write_report(home, "n", facts))


def write_evaluation(home: Path) -> str:
    summary = {**calls(), "training_set": EVIL, "items": 3, "errors": {EVIL: 3}}
    return as_markdown([summary | {"signature": {"verdict": EVIL}}])


def write_ablations(home: Path) -> str:
    measures = dict.fromkeys(("recall_at_1", "recall_at_5", "ndcg_at_10", "mrr"), figure(0.5))
    arm = {"pairs": 1, "minutes": 1.0, **measures}
    contrast = {"name": EVIL, "question": EVIL, "same_n": False, "pairs": [1, 1],
                "verdict": "better", **measures}  # fmt: skip
    counts = {"n": 1, "tools": 1, "servers": 1, "seeds": [1]}
    figures = {**counts, "arms": {EVIL: arm}, "contrasts": [contrast]}
    return render_ablation_table({"retriever": figures})


@cases(
    "write",
    write_catalogue, write_findings, write_export,
    write_costs, write_model_card, write_training_report, write_evaluation, write_ablations,
)  # fmt: skip
def test_a_page_shows_what_a_third_party_wrote_as_text(write, tmp_path):
    page = write(tmp_path)
    page = page.split("\n---\n", 1)[1] if page.startswith("---") else page  # front matter: YAML
    tokens = list_tokens(page)
    assert "127" in page
    images = {str(token.attrs["src"])[:22] for token in tokens if token.type == "image"}
    assert images <= {"data:image/png;base64,"}
    assert not {"link_open", "html_inline", "html_block"} & {token.type for token in tokens}
    kinds = [token.type for token in tokens]
    starts = [at for at, kind in enumerate(kinds) if kind == "table_open"]
    for table in [kinds[at : kinds.index("table_close", at)] for at in starts]:
        assert table.count("td_open") % table.count("th_open") == 0
        assert table.count("td_open") // table.count("th_open") == table.count("tr_open") - 1
