"""Trains the caller that the package ships: one LoRA adapter of SmolLM2-135M-Instruct.

    python -m benchmarks.caller_fit --data FOLDER [--home FOLDER] [--seed N] [--write [FOLDER]]
    python -m benchmarks.caller_fit --home FOLDER --basis explored [--most N]

FOLDER holds `corpus/pairs_A*.jsonl` (requests with the right arguments) and
`smithery/servers.jsonl` (the tools they are about). `--home` adds the rows of other tasks from the
training split of a Toolmill home: no tool, missing value, clarification, recovery, several calls.
Servers of the platform's test split (30%) are left out. `--basis` takes N single calls of a home
that were written from that basis, and nothing else: for comparing what is learnt. A training that
was stopped continues from its last checkpoint. `--write` ships the adapter, or keeps it in a new
folder.
"""

import argparse
import json
import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.contracts.tool_id import ToolId
from benchmarks.shared_data import read_corpus
from training.caller.packing import TrainingLesson
from training.caller.settings import PROFILES
from training.caller.shipped import FOLDER, GENERAL, KEPT, REPLAY, WEIGHTS
from training.caller.smollm2 import PACKAGE, SHA256, SMOLLM2, name_smollm2_base
from training.caller.tokenise import make_lessons, make_row_lessons
from training.caller.train import train_on_lessons
from training.prompts.render import render_conversation, render_tool_schema
from training.runtime.model_store import CARD as MODEL_CARD
from training.runtime.model_store import TrainingJob, get_model_folder, make_model_name
from training.sets.pool import ToolPool
from training.sets.split import TEST, split_of
from warehouse.sanitize.redact import redact_json
from warehouse.storage.digest import digest
from warehouse.storage.files import hash_file

SETTINGS = replace(PROFILES[SMOLLM2], epochs=2, accumulate=2, threads=1)
WORD = re.compile(r"[^\W_]+")
CONFIG = "adapter_config.json"
TRAINED = ("steps", "tokens", "tokens_per_s", "seconds", "peak_mb", "loss_first", "loss_last")
TEXT = Path(__file__).with_name("caller_card.md")
OTHER_TASKS = (
    *("no_tool", "missing_parameter", "clarification", "recovery", "sequential", "parallel"),
)


@dataclass(frozen=True)
class LabelledRequest:
    """A request of the corpus, its tool's contract, and the contracts of the same server."""

    server: str
    kind: str
    instruction: str
    contract: Mapping[str, Any]
    arguments: Mapping[str, Any]
    siblings: tuple[Mapping[str, Any], ...]


def is_test_server(server: str) -> bool:
    """Whether the platform's split keeps a server for the test, as the shipped retriever's did."""
    return split_of(ToolId.parse(f"{server}::-").server_id) == TEST


def read_requests(folder: Path) -> list[LabelledRequest]:
    """The right requests of the corpus, with their tools."""
    lines = (folder / "smithery" / "servers.jsonl").read_text(encoding="utf-8").splitlines()
    servers = {
        row["qualified_name"]: {tool["name"]: tool for tool in row["tools"]}
        for row in map(json.loads, lines)
    }
    requests = []
    for row in read_corpus(folder):
        server, name = row["tool_id"].split("::")
        tools = servers[server]
        siblings = tuple(tool for tool in tools.values() if tool.get("inputSchema"))
        facts = row["kind"], row["instruction"], tools[name], row["arguments"], siblings
        requests.append(LabelledRequest(server, *facts))
    return requests


