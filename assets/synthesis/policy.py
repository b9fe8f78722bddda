"""The settings of synthesis, and digests of the code that decides its rows."""

from functools import cache
from importlib.metadata import version
from pathlib import Path

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from warehouse.storage.digest import digest, digest_sources


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TaskShares:
    """Of how many tools a task beyond the single call is written, as a share from 0 to 1."""

    lookalike: float = Field(default=0.5, ge=0, le=1, description="of tools that have look-alikes")
    parallel: float = Field(default=0.1, ge=0, le=1)
    sequential: float = Field(default=0.1, ge=0, le=1)
    no_tool: float = Field(default=0.1, ge=0, le=1)
    missing_parameter: float = Field(default=0.1, ge=0, le=1)
    clarification: float = Field(default=0.1, ge=0, le=1)
    recovery: float = Field(default=0.1, ge=0, le=1)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SynthesisPolicy:
    """Shares are of tools, from 0 to 1; cosines are of the configured embedder's unit vectors."""

    pairs_per_tool: int = Field(
        default=3, ge=1, le=20, description="of the task `single`; every other task has one a tool"
    )
    world_pairs: int = Field(
        default=1,
        ge=0,
        le=20,
        description="of each tool, beside those: tasks of a world that suits its server",
    )
    seed: int = 7
    evolve_depth: int = Field(default=1, ge=0, le=5, description="steps of evolution a request")
    evolve_share: float = Field(default=0.34, ge=0, le=1, description="of requests that evolve")
    languages: tuple[str, ...] = Field(default=("en",), description="drawn for each request")
    tasks: TaskShares = TaskShares()
    checks: bool = Field(default=True, description="two checkers pick the tool among look-alikes")
    distractors: int = Field(default=4, ge=1, le=20, description="look-alikes a checker chooses by")
    copies_above: float = Field(
        default=0.8, ge=0, le=1, description="cosine at which a request rewords the description"
    )
    twins_above: float = Field(
        default=0.95, ge=0, le=1, description="cosine at which a request repeats another"
    )
    # Chosen on half of 408 labelled servers (false alarms 1%), tried on the other half, 20 times:
    # it catches 35% of requests for another tool, and 1.1% of the good ones.
    sibling_above: float = Field(
        default=0.15, ge=0, le=2, description="cosine by which another tool of a server is nearer"
    )
    judge_threshold: float = Field(default=6.0, ge=1, le=10)
    judge_votes: int = Field(default=1, ge=1, le=9)


_ASSETS = Path(__file__).parents[1]
_READING = (
    "vectors/lexicon.py",
    "vectors/lexicon.json",
    "synthesis/contract_reading.py",
    "contracts/validate.py",
    "contracts/schema_shapes.py",
)
_WRITTEN = ("synthesis/tables.py", "synthesis/wrong_calls.py")


@cache
def get_rules_version() -> str:
    """12 hex digits: digest of everything that decides a rule's verdict."""
    words = version("babel"), version("num2words")
    return digest([digest_sources(_ASSETS, *_READING, "synthesis/verify"), *words])[:12]


@cache
def get_offline_version() -> str:
    """Digest of everything that decides what the offline provider says; 12 hex digits."""
    folders = (
        *("synthesis/verify", "synthesis/offline", "synthesis/judging/rules_judge.py"),
        "contracts/repair",
    )
    return digest([digest_sources(_ASSETS, *_READING, *folders), get_rules_version()])[:12]


@cache
def get_scripts_version() -> str:
    """12 hex digits: digest of the steps that a row is written by, and of Faker's version."""
    sources = digest_sources(_ASSETS, "synthesis/writing", *_WRITTEN)
    return digest([sources, version("faker")])[:12]
