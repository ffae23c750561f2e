"""`python3 webkit_snapshot.py URL FILE WIDTH HEIGHT`: load a page in WebKitGTK as an iPhone would, say what it is.

A picture is saved as well. Runs under the system's Python, which has the GObject bindings, and under Xvfb; prints one
JSON object.
"""

from __future__ import annotations

import json
import sys

import gi

gi.require_version("Gtk", "3.0")
gi.require_version("WebKit2", "4.1")
from gi.repository import GLib, Gtk, WebKit2  # noqa: E402  # the versions must be chosen first

IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5"
    " Mobile/15E148 Safari/604.1"
)
SETTLE_MS = 1500
GIVE_UP_S = 60
ASK = """
JSON.stringify({
  title: document.title,
  width: document.documentElement.scrollWidth,
  viewport: innerWidth,
  words: document.querySelector('main').innerText.slice(0, 20000),
  localised: [...document.querySelectorAll('time[data-as]')].every((e) => e.title.endsWith('UTC')),
  days: document.querySelectorAll('#days svg.days').length,
})
"""


def main(url: str, file: str, width: int, height: int) -> None:
    """Load, wait until the page's own script has run, ask, take the picture."""
    window = Gtk.OffscreenWindow()
    window.set_default_size(width, height)
    view = WebKit2.WebView()
    view.get_settings().set_user_agent(IPHONE)
    window.add(view)
    window.show_all()

    def asked(view: WebKit2.WebView, result: object) -> None:
        print(view.evaluate_javascript_finish(result).to_string())
        view.get_snapshot(WebKit2.SnapshotRegion.VISIBLE, WebKit2.SnapshotOptions.NONE, None, taken)

    def taken(view: WebKit2.WebView, result: object) -> None:
        view.get_snapshot_finish(result).write_to_png(file)
        Gtk.main_quit()

    def ask() -> bool:
        view.evaluate_javascript(ASK, -1, None, None, None, asked)
        return False

    def changed(_: WebKit2.WebView, event: WebKit2.LoadEvent) -> None:
        if event == WebKit2.LoadEvent.FINISHED:
            GLib.timeout_add(SETTLE_MS, ask)

    def give_up() -> bool:
        print(json.dumps({"error": f"nothing within {GIVE_UP_S} s"}))
        Gtk.main_quit()
        return False

    view.connect("load-changed", changed)
    GLib.timeout_add_seconds(GIVE_UP_S, give_up)
    view.load_uri(url)
    Gtk.main()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
