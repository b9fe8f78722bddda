"""The models that a user's settings name, which files from elsewhere may then ask for."""

from orchestration.settings.model import Settings


def allow_models(settings: Settings) -> None:
    """Counts the embedder's model and the retriever's base as the user's own: a saved encoder or an
    adapter that names another one opens nothing."""
    from assets.vectors.encoders.hub import allow_embedder

    allow_embedder(settings.embedder.model)
    allow_embedder(settings.training.retriever.base)
