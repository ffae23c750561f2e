"""Documents and code say the same: variables, commands, dependencies, links, decisions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.core.management import BaseCommand, get_commands, load_command_class

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OURS = ("agent", "orgs", "fleet", "claims", "goodput_site", "benchmarks")
# Names that the system sets, not a person: where they are meant, the code says so.
OF_THE_SYSTEM = {
    "DJANGO_SETTINGS_MODULE",
    "NOTIFY_SOCKET",
    "GOODPUT_CHAOS_BUG",  # from the chaos command to the processes that it starts
    "STATE_DIRECTORY",
    "CREDENTIALS_DIRECTORY",
    "XDG_STATE_HOME",
    "NO_PROXY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
}
OF_A_REQUEST = {"PATH_INFO", "REQUEST_METHOD", "REMOTE_ADDR"}  # a WSGI environ is no environment
READERS = {"get", "getenv", "pop", "setdefault", "str", "int", "bool", "float", "list", "url"}
A_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


@cache
def sources() -> tuple[tuple[Path, ast.Module], ...]:
    """(file, syntax tree) of every module that is shipped."""
    return tuple(_sources())


def _sources() -> Iterator[tuple[Path, ast.Module]]:
    for top in OURS:
        for file in sorted((ROOT / top).rglob("*.py")):
            if "tests" not in file.parts and "migrations" not in file.parts:
                yield file, ast.parse(file.read_text())


def variables_of(tree: ast.Module) -> Iterator[str]:
    """Names of environment variables that a module reads: env.str("X"), os.environ["X"], environ.get("X"), …"""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            owner, arguments = ast.unparse(node.func.value), node.args
        elif isinstance(node, ast.Subscript):
            owner, arguments = ast.unparse(node.value), [node.slice]
        else:
            continue
        named = [each.value for each in arguments[:1] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if re.fullmatch(r"(os\.)?(env|environ|_env|os)", owner):
            yield from (name for name in named if A_NAME.fullmatch(name))


@cache
def variables() -> dict[str, str]:
    """Variable → the file that reads it, over all parts."""
    found = {name: str(file.relative_to(ROOT)) for file, tree in sources() for name in variables_of(tree)}
    from agent.config import OPTIONS

    found.update({option.env: "agent/config.py" for option in OPTIONS})
    for name in re.findall(r"\$\{(GOODPUT_[A-Z_]+)", (ROOT / "goodput").read_text()):
        found[name] = "goodput"
    return found


def text_of(*names: str) -> str:
    """These documents in one, those that exist."""
    return "\n".join((DOCS / name).read_text() for name in names if (DOCS / name).exists())


def test_the_search_finds_variables() -> None:
    assert {"GOODPUT_EXPOSE", "DATABASE_URL", "GOODPUT_PG_BIN", "GOODPUT_ENDPOINT", "GOODPUT_PYTHON"} <= set(
        variables()
    )


def test_every_variable_is_described() -> None:
    text = text_of("settings.md", "launcher.md", "agent.md", "../CONTRIBUTING.md")
    described = set(re.findall(r"`([A-Z][A-Z0-9_]+)", text))
    missing = {
        name: file
        for name, file in variables().items()
        if name not in described | OF_THE_SYSTEM | OF_A_REQUEST and not name.startswith("HTTP_")
    }
    assert missing == {}


def test_every_variable_of_the_settings_page_is_read() -> None:
    described = set(re.findall(r"^\| `([A-Z][A-Z0-9_]+)` ", text_of("settings.md"), re.MULTILINE))
    assert described
    assert described - set(variables()) == set()


def our_commands() -> list[str]:
    """The management commands of our apps."""
    return sorted(name for name, app in get_commands().items() if app in OURS)


def test_every_command_and_flag_is_described() -> None:
    assert {"create_org", "create_key", "create_user", "ensure_local_org", "prepare"} <= set(our_commands())
    text = "\n".join(page.read_text() for page in DOCS.glob("*.md"))
    lines = [line for line in text.splitlines() if "`" in line]
    missing = []
    for name in our_commands():
        about = " ".join(line for line in lines if re.search(rf"`(\./goodput manage |manage\.py )?{name}\b", line))
        if not about:
            missing.append(name)
    assert missing == []


def test_commands_have_the_described_flags_and_no_others() -> None:
    """Django's own flags, which every command has, are left out."""
    common = set(re.findall(r"--[a-z-]+", BaseCommand().create_parser("manage.py", "x").format_help()))
    for name in our_commands():
        line = next(line for line in text_of("settings.md").splitlines() if re.match(rf"\| `{name}[ `]", line))
        parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
        known = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
        assert set(re.findall(r"--[a-z-]+", line)) == known - common, name


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_every_direct_dependency_has_its_line(file: str) -> None:
    lines = [line.split("==")[0].strip() for line in (ROOT / file).read_text().splitlines()]
    wanted = [line for line in lines if line and not line.startswith(("#", "-"))]
    described = re.findall(r"^\| ([\w.,\[\]-]+) \| \S", text_of("dependencies.md"), re.MULTILINE)
    assert [name for name in wanted if name not in described] == []


