"""What each role is asked for and answers: one pydantic model per prompt file.

| role | prompt | answer | meta |
| --- | --- | --- | --- |
| generator | generate | Requests | contract, count, kinds, profiles, environment, rivals |
| generator | several | Several | contracts, shape (parallel, sequential), profile, environment |
| generator | no_tool | Aside | contracts, profile |
| generator | missing | Vague | contract, parameter, profile, environment |
| reviser | revise | Worded | contract, instruction, values, absent, environment, language |
| evolver | evolve | Worded | contract, instruction, values, direction, environment, language |
| caller | call | Call | contract, instruction, values |
| caller | repair | Call | contract, instruction, values, wrong, error |
| checker_a, checker_b | choose | Choice | contracts, instruction |
| actor | act | Acted | contract, arguments |
| judge | judge | Opinion | row, contracts (by digest) |

`values` are arguments as the writer meant them; `profile` is {persona, tone, language,
difficulty}; the judge's `row` is one of PAIRS, as far as rules read it. `contracts` are in the
order shown.
`environment` is {files, ids, places, people, dates}: lists of strings that exist in that world.
"""

from pydantic import BaseModel, Field

from warehouse.json_types import Json


class Draft(BaseModel):
    """One request as the generator wrote it."""

    kind: str = ""
    instruction: str = Field(min_length=1, max_length=4000)
    values: dict[str, Json] = {}


class Requests(BaseModel):
    """Several requests for one tool."""

    requests: list[Draft] = Field(min_length=1)


class Worded(BaseModel):
    """A request written anew, and the values it now states."""

    instruction: str = Field(min_length=1, max_length=4000)
    values: dict[str, Json] = {}


class Step(BaseModel):
    """One call among several. `tool` counts the tools shown from 1; `borrowed` names arguments
    whose value comes out of an earlier call's result."""

    tool: int = Field(ge=1)
    arguments: dict[str, Json] = {}
    borrowed: list[str] = []


class Several(BaseModel):
    """A request that needs several calls, and the calls in order."""

    instruction: str = Field(min_length=1, max_length=4000)
    calls: list[Step] = Field(min_length=2, max_length=6)


class Aside(BaseModel):
    """A request that none of the tools shown can serve, and what an assistant answers without."""

    instruction: str = Field(min_length=1, max_length=4000)
    reply: str = Field(min_length=1, max_length=4000)


class Vague(BaseModel):
    """A request that lacks one required value, the question that asks for it, and its answer."""

    instruction: str = Field(min_length=1, max_length=4000)
    question: str = Field(min_length=1, max_length=2000)
    answer: str = Field(min_length=1, max_length=2000)
    values: dict[str, Json] = {}


class Call(BaseModel):
    """The arguments of one call."""

    arguments: dict[str, Json]


class Choice(BaseModel):
    """Which tool of those shown, counted from 1, a request needs; 0 when none does."""

    reason: str = ""
    tool: int = Field(ge=0)


class Acted(BaseModel):
    """What a tool would answer, as text."""

    content: str = Field(min_length=1, max_length=8000)


class Opinion(BaseModel):
    """The judge's answer: reasons before scores, each from 1 to 10."""

    reasons: str
    clarity: float = Field(ge=1, le=10)
    specificity: float = Field(ge=1, le=10)
    relevance: float = Field(ge=1, le=10)
    completeness: float = Field(ge=1, le=10)
    correctness: float = Field(ge=1, le=10)
    realism: float = Field(ge=1, le=10)
    score: float = Field(ge=1, le=10)
