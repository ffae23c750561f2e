"""PAdES signature of a claim's PDF by the operator's own certificate, where one is set (settings.GOODPUT_PDF_SIGNER).

pyHanko does it and is optional: `pip install pyhanko`. The signature certifies the document: no change is allowed
after it. It says who made the PDF; the evidence is the pack, not its PDF.
"""

from __future__ import annotations

import hashlib
import io
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from claims.errors import PdfUnavailable

FIELD = "GoodputSignature"
REASON = "Service credit claim"


def signed(body: bytes, at: datetime) -> bytes:
    """The PDF with the operator's signature; as it is where no certificate is set. The same PDF and instant give the
    same bytes with an RSA key. Raises PdfUnavailable where a certificate is set and can't be used.
    """
    if not settings.GOODPUT_PDF_SIGNER:
        return body
    try:
        from pyhanko.pdf_utils.generic import ByteStringObject
        from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
        from pyhanko.pdf_utils.misc import PdfError
        from pyhanko.sign import fields, signers
        from pyhanko.sign.general import SigningError
    except ImportError as error:
        raise PdfUnavailable("GOODPUT_PDF_SIGNER is set and pyHanko is not installed: pip install pyhanko.") from error
    signer = _signer()
    meta = signers.PdfSignatureMetadata(
        field_name=FIELD,
        reason=REASON,
        md_algorithm="sha256",
        subfilter=fields.SigSeedSubFilter.PADES,
        certify=True,
        docmdp_permissions=fields.MDPPerm.NO_CHANGES,
    )
    out = io.BytesIO()
    try:
        writer = IncrementalPdfFileWriter(io.BytesIO(body))
        writer._update_meta = lambda: None  # type: ignore[method-assign]  # it would say now
        writer._document_id[1] = ByteStringObject(hashlib.sha256(body).digest()[:16])  # not a random one
        _pdf_signer(meta, signer, at).sign_pdf(writer, output=out)
    except (SigningError, PdfError, ValueError, OSError) as error:
        raise PdfUnavailable(f"The PDF could not be signed: {error}") from error
    return out.getvalue()


def _signer() -> Any:
    """The signer of the set certificate, loaded again when its file changes."""
    path = Path(settings.GOODPUT_PDF_SIGNER)
    try:
        changed = path.stat().st_mtime_ns
        words = settings.GOODPUT_PDF_SIGNER_PASSWORD_FILE
        password = Path(words).read_bytes().strip() if words else None
    except OSError as error:
        raise PdfUnavailable(f"The certificate that signs PDFs can't be read: {error.strerror}.") from error
    return _loaded(str(path), changed, password)


@lru_cache(maxsize=1)
def _loaded(path: str, changed: int, password: bytes | None) -> Any:
    from pyhanko.sign import signers

    found = signers.SimpleSigner.load_pkcs12(path, passphrase=password)  # type: ignore[no-untyped-call]
    if found is None:
        raise PdfUnavailable("The file of GOODPUT_PDF_SIGNER holds no certificate and key, or the password is wrong.")
    return found


def _pdf_signer(meta: Any, signer: Any, at: datetime) -> Any:
    """A PdfSigner whose clock stands at the report's issue."""
    from pyhanko.sign import signers

    class At(signers.PdfSigner):
        def init_signing_session(self, *args: Any, **more: Any) -> Any:
            session = super().init_signing_session(*args, **more)
            session.system_time = at
            return session

    return At(meta, signer)
