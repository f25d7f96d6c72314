"""Logs at URLs: from a real web server on this machine, which may be broken or hostile."""

from __future__ import annotations

import base64
import gzip
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from commands import SAMPLES, refusal, run, run_json

from antecede.errors import InputError
from antecede.sources.download import Patience, download, without_secrets

OTLP = (SAMPLES / "otlp.json").read_bytes()
TRACE = """run,group,process,index,kind,origin,seq,time
r,g,ana,1,send,ana,1,0
r,g,ben,1,deliver,ana,1,1
"""
SECRETS = ("hunter2", "sig=123", "YW5h")


class Handler(BaseHTTPRequestHandler):
    """The path of a URL selects the fault of the response."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None]]] = []
    other = ""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.seen.append((self.headers["Host"], self.headers["Authorization"]))
        getattr(self, path.strip("/").split("/")[0].replace("-", "_"))(path)

    def answer(self, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def good(self, path: str) -> None:
        name = path.rpartition("/")[2]
        body = TRACE.encode() if name.startswith("trace") else OTLP
        kind = "text/csv" if name == "trace" else "application/octet-stream"
        self.answer(gzip.compress(body) if name.endswith(".gz") else body, Content_Type=kind)

    def damaged(self, path: str) -> None:
        self.answer((SAMPLES / "kcat.jsonl").read_bytes() + b'{"topic":\n')

    def private(self, path: str) -> None:
        expected = f"Basic {base64.b64encode(b'ana:hunter2').decode()}"
        if self.headers["Authorization"] == expected:
            self.answer(OTLP)
        else:
            self.send_error(401, "who\x1b[31m are you")

    def missing(self, path: str) -> None:
        self.send_error(404)

    def to(self, path: str) -> None:
        where = {
            "file": "file:///etc/passwd",
            "ftp": "ftp://127.0.0.1/x",
            "loop": self.path,
            "other": f"{self.other}/good/spans.json",
            "relative": "/good/spans.json",
        }[path.rpartition("/")[2]]
        self.send_response(302)
        self.send_header("Location", where)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def short(self, path: str) -> None:
        self.answer(OTLP[:1000], len(OTLP))
        self.close_connection = True

    def huge(self, path: str) -> None:
        self.answer(b"{}", 1 << 40)
        self.close_connection = True

    def endless(self, path: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        except OSError:
            self.close_connection = True

    def cut(self, path: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"10000\r\n" + OTLP[:500])
        self.close_connection = True

    def bomb(self, path: str) -> None:
        self.answer(gzip.compress(OTLP + b"\n" * (40 << 20)))

    def brotli(self, path: str) -> None:
        self.answer(b"\x0b\x02", Content_Encoding="br")

    def packed(self, path: str) -> None:
        self.answer(gzip.compress(OTLP), Content_Encoding="gzip")

    def drip(self, path: str) -> None:
        """A byte of the header every tenth of a second, for ever."""
        try:
            while True:
                self.wfile.write(b"H")
                self.wfile.flush()
                time.sleep(0.1)
        except OSError:
            self.close_connection = True

    def garbage(self, path: str) -> None:
        self.wfile.write(b"\x00\x01SSH-2.0-nothing\r\n\r\n")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Handler.other = f"http://localhost:{server.server_port}"
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.mark.parametrize("name", ["spans.json", "spans.json.gz", "a b", "x?sig=123"])
def test_a_source_at_a_url_is_audited(web: str, name: str) -> None:
    code, found = run_json("audit", f"{web}/good/{name}")
    shown = f"{web}/good/{name.replace(' ', '%20').partition('?')[0]}"
    assert (code, found["preset"], found["records"], found["trace"]) == (1, "otlp", 6, shown)
    (read,) = found["lineage"]["files"]
    assert (read["file"], read["rows"], found["lineage"]["source"]) == (shown, 6, shown)
    assert f"({shown}, span" in found["missing"][0]["text"]


def test_every_command_reads_urls(web: str, tmp_path: Path) -> None:
    code, found = run_json("audit", f"{web}/good/trace.csv")
    assert (code, found["deliveries"], found["trace"]) == (0, 1, f"{web}/good/trace.csv")
    assert run_json("audit", f"{web}/good/trace")[0] == 0  # its type says that it is CSV
    assert run_json("explain", f"{web}/good/trace.csv.gz", "--message", "ana:1")[0] == 0
    assert run_json("graph", f"{web}/good/spans.json.gz")[0] == 0
    code, found = run_json("order", f"{web}/good/spans.json", "--out", tmp_path / "ordered")
    rows = pq.read_table(tmp_path / "ordered").to_pylist()
    run_json("order", f"{web}/damaged/kcat.jsonl", "--out", tmp_path / "damaged")
    files = {row["file"] for row in pq.read_table(tmp_path / "damaged").to_pylist()}
    assert files == {f"{web}/damaged/kcat.jsonl"}
    assert {row["file"] for row in rows} == {f"{web}/good/spans.json"}
    code, found = run_json("import", "otlp", f"{web}/good/spans.json?sig=123", "--out", tmp_path / "table")
    assert (code, found["source"]) == (0, f"{web}/good/spans.json")
    assert "sig=123" not in (tmp_path / "table" / "dependencies.json").read_text()
    page = tmp_path / "page.html"
    assert run_json("audit", f"{web}/good/trace.csv?sig=123", "--html", page)[0] == 0
    assert f"{web}/good/trace.csv" in page.read_text()
    assert "sig=123" not in page.read_text()
    assert "antecede-download" not in page.read_text()


def test_a_file_url_is_its_path(tmp_path: Path) -> None:
    file = tmp_path / "my spans.json"
    file.write_bytes(OTLP)
    code, found = run_json("audit", f"file://{tmp_path}/my%20spans.json")
    assert (code, found["records"], found["trace"]) == (1, 6, str(file))
    assert "another machine" in refusal("audit", f"file://elsewhere{file}")


def test_credentials_are_used_and_shown_nowhere(web: str, tmp_path: Path) -> None:
    host = web.removeprefix("http://")
    url = f"http://ana:hunter2@{host}/private/spans.json?sig=123"
    for words in (["audit", url], ["audit", url, "--json"], ["audit", url, "--strict", "--level", "CC"]):
        code, out = run(*words)
        assert f"{web}/private/spans.json" in out, (code, out)
        assert not any(secret in out for secret in SECRETS)
    refused = refusal("audit", f"http://ana:wrong-hunter2@{host}/private/spans.json?sig=123")
    assert "the server answered 401 who\\x1b[31m are you; give credentials" in refused
    assert not any(secret in refused for secret in SECRETS)
    assert not any(secret in refusal("audit", "s3a://ana:hunter2@b/x", "--map", "a=b") for secret in SECRETS)


def test_a_redirect_takes_no_credentials_to_another_server(web: str) -> None:
    Handler.seen.clear()
    host = web.removeprefix("http://")
    code, _ = run_json("audit", f"http://ana:hunter2@{host}/to/other")
    (_, first), (other, second) = Handler.seen
    assert code == 1
    assert first is not None
    assert (other.split(":")[0], second) == ("localhost", None)
    Handler.seen.clear()
    run_json("audit", f"http://ana:hunter2@{host}/to/relative")
    assert [given is not None for _, given in Handler.seen] == [True, True]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("missing/x", "the server answered 404 Not Found"),
        ("to/file", "redirects to file:///etc/passwd, which is not followed"),
        ("to/ftp", "redirects to ftp://127.0.0.1/x, which is not followed"),
        ("to/loop", "redirects again and again"),
        ("short/x", f"is not complete: the connection ended after 1,000 of {len(OTLP):,} bytes"),
        ("cut/x", "is not complete: the connection ended after"),
        ("huge/x", "has more than 2,147,483,648 bytes"),
        ("bomb/x.gz", "decompresses to more than 16,777,216 bytes"),
        ("brotli/x", "the server compresses it as br, which is not read"),
        ("garbage/x", "the server's answer is not HTTP"),
    ],
)
def test_errors_of_a_server_are_reported_in_one_sentence(web: str, path: str, why: str) -> None:
    refused = refusal("audit", f"{web}/{path}?sig=123")
    assert refused.startswith(f"{web}/{path}")
    assert why in refused
    assert "sig=123" not in refused
    assert "antecede-download" not in refused


def test_an_endless_body_is_bounded(web: str) -> None:
    refused = refusal("audit", f"{web}/endless/x.json", "--max-bytes", "3000000")
    assert "has more than 3,000,000 bytes; if it should be read all the same, give --max-bytes" in refused


def test_a_slow_download_is_abandoned(web: str, tmp_path: Path) -> None:
    patience = Patience(step=30, start=0.5, rate=1000)
    with pytest.raises(InputError, match="is too slow"):
        download(f"{web}/drip/x", tmp_path, patience=patience)


def test_a_body_that_the_server_compressed_is_decompressed(web: str) -> None:
    assert run_json("audit", f"{web}/packed/spans.json")[1]["records"] == 6


def test_downloads_leave_no_files_behind(web: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_json("audit", f"{web}/good/spans.json.gz")
    refusal("audit", f"{web}/short/x")
    assert not list(tmp_path.glob("antecede-*"))


def test_unreachable_and_invalid_urls_are_refused(tmp_path: Path) -> None:
    assert "cannot be downloaded: Connection refused" in refusal("audit", "http://127.0.0.1:9/x")
    assert "cannot be downloaded" in refusal("audit", "https://nowhere.invalid/x")
    assert "names no server" in refusal("audit", "https:///x")
    assert "not HTTP" in refusal("audit", "http://127.0.0.1:port/x")


def test_urls_of_other_kinds_go_to_spark_or_are_refused(tmp_path: Path) -> None:
    for url in ("s3://bucket/log.jsonl", "abfss://c@account.dfs.core.windows.net/log", "hdfs://name/log"):
        shown = without_secrets(url)
        for words in (["explain", url, "--message", "m"], ["import", "otlp", url, "--out", tmp_path / "o"]):
            refused = refusal(*words)
            assert refused.startswith(shown)
            assert "is read by Spark only, and this command reads local files; copy it here first" in refused
        assert "copy it here first" in refusal("audit", url, "--preset", "otlp")
        assert "by Spark only; leave out --engine local" in refusal("audit", url, "--engine", "local")
    # In a process of its own: where a session is open already, Spark's errors are those of its owner.
    command = [sys.executable, "-m", "antecede", "audit", "s3://bucket/log.jsonl"]
    refused_by_spark = subprocess.run(command, capture_output=True, text=True)
    assert refused_by_spark.returncode == 2
    assert "the page Traces of the documentation has it" in " ".join(refused_by_spark.stderr.split())


def test_a_stream_does_not_read_the_web(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "not from the web" in refusal("order", "https://host/x.jsonl", "--stream", "--out", out)
