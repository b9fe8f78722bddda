"""Generation on a CPU without torch: onnxruntime-genai over a merged copy of a model in eight bits.

One request at a time, greedily. In four bits the copy repeats itself (right tool 35.7% where the
tool is given, n = 84); in eight it writes what the model in float32 writes. The copy lies under
`<home>/cache`, so it may be deleted at any time and is built again.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from training.caller.bases import load_quietly
from training.caller.generation import CallGrammar, CallGrammars

_CONFIG = "genai_config.json"
_BUILD_SECONDS = 600
_MOST_COPIES = 4  # some 170 MB each; the copies used last stay


class FastCopyFailed(RuntimeError):
    """No fast copy of this model: why, in one line."""


def has_fast_runtime() -> bool:
    """Whether the packages that build a fast copy and run it are installed."""
    return bool(find_spec("onnxruntime_genai") and find_spec("onnx_ir"))


def find_fast_copy(home: Path, key: str) -> Path:
    """Folder of the copy of a model; key: hex of its weights and its base."""
    return home / "cache" / "fast" / key[:16]


def is_built(folder: Path) -> bool:
    return (folder / _CONFIG).is_file()


def build_fast_copy(folder: Path, model: Any, tokenizer: Any) -> None:
    """Writes `folder` from a loaded model without adapters. Raises FastCopyFailed where the builder
    does not know the architecture, or the disk is full."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            merged, draft = Path(scratch) / "merged", Path(scratch) / "fast"
            with load_quietly(fetches=False):
                model.save_pretrained(str(merged))
                tokenizer.save_pretrained(str(merged))
            _run_builder(merged, draft, Path(scratch) / "cache")
            shutil.rmtree(folder, ignore_errors=True)  # what a kill left behind
            draft.rename(folder)
    except OSError as error:
        if not is_built(folder):  # else another process was first
            raise FastCopyFailed(f"cannot write the fast copy {folder} ({error})") from error
    _remove_old_copies(folder.parent)


def _run_builder(merged: Path, draft: Path, cache: Path) -> None:
    # A process of its own: the builder prints a bar per tensor and keeps a gigabyte.
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(merged)]
    command += ["-o", str(draft), "-p", "int8", "-e", "cpu", "-c", str(cache)]
    command += ["--extra_options", "accuracy_level=4"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise FastCopyFailed(f"the builder took more than {_BUILD_SECONDS} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise FastCopyFailed(f"onnxruntime-genai builds no fast copy of this model: {last[:300]}")


def _remove_old_copies(parent: Path) -> None:
    copies = [path for path in parent.iterdir() if is_built(path)]
    copies.sort(key=lambda path: (path / _CONFIG).stat().st_mtime_ns, reverse=True)
    for path in copies[_MOST_COPIES:]:
        shutil.rmtree(path, ignore_errors=True)


class FastModel:
    """A fast copy, loaded. threads None: all cores, at most four (more were not measured)."""

    def __init__(self, folder: Path, tokenizer: Any, threads: int | None = None) -> None:
        genai: Any = import_module("onnxruntime_genai")
        config = genai.Config(str(folder))
        threads = threads or min(os.cpu_count() or 1, 4)
        # Of 20 prompts on two cores, idle or with two other processes, one thread took 22 and 36 s,
        # two that spin while they wait 15 and 39, two that do not 19 and 29.
        options = {"intra_op_num_threads": threads, "session.intra_op.allow_spinning": "0"}
        session = {"session_options": options}
        config.overlay(json.dumps({"model": {"decoder": session}}))
        self._genai, self._model, self._tokenizer = genai, genai.Model(config), tokenizer
        self._end = json.loads((folder / _CONFIG).read_text())["model"]["eos_token_id"]
        (folder / _CONFIG).touch()

    def __call__(
        self,
        prompts: Sequence[str],
        grammars: CallGrammars | None,
        constraints: Sequence[CallGrammar] | None,
        **limits: Any,
    ) -> list[str]:
        """Answers in the order of the prompts, each held to its grammar; limits: as `generate`."""
        texts = []
        for at, prompt in enumerate(prompts):
            ids = self._tokenizer(prompt, add_special_tokens=False)["input_ids"]
            matcher = grammars and constraints and grammars.make_matcher(constraints[at])
            written = self.generate(ids, matcher=matcher, **limits)
            texts.append(self._tokenizer.decode(written, skip_special_tokens=True))
        return texts

    def generate(
        self,
        prompt: list[int],
        *,
        max_new: int,
        matcher: Any = None,
        is_over: Callable[[], bool] | None = None,
    ) -> list[int]:
        """Tokens of the completion without its end; at most `max_new`, none more once `is_over()`.

        prompt: tokens. matcher: llguidance's, of a grammar: only what it derives is written, and
        what it leaves no choice of is read at once, 40% of the tokens of calls.
        """
        options = self._genai.GeneratorParams(self._model)
        options.set_search_options(max_length=len(prompt) + max_new + 1, do_sample=False)
        generator = self._genai.Generator(self._model, options)
        written = [] if is_over and is_over() else _read_forced(matcher, max_new)
        generator.append_tokens(prompt + written)
        while len(written) < max_new and not (is_over and is_over()):
            token = _choose_token(generator.get_logits(), matcher)
            if token == self._end:
                break
            # Never more than its limit, or the runtime overwrites its own memory.
            fresh = [token, *_read_forced(matcher, max_new - len(written) - 1, token)]
            written += fresh
            generator.append_tokens(fresh)
        return written


def _choose_token(logits: Any, matcher: Any) -> int:
    """The likeliest token of those that may be written. A grammar that grew beyond its limits
    holds nothing back: the ladder judges the call."""
    from llguidance import numpy as masks

    scores = logits.reshape(1, -1)
    if matcher is not None and not matcher.is_error():
        bits = masks.allocate_token_bitmask(1, scores.shape[1])
        masks.fill_next_token_bitmask(matcher, bits, 0)
        masks.apply_token_bitmask_inplace(scores, bits)
    return int(scores.argmax())


def _read_forced(matcher: Any, most: int, token: int | None = None) -> list[int]:
    """What must follow, once `token` was written; the matcher has read it afterwards. A text of a
    contract that reads like a special token is not followed into it."""
    if matcher is None or matcher.is_error():
        return []
    if token is not None:
        matcher.consume_token(token)
    forced = matcher.compute_ff_tokens()[:most]
    forced = forced[: matcher.validate_tokens(forced)]
    return forced if matcher.consume_tokens(forced) else []
