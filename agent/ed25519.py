"""Ed25519 signatures, made and checked with the OpenSSL that this Python is linked to, else with `cryptography`.

Python's own modules offer no signatures, but the OpenSSL behind `hashlib` does (1.1.1 or newer). Using it costs no
dependency and saves the 8 MB of memory that `cryptography` takes.
"""

from __future__ import annotations

import ctypes
from typing import Callable, Optional

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
    try:
        import _hashlib

        library = ctypes.CDLL(_hashlib.__file__)
        new_key, free_key = library.EVP_PKEY_new_raw_public_key, library.EVP_PKEY_free
        new_context, free_context = library.EVP_MD_CTX_new, library.EVP_MD_CTX_free
        start, finish = library.EVP_DigestVerifyInit, library.EVP_DigestVerify
    except (ImportError, AttributeError, OSError, TypeError):
        return None
    for function in (new_key, new_context):
        function.restype = ctypes.c_void_p
    new_key.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    for function in (free_key, free_context):
        function.argtypes, function.restype = [ctypes.c_void_p], None
    start.argtypes = [ctypes.c_void_p] * 5
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


def _with_openssl(seed: bytes) -> Optional[tuple[bytes, Sign]]:
    try:
        import _hashlib

        library = ctypes.CDLL(_hashlib.__file__)  # its symbols include those of the libcrypto that it is linked to
        new_key = library.EVP_PKEY_new_raw_private_key
        get_public = library.EVP_PKEY_get_raw_public_key
        new_context, free_context = library.EVP_MD_CTX_new, library.EVP_MD_CTX_free
        start, finish = library.EVP_DigestSignInit, library.EVP_DigestSign
    except (ImportError, AttributeError, OSError, TypeError):
        return None
    for function in (new_key, new_context):
        function.restype = ctypes.c_void_p
    new_key.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    get_public.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]
    free_context.argtypes = [ctypes.c_void_p]
    start.argtypes = [ctypes.c_void_p] * 5
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
