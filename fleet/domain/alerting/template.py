"""The JSON of a webhook by a template: names in braces within its texts stand for parts of the message.

A text that is one name alone becomes the value itself, with its type; within a longer text a value is written out.
Values go into a parsed document, never into its text, so nothing that somebody typed can change its shape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fleet.domain.alerting.formats import webhook_payload
from fleet.domain.alerting.message import Message

_NAME = re.compile(r"\{([a-z_]+(?:\.[a-zA-Z0-9_]+)*)\}")
MAX_TEMPLATE_CHARS = 8000
MAX_DEPTH = 12
NAMES = (
    *("id", "org", "key", "kind", "what", "severity", "title", "text", "line", "began_at", "ended_at", "at", "url"),
    *("party", "cluster", "changes", "is_over", "facts"),
)


class TemplateInvalid(ValueError):
    """This template can't be used."""


def parse_template(text: str) -> Any:
    """A template as it is kept. Raises TemplateInvalid for what is no JSON object, is too long or too deep, or names
    something unknown."""
    if len(text) > MAX_TEMPLATE_CHARS or "\\u0000" in text:
        raise TemplateInvalid(f"At most {MAX_TEMPLATE_CHARS} characters, without NUL.")
    try:
        template = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TemplateInvalid(f"This is not JSON: {error}.") from error
    if not isinstance(template, dict):
        raise TemplateInvalid('A JSON object, such as {"text": "{line}"}.')
    check(template)
    return template


def check(template: Any, depth: int = 0) -> None:
    """Raise TemplateInvalid for an unknown name or too much depth."""
    if depth > MAX_DEPTH:
        raise TemplateInvalid(f"At most {MAX_DEPTH} levels deep.")
    if isinstance(template, str):
        for name in _NAME.findall(template):
            if name.partition(".")[0] not in NAMES:
                raise TemplateInvalid(f"Nothing is named {{{name}}}. There are: {', '.join(NAMES)}.")
    elif isinstance(template, Mapping):
        for value in template.values():
            check(value, depth + 1)
    elif isinstance(template, list):
        for value in template:
            check(value, depth + 1)


def filled(template: Any, message: Message, uid: str) -> Any:
    """The template with the message in it."""
    return _fill(template, webhook_payload(message, uid))


def _fill(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, str):
        whole = _NAME.fullmatch(template)
        if whole:
            return _value(values, whole[1])
        return _NAME.sub(lambda match: _written(_value(values, match[1])), template)
    if isinstance(template, Mapping):
        return {name: _fill(value, values) for name, value in template.items()}
    return [_fill(value, values) for value in template] if isinstance(template, list) else template


def _value(values: Mapping[str, Any], path: str) -> Any:
    """What a name stands for; null for a fact that this message has not."""
    found: Any = values
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _written(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
