"""Encoders on disk: written whole, and opened with no more than ONNX Runtime needs.

<place>/encoders/<slug>/encoder.json   {format, id, dim, kind, …, files {name: {bytes, sha256}}}
                        encoder.onnx, tokenizer.json      (of kind "onnx")
                        adapter_{config.json,model.safetensors}  (of "sentence-transformers", where
                                                          one is merged; the model lies elsewhere)
"""

import json
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import BadEmbedder, Embedder, SavableEmbedder, read_prompts
from assets.vectors.encoders.session import FP32, MODEL, TOKENIZER, OnnxEncoder, count_cores
from assets.vectors.encoders.weights import ADAPTER_FILES
from warehouse.storage.digest import sha256
from warehouse.storage.files import hold_lock, write_atomically

FORMAT = 1
_CARD = "encoder.json"
_FIX = "run `toolmill index` (or the assets up to router_index) again, or export the release again"
_WITHIN = 4  # threads of one query at most: a query is too short to be parted further


class EncoderMissing(RuntimeError):
    """There is no encoder of that id at that place."""


class EncoderBroken(RuntimeError):
    """An encoder's folder is incomplete, changed, of another id or of another format."""


def find_encoder_folder(place: Path, embedder_id: str) -> Path:
    """Where the encoder of that id lies. The digest tells ids apart that look alike as names."""
    name = re.sub(r"[^a-z0-9.]+", "-", embedder_id.lower()).strip("-.")[:60]
    return place / "encoders" / f"{name}-{sha256(embedder_id.encode())[:8]}"


def save_encoder(embedder: Embedder, place: Path) -> Path:
    """Writes `<place>/encoders/<slug>/` unless it is whole; returns it. Raises BadEmbedder,
    OSError."""
    folder = find_encoder_folder(place, embedder.id)
    if _find_flaw(folder, embedder.id) is None:  # without the lock, which a read-only place refuses
        return folder
    with hold_lock(folder.parent / ".lock"):
        if _find_flaw(folder, embedder.id) is None:
            return folder
        if not isinstance(embedder, SavableEmbedder):
            raise BadEmbedder(
                f"{embedder.id}: a {type(embedder).__name__} cannot be saved; serve with MiniLM, a"
                " sentence-transformers model or an OpenAI-compatible endpoint"
            )
        beside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
        try:
            saved = embedder.saved()
            for name, data in saved.files.items():
                write_atomically(beside / name, data)
            file_facts = {n: {"bytes": len(d), "sha256": sha256(d)} for n, d in saved.files.items()}
            card = {"format": FORMAT, "id": embedder.id, "dim": embedder.dim, **saved.facts}
            text = json.dumps({**card, "files": file_facts}, indent=1, sort_keys=True)
            write_atomically(beside / _CARD, text.encode())
            shutil.rmtree(folder, ignore_errors=True)  # what was there is not whole
            beside.rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return folder


def open_encoder(
    place: Path, embedder_id: str, *, threads: int | None = None, most_tokens: int | None = None
) -> Embedder:
    """The saved encoder of that id, with onnxruntime, numpy and tokenizers alone. threads: texts
    computed at once; most_tokens: read of a request from both ends. Raises EncoderMissing,
    EncoderBroken."""
    folder = find_encoder_folder(place, embedder_id)
    if not folder.is_dir():
        names = sorted(path.parent.name for path in place.glob(f"encoders/*/{_CARD}"))
        found = ", ".join(names[:5]) or "none"
        raise EncoderMissing(
            f"{folder}: no encoder {embedder_id!r} (found: {found}), which the index was made with;"
            f" {_FIX}"
        )
    flaw = _find_flaw(folder, embedder_id)
    if flaw:
        raise EncoderBroken(f"{folder}: {flaw}; {_FIX}")
    card = _read_card(folder)
    encoder = _open_saved(folder, card, threads, most_tokens)
    if (encoder.id, encoder.dim) != (embedder_id, card["dim"]):
        raise EncoderBroken(
            f"{folder}: opens as {encoder.id!r} with {encoder.dim} numbers a vector, expected"
            f" {embedder_id!r} with {card['dim']}: the model changed since; {_FIX}"
        )
    return encoder


