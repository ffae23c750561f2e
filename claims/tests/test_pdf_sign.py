"""A claim's PDF is PDF/A-3u as far as a reader can tell, and stays so under the operator's signature."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign.validation import validate_pdf_signature
from pyhanko.sign.validation.status import SignatureCoverageLevel
from pyhanko_certvalidator import ValidationContext

from claims import pdf
from claims.errors import PdfUnavailable
from claims.models import Claim
from claims.pdf_sign import signed
from claims.services import Actor
from claims.services_reports import issue_report
from claims.tests.conftest import NOW
from claims.tests.test_pdf import made_or_skipped

PASSWORD = b"a long password"


@pytest.fixture
def certificate(tmp_path: Path, settings: Any) -> x509.Certificate:
    """A certificate of the operator's own, set."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Acme Research GmbH")])
    usage = x509.KeyUsage(True, True, False, False, False, True, False, False, False)
    made = (
        x509.CertificateBuilder(name, name, key.public_key())
        .serial_number(1).not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2030, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(True, None), True).add_extension(usage, True).sign(key, hashes.SHA256())
    )  # fmt: skip
    protect = serialization.BestAvailableEncryption(PASSWORD)
    (tmp_path / "signer.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"x", key, made, None, protect))
    (tmp_path / "password").write_bytes(PASSWORD + b"\n")
    settings.GOODPUT_PDF_SIGNER = str(tmp_path / "signer.p12")
    settings.GOODPUT_PDF_SIGNER_PASSWORD_FILE = str(tmp_path / "password")
    return made


def status_of(body: bytes, certificate: x509.Certificate) -> Any:
    """What pyHanko's own validation says, the certificate trusted."""
    root = asn1_x509.Certificate.load(certificate.public_bytes(serialization.Encoding.DER))
    (found,) = PdfFileReader(io.BytesIO(body)).embedded_signatures
    return validate_pdf_signature(found, ValidationContext(trust_roots=[root], moment=NOW))


def check_pdf_a(body: bytes) -> None:
    """What ISO 19005-3 asks, as far as a reader can tell without veraPDF."""
    reader = PdfFileReader(io.BytesIO(body))
    root = reader.root
    assert not reader.encrypted
    assert b"/JavaScript" not in body
    assert b"/Launch" not in body
    xmp = root["/Metadata"].data
    assert root["/Metadata"]["/Subtype"] == "/XML"
    assert b"<pdfaid:part>3</pdfaid:part>" in xmp or b'pdfaid:part="3"' in xmp
    assert b"<pdfaid:conformance>U</pdfaid:conformance>" in xmp or b'pdfaid:conformance="U"' in xmp
    (intent,) = root["/OutputIntents"]
    assert intent["/S"] == "/GTS_PDFA1"
    assert len(intent["/DestOutputProfile"].data) > 100
    assert root["/MarkInfo"]["/Marked"]
    assert "/StructTreeRoot" in root
    assert root["/Lang"] == "en"
    assert len(reader.trailer["/ID"]) == 2
    fonts = {}
    for page in root["/Pages"]["/Kids"]:
        for name, font in page.get_object()["/Resources"]["/Font"].items():
            fonts[name] = font.get_object()
    assert fonts
    for font in fonts.values():
        assert "/ToUnicode" in font
        (descendant,) = font["/DescendantFonts"]
        assert {"/FontFile2", "/FontFile3"} & set(descendant.get_object()["/FontDescriptor"])
    names = root["/Names"]["/EmbeddedFiles"]["/Names"]
    files = {str(names[at]): names[at + 1].get_object() for at in range(0, len(names), 2)}
    assert sorted(str(one["/UF"]) for one in files.values()) == ["incidents.csv", "result.json"]
    for one in files.values():
        assert one["/AFRelationship"] == "/Data"
        assert {"/Subtype", "/Params"} <= set(one["/EF"]["/F"])
        assert "/ModDate" in one["/EF"]["/F"]["/Params"]


@pytest.mark.full
@pytest.mark.django_db
def test_a_signed_claim_is_whole_the_same_twice_and_still_an_archive(
    contract: Any, actor: Actor, certificate: x509.Certificate, settings: Any
) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    body = made_or_skipped(lambda: pdf.claim_as_pdf(claim, actor.org))
    status = status_of(body, certificate)
    assert status.bottom_line
    assert status.coverage == SignatureCoverageLevel.ENTIRE_FILE
    assert status.signer_reported_dt == NOW
    assert pdf.claim_as_pdf(claim, actor.org) == body
    check_pdf_a(body)
    settings.GOODPUT_PDF_SIGNER = ""
    plain = pdf.claim_as_pdf(claim, actor.org)
    check_pdf_a(plain)
    assert body.startswith(plain)  # only appended to

    changed = body.replace(b"/GTS_PDFA1", b"/GTS_PDFA9", 1)
    assert changed != body
    assert not status_of(changed, certificate).bottom_line
    writer = IncrementalPdfFileWriter(io.BytesIO(body))
    writer.root["/Lang"] = writer.root["/Lang"].__class__("de")
    writer.update_root()
    out = io.BytesIO()
    writer.write(out)
    appended = status_of(out.getvalue(), certificate)
    assert appended.intact
    assert not appended.bottom_line


def test_without_a_certificate_nothing_is_signed(settings: Any) -> None:
    settings.GOODPUT_PDF_SIGNER = ""
    assert signed(b"%PDF-x", NOW) == b"%PDF-x"


def test_a_certificate_that_can_not_be_used_is_said_in_a_sentence(
    certificate: x509.Certificate, settings: Any, tmp_path: Path
) -> None:
    with pytest.raises(PdfUnavailable, match="could not be signed"):
        signed(b"%PDF-x", NOW)
    (tmp_path / "wrong").write_text("wrong")
    settings.GOODPUT_PDF_SIGNER_PASSWORD_FILE = str(tmp_path / "wrong")
    with pytest.raises(PdfUnavailable, match="password is wrong"):
        signed(b"%PDF-x", NOW)
    settings.GOODPUT_PDF_SIGNER = str(tmp_path / "absent")
    with pytest.raises(PdfUnavailable, match="can't be read: No such file"):
        signed(b"%PDF-x", NOW)
