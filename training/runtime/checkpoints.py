"""Checkpoints of a training under way: each sealed by the SHA-256 of its files, two kept.

<home>/checkpoints/<model name>/step-00000050/sealed.json   {step, plan, files: {path: sha256}}
"""

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.runtime.device import is_main
from training.runtime.model_store import TrainingFailed
from warehouse.storage.files import hash_file, write_atomically

SEAL = "sealed.json"
KEPT = 2  # the newest may be damaged; the one before it is then gone on with
Tell = Callable[[str], None]
# safetensors and torch report a full disk in words of their own, without an errno; what torch's
# writer says of a short write is "unexpected pos 11648 vs 11540".
_FULL = (
    *("no space left", "os error 28", "disk quota", "file too large", "os error 27"),
    *("inline_container", "pytorchstreamwriter"),
)


def get_checkpoint_root(home: Path, name: str) -> Path:
    return home / "checkpoints" / name


def save_checkpoint(
    root: Path,
    step: int,
    fill: Callable[[Path], None],
    plan: str = "",
    *,
    main: bool = True,
    wait: Callable[[], None] = lambda: None,
) -> Path:
    """Calls `fill(folder)`, seals the result, renames it into place and prunes. All processes call
    it (one is `main`) and `wait`. Raises TrainingFailed on a full disk; older ones stay."""
    target = root / f"step-{step:08d}"
    beside = root / f".{target.name}"
    try:
        if main:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
        wait()
        fill(beside)
        wait()
        if main:
            files = {name: hash_file(beside / name) for name in _list_files(beside)}
            body = {"schema_version": 1, "step": step, "plan": plan, "files": files}
            write_atomically(beside / SEAL, json.dumps(body, indent=1).encode())
            shutil.rmtree(target, ignore_errors=True)
            beside.rename(target)
            # Removes all but the newest checkpoints, and what kills left half written.
            for folder in [*sorted(root.glob("step-*"))[:-KEPT], *root.glob(".step-*")]:
                shutil.rmtree(folder, ignore_errors=True)
        wait()
    except Exception as error:
        if is_disk_full(error):
            raise TrainingFailed(_describe_disk_full(root, step, beside)) from error
        raise
    finally:
        if main:
            shutil.rmtree(beside, ignore_errors=True)
    return target


def find_checkpoint_flaw(folder: Path, plan: str = "") -> str | None:
    """Why a checkpoint cannot be gone on with; None when every file is as it was sealed."""
    try:
        body = json.loads((folder / SEAL).read_bytes())
        files = dict(body["files"])
        if plan and body["plan"] != plan:
            return "it is of another plan (rows, tokens or settings differ)"
        for name, known in files.items():
            if hash_file(folder / name) != known:
                return f"{name} is not as it was written"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def read_checkpoint_step(folder: Path) -> int:
    """The update after which a sealed checkpoint was written."""
    return int(json.loads((folder / SEAL).read_bytes())["step"])


def find_newest_checkpoint(root: Path, plan: str = "", tell: Tell | None = None) -> Path | None:
    """The newest checkpoint under `root` that holds; `tell` hears of each that is passed over."""
    for folder in sorted(root.glob("step-*"), reverse=True):
        checkpoint_flaw = find_checkpoint_flaw(folder, plan)
        if checkpoint_flaw is None:
            return folder
        if tell is not None:
            tell(f"checkpoint {folder.name} is passed over: {checkpoint_flaw}")
    return None


def remove_checkpoints(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error of any library on the way to the disk means that the disk is full."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if any(word in str(seen).lower() for word in _FULL):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _describe_disk_full(root: Path, step: int, half: Path) -> str:
    wrote = sum(path.stat().st_size for path in half.rglob("*") if path.is_file())
    there = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(there).free
    newest_checkpoint = find_newest_checkpoint(root)
    advice = (
        f"goes on after step {read_checkpoint_step(newest_checkpoint)}"
        if newest_checkpoint
        else "starts from the beginning"
    )
    return (
        f"disk full: checkpoint of step {step} did not fit in {root} ({wrote / 2**20:.1f} MB were"
        f" written, {free / 2**20:.1f} MB are free). Free some space and run it again: it {advice}"
    )


def _list_files(folder: Path) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != SEAL]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


INNER = "state"  # the Trainer's own folder within a checkpoint of ours


def save_trainer_state(
    trainer: Any,
    save: Callable[[Any, Any], None],
    model: Any,
    root: Path,
    plan: str,
    fail: Callable[[int, float], TrainingFailed],
) -> None:
    """A sealed checkpoint as the Trainer writes it (into its attribute `beside`), each process its
    part. fail: raised for weights that are no numbers, of the step and the loss."""
    import torch

    weights = (weight for weight in model.parameters() if weight.requires_grad)
    if not all(bool(torch.isfinite(weight).all()) for weight in weights):
        raise fail(trainer.state.global_step, float("nan"))

    def fill(folder: Path) -> None:
        trainer.beside = folder
        try:
            save(model, None)
        finally:
            del trainer.beside
        trainer.accelerator.wait_for_everyone()
        if is_main():
            (folder / f"checkpoint-{trainer.state.global_step}").rename(folder / INNER)

    save_checkpoint(
        root,
        trainer.state.global_step,
        fill,
        plan,
        main=is_main(),
        wait=trainer.accelerator.wait_for_everyone,
    )


def describe_bad_loss(root: Path, step: int, loss: float, rate: float, clip: float) -> str:
    """What went wrong, what to lower, and which checkpoint under `root` is kept."""
    newest_checkpoint = find_newest_checkpoint(root)
    state = (
        f"the checkpoint of step {read_checkpoint_step(newest_checkpoint)} is kept"
        if newest_checkpoint
        else "none is kept"
    )
    return (
        f"loss is {loss} at step {step}, expected a number; lower learning_rate (it is"
        f" {rate:g}; gradients are clipped at {clip:g}); {state}"
    )
