"""check_guide against a server of this test: it passes where the guide holds, and notices where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from goodput_site.guide import checking, content, markup


@pytest.mark.django_db(transaction=True)
def test_the_guide_holds_on_a_server_with_a_release(
    live_server: Any, release: Path, settings: Any, tmp_path: Path
) -> None:
    (tmp_path / "releases").symlink_to(release)
    settings.GOODPUT_VAR = tmp_path
    report = tmp_path / "checked.md"
    call_command("check_guide", base_url=live_server.url, list=report)
    text = report.read_text()
    assert "FAILED" not in text
    assert "| ran |" in text
    assert "| parsed only |" in text
    assert live_server.url not in text


@pytest.mark.django_db(transaction=True)
def test_a_missing_release_is_noticed(live_server: Any, settings: Any, tmp_path: Path, capsys: Any) -> None:
    settings.GOODPUT_VAR = tmp_path
    with pytest.raises(CommandError, match="does not hold"):
        call_command("check_guide", base_url=live_server.url)
    assert "FAILED       Downloads: /releases/manifest.json (status 404; run" in capsys.readouterr().out


def block(opening: str, text: str) -> checking.Result:
    """What comes of a block."""
    return checking._tried("page", markup.parse(f"```{opening}\n{text}\n```")[0])


def test_blocks_are_run_parsed_or_left() -> None:
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
