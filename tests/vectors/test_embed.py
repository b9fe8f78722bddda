"""The NumPy encoder is the pretrained MiniLM, and merges only adapters that are its own."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from assets.vectors.embed import BadAdapter, MiniLM, base_path

TEXTS = [
    "What time is it in Tokyo?",
    "read file\nRead the complete contents of a file.\npath: where it lies",
    "Füge eine Zeile 你好 hinzu 🙂",
    "word " * 400,
]


@pytest.fixture(scope="module")
def encoder() -> MiniLM:
    return MiniLM()


def adapter(folder: Path, shape: tuple[int, int] = (384, 384)) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4}))
    name = "base_model.model.encoder.layer.3.attention.self.query"
    rng = np.random.default_rng(1)
    pair = {
        f"{name}.lora_A.weight": rng.normal(size=(2, shape[1])).astype(np.float32),
        f"{name}.lora_B.weight": rng.normal(size=(shape[0], 2)).astype(np.float32),
    }
    save_file(pair, str(folder / "adapter_model.safetensors"))
    return folder


def test_vectors_equal_those_of_the_torch_model(encoder: MiniLM) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(base_path()))
    model = AutoModel.from_pretrained(str(base_path())).eval()
    fed = tokenizer(TEXTS, padding=True, truncation=True, max_length=128, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**fed).last_hidden_state
    mask = fed["attention_mask"].unsqueeze(-1)
    pooled = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    assert np.abs(encoder.embed(TEXTS) - pooled.numpy()).max() < 1e-5


def test_vectors_are_unit_and_do_not_depend_on_the_batch(encoder: MiniLM) -> None:
    together = encoder.embed(TEXTS)
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    alone = np.concatenate([encoder.embed([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5
    assert encoder.embed([]).shape == (0, 384)


def test_an_empty_text_has_a_unit_vector(encoder: MiniLM) -> None:
    assert np.linalg.norm(encoder.embed([""])) == pytest.approx(1.0, abs=1e-5)


def test_progress_reaches_the_total(encoder: MiniLM) -> None:
    seen: list[tuple[int, int]] = []
    encoder.embed(["a", "b c", "d e f"], on_done=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3, 3)


def test_an_adapter_changes_the_vectors_and_the_id(encoder: MiniLM, tmp_path: Path) -> None:
    adapted = MiniLM(adapter(tmp_path / "a"))
    assert adapted.id.startswith(f"{encoder.id}+")
    assert np.abs(adapted.embed(["hello there"]) - encoder.embed(["hello there"])).max() > 1e-3


def test_a_folder_without_an_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadAdapter, match="no LoRA adapter"):
        MiniLM(tmp_path)


def test_an_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadAdapter, match="another base model"):
        MiniLM(adapter(tmp_path / "a", (768, 768)))
