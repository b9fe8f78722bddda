"""TRL's GRPOTrainer over the sidecar's rows, with the served prompt (`tokenise_prompt`), rule
rewards, sealed checkpoints, and no tools, so that no tool mask is longer than a completion."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from extensions.sidecar.prompt import UNTOUCHED, RevisionRow, fit_request, make_revision_request
from extensions.sidecar.rewards import (
    ASKED,
    COPIED,
    HARMFUL,
    RIGHT,
    UNREAD,
    WEIGHTS,
    RevisionScore,
    score_revision,
)
from extensions.sidecar.settings import GrpoSettings
from training.caller.generation import generate_completions
from training.caller.sft import Report, Tell
from training.evaluation.metrics import measure_share
from training.runtime import checkpoints
from training.runtime.checkpoints import INNER, describe_bad_loss, save_trainer_state
from training.runtime.device import TokenMeter, count_processes, is_out_of_memory
from training.runtime.model_store import TrainingFailed
from warehouse.storage.digest import digest

_LIVE = ("reward", "values", "is_right", "is_copied")  # of an update, in the live lines
_VERDICTS = (RIGHT, COPIED, HARMFUL, ASKED, UNREAD)
_REFERENCE = "ref"  # the copy of the adapter that TRL measures the distance to
# What a training took, as `TokenMeter` says it; of the card, not of its part on GRPO.
COST = ("device", "seconds", "steps", "tokens", "tokens_per_s", "step_ms", "peak_mb")
_POINTS = 100  # of the curve on the card


@dataclass(frozen=True)
class GrpoCourse:
    """A training's course. root: of its checkpoints. context: tokens of prompt and completion."""

    settings: GrpoSettings
    device: str  # cpu | cuda
    root: Path
    context: int
    checkpoint_steps: int = 25
    seed: int = 7


@dataclass
class RolloutBatch:
    """rows and prompts: place by place. curve: a point for each update."""

    tokenizer: Any
    rows: Sequence[RevisionRow]
    prompts: Sequence[str]
    curve: list[dict[str, Any]] = field(default_factory=list)

    def take_rewards(self, places: Sequence[int], texts: Sequence[str]) -> list[float]:
        """What the completions of an update are worth; the curve has a point more."""
        scores = [
            score_revision(self.rows[at], text) for at, text in zip(places, texts, strict=True)
        ]
        self.curve.append({"update": len(self.curve) + 1, **summarise_scores(scores)})
        return [score.total for score in scores]


def prepare_prompts(
    tokenizer: Any, rows: Sequence[RevisionRow], limit: int
) -> tuple[RolloutBatch, Mapping[str, int]]:
    """(rows with prompts as SFT and serving write them, counts). A row longer than `limit` loses
    what a lesson loses; one whose right tool is too long is left out. Raises BadTemplate."""
    fit: list[tuple[RevisionRow, str]] = []
    for row in rows:
        right = {str(call["name"]) for call in row.right}
        fitted = fit_request(tokenizer, make_revision_request(row), limit, right)
        if fitted is not None:
            fit.append((row, fitted.prompt))
    batch = RolloutBatch(tokenizer, [row for row, _ in fit], [prompt for _, prompt in fit])
    return batch, {"rows": len(rows), "too_long": len(rows) - len(fit)}


def tokenise_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """The prompt's tokens. The template writes its own first token: TRL, left alone, would let
    the tokenizer put a second one before it (Llama's), and a rollout would be asked otherwise."""
    return list(tokenizer(prompt, add_special_tokens=False)["input_ids"])


def summarise_scores(scores: Sequence[RevisionScore]) -> dict[str, Any]:
    """{reward, a mean for each part that was measured, a share for each verdict}; n 0: {}."""
    if not scores:
        return {}
    figures = {"reward": fmean(score.total for score in scores)}
    for name in (*WEIGHTS, "asked"):
        if measured := [score.parts[name] for score in scores if name in score.parts]:
            figures[name] = fmean(measured)
    figures |= {
        f"is_{name}": fmean(score.verdict == name for score in scores) for name in _VERDICTS
    }
    return {name: round(value, 4) for name, value in figures.items()}