def rank_by_words(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Tools by the words that they share with a text, the most first."""
    words = set(WORD.findall(text.casefold()))

    def count_shared(tool: Mapping[str, Any]) -> int:
        about = f"{tool['name']} {tool.get('description', '')}"[:600]
        return len(words.intersection(WORD.findall(about.casefold())))

    return sorted(tools, key=count_shared, reverse=True)


def draw_neighbours(
    request: LabelledRequest, pool: Sequence[Mapping[str, Any]], count: int, rng: random.Random
) -> list[Mapping[str, Any]]:
    """Tools beside the right one: half of the same server where it has others, half near it."""
    own = [tool for tool in request.siblings if tool["name"] != request.contract["name"]]
    rng.shuffle(own)
    near = rank_by_words(request.instruction, rng.sample(list(pool), min(60, len(pool))))
    chosen = own[: -(-count // 2)]
    names = {request.contract["name"], *(tool["name"] for tool in chosen)}
    chosen += [tool for tool in near if tool["name"] not in names][: count - len(chosen)]
    return chosen[:count]


def make_corpus_lessons(
    requests: Sequence[LabelledRequest], tokenizer: Any, seed: int
) -> list[TrainingLesson]:
    """Every request with its tool alone, three in ten again among three tools, one in eight again
    without its tool, where the answer is that none can do it."""
    rng = random.Random(seed)
    pool = list({tool["name"]: tool for each in requests for tool in each.siblings}.values())
    lessons: list[TrainingLesson] = []
    for each in requests:
        call = [{"name": each.contract["name"], "arguments": each.arguments}]
        shown: list[tuple[list[Mapping[str, Any]], list[dict[str, Any]]]] = [
            ([each.contract], call)
        ]
        if rng.random() < 0.3:
            three = [each.contract, *draw_neighbours(each, pool, 2, rng)]
            rng.shuffle(three)
            shown.append((three, call))
        if rng.random() < 0.125:
            # Of another server and not the nearest, which may well be able to do it.
            others = rank_by_words(each.instruction, rng.sample(pool, min(40, len(pool))))[5:]
            names = {tool["name"] for tool in each.siblings}
            others = [tool for tool in others if tool["name"] not in names]
            shown.append((others[: rng.choice((1, 1, 3))], []))
        for tools, calls in shown:
            schemas = [render_tool_schema(tool) for tool in tools]
            turn = render_conversation(tokenizer, schemas, each.instruction, calls)
            lessons += make_row_lessons(tokenizer, [turn])
    return [lesson for lesson in lessons if len(lesson.ids) <= SETTINGS.context]


def make_home_lessons(home: Path, tokenizer: Any) -> list[TrainingLesson]:
    """Rows of the tasks that the corpus has none of, and as many single calls, of the training
    split of a home."""
    import polars as pl

    from training.sets.training_set import TRAINING_SET
    from warehouse.storage.tables import Tables

    rows = Tables(home / "tables").read(TRAINING_SET).filter(pl.col("split") == "train")
    others = rows.filter(pl.col("task").is_in(OTHER_TASKS))
    single = rows.filter(pl.col("task") == "single").sample(len(others), seed=SETTINGS.seed)
    chosen = pl.concat([others, single]).to_dicts()
    pool = ToolPool(
        {row["contract_digest"]: json.loads(row["contract"]) for row in rows.to_dicts()}
    )
    lessons, _ = make_lessons(chosen, pool, tokenizer, SETTINGS)
    return lessons


def fit_basis(home: Path, basis: str, most: int, work: Path) -> dict[str, Any]:
    """Trains on `most` single calls of a home written from one basis; returns the model's card."""
    import polars as pl

    from assets.synthesis.tables import PAIRS
    from training.sets.training_set import TRAINING_SET
    from warehouse.storage.tables import Tables

    tables = Tables(home / "tables")
    pairs = tables.read(PAIRS).filter(pl.col("basis") == basis, pl.col("task") == "single")
    rows = tables.read(TRAINING_SET).join(pairs.select("pair_id").unique(), on="pair_id")
    rows = rows.sort("pair_id").sample(most, seed=SETTINGS.seed).to_dicts()
    pool = ToolPool({row["contract_digest"]: json.loads(row["contract"]) for row in rows})
    whole = replace(SETTINGS, update_tokens=None)

    def write(tokenizer: Any) -> tuple[list[TrainingLesson], dict[str, Any]]:
        lessons, counts = make_lessons(rows, pool, tokenizer, whole)
        return lessons, {**counts, "tokens": sum(len(lesson.ids) for lesson in lessons)}

    return train(digest([row["pair_id"] for row in rows]), {"rows": most}, write, work)


Write = Callable[[Any], tuple[list[TrainingLesson], dict[str, Any]]]


def train(key: str, facts: dict[str, Any], write: Write, work: Path) -> dict[str, Any]:
    """Trains in `work` on what `write` makes of a tokenizer, from the last checkpoint."""
    settings, base = asdict(SETTINGS), name_smollm2_base()
    name = make_model_name("caller", base, key, settings, "")
    job = TrainingJob("caller", name, work, key, base, settings, [facts])
    return train_on_lessons(job, SETTINGS, write, lambda step: print(json.dumps(step), flush=True))


def fit(data: Path, home: Path | None, work: Path) -> dict[str, Any]:
    """Trains in `work`, from the last checkpoint if there is one; returns the model's card."""
    requests = [each for each in read_requests(data) if not is_test_server(each.server)]
    key = digest([[each.instruction, each.contract, each.arguments] for each in requests])

    def write(tokenizer: Any) -> tuple[list[TrainingLesson], dict[str, Any]]:
        lessons = make_corpus_lessons(requests, tokenizer, SETTINGS.seed)
        counts = {"requests": len(requests), "corpus_lessons": len(lessons)}
        if home:
            lessons += make_home_lessons(home, tokenizer)
        tokens = sum(len(lesson.ids) for lesson in lessons)
        return lessons, {**counts, "lessons": len(lessons), "tokens": tokens}

    return train(digest([key, "home" if home else ""]), {"requests": len(requests)}, write, work)


def write_requests(data: Path, folder: Path) -> None:
    """A request of each of 120 training servers, which nightly updates repeat, and of 60 test
    servers and other contracts, which they must keep; none with what looks like a secret."""
    requests = read_requests(data)
    learnt = [r for r in requests if not is_test_server(r.server)]
    known = {contract_digest(canonicalize_contract(r.contract)) for r in learnt}
    other = [r for r in requests if is_test_server(r.server)]  # in no order of difficulty
    other.sort(key=lambda r: digest(r.instruction))
    other = [r for r in other if contract_digest(canonicalize_contract(r.contract)) not in known]
    for name, every, most in ((REPLAY, learnt, 120), (KEPT, other, 60)):
        rows = []
        for each in sorted({r.server: r for r in every}.values(), key=lambda r: digest(r.server)):
            contract = canonicalize_contract(each.contract)
            key = {"contract_digest": contract_digest(contract)}
            call = {"name": contract["name"], "arguments": dict(each.arguments), **key}
            pair = {"pair_id": digest([each.server, each.instruction])}
            row = {**pair, "instruction": each.instruction, **key}
            rows.append({**row, "calls": [call], "contract": contract})
        lines = [json.dumps(row) for row in rows if redact_json(row) == row][:most]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_shipped(trained: Path, card: Mapping[str, Any], folder: Path, data: Path) -> None:
    """Writes the adapter in half precision with its recipe, card and replay into `folder`."""
    from safetensors.torch import load_file, save_file

    if folder.resolve() == FOLDER.resolve():
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_requests(data, folder)
    weights = load_file(trained / WEIGHTS)
    save_file({name: each.half() for name, each in weights.items()}, folder / WEIGHTS)
    config = json.loads((trained / CONFIG).read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = name_smollm2_base()
    _write_json(folder / CONFIG, config)
    facts = {
        "role": "caller",
        "name": GENERAL,
        "base": name_smollm2_base(),
        "base_name": f"{PACKAGE}, {SHA256}",
        "base_identity": card["base_identity"],
        "settings": asdict(SETTINGS),
        "training_set": card["training_set"],
        "lessons": card["lessons"],
        "training": {name: card[name] for name in TRAINED if name in card},
        "libraries": {name: version(name) for name in ("torch", "transformers", "peft")},
        "files": {path.name: hash_file(path) for path in sorted(folder.iterdir())},
    }
    _write_json(folder / MODEL_CARD, facts)
    size = (folder / WEIGHTS).stat().st_size / 1e6
    text = TEXT.read_text(encoding="utf-8").format(**facts, package=PACKAGE, size=size)
    (folder / "MODEL_CARD.md").write_text(text, encoding="utf-8")


def _write_json(path: Path, body: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    global SETTINGS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--basis", choices=["explored", "contract"])
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--work", type=Path, default=Path("var/caller_fit"))
    parser.add_argument("--seed", type=int, default=SETTINGS.seed)
    parser.add_argument("--write", nargs="?", type=Path, const=FOLDER, help="a new folder")
    options = parser.parse_args()
    SETTINGS = replace(SETTINGS, seed=options.seed)
    if options.write and options.write.resolve() != FOLDER.resolve() and options.write.exists():
        parser.error(f"{options.write} is there: name a new folder")
    if options.basis and options.home:
        card = fit_basis(options.home, options.basis, options.most, options.work)
    elif options.data:
        card = fit(options.data, options.home, options.work)
    else:
        parser.error("give --data, or --home with --basis")
    if options.write and options.data:
        trained = get_model_folder(options.work, card["name"])
        write_shipped(trained, card, options.write, options.data)
    print(json.dumps({name: card.get(name) for name in ("name", "lessons", *TRAINED)}))


if __name__ == "__main__":
    main()
