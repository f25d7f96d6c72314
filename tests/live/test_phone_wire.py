"""The frames of phones of changing groups match docs/wire-phones.md and its vectors."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antecede.live.changing import greeting, secret_messages
from antecede.live.changing.contact import Contact
from antecede.live.envelope import body_in, unwrap
from antecede.live.transport import frames
from antecede.membership.freescale import ChangingFreescale
from antecede.membership.site_packets import author_id

DOCS = Path(__file__).parent.parent.parent / "docs"
VECTORS: dict[str, list[dict[str, Any]]] = json.loads((DOCS / "phone-vectors.json").read_text("utf-8"))
OF_MEMBERS = {"Gone": ["is_forgotten"]}
"""Frames of which a phone needs only these elements."""


def test_vectors_match_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a difference is intended: make a new version and run python docs/phone_vectors.py."""
    monkeypatch.syspath_prepend(str(DOCS))
    assert importlib.import_module("phone_vectors").text() == (DOCS / "phone-vectors.json").read_text("utf-8")


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda vector: vector["name"])
def test_frames_round_trip(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    frame = greeting.decode(data)
    assert type(frame).__name__ == vector["kind"]
    assert frames.encode(frame) == data


@pytest.mark.parametrize("vector", VECTORS["packets"], ids=lambda vector: vector["name"])
def test_packets_round_trip(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    packet = ChangingFreescale.decode(data)
    assert type(packet).__name__ == vector["kind"]
    assert ChangingFreescale.encode(packet) == data


def test_payloads_name_their_author() -> None:
    for vector in VECTORS["payloads"]:
        data = bytes.fromhex(vector["hex"])
        assert unwrap(data).author == "pia"
        assert vector["name"] != "text" or body_in(data) == "häi"


def test_addresses_and_origins() -> None:
    for each in VECTORS["addresses"]:
        contact = Contact(each["name"], bytes.fromhex(each["nonce"]), is_phone=each["phone"])
        assert contact.address == int(each["address"])
    for each in VECTORS["origins"]:
        assert author_id(int(each["stream"]), each["slot"]) == int(each["origin"])


def test_the_wire_format_page_lists_every_element_in_order() -> None:
    page = (DOCS / "wire-phones.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.*) \|$", page, re.MULTILINE)
    listed = {
        (int(tag), name): re.findall(r"`(\w+)`", rest) for tag, name, rest in rows if "wire.md" not in rest
    }
    kinds: list[type[msgspec.Struct]] = [
        *greeting.MemberFrame.__args__,
        *ChangingFreescale.packets.__args__,
        *secret_messages.AboutKeys.__args__,
    ]
    known = {(kind.__struct_config__.tag, kind.__name__): list(kind.__struct_fields__) for kind in kinds}
    for (tag, name), elements in listed.items():
        assert elements == OF_MEMBERS.get(name, known[tag, name]), name
    assert {name for _, name in listed} >= {vector["kind"] for vector in VECTORS["packets"]}
