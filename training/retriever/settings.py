"""Hyper-parameters of the retriever, checked."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from training.runtime.settings import Positive, Share, Whole, read_hyper_parameters

if TYPE_CHECKING:
    from assets.vectors.encoders.prompts import Prompts

HARD, RANDOM = "hard", "random"
NONE = "none"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RetrieverOptions:
    """What a user sets of the retriever."""

    base: Annotated[
        str,
        Field(
            description="minilm, a local folder, a hub id at a commit (name@commit), or"
            " sentence-transformers: and one of the two; default: the embedder's own"
        ),
    ] = "minilm"
    epochs: Whole = 3


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RetrieverSettings:
    """Hyper-parameters; together with the training set and the base they name the adapter."""

    start: str = NONE  # or `general@<16 hex>`, the shipped adapter, whose shape is the default one
    rank: Whole = 16
    alpha: Whole = 32
    dropout: Share = 0.0  # of the adapter; the base's own is off, see `bert.py`
    learning_rate: Positive = 1e-3
    epochs: Whole = RetrieverOptions.epochs
    tools: Whole = 24  # tools a batch, each with all its pairs
    negatives: Annotated[int, Field(ge=0)] = 1  # per tool and epoch, beside the batch's other tools
    distractors: Literal["hard", "random"] = HARD  # from the confusable audit, or any other tools
    first_layer: Annotated[int, Field(ge=0)] = 3  # layers below this one stay as they are
    temperature: Positive = 0.05
    query_prompt: str | None = None  # before a request; None: as the base has it
    document_prompt: str | None = None
    query_tokens: Whole = 48
    text_tokens: Whole = 96
    hold_tokens: Whole = 3072  # whose graph is held at once; the rest of a batch is computed twice
    cache_mb: Annotated[int, Field(ge=0)] = 512  # of what the frozen layers say, for all epochs
    checkpoint_steps: Whole = 10
    seed: int = 7
    device: str = "auto"
    threads: int | None = None

    @property
    def prompts(self) -> "Prompts":
        """The words before requests and before tools' texts that are given. Raises BadEmbedder."""
        from assets.vectors.encoders.prompts import Prompts

        return Prompts(self.query_prompt, self.document_prompt)


def read_settings(values: Mapping[str, Any]) -> RetrieverSettings:
    """Settings out of a job. Raises TrainingFailed naming the value that cannot be used."""
    return read_hyper_parameters("retriever", RetrieverSettings, values)
