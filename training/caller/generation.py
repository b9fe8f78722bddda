"""Greedy completions of prompts by a loaded model."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from training.prompts.call_text import CallForm, find_call_form
from warehouse.json_types import Contract
from warehouse.storage.digest import digest

_TOKENS = 32_768  # of the prompts of a batch, padding included
# (places of a batch's prompts, tokens of each with padding) -> a logits processor of transformers
Limit = Callable[[Sequence[int], int], Callable[[Any, Any], Any]]


def generate_completions(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    max_new: int = 96,
    batch: int = 16,
    limit: Limit | None = None,
    is_over: Callable[[], bool] | None = None,
) -> list[str]:
    """Greedy completions, left-padded, in the order of the prompts; at most `batch` prompts of
    like length at once. limit: what may be written at all. is_over: asked before each token; the
    completions end there once it is true."""
    import torch

    device = next(model.parameters()).device
    fed = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    out = [""] * len(prompts)
    for part in _make_batches([len(ids) for ids in fed], batch):
        longest = max(len(fed[at]) for at in part)
        gaps = [longest - len(fed[at]) for at in part]
        ids = [[tokenizer.pad_token_id] * gap + fed[at] for at, gap in zip(part, gaps, strict=True)]
        mask = [[0] * gap + [1] * (longest - gap) for gap in gaps]
        with torch.inference_mode():
            sequences = model.generate(
                input_ids=torch.tensor(ids, device=device),
                attention_mask=torch.tensor(mask, device=device),
                max_new_tokens=max_new,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
                logits_processor=[limit(part, longest)] if limit else None,
                stopping_criteria=[_make_stop(is_over)] if is_over else None,
            )
        for at, row in zip(part, sequences[:, longest:], strict=True):
            out[at] = tokenizer.decode(row, skip_special_tokens=True)
    return out


def _make_stop(is_over: Callable[[], bool]) -> Callable[..., Any]:
    import torch

    def stop(input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((len(input_ids),), is_over(), device=input_ids.device)

    return stop


def _make_batches(lengths: Sequence[int], batch: int) -> list[list[int]]:
    """Places in batches of like length, each of at most `batch` and of `_TOKENS` with padding."""
    results: list[list[int]] = []
    for at in sorted(range(len(lengths)), key=lambda at: lengths[at]):
        full = results and (
            len(results[-1]) >= batch or (len(results[-1]) + 1) * lengths[at] > _TOKENS
        )
        if not results or full:
            results.append([])
        results[-1].append(at)
    return results


_ANY = {"type": "object"}
_KEPT = 4096  # schemas that are remembered


@dataclass(frozen=True)
class CallGrammar:
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

    def write_grammar(
        self, contracts: Sequence[Contract], *, must_call: bool = False
    ) -> CallGrammar:
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
            return CallGrammar("start: " + "\n | ".join(rules), quarantined)
        text = StructTag.to_grammar(tags, assume_special=False) if tags else ""
        return CallGrammar(text, quarantined)

    def _find_usable(self, contract: Contract) -> tuple[dict[str, Any], str]:
        """(the schema that is compiled, why it is not the contract's own or "")."""
        schema = contract.get("inputSchema")
        key = digest(schema)
        if key not in self._schemas:
            if len(self._schemas) >= _KEPT:
                self._schemas.clear()
            self._schemas[key] = self._compile(schema)
        return self._schemas[key]

    def _compile(self, input_schema: Any) -> tuple[dict[str, Any], str]:
        closed_schema = (
            _close_objects(input_schema) if isinstance(input_schema, Mapping) else dict(_ANY)
        )
        why = ""
        for schema in (_add_options(closed_schema), _add_options(closed_schema, lenient=True)):
            fault = self._find_fault(schema)
            if not fault:
                return schema, why
            why = why or fault
        return _add_options(_ANY), why

    def _find_fault(self, schema: dict[str, Any]) -> str:
        from llguidance import LLMatcher

        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        failed, warnings = LLMatcher.validate_grammar_with_warnings(grammar, self.guide)
        return " ".join(" ".join(warnings).split())[:200] if failed else ""

    def make_processor(
        self, grammars: Sequence[CallGrammar], begun: int
    ) -> Callable[[Any, Any], Any]:
        """What `generate` calls with the tokens of a batch until now and the scores of the next.
        begun: tokens of the padded prompts."""
        return _GrammarProcessor([self.make_matcher(each) for each in grammars], begun)

    def make_matcher(self, grammar: CallGrammar) -> Any:
        """What says which tokens may follow; None where there is no grammar."""
        from llguidance import LLMatcher

        return LLMatcher(self.guide, grammar.text, log_level=0) if grammar.text else None


class _GrammarProcessor:
    def __init__(self, matchers: Sequence[Any], begun: int) -> None:
        self._read, self._matchers = begun, matchers

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
    result = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(result.get(key), Mapping):
            inner = result[key].items()
            result[key] = {name: _close_objects(subschema, depth + 1) for name, subschema in inner}
    if "items" in result:
        result["items"] = _close_objects(result["items"], depth + 1)
    branches = [key for key in ("anyOf", "oneOf") if isinstance(result.get(key), list)]
    if isinstance(result.get("properties"), Mapping):
        if not branches and not {"allOf", "$ref"} & set(result):
            result.setdefault("additionalProperties", False)
        return result
    for key in branches:
        result[key] = [_close_objects(item, depth + 1) for item in result[key]]
    return result
