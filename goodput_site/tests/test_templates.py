"""Templates: nothing inline that the content policy would block, nothing unescaped that somebody else typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
# Where HTML is passed through as it is, and whose words it is.
UNESCAPED = {
    "orgs/_fields.html": {"field.help_text|safe"},  # Django's own list of password rules
}
MARKED_SAFE = {
    "fleet/templatetags/goodput.py": "SafeString(paths),",  # numbers and our own class names, drawn as SVG
}


def name_of(template: Path) -> str:
    """As the code names it."""
    return str(template.relative_to(ROOT / "templates"))


@pytest.mark.parametrize("template", TEMPLATES, ids=name_of)
def test_nothing_is_inline(template: Path) -> None:
    """No script without a file, no style, no handler, no javascript: link: the policy has no exception."""
    text = re.sub(r"\{#.*?#\}|\{% comment %\}.*?\{% endcomment %\}", "", template.read_text(), flags=re.DOTALL)
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"<style\b", text)
    assert not re.search(r"<[^>]*\sstyle\s*=", text)
    assert not re.search(r"<[^>]*\son[a-z]+\s*=", re.sub(r"\{%.*?%\}", "", text))  # a tag's `only=` is no handler
    assert not re.search(r"javascript:", text, re.IGNORECASE)
    assert not re.search(r"\bhx-on|\bjs:", text)


@pytest.mark.parametrize("template", TEMPLATES, ids=name_of)
def test_nothing_comes_from_elsewhere(template: Path) -> None:
    """No font, script or picture of another site: a page must work without the internet and tell nobody."""
    tags = "script|link|img|source|iframe|video|audio|object|embed|use"
    loads = rf"<(?:{tags})\b[^>]*?(?:src|href|srcset|data)=[\"']\s*(?:https?:)?//"
    assert not re.search(loads, template.read_text())


@pytest.mark.parametrize("template", TEMPLATES, ids=name_of)
def test_nothing_is_unescaped(template: Path) -> None:
    text = template.read_text()
    found = set(re.findall(r"\{\{\s*([^}]*\|\s*safe\w*[^}]*?)\s*\}\}", text))
    assert found <= UNESCAPED.get(name_of(template), set())
    assert "autoescape off" not in text


@pytest.mark.parametrize("template", TEMPLATES, ids=name_of)
def test_forms_that_change_something_carry_the_token(template: Path) -> None:
    for form in re.findall(r"<form\b.*?</form>", template.read_text(), re.DOTALL):
        if re.search(r"method=[\"']?post", form, re.IGNORECASE):
            assert "{% csrf_token %}" in form


def test_code_marks_nothing_as_safe() -> None:
    """`format_html` escapes its arguments; `mark_safe` with a value in it does not."""
    wrong = []
    for app in ("orgs", "fleet", "claims", "goodput_site"):
        for file in (ROOT / app).rglob("*.py"):
            if "tests" not in file.parts:
                for line in file.read_text().splitlines():
                    if MARKED_SAFE.get(str(file.relative_to(ROOT))) == line.strip():
                        continue
                    if re.search(r"\b(mark_safe|SafeString|SafeText)\((?!\s*(\"[^{}]*\"|'[^{}]*')\s*\))", line):
                        wrong.append(f"{file.relative_to(ROOT)}: {line.strip()}")
    assert wrong == []


def test_no_merge_was_left_half_done() -> None:
    """Code with such marks does not parse; a template or style sheet shows both sides."""
    static = [each for each in (ROOT / "static").iterdir() if each.suffix in (".css", ".js")]
    marks = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
    assert [name.name for name in (*TEMPLATES, *static) if marks.search(name.read_text())] == []
