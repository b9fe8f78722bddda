"""The serving encoder (MiniLM in NumPy) against the same weights in torch, in one run.

python benchmarks/bench_encoder.py
Prints a table: texts per second, the ratio to torch, and how far the vectors are apart.
"""

import time
from collections.abc import Callable

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.embed import MiniLM, base_path
from demo.bundle import FOLDER

ROUNDS = 5


def texts() -> list[str]:
    """Short requests, and the longer texts of tools: what the two uses embed."""
    verbs = ("find", "delete", "convert", "list", "compare", "draw", "send", "rename")
    things = ("the notes of last week", "30 miles to kilometres", "all open issues of the project")
    asked = [f"Could you {verb} {thing} for me?" for verb in verbs for thing in things]
    tool = {
        "name": "search_documents",
        "description": "Searches all documents of the workspace and returns the best matches. " * 3,
        "inputSchema": {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": f"The {name} of the document."}
                for name in ("query", "author", "folder", "language")
            },
        },
    }
    told = [tool_text({**tool, "name": f"search_{path.name}"}) for path in FOLDER.iterdir()]
    return asked + told * 3


def torch_encoder() -> Callable[[list[str]], np.ndarray]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(base_path()))
    model = AutoModel.from_pretrained(str(base_path())).eval()

    def embed(batch: list[str]) -> np.ndarray:
        out = []
        for start in range(0, len(batch), 32):
            fed = tokenizer(
                batch[start : start + 32],
                padding=True,
                truncation=True,
                max_length=128,
                return_tensors="pt",
            )
            with torch.no_grad():
                hidden = model(**fed).last_hidden_state
            mask = fed["attention_mask"].unsqueeze(-1).float()
            pooled = (hidden * mask).sum(1) / mask.sum(1)
            out.append(torch.nn.functional.normalize(pooled, dim=-1).numpy())
        return np.concatenate(out)

    return embed


def rate(embed: Callable[[list[str]], np.ndarray], batch: list[str]) -> float:
    embed(batch)
    rates = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        embed(batch)
        rates.append(len(batch) / (time.perf_counter() - began))
    return float(np.median(rates))


def main() -> None:
    batch = texts()
    ours, theirs = MiniLM().embed, torch_encoder()
    apart = 1 - (ours(batch) * theirs(batch)).sum(axis=1).min()
    print(f"{len(batch)} texts, median of {ROUNDS} rounds, largest cosine distance {apart:.1e}")
    print(f"{'what':<18}{'torch/s':>10}{'numpy/s':>10}{'ratio':>8}")
    for name, part in (("all texts", batch), ("one query", batch[:1])):
        a, b = rate(theirs, part), rate(ours, part)
        print(f"{name:<18}{a:>10.0f}{b:>10.0f}{b / a:>8.2f}")


if __name__ == "__main__":
    main()
