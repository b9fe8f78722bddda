"""A tokenizer's own chat template: what is asked, what the model must write after it, and what a
template must be able to do.

(prompt, completion) meet exactly where a model starts to write: the prompt is what it is asked
with, so that loss on the completion is loss on the answer alone. Thinking is switched off, since a
call is what is taught: where a template opens a thought in the prompt all the same, the completion
closes it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from warehouse.sanitize.untrusted_text import map_texts

Message = dict[str, Any]
Tools = Sequence[Mapping[str, Any]]
# No thought before the call; and the date that Llama's templates state, so that a prompt of today
# is the prompt of tomorrow. A template that knows neither ignores them.
_FIXED = {"enable_thinking": False, "date_string": "26 Jul 2024"}
_OPENED = re.compile(r"<(think\w*)>\s*(</\1>\s*)?\Z")
_EMPTY_THOUGHT = re.compile(r"\A\s*<(think\w*)>\s*</\1>\s*")
FIX = (
    " use the instruct model of the same family, whose template takes tools (Qwen3, Llama-3.1,"
    " Hermes), or set chat_template in its tokenizer_config.json"
)


class BadTemplate(ValueError):
    """A tokenizer that cannot render a tool call; the message says what to do."""


def render_prompt_text(tokenizer: Any, messages: Sequence[Message], tools: Tools) -> str:
    """What a model is asked with. Raises BadTemplate, also where the template leaves tools out."""
    if not getattr(tokenizer, "chat_template", None):
        raise BadTemplate(f"{get_tokenizer_label(tokenizer)}: it has no chat template;{FIX}")
    prompt = apply_template(tokenizer, messages, tools, add_generation_prompt=True)
    for tool in tools:
        name = part_special_tokens(tokenizer, tool["function"]["name"])
        if name not in prompt and name.encode("unicode_escape").decode() not in prompt:
            raise BadTemplate(
                f"{get_tokenizer_label(tokenizer)}: its chat template does not show the tool"
                f" {name[:80]!r} that it was given, so it knows no tools;{FIX}"
            )
    return prompt


def cut_completion(tokenizer: Any, prompt: str, whole: str) -> str:
    """What a model must write after the prompt, `whole` being the conversation with its answer.

    A template may leave an open or an empty thought where it asks and strip it from an answer that
    is there: then the answer follows the closed thought. Raises BadTemplate.
    """
    if whole.startswith(prompt):
        return whole[len(prompt) :]
    thought = _OPENED.search(prompt)
    if thought and whole.startswith(head := prompt[: thought.start()]):
        tail = _EMPTY_THOUGHT.sub("", whole[len(head) :], count=1)
        return tail if thought[2] else f"\n</{thought[1]}>\n\n{tail}"
    raise BadTemplate(
        f"{get_tokenizer_label(tokenizer)}: its chat template rewrites the prompt once an answer"
        f" is there, so"
        f" that nobody knows where the answer starts;{FIX}"
    )


def apply_template(
    tokenizer: Any, messages: Sequence[Message], tools: Tools, **options: Any
) -> str:
    """The conversation as text. Raises BadTemplate where the template fails on it."""
    asked, shown = part_special_tokens(tokenizer, [list(messages), list(tools)])
    options |= {"tokenize": False, **_FIXED}
    try:
        return tokenizer.apply_chat_template(asked, tools=shown, **options)
    except Exception as error:  # a template is a program: it raises whatever it likes
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        roles = ", ".join(message["role"] for message in messages)
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: its chat template fails on the messages {roles}:"
            f" {reason};{FIX}"
        ) from error


def part_special_tokens(tokenizer: Any, value: Any) -> Any:
    """The value with a space in each special token: no contract and no request ends a turn."""
    tokens = getattr(tokenizer, "all_special_tokens", None) or ()
    form = "|".join(map(re.escape, filter(None, tokens)))
    if not form:
        return value
    return map_texts(value, lambda text: re.sub(form, lambda of: f"{of[0][0]} {of[0][1:]}", text))


def with_pad_token(tokenizer: Any) -> None:
    """Gives a tokenizer without a pad token the end-of-text token for it: padding carries no loss.

    Raises BadTemplate where it has neither.
    """
    if getattr(tokenizer, "pad_token", None) is not None:
        return
    if getattr(tokenizer, "eos_token", None) is None:
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: neither a pad token nor an end-of-text token;"
            f" expected one of"
            " them: set pad_token in its tokenizer_config.json to a token of its vocabulary"
        )
    tokenizer.pad_token = tokenizer.eos_token


def get_tokenizer_label(tokenizer: Any) -> str:
    """What a message calls a tokenizer."""
    return str(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__)
