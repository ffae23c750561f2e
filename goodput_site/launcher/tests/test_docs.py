"""docs/launcher.md and the code can't part: every command, flag and variable stands in both."""

import re

from goodput_site.launcher.processes import ROOT
from goodput_site.launcher.up import parser

DOCS = (ROOT / "docs/launcher.md").read_text()
SOURCES = [ROOT / "goodput", *(ROOT / "goodput_site/launcher").glob("*.py")]


def test_every_variable_is_described() -> None:
    used = {name for file in SOURCES for name in re.findall(r"\bGOODPUT_[A-Z_]+\b", file.read_text())}
    assert used
    assert used - set(re.findall(r"GOODPUT_[A-Z_]+", DOCS)) <= {"GOODPUT_ENDPOINT", "GOODPUT_TOKEN_FILE"}  # the agent's


def test_every_flag_of_up_is_described() -> None:
    flags = {word for action in parser()._actions for word in action.option_strings if word.startswith("--")}
    assert {flag for flag in flags - {"--help"} if f"`{flag}" not in DOCS} == set()


def test_every_command_of_the_script_is_described() -> None:
    commands = set(re.findall(r"^  \./goodput (\w+)", (ROOT / "goodput").read_text(), re.MULTILINE))
    expected = "up down status logs manage agent backup restore release test check bench chaos build"
    assert commands == set(expected.split())
    assert {name for name in commands if not re.search(rf"^\| `{name}\b", DOCS, re.MULTILINE)} == set()
