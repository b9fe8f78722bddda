"""Where a training runs and what it cost: the device, its precision, its memory, and the meter."""

import contextlib
import os
import resource
import time
from dataclasses import dataclass, field
from typing import Any

from training.runtime.model_store import TrainingFailed

_NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "alloc_failed")


def pick_device(setting: str) -> str:
    """ "cpu" or "cuda" for the setting auto | cpu | cuda. Raises TrainingFailed."""
    import torch

    if setting not in ("auto", "cpu", "cuda"):
        raise TrainingFailed(f"device is {setting!r}; expected auto, cpu or cuda")
    has = torch.cuda.is_available()
    if setting == "cuda" and not has:
        raise TrainingFailed("device is cuda but torch sees no GPU; set device to auto or cpu")
    return "cuda" if setting != "cpu" and has else "cpu"


def get_process_device(device: str) -> str:
    """The device of this process: `accelerate` and torchrun give each of several its own GPU."""
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if device == "cuda" and local is not None else device


def count_processes() -> int:
    """How many processes train together (1 without `accelerate` or torchrun)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


_NARROW = 256  # states; a processor multiplies narrower ones no faster in bfloat16


def pick_frozen_type(device: str, width: int) -> Any:
    """The type of frozen weights: bfloat16 where the device multiplies it (173 tokens/s against 34
    on two such cores), else float32. width: of the model's states."""
    import torch

    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if device == "cuda" or (fast and width >= _NARROW) else torch.float32


def make_autocast(device: str) -> Any:
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


def is_out_of_memory(error: BaseException) -> bool:
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error).lower() for w in _NO_MEMORY)


def measure_peak_mb(device: str) -> float:
    """The device's allocated peak on cuda, the process's peak resident memory on a CPU."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass
class TokenMeter:
    """Counts steps and tokens; `figures()` says tokens/s, step time and peak memory."""

    device: str
    began: float = field(default_factory=time.perf_counter)
    steps: int = 0
    tokens: int = 0

    def count_step(self, tokens: int) -> None:
        self.steps += 1
        self.tokens += tokens

    def get_figures(self) -> dict[str, Any]:
        """{device, seconds, steps, tokens, tokens_per_s, step_ms, peak_mb}; `peak_mb` as above."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()
        took = time.perf_counter() - self.began
        return {
            "device": self.device,
            "seconds": round(took, 2),
            "steps": self.steps,
            "tokens": self.tokens,
            "tokens_per_s": round(self.tokens / took) if took else 0,
            "step_ms": round(1000 * took / self.steps, 1) if self.steps else 0.0,
            "peak_mb": round(measure_peak_mb(self.device)),
        }
