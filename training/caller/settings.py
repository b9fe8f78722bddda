"""Hyper-parameters of the caller, by profile: published ones for real bases, ours for the tiny."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from training.runtime.model_store import TrainingFailed

MCP_FLOW, TINY = "mcp-flow", "tiny"


@dataclass(frozen=True)
class CallerSettings:
    """Hyper-parameters; together with the training set and the base they name the adapter.

    The defaults are the profile "mcp-flow". One update of the weights takes `batch * accumulate`
    rows whatever `packing`, `pass_tokens` and the number of processes are.
    """

    profile: str = MCP_FLOW
    rank: int = 16
    alpha: int = 32
    dropout: float = 0.1
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    learning_rate: float = 5e-5
    warmup: float = 0.1  # share of the updates
    weight_decay: float = 0.0
    clip: float = 1.0
    epochs: int = 1
    batch: int = 2  # rows in one pass where packing is off
    accumulate: int = 8
    candidates: int = 10
    distractors: str = "mixed"
    context: int = 8192
    words: int | None = None  # cuts the contracts' descriptions (tiny contexts)
    packing: bool = True
    pass_tokens: int | None = None  # most tokens of one packed pass; None: `context`
    gradient_checkpointing: bool | None = None  # None: on a GPU
    attention: str = "auto"
    checkpoint_steps: int = 25
    seed: int = 7
    device: str = "auto"
    threads: int | None = None


PROFILES: dict[str, CallerSettings] = {
    # arXiv 2510.24284, appendix: LoRA of Qwen3-0.6B, Qwen3-4B and Llama-3.1-8B-Instruct.
    MCP_FLOW: CallerSettings(),
    TINY: CallerSettings(
        profile=TINY,
        dropout=0.0,
        learning_rate=3e-3,
        batch=8,
        accumulate=1,
        candidates=10,
        context=2048,
        words=None,  # its template shortens whole contracts itself
    ),
}


def get_base_profile(base: str) -> CallerSettings:
    """The profile a base is trained with unless another is asked for."""
    return PROFILES[TINY if base.partition(":")[0] == TINY else MCP_FLOW]


def resolve_caller_settings(
    base: str, profile: str | None = None, **changed: Any
) -> CallerSettings:
    """The base's profile (or the named one) with some values changed. Raises TrainingFailed."""
    if profile is not None and profile not in PROFILES:
        raise TrainingFailed(
            f"caller profile is {profile!r}; expected one of {', '.join(sorted(PROFILES))}"
        )
    chosen = PROFILES[profile] if profile else get_base_profile(base)
    return read_settings({**asdict(chosen), **changed})


def read_settings(values: dict[str, Any]) -> CallerSettings:
    """Settings out of a job. Raises TrainingFailed naming the value that cannot be used."""
    known = {each.name for each in fields(CallerSettings)}
    strange = sorted(values.keys() - known)
    if strange:
        raise TrainingFailed(
            f"caller setting {strange[0]!r} is unknown; expected some of {', '.join(sorted(known))}"
        )
    made = CallerSettings(**{**values, "targets": tuple(values.get("targets", _TARGETS))})
    for name in ("rank", "alpha", "epochs", "batch", "accumulate", "context", "checkpoint_steps"):
        _require_positive(name, getattr(made, name))
    if made.pass_tokens is not None:
        _require_positive("pass_tokens", made.pass_tokens)
    if not (isinstance(made.candidates, int) and made.candidates >= 2):
        raise TrainingFailed(f"caller candidates is {made.candidates!r}; expected 2 or more")
    if not made.learning_rate > 0:
        raise TrainingFailed(
            f"caller learning_rate is {made.learning_rate!r}; expected a number above 0"
        )
    for name in ("dropout", "warmup"):
        if not 0 <= getattr(made, name) < 1:
            raise TrainingFailed(f"caller {name} is {getattr(made, name)!r}; expected 0 to below 1")
    return made


_TARGETS = CallerSettings().targets


def _require_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TrainingFailed(f"caller {name} is {value!r}; expected a whole number from 1")
