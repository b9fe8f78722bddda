"""The caller: LoRA fine-tuning of a causal language model on instruction and call pairs.

`base` is "smollm2" (of an installed package), a local folder, or a hub id at a commit
(`Qwen/Qwen3-0.6B@<commit>`): the code is the same.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.caller.bases import describe_base, find_base_source, load_base
from training.caller.packing import TrainingLesson, find_row_mixing, pick_attention
from training.caller.settings import CallerSettings, read_settings
from training.caller.sft import Report, SftCourse, Tell, run_sft
from training.caller.shipped import WEIGHTS, find_caller_folder
from training.caller.smollm2 import HUB_ID, SMOLLM2, find_base_folder, is_smollm2, name_smollm2_base
from training.caller.tokenise import build_train_pool, make_lessons
from training.runtime import checkpoints
from training.runtime.device import get_process_device, is_main, pick_device, seed_everything
from training.runtime.model_store import TrainingFailed, TrainingJob, read_model_card, save_model

# (tokenizer) -> the lessons, and counts of what was left out
Write = Callable[[Any], tuple[list[TrainingLesson], dict[str, Any]]]
# (model with its adapter, tokenizer, course, report, tell) -> what the card says of it besides
Refine = Callable[[Any, Any, SftCourse, Report, Tell], dict[str, Any]]


def train_caller(job: TrainingJob, report: Report) -> dict[str, Any]:
    """Trains and saves `<home>/models/<name>`; returns its card. A finished model is not redone,
    one that was stopped goes on from its last checkpoint.

    Raises TrainingFailed: nothing to learn from, a base that does not load, a tokenizer without a
    chat template, a loss that is not a number, too little memory, a full disk.
    """
    settings = read_settings(job.settings)

    def write(tokenizer: Any) -> tuple[list[TrainingLesson], dict[str, Any]]:
        return make_lessons(job.rows, build_train_pool(job.rows, job.pool), tokenizer, settings)

    def average(adapted: Any, *_: Any) -> dict[str, Any]:
        average_with_start(adapted, find_caller_folder(job.home, job.start) / WEIGHTS)
        return {}

    return train_on_lessons(job, settings, write, report, average if job.start else None)


def average_with_start(adapted: Any, start: Path) -> None:
    """Keeps two thirds of what an update changed of the adapter in `start` (WiSE-FT,
    arXiv 2109.01903).

    On a demo's second day the whole change made right calls of 28 requests of new contracts 2.46
    nats likelier and those of 60 requests that ship .52 less likely [.12, .95]; .7 of it 2.10
    likelier, and .13 less likely [-.16, .42]; half of it 1.68, and .02 likelier [-.20, .23].
    """
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    before, after = load_file(start), get_peft_model_state_dict(adapted)
    kept = {name: before[name].to(each).lerp(each, 2 / 3) for name, each in after.items()}
    set_peft_model_state_dict(adapted, kept)


def train_on_lessons(
    job: TrainingJob,
    settings: CallerSettings,
    write: Write,
    report: Report,
    refine: Refine | None = None,
    *,
    teaches: bool = True,
) -> dict[str, Any]:
    """As `train_caller`, of any role, on the lessons that `write` makes of the job's rows. refine:
    what is done to the trained adapter before it is saved; where `teaches` is false, to a new
    adapter, and it says the losses and what the training took."""
    if done := read_model_card(job.home, job.name):
        return {**done, "cached": True}
    if not job.rows:
        raise TrainingFailed(f"{job.role}: the training split is empty; check the accepted pairs")
    device = pick_device(settings.device)
    base = resolve_base(job.base)
    source = find_base_folder(job.home, base)
    seed_everything(settings.seed, settings.threads)
    model, tokenizer = load_base(source, device)
    base_facts = describe_base(model, tokenizer)
    lessons, counts = write(tokenizer)
    notes: list[str] = []

    def tell(line: str) -> None:
        notes.append(line)
        report({"note": line})

    packs = settings.packing and _enable_packing(model, lessons, settings, device, tell)
    revision = find_base_source(source)[1]
    adapted = (
        continue_adapter(model, settings, job)
        if job.start
        else add_adapter(model, settings, revision)
    )
    root = checkpoints.get_checkpoint_root(job.home, job.name)
    course = SftCourse(lessons, settings, device, tokenizer.pad_token_id, root, packs)
    losses, figures = run_sft(adapted, course, report, tell) if teaches else ([], {})
    more = refine(adapted, tokenizer, course, report, tell) if refine else {}
    card = {
        **_describe_job(job, settings, losses or more["losses"]),
        "base": base,
        "base_name": base,
        "start": job.start or None,
        "base_identity": base_facts,
        "pairs": counts.get("rows", len(job.rows)),
        "lessons": counts,
        "notes": notes,
        **figures,
        **more,
    }
    if is_main():
        _save_adapter(job, card, adapted)
        checkpoints.remove_checkpoints(root)
    return {**card, "cached": False}


def _describe_job(
    job: TrainingJob, settings: CallerSettings, losses: list[float]
) -> dict[str, Any]:
    # Steps of a short run differ by more than it learns: at least three, where there are six.
    tenth = max(1, len(losses) // 10, min(3, len(losses) // 2))
    return {
        "role": job.role,
        "name": job.name,
        "training_set": job.training_set,
        "profile": settings.profile,
        "settings": asdict(settings),
        "loss_first": round(sum(losses[:tenth]) / tenth, 4),
        "loss_last": round(sum(losses[-tenth:]) / tenth, 4),
        "losses": losses,
    }


def resolve_base(base: str) -> str:
    """`base`, with "smollm2" made exact by a digest, so that two adapters over two bases are never
    taken for one. Raises TrainingFailed for one that is neither here nor at a commit of the hub."""
    if is_smollm2(base):
        return name_smollm2_base() if base == SMOLLM2 else base
    find_base_source(base)
    return base


def _enable_packing(
    model: Any,
    lessons: Sequence[Any],
    settings: CallerSettings,
    device: str,
    tell: Callable[[str], None],
) -> bool:
    """Sets the attention of packed rows; False where this model's rows would see one another
    (linear attention) or it takes none of them (softcaps): then it keeps its own."""
    attention = model.config._attn_implementation
    try:
        kind = pick_attention(settings.attention, model.config, device)
        model.set_attn_implementation(kind)
        apart = find_row_mixing(model, lessons, get_process_device(device))
    except (ValueError, ImportError, TypeError) as error:
        apart, kind = str(error).splitlines()[0], settings.attention
    if apart is None:
        return True
    tell(f"packing is off: with attention {kind}, {apart}")
    model.set_attn_implementation(attention)
    return False


def add_adapter(model: Any, settings: CallerSettings, revision: str | None) -> Any:
    """The model with a new LoRA adapter. revision: of a base that is a hub id. Raises
    TrainingFailed for layers that it does not have."""
    from peft import LoraConfig, get_peft_model

    module_names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    missing = sorted(set(settings.targets) - module_names)
    if missing:
        raise TrainingFailed(
            f"caller base {model.config.name_or_path!r} has no layers named {', '.join(missing)};"
            " set targets to layers of its own"
        )
    return get_peft_model(
        model,
        LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=list(settings.targets),
            task_type="CAUSAL_LM",
            revision=revision,
        ),
    ).train()


def continue_adapter(model: Any, settings: CallerSettings, job: TrainingJob) -> Any:
    """The model with the adapter that the job starts from, to be trained on. Raises TrainingFailed
    where it has another rank or other layers than the settings, or does not fit the model."""
    from peft import PeftModel

    folder = find_caller_folder(job.home, job.start)
    try:
        config = json.loads((folder / "adapter_config.json").read_bytes())
        shape = (config["r"], config["lora_alpha"], sorted(config["target_modules"]))
        if shape != (own_shape := (settings.rank, settings.alpha, sorted(settings.targets))):
            raise ValueError(f"rank, alpha and targets are {shape}, the settings say {own_shape}")
        return PeftModel.from_pretrained(model, str(folder), is_trainable=True).train()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise TrainingFailed(
            f"{job.role} does not go on from {job.start[:12]}: {line}; set them alike"
        ) from error


def _save_adapter(job: TrainingJob, card: Mapping[str, Any], adapted: Any) -> None:
    def fill(folder: Path) -> None:
        adapted.save_pretrained(str(folder))
        (folder / "README.md").unlink(missing_ok=True)
        if is_smollm2(card["base"]):  # not by the place where this home has it
            path = folder / "adapter_config.json"
            config = {**json.loads(path.read_bytes()), "base_model_name_or_path": HUB_ID}
            path.write_text(json.dumps(config, indent=2), encoding="utf-8")

    try:
        save_model(job.home, job.name, card, fill)
    except Exception as error:
        if not checkpoints.is_disk_full(error):
            raise
        raise TrainingFailed(
            f"disk full: the finished adapter did not fit in {job.home / 'models'}; its last"
            " checkpoint is kept. Free some space and run it again: nothing is trained twice"
        ) from error
