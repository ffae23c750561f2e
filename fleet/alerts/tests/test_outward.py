"""Where an alert may go: a customer must not reach through this server what only this server reaches (SSRF)."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fleet.alerts import outward
from fleet.alerts.errors import ChannelInvalid
from fleet.alerts.models import Channel, Delivery
from fleet.alerts.outward import CallFailed, TargetRefused, check_url, exchange, is_allowed, post, resolve
from fleet.alerts.sealing import SealBroken, seal, unseal
from fleet.alerts.services import change_channel, held_secrets, shown
from fleet.alerts.tests.conftest import HttpSink
from fleet.services_incidents import Actor
from goodput_site.exposure import Exposure, networks
from orgs.models import AuditEntry

Make = Callable[..., Any]
NEVER = (
    *("169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "0.0.0.0", "::", "224.0.0.1"),
    *("255.255.255.255", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
)
PRIVATE = ("127.0.0.1", "::1", "10.0.0.1", "172.16.5.4", "192.168.1.50", "fc00::1", "::ffff:10.0.0.1", "100.64.0.1")
INDIRECT = ("64:ff9b::7f00:1", "2002:7f00:1::1", "64:ff9b::a00:1")
PUBLIC = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946")


@pytest.fixture
def public(settings: Any) -> Any:
    """A server that stands open to customers."""
    settings.GOODPUT_ALERT_NETWORKS = networks("auto", Exposure.PUBLIC)
    return settings


@pytest.mark.parametrize("address", [*NEVER, *PRIVATE, *INDIRECT])
def test_a_public_server_reaches_public_addresses_only(public: Any, address: str) -> None:
    assert not is_allowed(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_reached_from_everywhere(public: Any, address: str) -> None:
    assert is_allowed(ip_address(address))


@pytest.mark.parametrize("address", NEVER)
def test_no_setting_opens_where_clouds_keep_secrets(settings: Any, address: str) -> None:
    settings.GOODPUT_ALERT_NETWORKS = networks("0.0.0.0/0,::/0", Exposure.PUBLIC)
    assert not is_allowed(ip_address(address))


def test_a_self_hoster_reaches_private_networks_and_on_a_lan_not_the_servers_own_services() -> None:
    def opened(text: str, exposure: Exposure, address: str) -> bool:
        return any(
            ip_address(address).version == net.version and ip_address(address) in net
            for net in networks(text, exposure)
        )

    assert opened("auto", Exposure.LOCAL, "127.0.0.1")
    assert opened("auto", Exposure.LAN, "192.168.1.50")
    assert not opened("auto", Exposure.LAN, "127.0.0.1")
    assert opened("private, loopback", Exposure.PUBLIC, "127.0.0.1")
    assert opened("10.20.0.0/16", Exposure.PUBLIC, "10.20.1.1")
    assert not opened("10.20.0.0/16", Exposure.PUBLIC, "10.21.1.1")
    with pytest.raises(Exception, match="GOODPUT_ALERT_NETWORKS"):
        networks("10.0.0.0/33", Exposure.LAN)


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://localhost:6379/", "http://[::1]/", "http://2130706433/", "http://0x7f000001/"),
        *("http://127.1/", "http://0177.0.0.1/", "http://169.254.169.254/latest/meta-data/", "http://[::ffff:7f00:1]/"),
    ],
)
def test_spellings_of_loopback_and_metadata_are_refused(public: Any, url: str) -> None:
    with pytest.raises((TargetRefused, CallFailed)):
        resolve(url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://x.example/", "file:///etc/passwd", "gopher://x.example/", "https://", "https://u:p@x.example/"),
        *("https://x.example:0/", "https://x.example:99999/", "https://x.example/\r\nHost: y", "https://x .example/"),
        "https://x.example/" + "a" * 1000,
    ],
)
def test_what_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(TargetRefused):
        check_url(url)


def answers_of(monkeypatch: pytest.MonkeyPatch, *addresses: list[str]) -> list[str]:
    """Let names resolve to these, one list per question; the questions asked so far."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def fake(host: str, port: Any, *more: Any, **named: Any) -> Any:
        if not str(host).endswith(".example"):
            return real(host, port, *more, **named)
        asked.append(host)
        found = addresses[min(len(asked), len(addresses)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    return asked


def test_one_private_address_among_public_ones_is_enough_to_refuse(
    public: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers_of(monkeypatch, ["93.184.216.34", "10.0.0.1"])
    with pytest.raises(TargetRefused, match="rebind.example leads to an address"):
        resolve("https://rebind.example/")


def test_a_name_is_asked_once_and_the_checked_address_is_the_one_connected_to(
    settings: Any, http_sink: HttpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere on the second look (DNS rebinding) gets no second look."""
    asked = answers_of(monkeypatch, ["127.0.0.1"], ["192.0.2.1"])
    port = http_sink.url.rpartition(":")[2]
    assert post(f"http://sink.example:{port}/x", b"{}", {}) == 200
    assert asked == ["sink.example"]
    assert http_sink.received[0].headers["host"] == f"sink.example:{port}"


def test_no_proxy_of_the_environment_is_used(http_sink: HttpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert post(f"{http_sink.url}/", b"{}", {}) == 200


@pytest.mark.parametrize(
    ("begins", "drips"),
    [(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"), (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"), (b"", b"H")],
)
def test_a_receiver_that_drips_does_not_hold_the_worker(
    monkeypatch: pytest.MonkeyPatch, begins: bytes, drips: bytes
) -> None:
    monkeypatch.setattr(outward, "WHOLE_SECONDS", 1.0)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            peer, _ = server.accept()
            peer.recv(65536)
            with suppress(OSError):
                peer.sendall(begins)
                while not stop.wait(0.05):
                    peer.sendall(drips)

        def call() -> None:
            with suppress(CallFailed):
                post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", {})

        threads = [threading.Thread(target=one, daemon=True) for one in (drip, call)]
        for thread in threads:
            thread.start()
        threads[1].join(30)
        was_held = threads[1].is_alive()
        stop.set()
        threads[0].join(5)
    assert not was_held


def test_an_exchange_reads_the_answer_up_to_its_bound(http_sink: HttpSink) -> None:
    assert exchange(f"{http_sink.url}/x", b"question", {"Content-Type": "application/timestamp-query"}) == b"ok"
    assert http_sink.received[0].headers["content-type"] == "application/timestamp-query"
    with pytest.raises(CallFailed, match="longer than 1 bytes"):
        exchange(f"{http_sink.url}/x", b"question", {}, most_bytes=1)
    with pytest.raises(CallFailed, match="answered 501"):
        exchange(f"{http_sink.url}/x", None, {})  # the receiver of these tests knows no GET


@pytest.fixture
def tls_sink(tmp_path: Path) -> Iterator[tuple[int, str]]:
    """(port, certificate file) of a TLS server whose certificate says sink.example."""
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sink.example")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("sink.example")]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    cert, secret = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, secret)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)

        def serve() -> None:
            while not stop.is_set():
                with suppress(OSError):
                    peer, _ = server.accept()
                    peer.settimeout(5)
                    with peer, context.wrap_socket(peer, server_side=True) as tls:
                        tls.recv(65536)
                        tls.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], str(cert)
        stop.set()
        thread.join()


def test_tls_is_checked_against_the_name_that_was_typed(
    tls_sink: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, cert = tls_sink
    answers_of(monkeypatch, ["127.0.0.1"])
    with pytest.raises(CallFailed, match="TLS failed"):  # nobody vouches for it
        post(f"https://sink.example:{port}/", b"{}", {})
    trusted = ssl.create_default_context(cafile=cert)
    monkeypatch.setattr(ssl, "create_default_context", lambda: trusted)
    assert post(f"https://sink.example:{port}/", b"{}", {}) == 204
    with pytest.raises(CallFailed, match="TLS failed"):  # trusted, but for another name
        post(f"https://other.example:{port}/", b"{}", {})


@pytest.mark.django_db
def test_a_channel_that_leads_inside_is_refused_when_it_is_made_and_when_it_is_used(
    public: Any, channel_of: Make, break_gpu: Make, tell: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ChannelInvalid) as refused:
        channel_of("webhook", url="http://169.254.169.254/latest/")
    assert refused.value.field == "url"
    answers_of(monkeypatch, ["93.184.216.34"], ["169.254.169.254"])
    channel_of("webhook", url="https://rebind.example/")
    break_gpu()
    assert tell() == 0
    assert "may not reach" in Delivery.objects.get().error


SECRET_PATH, ROUTING_KEY, TOKEN = "T000SECRETB000", "PDSECRET" * 4, "Bearer AMSECRET"


@pytest.mark.django_db
def test_secrets_are_never_shown_kept_in_clear_or_logged(
    channel_of: Make, break_gpu: Make, tell: Make, actor: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    dead = "http://127.0.0.1:1"
    channels = [
        channel_of("slack", url=f"{dead}/services/{SECRET_PATH}"),
        channel_of("pagerduty", url=f"{dead}/{SECRET_PATH}", routing_key=ROUTING_KEY),
        channel_of("alertmanager", url=f"{dead}/{SECRET_PATH}", authorization=TOKEN),
    ]
    change_channel(channels[0].pk, {"url": f"{dead}/other/{SECRET_PATH}"}, actor)
    break_gpu()
    tell()
    seen = [
        caplog.text,
        *(str(shown(one)) for one in channels),
        *(str(one.sealed) + one.target + one.last_error for one in Channel.objects.all()),
        *(f"{one.error} {one.message} {one.sent_to}" for one in Delivery.objects.all()),
        *(f"{one.before} {one.after} {one.target}" for one in AuditEntry.objects.all()),
    ]
    assert Delivery.objects.exclude(error="").count() == 3
    for secret in (SECRET_PATH, ROUTING_KEY, TOKEN, "AMSECRET"):
        assert not any(secret in text for text in seen), secret
    assert held_secrets(channels[1]) == ("url", "routing_key")


@pytest.mark.django_db
def test_another_secret_key_breaks_the_seal_and_says_so(settings: Any, channel_of: Make) -> None:
    channel = channel_of("slack", url="http://127.0.0.1:1/x")
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "another secret key of this server, long enough"
    assert held_secrets(channel) == ("broken",)
    with pytest.raises(SealBroken):
        unseal(channel.sealed)
    settings.SECRET_KEY_FALLBACKS = [old]
    assert held_secrets(channel) == ("url",)
    assert unseal(seal({"a": "b"})) == {"a": "b"}
