"""Other bases than MiniLM: folders or pinned hub ids of sentence encoders that `graph.py` can make.

The graph is BERT's: learnt absolute positions, exact GELU; then what modules.json names: one
pooling, Dense layers, unit norm. A model that is anything else would be served as another model
than it is, without a word: so it is refused.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.hub import (
    SENTENCE,
    NotFetched,
    UnpinnedModel,
    fetch_model,
    split_reference,
)
from assets.vectors.encoders.layout.bert import check_config, check_tokenizer, check_weights
from assets.vectors.encoders.layout.head import Head, read_head, require_order
from assets.vectors.encoders.layout.modules import (
    list_modules,
    read_model_json,
    read_model_prompts,
)
from assets.vectors.encoders.prompts import Prompts
from assets.vectors.encoders.sentence.model import digest_sentence_base, make_sentence_base_name
from assets.vectors.encoders.weights import BASE, find_base_path
from warehouse.storage.digest import sha256

DEFAULT = ("minilm", BASE)
WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
_FILES = ("*.json", "*.txt", WEIGHTS, f"*/{WEIGHTS}")
_HINT = "expected a BERT with mean pooling, such as all-MiniLM-L12-v2, or minilm for the default"
_OTHERS = f"{_HINT}; any other model is {SENTENCE}MODEL"


@dataclass(frozen=True)
class Base:
    """A checked base: the folder of its transformer, what stands behind it, its prompts."""

    folder: Path
    head: Head = field(default_factory=Head)
    prompts: Prompts = field(default_factory=Prompts)


def name_base(base: str) -> str:
    """What names a base in jobs and cards: BASE, or `<folder or hub id>@<16 hex of its files>`,
    after `sentence-transformers:` where it is run by that library.

    Raises BadEmbedder when it is not there or cannot be served.
    """
    if base.startswith(SENTENCE):
        return make_sentence_base_name(base)
    if base.strip() in ("", *DEFAULT):
        return BASE
    where, known = split_reference(base)
    found = digest_base(where)[:16]
    if known and known != found:
        raise BadEmbedder(
            f"base {where}: its files are {found}, expected {known}: the model changed since it was"
            " named; name it again without the part after @, or put the old files back"
        )
    return f"{where}@{found}"


def find_base(base: str) -> Base:
    """A base, checked against what can be served. Raises BadEmbedder."""
    where = BASE if base.strip() in ("", *DEFAULT) else split_reference(base)[0]
    if where == BASE:
        return Base(find_base_path())
    try:
        folder = fetch_model(where, _FILES)
    except (UnpinnedModel, NotFetched) as error:
        raise BadEmbedder(f"base {error}; {_HINT}") from error
    try:
        return _check_base(folder)
    except BadEmbedder as error:
        raise BadEmbedder(f"base {where}: {error}; {_OTHERS}") from error


def find_base_folder(base: str) -> Path:
    """The folder of a base's transformer. Raises BadEmbedder."""
    return find_base(base).folder


def resolve_prompts(base: str, given: Prompts) -> Prompts:
    """The prompts of a base that is run here: those given, and where one is not that of its own
    files. Raises BadEmbedder where its pooling leaves them out."""
    found = find_base(base)
    prompts = given.fill(found.prompts)
    if prompts.given and not found.head.reads_prompt:
        raise BadEmbedder(
            f"base {base}: its prompts are left out of the pooling (include_prompt), which"
            f" `{SENTENCE}` does"
        )
    return prompts


def require_plain_mean(base: str) -> None:
    """Raises BadEmbedder for a base that its training, which pools by the mean, would change."""
    if base.startswith(SENTENCE):  # trained as its own modules pool
        return
    head = find_base(base).head
    if head.digest:
        layers = f" and has {len(head.layers)} Dense layers" if head.layers else ""
        raise BadEmbedder(
            f"base {base}: pools by {head.pooling}{layers}, and is not trained; {_HINT}, or"
            f" {SENTENCE}MODEL, which is trained as its own modules pool"
        )


def digest_base(base: str) -> str:
    """SHA-256 over the files that make an encoder of it. Raises BadEmbedder."""
    if base.startswith(SENTENCE):
        return digest_sentence_base(base)
    found = find_base(base)
    folder = found.folder
    stamps = tuple((folder / name).stat().st_mtime_ns for name in (CONFIG, TOKENIZER, WEIGHTS))
    return _digest_folder(folder, found.head.digest, stamps)


@lru_cache(maxsize=8)
def _digest_folder(folder: Path, head: str, _: tuple[int, ...]) -> str:
    each = [sha256((folder / name).read_bytes()) for name in (CONFIG, TOKENIZER, WEIGHTS)]
    return sha256("".join([*each, head]).encode())


def _check_base(model: Path) -> Base:
    """The base in a model's folder. Raises BadEmbedder for one that the graph is not right for."""
    modules = list_modules(model)
    require_order(modules)
    folder = modules[0].folder
    lost = [name for name in (CONFIG, TOKENIZER, WEIGHTS) if not (folder / name).is_file()]
    if lost:
        raise BadEmbedder(f"{folder}: has no {', '.join(lost)}")
    config = check_config(folder / CONFIG)
    head = read_head(modules, config["hidden_size"])
    check_weights(folder / WEIGHTS, config)
    check_tokenizer(folder / TOKENIZER, config["vocab_size"])
    _check_case(folder)
    return Base(folder, head, read_model_prompts(model))


def _check_case(folder: Path) -> None:
    """Raises BadEmbedder for a model that is lower-cased before its tokenizer reads."""
    path = folder / "sentence_bert_config.json"
    config = read_model_json(path) if path.is_file() else {}
    if isinstance(config, dict) and config.get("do_lower_case"):
        tokenizer = read_model_json(folder / TOKENIZER)
        normalizer = tokenizer.get("normalizer") if isinstance(tokenizer, dict) else None
        if not isinstance(normalizer, dict) or normalizer.get("lowercase") is not True:
            raise BadEmbedder(f"{path}: do_lower_case, which its tokenizer does not do")