def build_trainer(
    model: Any, rollouts: RolloutBatch, course: GrpoCourse, plan: str, report: Report
) -> Any:
    from datasets import Dataset
    from transformers import PrinterCallback

    def score_revisions(completions: Sequence[str], row: Sequence[int], **_: Any) -> list[float]:
        return rollouts.take_rewards(row, completions)

    from transformers import TrainerCallback

    class ProgressCallback(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                last = rollouts.curve[-1] if rollouts.curve else {}
                figures = {name: last[name] for name in _LIVE if name in last}
                progress = {"step": state.global_step, "steps": course.settings.steps}
                report({**progress, "loss": round(logs["loss"], 4), **figures})

    trainer = _make_trainer_class(rollouts, course, plan)(
        model=model,
        reward_funcs=[score_revisions],
        args=_build_arguments(course),
        train_dataset=Dataset.from_list(
            [{"prompt": text, "row": at} for at, text in enumerate(rollouts.prompts)]
        ),
        processing_class=rollouts.tokenizer,
        callbacks=[ProgressCallback()],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _make_trainer_class(rollouts: RolloutBatch, course: GrpoCourse, plan: str) -> Any:
    from trl import GRPOTrainer

    def fail_with_loss(step: int, loss: float) -> TrainingFailed:
        rates = course.settings.learning_rate, course.settings.clip
        return TrainingFailed(f"sidecar: {describe_bad_loss(course.root, step, loss, *rates)}")

    class RevisionEnvironment(GRPOTrainer):
        def create_model_card(self, *_: Any, **__: Any) -> None:
            """Ours is the model's card."""

        def _tokenize_prompts(self, prompts: list[str]) -> Any:
            return [tokenise_prompt(rollouts.tokenizer, prompt) for prompt in prompts], None, {}

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            if not loss.isfinite():
                raise fail_with_loss(self.state.global_step + 1, float(loss))
            return loss

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            save = super()._save_checkpoint
            save_trainer_state(self, save, model, course.root, plan, fail_with_loss)

        def _get_output_dir(self, trial: Any) -> str:
            return str(getattr(self, "beside", course.root))

    return RevisionEnvironment


def _build_arguments(course: GrpoCourse) -> Any:
    """TRL's defaults are for a GPU: a CPU needs `use_cpu` and no bf16."""
    from trl import GRPOConfig

    chosen, gpu = course.settings, course.device == "cuda"
    arguments = GRPOConfig(
        output_dir=str(course.root),
        max_steps=chosen.steps,
        num_generations=chosen.group,
        per_device_train_batch_size=chosen.pass_rows,
        gradient_accumulation_steps=chosen.prompts * chosen.group // chosen.pass_rows,
        max_completion_length=chosen.max_new,
        temperature=chosen.temperature,
        beta=chosen.beta,
        epsilon=chosen.epsilon,
        learning_rate=chosen.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=chosen.warmup,
        max_grad_norm=chosen.clip,
        disable_dropout=True,  # else the policy that is trained is not the one that wrote
        bf16=gpu,
        use_cpu=not gpu,
        gradient_checkpointing=gpu,
        logging_steps=1,
        save_strategy="steps",
        save_steps=course.checkpoint_steps,
        seed=course.seed,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        dataloader_pin_memory=gpu,
    )
    if arguments.n_gpu > 1:  # several GPUs in one process would split a pass
        arguments._n_gpu = 1
    return arguments


def run_grpo(
    model: Any,
    tokenizer: Any,
    rows: Sequence[RevisionRow],
    course: GrpoCourse,
    report: Report,
    tell: Tell,
) -> tuple[list[float], dict[str, Any]]:
    """Trains a PEFT model in place; returns (loss of every update, figures for the card), from the
    newest good checkpoint on. Raises TrainingFailed (too few rows, several processes, a loss that
    is no number, memory, disk), BadTemplate."""
    chosen = course.settings
    rollouts, counts = prepare_prompts(tokenizer, rows, course.context - chosen.max_new)
    _check_course(course, counts)
    model.get_base_model().set_attn_implementation("sdpa")  # SFT's takes packed rows alone
    names = [row.row_id for row in rollouts.rows]
    plan = digest({"rows": names, **asdict(chosen), "seed": course.seed})
    newest_checkpoint = checkpoints.find_newest_checkpoint(course.root, plan, tell)
    before = measure_policy(model, rollouts, chosen)
    trainer = build_trainer(model, rollouts, course, plan, report)
    meter = TokenMeter(course.device)
    try:
        trainer.train(
            resume_from_checkpoint=str(newest_checkpoint / INNER) if newest_checkpoint else None
        )
    except Exception as error:
        if not isinstance(error, TrainingFailed) and is_out_of_memory(error):
            raise TrainingFailed(_describe_out_of_memory(course)) from error
        raise
    if _REFERENCE in model.peft_config:
        model.delete_adapter(_REFERENCE)
    model.set_adapter("default")
    losses = [round(item["loss"], 4) for item in trainer.state.log_history if "loss" in item]
    meter.steps = trainer.state.global_step
    meter.tokens = int(trainer.state.num_input_tokens_seen)
    return losses, {
        "curve": _sample_curve(rollouts.curve),
        **counts,
        **meter.get_figures(),
        "resumed_from": checkpoints.read_checkpoint_step(newest_checkpoint)
        if newest_checkpoint
        else None,
        "before": before,
        "after": measure_policy(model, rollouts, chosen),
    }


def measure_policy(model: Any, rollouts: RolloutBatch, settings: GrpoSettings) -> dict[str, Any]:
    """Greedy answers to the first `probe` rows (by their id: none is chosen), scored: means of
    reward and parts; corrected and copied of flawed rows, harmed of untouched ones."""
    order = sorted(range(len(rollouts.rows)), key=lambda at: rollouts.rows[at].row_id)
    order = order[: settings.probe]
    was_training = model.training
    prompts = [rollouts.prompts[at] for at in order]
    texts = generate_completions(
        model.eval(), rollouts.tokenizer, prompts, max_new=settings.max_new
    )
    model.train(was_training)
    rows = [rollouts.rows[at] for at in order]
    scores = [score_revision(row, text) for row, text in zip(rows, texts, strict=True)]
    pairs = list(zip(rows, scores, strict=True))
    flawed = [score.verdict for row, score in pairs if row.kind != UNTOUCHED]
    untouched = [score.verdict for row, score in pairs if row.kind == UNTOUCHED]
    return {
        **summarise_scores(scores),
        "corrected": measure_share(flawed.count(RIGHT), len(flawed)).as_dict(),
        "copied": measure_share(flawed.count(COPIED), len(flawed)).as_dict(),
        "harmed": measure_share(untouched.count(HARMFUL), len(untouched)).as_dict(),
    }


def _check_course(course: GrpoCourse, counts: Mapping[str, int]) -> None:
    chosen, fit = course.settings, counts["rows"] - counts["too_long"]
    if fit < chosen.prompts:
        raise TrainingFailed(
            f"sidecar: {fit} of {counts['rows']} rows have a prompt of at most"
            f" {course.context - chosen.max_new} tokens, expected at least {chosen.prompts}, the"
            " prompts of an update: raise context, or lower max_new or prompts"
        )
    if count_processes() > 1:
        raise TrainingFailed(
            f"sidecar: {count_processes()} processes, and rewards are learnt by one; set"
            " training.place.processes to 1, or algorithm to sft"
        )


def _describe_out_of_memory(course: GrpoCourse) -> str:
    chosen = course.settings
    return (
        f"sidecar: out of memory with {chosen.prompts * chosen.group} completions of at most"
        f" {chosen.max_new} tokens after prompts of at most {course.context - chosen.max_new},"
        f" {chosen.pass_rows} a pass; lower pass_rows, group, max_new or context"
    )


def _sample_curve(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most _POINTS of the curve, each the mean of the updates since the one before."""
    size = -(-len(curve) // _POINTS) or 1
    return [_average_points(curve[at : at + size]) for at in range(0, len(curve), size)]


def _average_points(points: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for point in points for name in point)
    means = {
        name: round(fmean(point[name] for point in points if name in point), 4) for name in names
    }
    return {**means, "update": points[-1]["update"]}
