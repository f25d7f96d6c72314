"""A real browser at a super peer's port, with the certificates that `antecede keys` makes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.server
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from live_groups import run
from websockets.asyncio.server import ServerConnection, serve

import antecede
from antecede.live.group import Group
from antecede.live.security import certificates, keys
from antecede.live.security.identity import Identity
from antecede.live.transport.frames import Greeting, Refusal, decode
from chromium import find_browser, open_browser

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

TRUST = Path(__file__).parent / "trust_authority.py"
COMMON: dict[str, Any] = {"protocol": "freescale"}

CONNECT_AND_GREET = """
const [url, greeting, done] = arguments;
const socket = new WebSocket(url);
socket.binaryType = 'arraybuffer';
let answer = 'closed';
socket.onopen = () => socket.send(Uint8Array.from(greeting));
socket.onmessage = event => { answer = Array.from(new Uint8Array(event.data)); socket.close(); };
socket.onclose = event => done(answer === 'closed' ? 'closed ' + event.code : answer);
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys")
    keys.make_keys(made, "room", ["sue"], ["phone"], 365, {"sue": ["localhost"]}, ["sue"])
    return made


@pytest.fixture(scope="module")
def browser(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A browser that trusts the authority of these keys."""
    find_browser()
    home = tmp_path_factory.mktemp("home")
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    (home / "ca.der").write_bytes(authority.public_bytes(serialization.Encoding.DER))
    subprocess.run([sys.executable, str(TRUST), str(home), str(home / "ca.der")], check=True)
    opened = open_browser(tmp_path_factory.mktemp("browser"), home)
    opened.set_script_timeout(20)
    yield opened
    opened.quit()


@contextlib.contextmanager
def page_at(host: str, folder: Path) -> Iterator[str]:
    """An empty web page of some origin."""
    (folder / "index.html").write_text("<!doctype html><title>a page</title>")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    server = http.server.ThreadingHTTPServer((host, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{'localhost' if host == '127.0.0.1' else host}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.asynccontextmanager
async def super_peer(keys_of_sue: Path) -> AsyncIterator[Group]:
    async with antecede.join(
        "room", me="sue", listen=":0", web=":0", peers=["phone behind sue"], keys=keys_of_sue, **COMMON
    ) as sue:
        yield sue


async def greeting_of_the_phone(folder: Path) -> list[int]:
    """A phone's greeting, token included, to the server that presents its super peer's certificate."""
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(connection: ServerConnection) -> None:
        message = await connection.recv()
        if not heard.done():
            heard.set_result(bytes(message) if isinstance(message, bytes) else message.encode())

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "sue" / "certificate.pem", folder / "sue" / "key.pem")
    async with serve(listen, "127.0.0.1", 0, ssl=context) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        peers = [f"sue@wss://127.0.0.1:{port}"]
        async with antecede.join(
            "room", me="phone", behind="sue", peers=peers, keys=folder / "phone", **COMMON
        ):
            return list(await heard)


async def connect_and_greet(browser: Chrome, sue: Group, page: str, greeting: list[int]) -> Any:
    """What the script on a page gets back."""
    port = str(sue.web_address).rpartition(":")[2]

    def script() -> Any:
        browser.get(page)
        return browser.execute_async_script(CONNECT_AND_GREET, f"wss://localhost:{port}", greeting)

    return await asyncio.to_thread(script)


def test_a_page_greets_a_super_peer_by_wss_with_its_token(
    browser: Chrome, folder: Path, tmp_path: Path
) -> None:
    async def test() -> None:
        greeting = await greeting_of_the_phone(folder)
        async with super_peer(folder / "sue") as sue:
            with page_at("127.0.0.1", tmp_path) as page:
                answer = await connect_and_greet(browser, sue, page, greeting)
                assert isinstance(answer, list), answer
                assert isinstance(decode(bytes(answer)), Greeting)
                # With an unauthenticated greeting it learns the reason for the refusal and nothing else.
                forged = bytes(greeting).replace(b"eyJ", b"eyK")
                answer = await connect_and_greet(browser, sue, page, list(forged))
                assert isinstance(decode(bytes(answer)), Refusal)

    run(test())


def test_a_page_of_another_host_is_refused_by_a_browser_too(
    browser: Chrome, folder: Path, tmp_path: Path
) -> None:
    async def test() -> None:
        greeting = await greeting_of_the_phone(folder)
        async with super_peer(folder / "sue") as sue:
            with page_at("127.0.0.2", tmp_path) as page:
                assert await connect_and_greet(browser, sue, page, greeting) == "closed 1006"
            assert not sue.connected

    run(test())


def test_a_browser_rejects_ed25519_certificates(browser: Chrome, folder: Path, tmp_path: Path) -> None:
    """Ed25519 certificates of the same authority and hosts are rejected, which is why P-256 is used."""
    old = tmp_path / "sue"
    old.mkdir()
    for file in (folder / "sue").iterdir():
        (old / file.name).write_bytes(file.read_bytes())
    issuer = certificates.Issuer(
        keys._authority_key(folder), x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    )
    key: Any = Ed25519PrivateKey.generate()
    holder = Identity("room", "sue")
    made = issuer.issue_for_tls(key.public_key(), holder, 365, ["localhost"])
    (old / "key.pem").write_bytes(certificates.private_pem(key))
    (old / "certificate.pem").write_bytes(certificates.certificate_pem(made))

    async def test() -> None:
        greeting = await greeting_of_the_phone(folder)
        async with super_peer(old) as sue:
            with page_at("127.0.0.1", tmp_path) as page:
                assert await connect_and_greet(browser, sue, page, greeting) == "closed 1006"

    run(test())
