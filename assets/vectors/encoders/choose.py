"""Which embedder a few words ask for."""

import re
from pathlib import Path

from assets.vectors.encoders.embedder import BadEmbedder, Embedder, Prompts
from assets.vectors.encoders.hub import SENTENCE, is_named, split_reference

SPECS = (
    "general",
    "minilm",
    "sentence-transformers:<folder or name@commit>",
    "openai:<model>[@http(s)://host/v1]",
)


def check_spec(spec: str) -> tuple[str, str]:
    """(kind, what is behind its colon) of a spec of SPECS. Raises BadEmbedder."""
    kind, _, name = spec.strip().partition(":")
    allowed = spec.strip() in ("general", "minilm")
    if not allowed and not (kind in ("sentence-transformers", "openai") and name):
        raise BadEmbedder(f"embedder {spec[:80]!r}: expected one of {', '.join(SPECS)}")
    return kind, name


def open_embedder(spec: str, *, prompts: Prompts | None = None) -> Embedder:
    """The embedder that `spec` names (SPECS), its texts read after `prompts`, which MiniLM takes
    none of.

    Of `openai:` the address in the spec counts, then OPENAI_BASE_URL, then OpenAI; the key is
    OPENAI_API_KEY, or EMBEDDER_API_KEY at any other host. Raises BadEmbedder, and EmbeddingFailed
    where the endpoint does not answer.
    """
    kind, name = check_spec(spec)
    if kind == "sentence-transformers":
        return open_base(f"{SENTENCE}{name}", prompts=prompts)
    if kind == "openai":
        from assets.vectors.encoders.endpoint import EndpointEncoder

        match = re.fullmatch(r"(.+?)@(https?://.+)", name)
        model, where = (match[1], match[2]) if match else (name, None)
        return EndpointEncoder(model, base_url=where, prompts=prompts)
    if prompts and prompts.given:
        raise BadEmbedder(f"embedder {kind} takes no query_prompt and no document_prompt")
    from assets.vectors.encoders.minilm import MiniLM, open_general

    return open_general() if kind == "general" else MiniLM()


def open_base(
    base: str, *, adapter: Path | None = None, prompts: Prompts | None = None
) -> Embedder:
    """The encoder of a base, as `minilm.py` names bases, with a trained adapter of it. A
    sentence-transformers model reads texts after `prompts`, or where one is not given after its
    own. Raises BadAdapter, BadEmbedder."""
    if base.startswith(SENTENCE):
        from assets.vectors.encoders.sentence_model import SentenceEncoder

        return SentenceEncoder(base, prompts=prompts, adapter=adapter)
    from assets.vectors.encoders.minilm import MiniLM, name_base

    name_base(base)
    return MiniLM(adapter)


def open_retriever(adapter: Path, *, base: str | None = None) -> Embedder:
    """The encoder of a trained adapter over `base`, a spec, else over what it names, after the
    prompts that it was trained with. A sentence-transformers model that it names is opened only
    where the user names it too. Raises BadAdapter, BadEmbedder."""
    from assets.vectors.encoders.weights import (
        BASE,
        BadAdapter,
        read_adapter_base,
        read_adapter_prompts,
    )

    kind, model = check_spec(base) if base else ("", "")
    base_name = read_adapter_base(adapter) or ""
    if kind == "openai":
        raise BadEmbedder(f"{adapter}: an adapter cannot be merged into the endpoint {base!r:.80}")
    if kind == "" and base_name.startswith(SENTENCE):
        model_name, _ = split_reference(base_name.removeprefix(SENTENCE))
        if not is_named(model_name):
            raise BadAdapter(
                f"{adapter}: it was trained on {SENTENCE}{model_name!r:.120}, which you did not"
                " name; nothing of it was opened. If you trust that model, name it as the embedder,"
                f" as by TOOLMILL_EMBEDDER__MODEL={SENTENCE}MODEL"
            )
        model = model_name
    base_spec = f"{SENTENCE}{model}" if model else BASE
    return open_base(base_spec, adapter=adapter, prompts=read_adapter_prompts(adapter))
