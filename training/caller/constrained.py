"""Constrained generation: a local model writes only calls that fit the tools it was shown.

Any text is free until a call begins; from there on only a name that was shown and arguments of its
schema can be written, by a grammar that llguidance makes of the schemas. Which tool, and whether
one at all, stays the model's choice.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from training.prompts.call_form import CallForm, find_call_form
from warehouse.json_types import Contract
from warehouse.storage.digest import digest

_ANY = {"type": "object"}
_KEPT = 4096  # schemas that are remembered


@dataclass(frozen=True)
class Grammar:
    """text: for llguidance, "" where no tool was shown. quarantined: tool -> why its arguments are
    held to less than its schema."""

    text: str
    quarantined: dict[str, str] = field(default_factory=dict)


class CallGrammars:
    """Makes grammars for one tokenizer. vocabulary: numbers that the model gives for a token, which
    may be more than the tokenizer knows. Raises BadTemplate."""

    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        self.tokenizer, self.vocabulary = tokenizer, vocabulary
        self._form: CallForm = find_call_form(tokenizer)
        self._schemas: dict[str, tuple[dict[str, Any], str]] = {}

    @cached_property
    def guide(self) -> Any:
        """llguidance's own tokenizer."""
        from llguidance.hf import from_tokenizer

        return from_tokenizer(self.tokenizer, n_vocab=self.vocabulary)

    def write_grammar(self, contracts: Sequence[Contract], *, must_call: bool = False) -> Grammar:
        """One grammar of all tools that a prompt shows, each compiled by itself first: a schema
        that cannot be compiled is quarantined and holds nobody else up. must_call: nothing but one
        call can be written."""
        from llguidance import StructTag

        tags, rules, quarantined = [], list[str](), dict[str, str]()
        for contract in contracts:
            name = str(contract["name"])
            schema, why = self._find_usable(contract)
            if why:
                quarantined[name] = why
            begin = self._form.before + json.dumps(name)[1:-1] + self._form.between
            tag = StructTag(
                trigger=self._form.before, begin=begin, grammar=schema, end=self._form.after
            )
            tags.append(tag)
            ends = [f" {json.dumps(self._form.after)}"] if self._form.after else []
            rules.append(f"{json.dumps(begin)} %json {json.dumps(schema)}{''.join(ends)}")
        if must_call and rules:
            return Grammar("start: " + "\n | ".join(rules), quarantined)
        text = StructTag.to_grammar(tags, assume_special=False) if tags else ""
        return Grammar(text, quarantined)

    def _find_usable(self, contract: Contract) -> tuple[dict[str, Any], str]:
        """(the schema that is compiled, why it is not the contract's own or "")."""
        given = contract.get("inputSchema")
        key = digest(given)
        if key not in self._schemas:
            if len(self._schemas) >= _KEPT:
                self._schemas.clear()
            self._schemas[key] = self._compile(given)
        return self._schemas[key]

    def _compile(self, given: Any) -> tuple[dict[str, Any], str]:
        own = _close_objects(given) if isinstance(given, Mapping) else dict(_ANY)
        why = ""
        for schema in (_add_options(own), _add_options(own, lenient=True)):
            found = self._find_fault(schema)
            if not found:
                return schema, why
            why = why or found
        return _add_options(_ANY), why

    def _find_fault(self, schema: dict[str, Any]) -> str:
        from llguidance import LLMatcher

        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        failed, warnings = LLMatcher.validate_grammar_with_warnings(grammar, self.guide)
        return " ".join(" ".join(warnings).split())[:200] if failed else ""

    def make_processor(self, grammars: Sequence[Grammar], begun: int) -> Callable[[Any, Any], Any]:
        """What `generate` calls with the tokens of a batch until now and the scores of the next.
        begun: tokens of the padded prompts."""
        return _Processor(self.guide, [grammar.text for grammar in grammars], begun)


class _Processor:
    def __init__(self, guide: Any, grammars: Sequence[str], begun: int) -> None:
        from llguidance import LLMatcher

        self._read = begun
        self._matchers = [
            LLMatcher(guide, text, log_level=0) if text else None for text in grammars
        ]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        new = input_ids[:, self._read :].tolist()
        self._read = input_ids.shape[1]
        bits = allocate_token_bitmask(len(self._matchers), scores.shape[1])
        for row, matcher in enumerate(self._matchers):
            if matcher is None:
                continue
            if new[row] and not matcher.is_stopped():
                matcher.consume_tokens(new[row])
            # A grammar that grew beyond its limits holds nothing back: the ladder judges the call.
            if not matcher.is_error():
                fill_next_token_bitmask(matcher, bits, row)
        words = torch.from_numpy(bits).to(scores.device)
        places = torch.arange(scores.shape[1], device=scores.device)
        allowed = (words[:, places // 32] >> (places % 32)) & 1
        return scores.masked_fill(allowed == 0, float("-inf"))


def _add_options(schema: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """As models are taught to write JSON: one blank after `,` and `:`."""
    form = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return {**schema, "x-guidance": {**form, **more}}


def _close_objects(schema: Any, depth: int = 0) -> Any:
    """Objects that do not say otherwise take no undeclared argument, as `validate_call` has it;
    those whose properties stand in several branches are left as they are."""
    if depth > 40 or not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(made.get(key), Mapping):
            inner = made[key].items()
            made[key] = {name: _close_objects(one, depth + 1) for name, one in inner}
    if "items" in made:
        made["items"] = _close_objects(made["items"], depth + 1)
    branches = [key for key in ("anyOf", "oneOf") if isinstance(made.get(key), list)]
    if isinstance(made.get("properties"), Mapping):
        if not branches and not {"allOf", "$ref"} & set(made):
            made.setdefault("additionalProperties", False)
        return made
    for key in branches:
        made[key] = [_close_objects(one, depth + 1) for one in made[key]]
    return made
