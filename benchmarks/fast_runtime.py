"""Generation on a CPU without torch: onnxruntime-genai over a merged copy of a model in eight bits.

Not a dependency: `pip install --no-deps onnxruntime-genai==0.18.0 onnx-ir`. In four bits the copy
repeats itself (right tool 35.7% where the tool is given, n = 84); in eight it writes what the
model in float32 writes.
"""

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from training.runtime.model_store import TrainingFailed

_CONFIG = "genai_config.json"
_BUILD_SECONDS = 600


def build_fast_model(folder: Path, base: Path, adapter: Path | None = None) -> Path:
    """`folder` with the model of `base`, `adapter` merged into it, in eight bits; built once.

    base: a folder of plain safetensors with its tokenizer. Raises TrainingFailed where the builder
    does not know the architecture, or the disk is full.
    """
    if (folder / _CONFIG).is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        merged, draft = Path(scratch) / "merged", Path(scratch) / "fast"
        try:
            _write_merged_model(base, adapter, merged)
            _run_builder(merged, draft, Path(scratch) / "cache")
            shutil.rmtree(folder, ignore_errors=True)  # what a kill left behind
            draft.rename(folder)
        except OSError as error:
            if not (folder / _CONFIG).is_file():  # else another process was first
                raise TrainingFailed(f"cannot write the fast copy {folder} ({error})") from error
    return folder


def _write_merged_model(base: Path, adapter: Path | None, target: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(str(base), dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    model.save_pretrained(str(target))
    AutoTokenizer.from_pretrained(str(base)).save_pretrained(str(target))


def _run_builder(merged: Path, draft: Path, cache: Path) -> None:
    # A process of its own: the builder prints a bar per tensor and keeps a gigabyte.
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(merged)]
    command += ["-o", str(draft), "-p", "int8", "-e", "cpu", "-c", str(cache)]
    command += ["--extra_options", "accuracy_level=4"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise TrainingFailed(f"the fast copy took more than {_BUILD_SECONDS} s to build") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TrainingFailed(f"onnxruntime-genai builds no fast copy of this model: {last[:300]}")


class FastModel:
    """A fast copy, loaded. It answers one prompt at a time, greedily."""

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        from tokenizers import Tokenizer

        genai: Any = import_module("onnxruntime_genai")
        config = genai.Config(str(folder))
        if threads:
            session = {"session_options": {"intra_op_num_threads": threads}}
            config.overlay(json.dumps({"model": {"decoder": session}}))
        self._genai, self._model = genai, genai.Model(config)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def generate(self, prompt: str, *, max_new: int, grammar: str = "") -> str:
        """The completion, without special tokens; at most `max_new` tokens.

        grammar: in llguidance's Lark form; only what it derives can be written. Raises ValueError
        where it does not compile.
        """
        ids = self._tokenizer.encode(prompt, add_special_tokens=False).ids
        options = self._genai.GeneratorParams(self._model)
        options.set_search_options(max_length=len(ids) + max_new, do_sample=False)
        try:
            if grammar:
                options.set_guidance("lark_grammar", grammar)
            generator = self._genai.Generator(self._model, options)
        except RuntimeError as error:
            raise ValueError(f"the grammar does not compile: {str(error)[:200]}") from error
        generator.append_tokens(ids)
        written: list[int] = []
        while not generator.is_done():
            generator.generate_next_token()
            written.append(int(generator.get_next_tokens()[0]))
        return self._tokenizer.decode(written)
