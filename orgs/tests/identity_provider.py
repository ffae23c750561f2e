"""A small OpenID Connect provider over real HTTP: discovery, authorization code with PKCE, signed tokens, keys."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "goodput", "a secret that client and provider share"


class Provider(ThreadingHTTPServer):
    """Says of everybody who asks that they are `claims`. `asked` holds what came to the token endpoint."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.claims: dict[str, Any] = {
            "sub": "ada-at-the-provider",
            "email": "ada@alpha.example",
            "email_verified": True,
        }
        self.key = rsa.generate_private_key(65537, 2048)
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[dict[str, str]] = []

    def configuration(self) -> dict[str, Any]:
        """The discovery document."""
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        places["userinfo_endpoint"] = "userinfo"
        found: dict[str, Any] = {name: f"{self.url}/{path}" for name, path in places.items()}
        return {"issuer": self.url, "token_endpoint_auth_methods_supported": ["client_secret_post"], **found}

    def keys(self) -> dict[str, Any]:
        """The public key that tokens are signed with."""
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}

    def token(self, form: dict[str, str]) -> dict[str, Any] | None:
        """Tokens for a code, once, to the client that proves that it began; else None."""
        self.asked.append(form)
        begun = self.codes.pop(form.get("code", ""), None)
        if begun is None or (form.get("client_id"), form.get("client_secret")) != (CLIENT, SECRET):
            return None
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != begun["code_challenge"]:
            return None
        now = int(time.time())
        claims = {**self.claims, "iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 60}
        signed = jwt.encode(claims, self.key, "RS256", headers={"kid": "one"})
        return {"access_token": "access", "token_type": "Bearer", "expires_in": 60, "id_token": signed}


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def _answer(self, body: Any, status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/authorize":
            asked = {key: values[0] for key, values in parse_qs(address.query).items()}
            code = secrets.token_hex(8)
            self.server.codes[code] = asked
            self.send_response(302)
            self.send_header(
                "Location", f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"
            )
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif address.path == "/.well-known/openid-configuration":
            self._answer(self.server.configuration())
        elif address.path == "/keys":
            self._answer(self.server.keys())
        elif address.path == "/userinfo" and self.headers.get("Authorization") == "Bearer access":
            self._answer(self.server.claims)
        else:
            self._answer({"error": "not here"}, 404)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        found = self.server.token({key: values[0] for key, values in form.items()})
        self._answer(found or {"error": "invalid_grant"}, 200 if found else 400)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def running() -> Iterator[Provider]:
    """A provider on a free port of this machine."""
    with Provider() as provider:
        thread = threading.Thread(target=provider.serve_forever, daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            provider.shutdown()
            thread.join()
