"""Hyper-parameters out of a job: kinds of numbers, and what is said of one that cannot be used."""

import reprlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from training.runtime.model_store import TrainingFailed

Whole = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Settings = TypeVar("Settings")


def read_hyper_parameters(role: str, kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """An instance of `kind`, a Pydantic dataclass. Raises TrainingFailed naming the first value
    that cannot be used and what is expected of it."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:  # several values that do not go together
            raise TrainingFailed(f"{role}: {first['msg'].removeprefix('Value error, ')}") from None
        name = first["loc"][0]
        if first["type"] == "unexpected_keyword_argument":
            known = ", ".join(sorted(each.name for each in fields(kind)))  # type: ignore[arg-type]
            raise TrainingFailed(
                f"{role} setting {name!r} is unknown; expected some of {known}"
            ) from None
        wanted = first["msg"].replace("Input should be", "expected")
        raise TrainingFailed(f"{role} {name} is {reprlib.repr(first['input'])}; {wanted}") from None
