"""Where a training runs and what it cost: the device, its precision, and the meter.

What belongs here: choosing cpu or cuda, autocast, peak memory. What does not: a training loop.
"""

import contextlib
import resource
import time
from dataclasses import dataclass, field
from typing import Any

from training.models import TrainingFailed


def pick_device(wanted: str) -> str:
    """ "cpu" or "cuda" for the setting auto | cpu | cuda. Raises TrainingFailed."""
    import torch

    if wanted not in ("auto", "cpu", "cuda"):
        raise TrainingFailed(f"device is {wanted!r}; expected auto, cpu or cuda")
    has = torch.cuda.is_available()
    if wanted == "cuda" and not has:
        raise TrainingFailed("device is cuda but torch sees no GPU; set device to auto or cpu")
    return "cuda" if wanted != "cpu" and has else "cpu"


def autocast(device: str) -> Any:
    """bf16 on cuda; on a CPU plain float32, so that a training is repeatable everywhere."""
    import torch

    if device == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def seed_everything(seed: int, threads: int | None) -> None:
    import torch

    torch.manual_seed(seed)
    if threads:
        torch.set_num_threads(threads)


@dataclass
class Meter:
    """Counts steps and tokens; `figures()` says tokens/s, step time and peak memory."""

    device: str
    began: float = field(default_factory=time.perf_counter)
    steps: int = 0
    tokens: int = 0

    def step(self, tokens: int) -> None:
        self.steps += 1
        self.tokens += tokens

    def figures(self) -> dict[str, Any]:
        """{device, seconds, steps, tokens, tokens_per_s, step_ms, peak_mb}; `peak_mb` is the
        device's allocated peak on cuda and the process's peak resident memory on a CPU."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() / 2**20
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        took = time.perf_counter() - self.began
        return {
            "device": self.device,
            "seconds": round(took, 2),
            "steps": self.steps,
            "tokens": self.tokens,
            "tokens_per_s": round(self.tokens / took) if took else 0,
            "step_ms": round(1000 * took / self.steps, 1) if self.steps else 0.0,
            "peak_mb": round(peak),
        }