def test_no_dependency_is_described_that_is_gone() -> None:
    pinned = {
        line.split("==")[0]
        for file in ("requirements.txt", "requirements-dev.txt")
        for line in (ROOT / file).read_text().splitlines()
    }
    described = set(re.findall(r"^\| ([\w.,\[\]-]+) \| \S", text_of("dependencies.md"), re.MULTILINE)) - {"package"}
    assert described - pinned == set()


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_direct_dependencies_are_pinned_and_locked(file: str) -> None:
    lock = (ROOT / file.replace(".txt", ".lock")).read_text().lower()
    for line in (ROOT / file).read_text().splitlines():
        if line and not line.startswith(("#", "-")):
            name, version = line.split("==")
            assert f"{name.lower().partition('[')[0]}" in lock
            assert f"=={version}" in lock, line


def pages() -> list[Path]:
    """Every Markdown page of ours."""
    return [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in pages():
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} → {target}")
    assert broken == []


def test_files_that_the_docs_name_exist() -> None:
    gone = []
    for page in pages():
        for named in re.findall(r"`((?:agent|orgs|fleet|goodput_site|docs)/[\w/.-]+\.\w+)`", page.read_text()):
            if not (ROOT / named).exists():
                gone.append(f"{page.relative_to(ROOT)} → {named}")
    assert gone == []


def test_decisions_are_numbered_and_have_their_parts() -> None:
    records = sorted((DOCS / "adr").glob("*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        text = record.read_text()
        assert text.startswith(f"# {int(record.name[:4])}. "), record.name
        for part in ("**Context.**", "**Decision.**", "**Consequences.**"):
            assert part in text, (record.name, part)


def test_code_names_decisions_that_exist() -> None:
    numbers = {record.name[:4] for record in (DOCS / "adr").glob("*.md")}
    named = {number for file, _ in sources() for number in re.findall(r"docs/adr/(\d{4})", file.read_text())}
    assert named <= numbers


def test_the_house_has_its_papers() -> None:
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "THREAT_MODEL.md", "LICENSE"):
        assert (ROOT / name).exists(), name
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_the_packages_of_ci_are_described() -> None:
    """Whoever wants to run `test --full` finds in the docs what .ci/run installs."""
    listed = re.search(r"^packages=\((.*?)^\)", (ROOT / ".ci/run").read_text(), re.MULTILINE | re.DOTALL)
    assert listed
    names = re.sub(r"#.*", "", listed[1]).split()
    assert "chromium" in names
    words = set(re.split(r"[\s,()`;]+", text_of("launcher.md")))
    assert [name for name in names if name not in words] == []
