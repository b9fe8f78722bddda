"""Which values does a request lack? By the rules' own reading, never by a model's word."""

from collections.abc import Mapping
from typing import Any

from assets.synthesis.verify.grounding.grounding import ABSENT, Text
from assets.synthesis.verify.verify import grounding_findings, worst_grade
from assets.synthesis.writing.tasks.partners import required

Json = Any
Contract = Mapping[str, Json]


def absent(contract: Contract, text: str, values: Mapping[str, Json]) -> list[str]:
    """The required parameters that have no value, or a value that nothing in the text speaks of.

    What is only doubtful ("next to the Eiffel Tower" for a place) is not absent.
    """
    return [
        name
        for name in required(contract)
        if name not in values or unsaid(contract, text, {name: values[name]})
    ]


def unsaid(contract: Contract, text: str, values: Mapping[str, Json]) -> list[str]:
    """The values, required or not, that nothing in the text speaks of."""
    said = Text(text)
    objected = [
        name for name in values if list(grounding_findings(contract, said, {name: values[name]}))
    ]
    return [name for name in objected if worst_grade(name, values[name], said, contract) == ABSENT]
