"""A sentence-transformers model opened from its files: no code of it, no pickle, no made-up weight.

How tokens are pooled, where a text is cut and which words stand before a question is for the
model's own files to say: nothing of it is guessed.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.hub import (
    SENTENCE,
    NotFetched,
    UnpinnedModel,
    fetch_model,
    resolve_model,
    split_reference,
)
from assets.vectors.encoders.layout.modules import (
    list_modules,
    read_model_prompts,
    require_safetensors,
)
from assets.vectors.encoders.prompts import Prompts
from warehouse.sanitize.escape import drop_surrogates
from warehouse.storage.digest import digest

_CUT = 50_000  # characters: no model reads more, and a tokenizer's time grows with them
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
_UNUSED = "pooler."  # of BERT's own: vectors come of the last layer's tokens
_HINT = "expected a folder, or a hub id at a commit (name@commit), of a sentence-transformers model"


@dataclass(frozen=True)
class OpenedModel:
    """A SentenceTransformer, the folder of its files, and the prompts that they name."""

    model: Any
    folder: Path
    prompts: Prompts


def open_sentence_model(
    model: str, *, threads: int | None = None, exact: bool = False
) -> OpenedModel:
    """The model in a folder or of a hub id at a commit. `exact`: in float32, whatever precision its
    files have: an adapter's steps are smaller than bfloat16 tells apart. Raises BadEmbedder."""
    folder, prompts = _find_model(model)
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise BadEmbedder(
            f"{SENTENCE}{model}: needs the packages torch and"
            f" sentence-transformers ({error}); pip install 'toolmill[sentence]'"
        ) from error
    if threads:
        torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # a pooler that no file holds is random, and in the id
            opened = SentenceTransformer(
                str(folder),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True} | ({"dtype": "float32"} if exact else {}),
            )
    except Exception as error:  # of torch, transformers, safetensors and the hub, all unlike
        message = " ".join(str(error).split())[:200]
        raise BadEmbedder(
            f"{SENTENCE}{model}: cannot be opened ({type(error).__name__}: {message}); {_HINT}"
        ) from error
    _require_weights(model, folder, opened)
    return OpenedModel(opened, folder, prompts)


def make_sentence_base_name(base: str) -> str:
    """What names a base in jobs and cards: `sentence-transformers:<folder or hub id>@<16 hex>`.

    Raises BadEmbedder where it is not there, is another by now, or has no transformer to adapt.
    """
    where, known = split_reference(base.removeprefix(SENTENCE))
    folder, _ = _find_model(where)
    first = list_modules(folder)[0].kind
    if first != "Transformer":
        raise BadEmbedder(
            f"{SENTENCE}{where}: its first module is {first}, expected Transformer: an adapter is"
            " trained on a transformer's layers"
        )
    found = digest_sentence_base(where)[:16]
    if known and known != found:
        raise BadEmbedder(
            f"{SENTENCE}{where}: its files are {found}, expected {known}: the model changed since"
            " it was named; name it again without the part after @, or put the old files back"
        )
    return f"{SENTENCE}{resolve_model(where)}@{found}"


def digest_sentence_base(base: str) -> str:
    """SHA-256 over the files that make an encoder of a base. Raises BadEmbedder."""
    where, _ = split_reference(base.removeprefix(SENTENCE))
    folder, _ = _find_model(where)
    folders = dict.fromkeys([folder, *(module.folder for module in list_modules(folder))])
    files = {file for each in folders for pattern in _FILES for file in each.glob(pattern)}
    found = [(str(file.relative_to(folder)), file) for file in sorted(files) if file.is_file()]
    stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for _, file in found)
    return _digest_files(tuple(found), stamps)


def clean_text(text: str) -> str:
    """What a tokenizer is given of a text."""
    return drop_surrogates(text)[:_CUT]


def count_prompt_tokens(tokenizer: Any, prompt: str) -> int:
    """Tokens of a prompt by a tokenizer of transformers, without the special ones."""
    return len(tokenizer(prompt, add_special_tokens=False)["input_ids"])


def require_prompt_room(model: Any, prompts: Prompts) -> None:
    """Raises BadEmbedder for prompts that leave no tokens for the text."""
    if model.max_seq_length:
        prompts.require_room(
            lambda text: count_prompt_tokens(model.tokenizer, text), model.max_seq_length
        )


def digest_model(model: Any) -> str:
    """SHA-256 over the names and bytes of all parameters, and over how tokens are pooled."""
    found = hashlib.sha256(repr([type(module).__name__ for module in model]).encode())
    found.update(repr((model.default_prompt_name, model.prompts)).encode())
    for module in model:
        found.update(repr(sorted(getattr(module, "get_config_dict", dict)().items())).encode())
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return found.hexdigest()


@lru_cache(maxsize=8)
def _digest_files(files: tuple[tuple[str, Path], ...], _: tuple[tuple[int, int], ...]) -> str:
    each = []
    for name, path in files:
        with path.open("rb") as file:
            each.append([name, hashlib.file_digest(file, "sha256").hexdigest()])
    return digest(each)


def _find_model(model: str) -> tuple[Path, Prompts]:
    """Where the model's files are, and its prompts. Raises BadEmbedder for one that does not say
    how it pools, or whose weights are pickles."""
    try:
        folder = fetch_model(model, _FILES)
        require_safetensors(folder, list_modules(folder))
        return folder, read_model_prompts(folder)
    except (UnpinnedModel, NotFetched) as error:
        raise BadEmbedder(f"{SENTENCE}{error}; {_HINT}") from error
    except BadEmbedder as error:
        raise BadEmbedder(f"{SENTENCE}{model}: {error}; {_HINT}") from error


def _require_weights(model: str, folder: Path, modules: Any) -> None:
    """Raises BadEmbedder where a transformer's file lacks weights that vectors need: the library
    leaves them random."""
    for listed, module in zip(list_modules(folder), modules, strict=False):
        inner = getattr(module, "auto_model", None)
        if inner is None or _hold_all_weights(listed.folder, inner):
            continue
        _, loading = type(inner).from_pretrained(
            str(listed.folder),
            config=inner.config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
        lost = sorted(name for name in loading["missing_keys"] if not name.startswith(_UNUSED))
        if lost:
            raise BadEmbedder(
                f"{SENTENCE}{model}: its weights have no {', '.join(lost[:3])}"
                f" ({len(lost)} missing), which would be random; {_HINT}"
            )


def _hold_all_weights(folder: Path, inner: Any) -> bool:
    """Whether the files hold each weight under its own name: then nothing is read twice."""
    from safetensors import safe_open

    held: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(str(file), "pt") as tensors:
            held |= set(tensors.keys())
    before = f"{inner.base_model_prefix}."
    return all(
        name in held or f"{before}{name}" in held or name.startswith(_UNUSED)
        for name in inner.state_dict()
    )
