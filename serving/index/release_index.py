"""The index of a release: its retriever's vectors of every served tool."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from assets.vectors.encoders.embedder import Embedder
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.saved import save_encoder
from assets.vectors.index import digest_text, embed_texts
from serving.index.build import build_index, move_pointer
from serving.index.model import IndexSource, RouterIndex
from warehouse.progress import Progress, SilentProgress
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.storage.lance import TEXTS, LanceStore, make_vector_key

VIEWS = "views"  # texts that only the router embeds; `texts` is searched for tools and servers


def make_router_index(
    home: Path,
    source: IndexSource,
    store: LanceStore,
    retriever: str,
    release: str,
    progress: Progress | None = None,
    serve: Callable[[Path, str], str | None] = move_pointer,
    encoder: Embedder | None = None,
    reranker: Path | None = None,
) -> str:
    """Builds the index of a release and has it served by `serve(home, version)`, which may say that
    another stays; returns the version that is served.

    `retriever` is "base" or the digest of an adapter under `<home>/models`; `encoder` is it opened,
    needed where its base is not MiniLM; `reranker` the file of a trained one. Only texts whose
    vector the store lacks are embedded.
    """
    adapter = None if retriever == "base" else retriever
    encoder = encoder or MiniLM(home / "models" / adapter if adapter else None)
    save_encoder(encoder, home)
    step = progress or SilentProgress()
    version = build_index(
        home,
        source,
        lambda texts: embed_views(texts, encoder, store, step),
        embedder=encoder.id,
        adapter=adapter,
        release=release,
        reranker=reranker,
        progress=step.update,
    )
    store.compact(VIEWS)
    return serve(home, version) or version


def embed_views(
    texts: Sequence[str], encoder: Embedder, store: LanceStore, progress: Progress
) -> np.ndarray:
    """Vectors of a view's texts, float32 [len(texts), dim]; those that `contract_vectors` bought
    already are read from there."""
    keys = {text: make_vector_key(digest_text(text), encoder.id) for text in dict.fromkeys(texts)}
    known = store.find_vectors(keys.values(), TEXTS)
    found = {text: known[key] for text, key in keys.items() if key in known}
    new = [text for text in keys if text not in found]
    vectors = embed_texts(
        new,
        encoder,
        store,
        table=VIEWS,
        on_done=lambda done, of: progress.update("embed", done, of),
    )
    found.update(zip(new, vectors, strict=True))
    return np.array([found[text] for text in texts], np.float32).reshape(-1, encoder.dim)


def view_table(index: RouterIndex) -> Markdown:
    """The views of an index as a Markdown table."""
    rows = [(name, view.level, len(view.vectors)) for name, view in index.views.items()]
    return make_markdown_table(["view", "of each", "vectors"], rows)
