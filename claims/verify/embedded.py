"""The files that a PDF carries, read with the standard library: enough for the PDFs that a pack holds."""

from __future__ import annotations

import re
import zlib

_STREAM = re.compile(rb"/EmbeddedFile(?![A-Za-z])(?:(?!endobj).){0,2000}?>>\s*stream\r?\n", re.DOTALL)
MOST_BYTES = 256 << 20


def embedded_files(pdf: bytes) -> list[bytes]:
    """What each embedded file of the PDF holds. Raises ValueError."""
    out = []
    for found in _STREAM.finditer(pdf):
        end = pdf.find(b"endstream", found.end())
        if end < 0:
            raise ValueError("an embedded file of the PDF has no end")
        begun = pdf.rfind(b" obj", 0, found.start())
        if b"/FlateDecode" not in pdf[begun : found.end()]:
            out.append(pdf[found.end() : end].rstrip(b"\r\n"))
            continue
        stream = zlib.decompressobj()
        try:
            raw = stream.decompress(pdf[found.end() : end], MOST_BYTES)
        except zlib.error as error:
            raise ValueError("an embedded file of the PDF can't be unpacked") from error
        if not stream.eof:
            raise ValueError("an embedded file of the PDF is cut short or too large")
        out.append(raw)
    return out
