"""The settings of the encoder: `[embedder]` in toolmill.toml, `TOOLMILL_EMBEDDER__…`."""

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator


class EmbedderSettings(BaseModel):
    """What turns texts into vectors, in the nightly assets and in `toolmill index`."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        default="general",
        description="general (MiniLM with the shipped adapter), minilm, onnx:MODEL,"
        " sentence-transformers:MODEL (a folder or name@commit) or openai:MODEL@URL",
    )
    query_prompt: str | None = Field(
        default=None, description="words before a question, where the model does not bring its own"
    )
    document_prompt: str | None = Field(default=None, description="words before a tool's text")

    @field_validator("model")
    @classmethod
    def has_known_form(cls, model: str) -> str:
        """Whether such a model is there is seen when it is opened."""
        from assets.vectors.encoders.choose import check_spec

        check_spec(model)
        return model

    @field_validator("query_prompt", "document_prompt")
    @classmethod
    def has_known_length(cls, prompt: str | None, info: ValidationInfo) -> str | None:
        """Whether it leaves room for the text is seen when the model is opened."""
        from assets.vectors.encoders.embedder import Prompts

        Prompts(**{str(info.field_name).removesuffix("_prompt"): prompt})
        return prompt
