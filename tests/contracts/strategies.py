"""Strategies: JSON values, object schemas and tools as hypothesis draws them."""

from typing import Any

from hypothesis import strategies as st

from tests.support.examples import json_values

names = st.text("abcdefgh_", min_size=1, max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(max_size=20)
)
values = json_values(scalars)
leaf_schemas = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean"])},
    optional={"description": st.text(max_size=30), "default": scalars},
)


@st.composite
def object_schemas(draw: Any) -> dict[str, Any]:
    properties = draw(st.dictionaries(names, leaf_schemas, max_size=5))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if properties:
        schema["required"] = draw(
            st.lists(st.sampled_from(sorted(properties)), unique=True, max_size=3)
        )
    return schema


@st.composite
def tools(draw: Any) -> dict[str, Any]:
    return {
        "name": draw(names),
        "description": draw(st.text(max_size=40)),
        "inputSchema": draw(object_schemas()),
        **draw(
            st.fixed_dictionaries({}, optional={"annotations": st.just({"readOnlyHint": True})})
        ),
    }


VALUE_OF: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=20),
    "integer": st.integers(-1000, 1000),
    "number": st.floats(-1e6, 1e6) | st.integers(-1000, 1000),
    "boolean": st.booleans(),
}


@st.composite
def calls(draw: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(input schema, arguments that fit it)."""
    schema = draw(object_schemas())
    required = set(schema.get("required", ()))
    arguments = {
        name: draw(VALUE_OF[about["type"]])
        for name, about in schema["properties"].items()
        if name in required or draw(st.booleans())
    }
    return schema, arguments
