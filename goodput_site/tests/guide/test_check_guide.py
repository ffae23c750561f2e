"""check_guide against a server of this test: it passes where the guide holds, and notices where it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from goodput_site.guide import checking, content, markup

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.django_db(transaction=True)
def test_the_guide_holds_on_a_server_with_a_release(
    live_server: Any, release: Path, settings: Any, tmp_path: Path
) -> None:
    """And the list in the docs is what comes of it. `pytest -k guide_holds` failing? See the command in that list."""
    (tmp_path / "releases").symlink_to(release)
    settings.GOODPUT_VAR = tmp_path
    report = tmp_path / "checked.md"
    call_command("check_guide", base_url=live_server.url, list=report)
    assert "FAILED" not in report.read_text()
    assert report.read_text() == (ROOT / "docs/guides/checked.md").read_text()


@pytest.mark.django_db(transaction=True)
def test_a_missing_release_is_noticed(live_server: Any, settings: Any, tmp_path: Path, capsys: Any) -> None:
    settings.GOODPUT_VAR = tmp_path
    with pytest.raises(CommandError, match="does not hold"):
        call_command("check_guide", base_url=live_server.url)
    assert "FAILED       Downloads: /releases/manifest.json (status 404; run" in capsys.readouterr().out


@pytest.fixture
def block(tmp_path: Path) -> Callable[..., checking.Result]:
    """What comes of a block."""
    checking.lay_out(tmp_path)

    def tried(opening: str, text: str, runnable: tuple[str, ...] = ("run",)) -> checking.Result:
        return checking._tried("page", markup.parse(f"```{opening}\n{text}\n```")[0], tmp_path, runnable)

    return tried


def test_blocks_run_in_a_folder_of_their_own_and_in_order(block: Callable[..., checking.Result]) -> None:
    assert block("bash run", "echo 1 > made && test -s token && ./goodput help | grep -q up").outcome == "ran"
    assert block("bash run", 'grep 1 made && test "$HOME" = "$PWD" && test -n "$GOODPUT_INSTALL_ROOT"').outcome == "ran"
    assert block("bash run", "sudo test -s made").outcome == "ran"


def test_blocks_that_change_the_server_run_only_on_request(block: Callable[..., checking.Result]) -> None:
    left = block("bash change: it makes a key", "exit 1")
    assert (left.outcome, left.why) == ("parsed only", "it makes a key; runs with --change")
    assert block("bash change: it makes a key", "exit 1", ("run", "change")).is_bad


def test_blocks_are_run_parsed_or_left(block: Callable[..., checking.Result]) -> None:
    assert block("bash run", "echo x | grep x").outcome == "ran"
    assert block("bash run", "false | cat").is_bad
    assert block("bash run", "if then").is_bad
    assert block("bash parse: it needs a cluster", "exit 1").why == "it needs a cluster"
    assert block("bash parse: x", "if then").is_bad
    assert block("text", "words").outcome == "not runnable"
    assert block("powershell parse: it needs Windows", "irm x | iex").outcome in {"parsed only", "not runnable"}


def test_each_command_block_of_the_guide_says_how_far_it_goes() -> None:
    for page in content.PAGES:
        for each in markup.parse(content.text_of(page, "http://localhost")):
            if each.kind == "code":
                assert each.how == "run" or each.why, (page.name, each.text)
