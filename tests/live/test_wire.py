"""The wire format matches docs/wire.md, its vectors, and its list of frames and packets."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fuzz_decoders import fuzz

from antecede.live.addressing import is_for
from antecede.live.envelope import decode_body, unwrap
from antecede.live.security import identity
from antecede.live.transport import frames
from antecede.protocols.base import Packet, Protocol
from antecede.protocols.catalog import PROTOCOLS
from antecede.protocols.freescale.hierarchy import Hierarchy

DOCS = Path(__file__).parent.parent.parent / "docs"
VECTORS: dict[str, list[dict[str, Any]]] = json.loads((DOCS / "wire-vectors.json").read_text("utf-8"))
NOT_LIVE = {"hcg", "basic", "multigroup"}
CLASSES = {name: each for name, each in PROTOCOLS.items() if name not in NOT_LIVE} | {"levels": Hierarchy}
"""What runs in groups with a fixed list; with super peers behind others, `freescale` is another class."""


def test_vectors_match_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a difference is intended: make a new version and run python docs/vectors.py."""
    monkeypatch.syspath_prepend(str(DOCS))
    assert importlib.import_module("vectors").text() == (DOCS / "wire-vectors.json").read_text("utf-8")


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda vector: vector["name"])
def test_frames_round_trip(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    frame = frames.decode(data)
    assert type(frame).__name__ == vector["kind"]
    assert frames.encode(frame) == data


@pytest.mark.parametrize("vector", VECTORS["packets"], ids=lambda vector: vector["name"])
def test_packets_round_trip_in_their_protocols(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    names = [name for name in vector["name"].split(", ") if name in CLASSES]
    assert names
    for name in names:
        packet = CLASSES[name].decode(data)
        assert type(packet).__name__ == vector["kind"]
        assert Protocol.encode(packet) == data


def test_every_packet_of_a_live_protocol_has_a_vector() -> None:
    known = {vector["kind"] for vector in VECTORS["packets"]}
    for name, protocol in CLASSES.items():
        kinds = protocol.packets
        kinds = getattr(kinds, "__args__", (kinds,))
        assert {kind.__name__ for kind in kinds} <= known, name


def test_payloads_decode_to_their_bodies() -> None:
    payloads = [bytes.fromhex(vector["hex"]) for vector in VECTORS["payloads"]]
    assert [is_for(payload, ["bo"]) for payload in payloads] == [True] * 6
    assert [is_for(payload, ["ana", "cy"]) for payload in payloads] == [True] * 5 + [False]
    bodies = [decode_body(unwrap(payload)) for payload in payloads[:5]]
    assert bodies == [b"\x00\xff", "häi", {"n": 1}, "häi", b"\x89PNG"]


def test_the_token_of_the_vectors_is_valid() -> None:
    (vector,) = VECTORS["tokens"]
    found = identity.verify_token(bytes.fromhex(vector["key"]), vector["token"], 1_999_999_999)
    assert found.identity == identity.Identity("room", "phone")
    assert found.number == vector["id"]


def test_the_wire_format_page_lists_every_element_in_order() -> None:
    page = (DOCS / "wire.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\w+) \|(?: [\w, -]+ \|)? (.*?) \|", page, re.MULTILINE)
    listed = {(int(tag), name.lower()): re.findall(r"`(\w+)`", rest) for tag, name, rest in rows}
    kinds: list[type[msgspec.Struct]] = list(frames.Frame.__args__)
    for protocol in CLASSES.values():
        kinds += getattr(protocol.packets, "__args__", (protocol.packets,))
    assert all(issubclass(kind, Packet) for kind in kinds[len(frames.Frame.__args__) :])
    for kind in kinds:
        tag = kind.__struct_config__.tag
        assert isinstance(tag, int)
        assert listed[tag, kind.__name__.lower()] == list(kind.__struct_fields__), kind


def test_random_bytes_raise_only_remote_errors() -> None:
    tried = fuzz(60.0, 1, inputs=40_000)
    assert tried["good packets"] > 10
    assert tried["refused packets"] > 100
