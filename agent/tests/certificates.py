"""Certificates of an authority and of servers, for tests."""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509


def certificate(directory, name, address="127.0.0.1", days=30, issuer=None):
    """(certificate file, key file, (certificate, key)) of a server, self-signed or signed by `issuer`."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=60))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if not issuer:  # what Python 3.13 asks of an authority
        usage = dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment"), False)
        usage |= dict.fromkeys(("data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False)
        usage |= {"key_cert_sign": True, "crl_sign": True}
        builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    if issuer:
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[0].public_key())
        builder = builder.add_extension(identifier, critical=False)
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        builder = builder.add_extension(names, critical=False)
    made = builder.sign(issuer[1] if issuer else key, hashes.SHA256())
    files = directory / f"{name}.pem", directory / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files[0], files[1], (made, key)
