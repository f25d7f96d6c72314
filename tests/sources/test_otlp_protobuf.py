"""OTLP as protobuf gives what OTLP as JSON gives. Google's own library encodes it here."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import SAMPLES, refusal, run_json
from hypothesis import given
from hypothesis import strategies as st

from antecede.errors import InputError
from antecede.sources.otlp_protobuf import read_otlp_protobuf
from antecede.sources.recognise import recognise
from antecede.trace.bad_rows import BadRows

descriptor_pb2, descriptor_pool, message_factory = (
    importlib.import_module(f"google.protobuf.{name}")
    for name in ("descriptor_pb2", "descriptor_pool", "message_factory")
)
TEXT, BYTES, FIXED64, INT64, UINT32, MESSAGE = 9, 12, 6, 3, 13, 11
MESSAGES: dict[str, dict[str, tuple[int, int | str, bool]]] = {
    "Value": {"stringValue": (1, TEXT, False), "intValue": (3, INT64, False)},
    "Attribute": {"key": (1, TEXT, False), "value": (2, "Value", False)},
    "Resource": {"attributes": (1, "Attribute", True)},
    "Scope": {"name": (1, TEXT, False), "version": (2, TEXT, False)},
    "Link": {"traceId": (1, BYTES, False), "spanId": (2, BYTES, False)},
    "Span": {
        "traceId": (1, BYTES, False),
        "spanId": (2, BYTES, False),
        "parentSpanId": (4, BYTES, False),
        "name": (5, TEXT, False),
        "kind": (6, UINT32, False),
        "startTimeUnixNano": (7, FIXED64, False),
        "endTimeUnixNano": (8, FIXED64, False),
        "attributes": (9, "Attribute", True),
        "links": (13, "Link", True),
    },
    "ScopeSpans": {"scope": (1, "Scope", False), "spans": (2, "Span", True)},
    "ResourceSpans": {"resource": (1, "Resource", False), "scopeSpans": (2, "ScopeSpans", True)},
    "Request": {"resourceSpans": (1, "ResourceSpans", True)},
}


def message_class(name: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto3")
    for each, fields in MESSAGES.items():
        made = file.message_type.add(name=each)
        for field, (number, kind, repeated) in fields.items():
            added = made.field.add(name=field, number=number, label=3 if repeated else 1)
            added.type = MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                added.type_name = f".otlp.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"otlp.{name}"))


def fill(message: Any, name: str, value: dict[str, Any]) -> Any:
    for field, inner in value.items():
        if field not in MESSAGES[name]:
            continue
        _, kind, repeated = MESSAGES[name][field]
        if isinstance(kind, str):
            for each in inner if repeated else [inner]:
                fill(getattr(message, field).add() if repeated else getattr(message, field), kind, each)
        else:
            convert = bytes.fromhex if kind == BYTES else str if kind == TEXT else int
            setattr(message, field, convert(inner))
    return message


def encoded(text: str) -> bytes:
    data: bytes = fill(message_class("Request")(), "Request", json.loads(text)).SerializeToString()
    return data


REQUESTS = [encoded(line) for line in (SAMPLES / "otlp.json").read_text().splitlines()]
FRAMED = {
    "one request": b"".join(REQUESTS),
    "four bytes of length": b"".join(len(each).to_bytes(4) + each for each in REQUESTS),
    "a varint of length": b"".join(
        bytes([len(each) & 0x7F | 0x80, len(each) >> 7]) + each for each in REQUESTS
    ),
}


@pytest.mark.parametrize("framing", FRAMED)
def test_otlp_protobuf_and_json_give_the_same_result(framing: str, tmp_path: Path) -> None:
    file = tmp_path / "spans.bin"
    _, expected = run_json("audit", SAMPLES / "otlp.json")
    for data in (FRAMED[framing], gzip.compress(FRAMED[framing])):
        file.write_bytes(data)
        code, found = run_json("audit", file)
        assert code == 1
        assert found["bad"] == []
        for kind in ("missing", "skew"):
            assert [each.pop("text") for each in found[kind]]
            for each in expected[kind]:
                each.pop("text", None)
        different = {"trace", "files", "lineage"}
        assert {name: value for name, value in found.items() if name not in different} == {
            name: value for name, value in expected.items() if name not in different
        }


def compressed_by_collector(messages: list[bytes]) -> bytes:
    """As the collector's file exporter compresses: each message by itself, after four bytes of its length."""
    frames = [pa.compress(each, "zstd", asbytes=True) for each in messages]
    return b"".join(len(frame).to_bytes(4) + frame for frame in frames)


@pytest.mark.parametrize("form", ["json", "proto"])
def test_otlp_compressed_per_message_by_the_collector_is_read(form: str, tmp_path: Path) -> None:
    lines = (SAMPLES / "otlp.json").read_bytes().splitlines()
    file = tmp_path / "traces.zst"
    file.write_bytes(compressed_by_collector(lines if form == "json" else REQUESTS))
    _, expected = run_json("audit", SAMPLES / "otlp.json")
    code, found = run_json("audit", file)
    assert (code, found["preset"], found["bad"]) == (1, "otlp", [])
    for name in ("records", "causes", "missing_causes", "skewed_pairs"):
        assert found[name] == expected[name], name


def test_damaged_and_oversized_messages_of_the_collector_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "traces.zst"
    whole = compressed_by_collector(REQUESTS)
    file.write_bytes(whole[:-5])
    assert "traces.zst is damaged zstd" in refusal("audit", file)
    second = 4 + int.from_bytes(whole[:4])
    file.write_bytes(whole[: second + 4] + bytes(20) + whole[second + 24 :])
    assert "traces.zst is damaged zstd" in refusal("audit", file)
    file.write_bytes(whole + (1 << 31).to_bytes(4) + whole[4:])
    assert "message" in refusal("audit", file)
    file.write_bytes(compressed_by_collector([REQUESTS[0], bytes(1 << 25)]))
    assert "decompresses to more than" in refusal("audit", file)


@pytest.mark.parametrize("framing", FRAMED)
def test_a_truncated_protobuf_file_is_recognised_and_its_end_counted_as_bad(
    framing: str, tmp_path: Path
) -> None:
    data = FRAMED[framing]
    for end in range(60, len(data), 37):
        found = recognise(data[:end])
        assert found is not None, end
        assert found.name == "otlp"
        file = tmp_path / "spans.bin"
        file.write_bytes(data[:end])
        bad = BadRows("x", strict=False)
        list(read_otlp_protobuf(file, bad))
        assert bad.rows <= 1


@given(st.binary(max_size=60), st.integers(0, 500), st.integers(0, 60))
def test_damaged_protobuf_raises_nothing_but_input_errors(
    tmp_path_factory: pytest.TempPathFactory, inserted: bytes, at: int, cut: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "damaged.bin"
    for data in FRAMED.values():
        place = at % len(data)
        file.write_bytes(data[:place] + inserted + data[place + cut :])
        recognise(file.read_bytes())
        bad = BadRows("x", strict=False)
        with contextlib.suppress(InputError):
            list(read_otlp_protobuf(file, bad))


def test_protobuf_groups_and_overlong_varints_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "spans.bin"
    for junk, why in (
        (b"\x0b", "wire type 3"),
        (b"\x0a" + b"\xff" * 11, "more than ten bytes"),
        (b"\x00", "number 0"),
    ):
        file.write_bytes(REQUESTS[0] + junk)
        refused = refusal("audit", file, "--preset", "otlp", "--strict")
        assert why in refused
