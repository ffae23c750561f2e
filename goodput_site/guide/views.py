"""Pages of the guide, and the files it names: install scripts, Compose files, releases. Public; GET and HEAD only."""

from __future__ import annotations

import mimetypes
from typing import Any

from django.conf import settings
from django.http import FileResponse, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from goodput_site.guide import content, markup, releases
from goodput_site.problems import problem

# What is served as text with the host filled in: path → file in the repository.
SERVED = {
    "install-linux.sh": "deploy/install/install-linux.sh",
    "install-windows.ps1": "deploy/install/install-windows.ps1",
    "docker-compose.release.yml": "docker-compose.release.yml",
    "docker-compose.gpu.yml": "docker-compose.gpu.yml",
    "env.example": ".env.example",
}
# Filled in when served; in the file it is a value that works from a clone.
ORIGIN_MARK = "@GOODPUT_ORIGIN@"
VERSION_MARK = "@GOODPUT_VERSION@"
BUILD_HERE = "${GOODPUT_BUILD_CONTEXT:-.}"  # in a clone; whoever has only the Compose file builds from our archive
TEXT = "text/plain; charset=utf-8"


def origin_of(request: HttpRequest) -> str:
    """Scheme and host as the reader typed them. Django checks the host: a forged one is answered with 400 or 421."""
    return f"{request.scheme}://{request.get_host()}"


@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """A page of the guide."""
    shown = next(each for each in content.PAGES if each.name == name)
    blocks = markup.parse(content.text_of(shown, origin_of(request)))
    at = content.PAGES.index(shown)
    context: dict[str, Any] = {
        "page": shown,
        "pages": content.PAGES,
        "title": blocks[0],
        "blocks": [(number, block) for number, block in enumerate(blocks[1:])],
        "following": content.PAGES[at + 1] if at + 1 < len(content.PAGES) else None,
        "version": content.version(),
    }
    return render(request, "guide/page.html", context)


@require_safe
def full_text(request: HttpRequest) -> HttpResponse:
    """The whole guide as plain text, for people without a browser and for language models."""
    origin = origin_of(request)
    pages = [markup.plain(content.text_of(each, origin)) for each in content.PAGES]
    head = f"Canonical URL: {origin}/\nRelease: v{content.version()}\n\n"
    return HttpResponse(head + "\n".join(pages), content_type=TEXT)


@require_safe
def ios_checklist(request: HttpRequest) -> HttpResponse:
    """The checklist for iPhone and iPad, as text."""
    text = (settings.BASE_DIR / "docs/guides/ios-dashboard-setup.txt").read_text()
    return HttpResponse(filled(text, request), content_type=TEXT)


def filled(text: str, request: HttpRequest) -> str:
    """The text with this host and this version in place of their marks."""
    origin = origin_of(request)
    source = f"{origin}/releases/goodput-{content.version()}-source.tar.gz"
    text = text.replace(BUILD_HERE, BUILD_HERE.replace(":-.", f":-{source}"))
    return text.replace(ORIGIN_MARK, origin).replace(VERSION_MARK, content.version())


@require_safe
def served_file(request: HttpRequest, name: str) -> HttpResponse:
    """An install script or a Compose file, with the host it is read from filled in."""
    response = HttpResponse(filled((settings.BASE_DIR / SERVED[name]).read_text(), request), content_type=TEXT)
    response["Cache-Control"] = "no-cache"  # it names the host: no shared cache may hand it to readers of another
    return response


@require_safe
def manifest(request: HttpRequest) -> HttpResponse:
    """The newest release's manifest, byte for byte as it was made: its signature is over a list that it names."""
    if releases.manifest() is None:
        return _no_release("There is no release on this server.")
    return _send("manifest.json")


@require_safe
def release_file(request: HttpRequest, name: str) -> HttpResponse:
    """A file of the release folder."""
    if releases.file(name) is None:
        return _no_release("There is no such file among the releases.")
    return _send(name)


def _send(name: str) -> HttpResponse:
    path = releases.file(name)
    if path is None:
        return _no_release("There is no such file among the releases.")
    kind = mimetypes.guess_type(name)[0] if name.endswith(".json") else "application/octet-stream"
    response = FileResponse(path.open("rb"), content_type=kind)
    response["Cache-Control"] = "no-cache"
    return response  # type: ignore[return-value]


def _no_release(sentence: str) -> HttpResponse:
    hint = "The server makes one at its start; by hand: ./goodput manage offer_release"
    return problem(404, "no_release", f"{sentence} {hint}")
