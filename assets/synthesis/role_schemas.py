"""What each role is asked for and answers: one pydantic model per prompt file.

| role | prompt | answer | meta |
| --- | --- | --- | --- |
| generator | generate | RequestDrafts | contract, count, kinds, profiles, environment, rivals |
| generator | several | MultiCallRequest | contracts, shape, profile, environment, explored |
| generator | no_tool | ToollessRequest | contracts, profile, elsewhere |
| generator | missing | IncompleteRequest | contract, parameter, profile, environment |
| generator | explore | CallProposals | none: the offline provider is not asked |
| reviser | revise | RewrittenRequest | contract, instruction, values, absent, and both below |
| evolver | evolve | RewrittenRequest | contract, instruction, values, direction, and both below |
| caller | call | CallArguments | contract, instruction, values |
| caller | repair | CallArguments | contract, instruction, values, wrong, error |
| checker_a, checker_b | choose | ToolChoice | contracts, instruction |
| actor | act | ToolReply | contract, arguments |
| judge | judge | JudgeOpinion | row, contracts (by digest) |

`values` are arguments as the writer meant them; `profile` is {persona, tone, language,
difficulty}; the judge's `row` is one of PAIRS, as far as rules read it. `contracts` are in the
order shown. `shape` is parallel or sequential. Reviser and evolver also get `language` and
`environment`: {files, ids, places, people, dates}, lists of strings that exist in that world.

The key of a paid answer holds its JSON schema. Titles and docstrings of these classes therefore
stay as they are: another wording would pay for every answer again.
"""

from pydantic import BaseModel, Field

from warehouse.json_types import Json


class Draft(BaseModel):
    """One request as the generator wrote it."""

    kind: str = ""
    instruction: str = Field(min_length=1, max_length=4000)
    values: dict[str, Json] = {}


class RequestDrafts(BaseModel, title="Requests"):
    """Several requests for one tool."""

    requests: list[Draft] = Field(min_length=1)


class RewrittenRequest(BaseModel, title="Worded"):
    """A rewritten request, and the values it now states."""

    instruction: str = Field(min_length=1, max_length=4000)
    values: dict[str, Json] = {}


class Step(BaseModel):
    """One call among several. `tool` counts the tools shown from 1; `borrowed` names arguments
    whose value comes out of an earlier call's result."""

    tool: int = Field(ge=1)
    arguments: dict[str, Json] = {}
    borrowed: list[str] = []


class MultiCallRequest(BaseModel, title="Several"):
    """A request that needs several calls, and the calls in order."""

    instruction: str = Field(min_length=1, max_length=4000)
    calls: list[Step] = Field(min_length=2, max_length=6)


class ToollessRequest(BaseModel, title="Aside"):
    """A request that none of the tools shown can serve, and what an assistant answers without."""

    instruction: str = Field(min_length=1, max_length=4000)
    reply: str = Field(min_length=1, max_length=4000)


class IncompleteRequest(BaseModel, title="Vague"):
    """A request that lacks one required value, the question that asks for it, and its answer."""

    instruction: str = Field(min_length=1, max_length=4000)
    question: str = Field(min_length=1, max_length=2000)
    answer: str = Field(min_length=1, max_length=2000)
    values: dict[str, Json] = {}


class CallArguments(BaseModel, title="Call"):
    """The arguments of one call."""

    arguments: dict[str, Json]


class CallProposals(BaseModel, title="Proposals"):
    """Arguments of calls of one tool that may succeed."""

    calls: list[dict[str, Json]] = Field(max_length=20)


class ToolChoice(BaseModel, title="Choice"):
    """Which tool of those shown, counted from 1, a request needs; 0 when none does."""

    reason: str = ""
    tool: int = Field(ge=0)


class ToolReply(BaseModel, title="Acted"):
    """What a tool would answer, as text."""

    content: str = Field(min_length=1, max_length=8000)


class JudgeOpinion(BaseModel, title="Opinion"):
    """The judge's answer: reasons before scores, each from 1 to 10."""

    reasons: str
    clarity: float = Field(ge=1, le=10)
    specificity: float = Field(ge=1, le=10)
    relevance: float = Field(ge=1, le=10)
    completeness: float = Field(ge=1, le=10)
    correctness: float = Field(ge=1, le=10)
    realism: float = Field(ge=1, le=10)
    score: float = Field(ge=1, le=10)
