"""The child that sets a PDF: a job as JSON on stdin, the PDF on stdout. Bounded memory, time and files; no network.

Exit status: 3 Pango is missing, 4 WeasyPrint is.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import resource
import sys
from datetime import datetime

MEMORY_BYTES = 700 << 20
CPU_SECONDS = 50
OPEN_FILES = 64


def limit() -> None:
    """Less of everything than this process could take."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> int:
    """Read, set, write."""
    job = json.load(sys.stdin)
    limit()
    try:
        from weasyprint import CSS, HTML, Attachment
        from weasyprint.text.fonts import FontConfiguration
        from weasyprint.urls import URLFetcher
    except ImportError:
        return 4
    except OSError:
        return 3
    logging.getLogger("weasyprint").setLevel(logging.CRITICAL)
    at = datetime.fromisoformat(job["at"])
    fonts = FontConfiguration()
    fetcher = URLFetcher(allowed_protocols=["data"])
    attachments = [
        Attachment(
            file_obj=io.BytesIO(text.encode()),
            name=name,
            description=about,
            created=at,
            modified=at,
            relationship="Data",
        )
        for name, about, text in job["attachments"]
    ]
    document = HTML(string=job["html"], url_fetcher=fetcher)
    sheet = CSS(string=job["css"], font_config=fonts, url_fetcher=fetcher)
    body = document.write_pdf(
        stylesheets=[sheet],
        font_config=fonts,
        attachments=attachments,
        pdf_variant="pdf/a-3u",
        pdf_tags=True,
        pdf_identifier=hashlib.sha256(job["identifier"].encode()).digest()[:16],
    )
    sys.stdout.buffer.write(body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
