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
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from training.caller.bases import load_quietly

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

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        genai: Any = import_module("onnxruntime_genai")
        config = genai.Config(str(folder))
        threads = threads or min(os.cpu_count() or 1, 4)
        # Of 20 prompts on two cores, idle or with two other processes, one thread took 22 and 36 s,
        # two that spin while they wait 15 and 39, two that do not 19 and 29.
        options = {"intra_op_num_threads": threads, "session.intra_op.allow_spinning": "0"}
        session = {"session_options": options}
        config.overlay(json.dumps({"model": {"decoder": session}}))
        self._genai, self._model = genai, genai.Model(config)
        (folder / _CONFIG).touch()

    def generate(
        self,
        prompt: list[int],
        *,
        max_new: int,
        grammar: str = "",
        is_over: Callable[[], bool] | None = None,
    ) -> list[int]:
        """Tokens of the completion, its end among them; at most `max_new`, none more once
        `is_over()`.

        prompt: tokens. grammar: in llguidance's Lark form; only what it derives can be written,
        and anything where this runtime does not compile it.
        """
        generator = self._start(prompt, max_new, grammar)
        written: list[int] = []
        while not generator.is_done() and not (is_over and is_over()):
            generator.generate_next_token()
            written.append(int(generator.get_next_tokens()[0]))
        return written

    def _start(self, prompt: list[int], max_new: int, grammar: str) -> Any:
        options = self._genai.GeneratorParams(self._model)
        options.set_search_options(max_length=len(prompt) + max_new, do_sample=False)
        if grammar:
            # The runtime's llguidance is older than ours and refuses formats that it does not know.
            lenient = grammar.replace('"x-guidance": {', '"x-guidance": {"lenient": true, ')
            options.set_guidance("lark_grammar", lenient)
        try:
            generator = self._genai.Generator(self._model, options)
        except RuntimeError:
            if not grammar:
                raise
            return self._start(prompt, max_new, "")
        generator.append_tokens(prompt)
        return generator