class StoredEncoder(OnnxEncoder):
    """An ONNX encoder read from its folder."""

    def __init__(
        self,
        folder: Path,
        card: dict[str, Any],
        threads: int | None,
        most_tokens: int | None = None,
    ) -> None:
        self._file = folder / MODEL
        super().__init__(
            self.model(),
            (folder / TOKENIZER).read_bytes(),
            name=card["id"],
            max_tokens=min(card["max_tokens"], most_tokens or card["max_tokens"]),
            threads=threads,
            within=min(count_cores(), _WITHIN),
            both_ends=most_tokens is not None,
        )
        if not np.isfinite(self.embed(["a"])).all():
            raise ValueError(f"{MODEL} gives vectors that are no numbers")

    def model(self) -> bytes:
        return self._file.read_bytes()


def _open_saved(
    folder: Path, card: dict[str, Any], threads: int | None, most_tokens: int | None
) -> Embedder:
    """The embedder of a card without a flaw."""
    if card["kind"] == "sentence-transformers":
        from assets.vectors.encoders.sentence_model import reopen_sentence

        return reopen_sentence(card, threads, folder if card["files"] else None)
    if card["kind"] == "onnx":
        try:
            return StoredEncoder(folder, card, threads, most_tokens)
        except (ImportError, OSError):
            raise
        except Exception as error:  # of the runtime and the tokenizer, each of its own kind
            message = " ".join(str(error).split())[:200]
            raise EncoderBroken(f"{folder}: cannot be opened ({message}); {_FIX}") from error
    from assets.vectors.encoders.endpoint import reopen_endpoint

    return reopen_endpoint(card)


def _read_card(folder: Path) -> dict[str, Any]:
    return json.loads((folder / _CARD).read_bytes())


def _find_flaw(folder: Path, embedder_id: str) -> str | None:
    """What is wrong with the folder; None when it is whole and of that id."""
    try:
        card = _read_card(folder)
    except FileNotFoundError:
        return f"half-written, it has no {_CARD}"
    except (ValueError, OSError, RecursionError) as error:
        return f"{_CARD} cannot be read ({error})"
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        format_found = card.get("format") if isinstance(card, dict) else type(card).__name__
        return f"{_CARD} has format {format_found!r}, expected {FORMAT}"
    if card.get("id") != embedder_id:
        return f"{_CARD} is of encoder {card.get('id')!r}, expected {embedder_id!r}"
    return _find_odd_fact(card) or _find_odd_file(folder, card)


def _find_odd_fact(card: dict[str, Any]) -> str | None:
    required_facts: dict[str, dict[str, type]] = {
        "onnx": {"max_tokens": int, "precision": str},
        "openai": {"model": str, "base_url": str},
        "sentence-transformers": {"model": str},
    }
    kind = card.get("kind")
    if kind not in list(required_facts):
        return f"{_CARD} has kind {kind!r}, expected one of {', '.join(required_facts)}"
    for name, sort in {"dim": int, "files": dict, **required_facts[kind]}.items():
        if not isinstance(card.get(name), sort):
            return f"{_CARD} has {name} {card.get(name)!r}, expected {sort.__name__}"
    if kind == "onnx" and card["precision"] != FP32:
        return f"{_CARD} has precision {card['precision']!r}, expected {FP32}"
    try:
        if read_prompts(card).given and kind == "onnx":
            return f"{_CARD} has prompts, which its encoder takes none of"
    except ValueError as error:
        return f"{_CARD}: {error}"
    return None


def _find_odd_file(folder: Path, card: dict[str, Any]) -> str | None:
    # An adapter beside a model that lies elsewhere is needed too.
    adapted = card["kind"] == "sentence-transformers" and card["files"]
    needed = ADAPTER_FILES if adapted else ()
    for name in (MODEL, TOKENIZER) if card["kind"] == "onnx" else needed:
        path, facts = folder / name, card["files"].get(name)
        if not isinstance(facts, dict):
            return f"{_CARD} does not list {name}"
        if not path.is_file():
            return f"half-written, {name} is missing"
        if path.stat().st_size != facts.get("bytes"):
            return f"{name} has {path.stat().st_size} bytes, expected {facts.get('bytes')}"
        if sha256(path.read_bytes()) != facts.get("sha256"):
            return f"{name} is not the file that was written (another SHA-256)"
    return None
