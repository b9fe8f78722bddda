"""Hyper-parameters of the retriever, checked."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from training.runtime.model_store import Positive, Rate, Whole, read_hyper_parameters

if TYPE_CHECKING:
    from assets.vectors.encoders.embedder import Prompts

HARD, RANDOM = "hard", "random"
NONE = "none"
_SHAPE = ("rank", "alpha", "first_layer")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RetrieverRecipe:
    """How a retriever learns. A batch is `tools`, each with all its pairs."""

    rank: Whole = 16
    alpha: Whole = 32
    learning_rate: Rate = 1e-3
    epochs: Whole = 3
    tools: Annotated[Whole, Field(description="a batch, each with all its pairs")] = 24
    negatives: Annotated[
        int, Field(ge=0, description="hard ones per tool, beside the batch's other tools")
    ] = 1
    first_layer: Annotated[
        int, Field(ge=0, description="that is adapted; the layers below stay as they are")
    ] = 3
    query_tokens: Annotated[Whole, Field(description="read of a request")] = 48
    text_tokens: Annotated[Whole, Field(description="read of a tool's text")] = 96
    hold_tokens: Annotated[
        Whole, Field(description="tokens held in memory at once; the rest is computed twice")
    ] = 3072
    cache_mb: Annotated[
        int, Field(ge=0, description="cache of what the frozen layers output, for all epochs")
    ] = 512


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RetrieverSettings(RetrieverRecipe):
    """Hyper-parameters; together with the training set and the base they name the adapter.

    hold_tokens, cache_mb and checkpoint_steps change no more than rounding."""

    temperature: Positive = 0.05
    checkpoint_steps: Whole = 10
    start: str = NONE  # or `general@<16 hex>`, the shipped adapter, whose shape is the default one
    distractors: Literal["hard", "random"] = HARD  # from the confusable audit, or any other tools
    query_prompt: str | None = None  # before a request; None: as the base has it
    document_prompt: str | None = None
    seed: int = 7
    device: str = "auto"
    threads: int | None = None

    @property
    def prompts(self) -> "Prompts":
        """The words before requests and before tools' texts that are given. Raises BadEmbedder."""
        from assets.vectors.encoders.embedder import Prompts

        return Prompts(self.query_prompt, self.document_prompt)


def find_other_shape(settings: RetrieverRecipe) -> str | None:
    """Why an adapter by these hyper-parameters cannot go on from the shipped one, or None."""
    shipped = RetrieverRecipe()
    for name in _SHAPE:
        found, known = getattr(settings, name), getattr(shipped, name)
        if found != known:
            return (
                f"{name} is {found}, and the shipped adapter, which trainings go on from, has"
                f" {known}; leave it out, or set embedder.model to minilm: then they start from"
                " nothing"
            )
    return None


def read_settings(values: Mapping[str, Any]) -> RetrieverSettings:
    """Settings out of a job. Raises TrainingFailed naming the value that cannot be used."""
    return read_hyper_parameters("retriever", RetrieverSettings, values)
