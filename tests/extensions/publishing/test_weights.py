"""Exported weights: plain transformers opens the adapted model, and recipes fit its calls."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from extensions.publishing import weights
from serving.export import BadExport, check_export, export_release
from tests.extensions.publishing.adapters import NAME, read_template, save_adapter, save_base
from tests.serving.test_adhoc import CLOCK, run, written
from tests.support.cases import cases
from tests.training.small_base import make_tokenizer, small_bert, stand_in_for_minilm
from training.caller.bases import load_caller
from training.caller.smollm2 import write_smollm2_base


def test_rotated_pairs_become_neighbours_and_a_release_without_language_models_is_told(tmp_path):
    laid = weights.interleave_heads(np.arange(12)[:, None] * np.ones((1, 3)), 2)[:, 0].tolist()
    assert laid == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    models = {"retriever": "base", "caller": "baseline:bm25+slots"}
    with pytest.raises(weights.NoWeights, match="caller baseline:bm25"):
        weights.write_release_weights(tmp_path, tmp_path / "out", models)


@pytest.mark.slow
def test_transformers_reads_back_what_was_written(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = write_smollm2_base(tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(str(base), dtype=torch.float16)
    with torch.no_grad():
        model.model.layers[3].self_attn.q_proj.weight[7] += 0.25
    merged = tmp_path / "merged"
    model.save_pretrained(str(merged))
    tokenizer: Any = AutoTokenizer.from_pretrained(str(base))
    tokenizer.save_pretrained(str(merged))
    weights.write_gguf(merged, tmp_path / "model.gguf", "a-caller")
    read: Any = AutoModelForCausalLM.from_pretrained(
        str(tmp_path), gguf_file="model.gguf", dtype=torch.float32
    )
    ids = tokenizer("Déjà vu in Oslo for 3 days", return_tensors="pt").input_ids
    with torch.inference_mode():
        gap = (read(ids).logits - model.float()(ids).logits).abs().max()
    assert gap < 1e-3
    other: Any = AutoTokenizer.from_pretrained(str(tmp_path), gguf_file="model.gguf")
    assert other.chat_template == tokenizer.chat_template
    assert other("Déjà vu").input_ids == tokenizer("Déjà vu").input_ids


@torch.inference_mode()
def compute_scores(model: Any) -> torch.Tensor:
    ids = torch.arange(3, 43).unsqueeze(0) % 60
    return model.eval()(ids).logits.float()


def load_plain(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)


@cases(
    "kind, shape",
    ("qwen3", {"tie_word_embeddings": True}),
    ("qwen2", {"dtype": torch.bfloat16}),
    ("llama", {"tie_word_embeddings": False}),
)
def test_the_merged_model_is_the_adapted_model(tmp_path, kind, shape):
    base = save_base(tmp_path / "base", kind, **shape)
    save_adapter(tmp_path, str(base), str(base))
    facts = weights.write_model_weights(tmp_path, NAME, tmp_path / "out")
    merged = load_plain(tmp_path / "out" / "safetensors")
    adapted, _, _ = load_caller(tmp_path, NAME)
    rounded = shape.get("dtype") == torch.bfloat16
    wanted = compute_scores(merged)
    torch.testing.assert_close(
        wanted, compute_scores(adapted), atol=0.03 if rounded else 1e-5, rtol=0
    )
    assert (compute_scores(load_plain(base)) - wanted).abs().max() > 0.02
    assert (facts["role"], facts["base"]) == ("caller", str(base))


def test_the_folder_opens_with_its_template_and_ends_its_answers(tmp_path):
    from transformers import AutoTokenizer, GenerationConfig

    base = save_base(tmp_path / "base")
    save_adapter(tmp_path, str(base), str(base), role="sidecar")
    assert weights.write_merged_model(tmp_path, NAME, tmp_path / "out")["role"] == "sidecar"
    tokenizer: Any = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    assert tokenizer.chat_template == read_template("qwen3")
    settings = GenerationConfig.from_pretrained(str(tmp_path / "out"))
    assert (settings.do_sample, settings.eos_token_id) == (False, tokenizer.eos_token_id)


FACTS: dict[str, Any] = {
    "name": "toolmill-caller-x", "model": NAME, "role": "caller", "base": "b", "context": 2048,
    "precision": "bfloat16",
}  # fmt: skip


@cases(
    "template, parser, tools, thinks",
    ("qwen3", "hermes", True, True),
    ("qwen2_5", "hermes", True, False),
    ("qwen3_instruct_2507", "hermes", True, False),
    ("llama3_1", None, False, False),
)
def test_recipes_fit_the_form_of_the_calls(tmp_path, template, parser, tools, thinks):
    made = weights.write_recipes(tmp_path, make_tokenizer(template=read_template(template)), FACTS)
    assert made == {"vllm_parser": parser, "ollama_tools": tools}
    served, modelfile = (tmp_path / "SERVE.md").read_text(), (tmp_path / "Modelfile").read_text()
    assert (f"--tool-call-parser {parser}" in served) is (parser is not None)
    assert ("enable_thinking" in served) is thinks
    assert ("None of vLLM's tool parsers" in served) is (parser is None)
    assert "convert_hf_to_gguf.py safetensors --outfile model.gguf" in served
    assert ('TEMPLATE """{{ .Prompt }}"""' in modelfile) is not tools
    assert ("range .Tools" in modelfile) is tools
    assert modelfile.startswith("FROM ./model.gguf" if tools else "# Ollama")
    assert 'PARAMETER stop "<|end|>"' in modelfile
    assert ("<think>" in modelfile) is thinks


def test_llama_s_parser_needs_its_tag_in_the_vocabulary(tmp_path):
    tokenizer = make_tokenizer(template=read_template("llama3_1"))
    tokenizer.add_tokens(["<|python_tag|>"], special_tokens=True)
    assert weights.write_recipes(tmp_path, tokenizer, FACTS)["vllm_parser"] == "llama3_json"


@pytest.mark.slow
def test_a_release_carries_its_weights_under_its_digests(tmp_path, monkeypatch):
    home, base = tmp_path / "home", save_base(tmp_path / "base")
    stand_in_for_minilm(monkeypatch, small_bert(tmp_path / "small"))
    servers = written(tmp_path / "s.jsonl", CLOCK)
    code, _, err = run("index", servers, "--out", home, "--embedder", "minilm")
    assert code == 0, err
    save_adapter(home, str(base), str(base))

    def add_files(home: Path, folder: Path, models: Any) -> Any:
        return weights.write_release_weights(home, folder, {**models, "caller": NAME})

    manifest = export_release(home, tmp_path / "out", add_files)
    assert manifest["weights"]["caller"]["vllm_parser"] == "hermes"
    held = {f"weights/caller/{name}" for name in ("Modelfile", "SERVE.md")}
    held.add("weights/caller/safetensors/model.safetensors")
    assert held <= manifest["files"].keys()
    assert check_export(tmp_path / "out") == manifest
    with (tmp_path / "out" / "weights" / "caller" / "Modelfile").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x07")
    with pytest.raises(BadExport, match=r"first weights/caller/Modelfile"):
        check_export(tmp_path / "out")
