"""Ed25519 signatures, made and checked with the OpenSSL that this Python is linked to, else with `cryptography`.

Python's own modules offer no signatures, but the OpenSSL behind `hashlib` does (1.1.1 or newer). Using it costs no
dependency and saves the 8 MB of memory that `cryptography` takes.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Optional

SEED_BYTES, PUBLIC_BYTES, SIGNATURE_BYTES = 32, 32, 64
_EVP_PKEY_ED25519 = 1087

Sign = Callable[[bytes], bytes]


def load(seed: bytes) -> Optional[tuple[bytes, Sign]]:
    """(public key, signing function) of a 32-byte seed; None where nothing here can sign."""
    return _with_openssl(seed) or _with_cryptography(seed)


def verify(public: bytes, message: bytes, signature: bytes) -> Optional[bool]:
    """Whether the signature is this key's over the message; None where nothing here can tell."""
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    found = _verify_openssl(public, message, signature)
    return _verify_cryptography(public, message, signature) if found is None else found


def _verify_openssl(public: bytes, message: bytes, signature: bytes) -> Optional[bool]:
    found = _openssl("public", "EVP_PKEY_free", "EVP_DigestVerifyInit", "EVP_DigestVerify")
    if found is None:
        return None
    new_key, new_context, free_context, free_key, start, finish = found
    free_key.argtypes, free_key.restype = [ctypes.c_void_p], None
    finish.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    key = new_key(_EVP_PKEY_ED25519, None, public, len(public))
    if not key:
        return False
    context = new_context()
    try:
        if start(context, None, None, None, key) != 1:
            return None
        return bool(finish(context, signature, len(signature), message, len(message)) == 1)
    finally:
        free_context(context)
        free_key(key)


def _verify_cryptography(public: bytes, message: bytes, signature: bytes) -> Optional[bool]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return None
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _openssl(which: str, *names: str) -> Optional[list[Any]]:
    """OpenSSL's makers of a raw `which` key and of a context, what frees a context, and the functions of these names,
    the first beside them, the initialiser and the last step; None where this Python has no such OpenSSL.
    """
    try:
        import _hashlib

        library = ctypes.CDLL(_hashlib.__file__)  # its symbols include those of the libcrypto that it is linked to
        new_key = getattr(library, f"EVP_PKEY_new_raw_{which}_key")
        new_context, free_context = library.EVP_MD_CTX_new, library.EVP_MD_CTX_free
        other, start, finish = (getattr(library, name) for name in names)
    except (ImportError, AttributeError, OSError, TypeError):
        return None
    for function in (new_key, new_context):
        function.restype = ctypes.c_void_p
    new_key.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    free_context.argtypes, free_context.restype = [ctypes.c_void_p], None
    start.argtypes = [ctypes.c_void_p] * 5
    return [new_key, new_context, free_context, other, start, finish]


def _with_openssl(seed: bytes) -> Optional[tuple[bytes, Sign]]:
    found = _openssl("private", "EVP_PKEY_get_raw_public_key", "EVP_DigestSignInit", "EVP_DigestSign")
    if found is None:
        return None
    new_key, new_context, free_context, get_public, start, finish = found
    get_public.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]
    finish.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    key = new_key(_EVP_PKEY_ED25519, None, seed, len(seed))
    if not key:
        return None
    public, size = ctypes.create_string_buffer(PUBLIC_BYTES), ctypes.c_size_t(PUBLIC_BYTES)
    if get_public(key, public, ctypes.byref(size)) != 1 or size.value != PUBLIC_BYTES:
        return None

    def sign(message: bytes) -> bytes:
        context = new_context()
        try:
            signature, length = ctypes.create_string_buffer(SIGNATURE_BYTES), ctypes.c_size_t(SIGNATURE_BYTES)
            begun = start(context, None, None, None, key)
            if begun != 1 or finish(context, signature, ctypes.byref(length), message, len(message)) != 1:
                raise RuntimeError("OpenSSL could not sign")
            return signature.raw[: length.value]
        finally:
            free_context(context)

    return public.raw, sign


def _with_cryptography(seed: bytes) -> Optional[tuple[bytes, Sign]]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        return None
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return key.public_key().public_bytes_raw(), key.sign
