"""How likely a caller finds right calls: that shows a change on fewer requests than they do."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assets.vectors.encoders.session import count_cores
from training.caller.bases import find_card_base, load_caller
from training.caller.packing import TrainingLesson
from training.caller.shipped import find_caller_folder
from training.caller.tokenise import make_row_lessons
from training.evaluation.caller_items import CallerItem
from training.prompts.render import render_conversation, render_tool_schema
from training.runtime.device import pick_device
from warehouse.ledger.attempts import LOCAL_ANSWER, EffectOutcome
from warehouse.ledger.ledger import Ledger
from warehouse.storage.digest import digest
from warehouse.storage.files import hash_file


def measure_likelihood(
    home: Path, caller: str, items: Sequence[CallerItem], ledger: Ledger
) -> dict[str, float]:
    """Item id -> log-likelihood of the right calls in nats, the right tools alone given. Of a
    request on its own; the ledger keeps it. Raises TrainingFailed where no caller is loaded."""
    import torch

    model, tokenizer, card = load_caller(home, caller, device := pick_device("auto"))
    lessons: dict[str, TrainingLesson] = {}
    for item in items:
        called = {call["name"] for call in item.expected}
        schemas = [render_tool_schema(tool) for tool in item.tools if tool["name"] in called]
        turn = render_conversation(tokenizer, schemas, item.instruction, item.expected)
        [lessons[item.item_id]] = make_row_lessons(tokenizer, [turn])

    def measure(lesson: TrainingLesson) -> EffectOutcome:
        ids = torch.tensor([lesson.ids], device=device)
        with torch.no_grad():
            logits = model.eval()(ids, logits_to_keep=lesson.learned + 1).logits[0, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits, ids[0, lesson.start :], reduction="sum")
        return EffectOutcome(str(round(-float(loss), 3)).encode(), caller, repeatable=True)

    of = _list_inputs(home, caller, card), device, str(next(model.parameters()).dtype)
    keys = {name: digest([*of, each.start, each.ids]) for name, each in lessons.items()}
    nats = {name: float(data) for name, key in keys.items() if (data := ledger.seen(key))}
    due = [name for name in lessons if name not in nats]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # of each worker: with two that spin, 12 took 41 s, not 8
    try:
        with ThreadPoolExecutor(count_cores() if device == "cpu" else 1) as pool:
            for name, found in zip(due, pool.map(measure, map(lessons.get, due)), strict=True):
                nats[name] = float(ledger.once(LOCAL_ANSWER, keys[name], lambda it=found: it))
    finally:
        torch.set_num_threads(threads)
    return nats


def _list_inputs(home: Path, caller: str, card: Mapping[str, Any]) -> list[Any]:
    """What a likelihood depends on beside its request: adapter, base and libraries."""
    adapter = sorted(find_caller_folder(home, caller).glob("adapter_*"))
    base = Path(find_card_base(home, card))  # of a hub id, which names a commit, there are no files
    facts = [f"{it.name} {it.stat().st_size} {it.stat().st_mtime_ns}" for it in base.glob("*.*")]
    libraries = [version(name) for name in ("torch", "transformers", "peft")]
    return [str(base), sorted(facts), [hash_file(path) for path in adapter], libraries]
