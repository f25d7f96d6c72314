"""Formats are recognised by their content: every sample as its own, none as another."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest
from commands import SAMPLES, refusal, run, run_json

from antecede.sources.catalogue import PRESETS
from antecede.sources.recognise import recognise, recognise_file

FORMATS = {
    "otlp.json": "otlp",
    "jaeger.json": "jaeger",
    "kcat.jsonl": "kafka",
    "orders.console.txt": "kafka",
    "debezium.jsonl": "debezium",
    "matrix.json": "matrix",
    "dependencies.csv": "dependencies",
    "graph.jsonl": "graph",
}
"""The preset of each sample."""


def test_every_sample_has_its_format_and_every_format_a_sample() -> None:
    assert FORMATS.keys() == {file.name for file in SAMPLES.iterdir()}


@pytest.mark.parametrize("name", FORMATS)
def test_a_sample_is_recognised(name: str) -> None:
    found = recognise_file(SAMPLES / name)
    assert found is not None
    assert found.name == FORMATS[name]


@pytest.mark.parametrize("name", [name for name in FORMATS if not name.endswith((".parquet", ".pb"))])
def test_recognition_needs_only_the_first_kilobyte_and_ignores_names(name: str, tmp_path: Path) -> None:
    head = (SAMPLES / name).read_bytes()[:1024]
    found = recognise(head)
    assert found is not None
    assert found.name == FORMATS[name]
    renamed = tmp_path / "data"
    renamed.write_bytes(gzip.compress((SAMPLES / name).read_bytes()))
    found = recognise_file(renamed)
    assert found is not None
    assert found.name == FORMATS[name]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "[]",
        "{}",
        "[[[",
        '{"run":"a","group":"g","process":"p","index":1,"kind":"send","origin":"p","seq":1,"time":5}',
        "run,group,process,index,kind,origin,seq,time\n",
        "id,deps,run,group,process,index,kind,origin,seq,time\n",
        '{"data": 5}',
        '{"data": [5, null, {"spans": ',
        '"resourceSpans"',
        "null\n",
        "resourceSpans,data\n",
        "{" * 60_000,
        '{"a":' * 10_000,
        "\x00\x01\x02",
    ],
)
def test_other_files_are_not_taken_for_a_format(text: str) -> None:
    assert recognise(text.encode()) is None


def test_a_truncated_document_is_still_recognised() -> None:
    whole = (SAMPLES / "jaeger.json").read_bytes()
    at = whole.index(b'"spans"') + 10
    for end in range(at, at + 700, 7):
        found = recognise(whole[:end])
        assert found is not None, end


def test_presets_are_valid_and_can_be_saved_and_read(tmp_path: Path) -> None:
    for name, preset in PRESETS.items():
        code, printed = run("sources", name)
        assert code == 0
        file = tmp_path / "mine.toml"
        file.write_text(printed)
        _, read = run_json("sources", file)
        _, shipped = run_json("sources", name)
        assert read == shipped
        assert read["name"] == preset.name


def test_the_list_of_sources() -> None:
    code, out = run("sources")
    assert code == 0
    assert all(name in out for name in PRESETS)
    _, listed = run_json("sources")
    assert [each["name"] for each in listed] == list(PRESETS)
    assert "no preset 'oltp'; there are otlp," in refusal("sources", "oltp")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("reader = ", "raeder = "), "unknown field `raeder`"),
        (('"otlp"\n', '"oltp"\n'), "reader: there is no 'oltp'"),
        (("{traceId}:{spanId}", "{traceId:{spanId}"), "id: '{traceId:{spanId}': a brace is not closed"),
        (("{traceId}:{spanId}", "{a[}"), "id: 'a[' is not a path"),
        (('time_unit = "ns"', 'time_unit = "h"'), "time_unit: 'h' is none of"),
        (('encoding = ""', 'encoding = "klingon"'), "encoding: there is no 'klingon'"),
        (('encoding = ""', 'encoding = "base64"'), "encoding: there is no 'base64'"),
        (('separator = ""', 'separator = "ab"'), "separator: it is one of"),
        (('"{traceId}:{spanId}"', ""), "id: it is needed"),
        (("[", "[["), "is not a preset"),
    ],
)
def test_an_invalid_preset_is_refused(change: tuple[str, str], why: str, tmp_path: Path) -> None:
    _, printed = run("sources", "otlp")
    assert change[0] in printed
    file = tmp_path / "mine.toml"
    file.write_text(printed.replace(*change))
    refused = refusal("audit", SAMPLES / "otlp.json", "--preset", file)
    assert refused.startswith(str(file))
    assert why in refused


def test_files_of_two_formats_in_a_folder_are_refused(tmp_path: Path) -> None:
    for name in ("otlp.json", "jaeger.json"):
        (tmp_path / name).write_bytes((SAMPLES / name).read_bytes())
    assert "holds jaeger (jaeger.json) and otlp (otlp.json)" in refusal("audit", tmp_path)


def test_the_documented_preset_works(tmp_path: Path) -> None:
    page = (SAMPLES.parents[2] / "docs" / "sources.md").read_text()
    (shown,) = re.findall(r"```toml\n(name = .+?)```", page, re.DOTALL)
    (tmp_path / "mine.toml").write_text(shown)
    assert (
        run_json("audit", SAMPLES / "kcat.jsonl", "--preset", tmp_path / "mine.toml")[1]["preset"] == "mine"
    )


def test_an_edited_preset_takes_effect(tmp_path: Path) -> None:
    """A user's own JSON lines, by a preset that began as another one."""
    _, printed = run("sources", "otel-table")
    lines = [line for line in printed.splitlines() if not line.startswith(("id =", "process =", "causes ="))]
    file, log = tmp_path / "mine.toml", tmp_path / "log.jsonl"
    mine = ['id = ["{key}"]', 'process = ["{who}"]', 'causes = ["{after[]}"]']
    text = "\n".join(lines)
    for name in ("recognised_by", "time", "kind"):
        text = text.replace(f"{name} = [", f"{name} = [ ", 1)
    file.write_text("\n".join([*mine, text]) + "\n")
    rows = [{"key": "a", "who": "p", "after": []}, {"key": 7, "who": "q", "after": ["a", "zz"]}]
    log.write_text("\n".join(map(json.dumps, rows)))
    code, found = run_json("audit", log, "--preset", file)
    assert code == 1
    assert [each["id"] for each in found["missing"]] == ["zz"]
    assert "--map and --preset both" in refusal("audit", log, "--preset", file, "--map", "process=who")


@pytest.mark.parametrize("command", ["audit", "graph", "advise"])
@pytest.mark.parametrize("name", ["log.jsonl", "log.csv", "folder/log.jsonl"])
def test_an_unrecognised_table_gets_hints_on_map_preset_and_sources(
    command: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("a,b\n1,2\n" if name.endswith(".csv") else '{"a": 1, "b": 2}\n{"a": 2, "b": 3}\n')
    refused = refusal(command, file.parent if "folder" in name else file)
    assert "has the columns a, b;" in refused
    assert "as in --map process=…,kind=…,message=…" in refused
    assert "--preset" in refused
    assert "antecede sources" in refused


def test_a_later_row_without_a_field_is_still_named(tmp_path: Path) -> None:
    row: dict[str, object] = {"run": "r", "group": "g", "process": "a", "index": 0, "kind": "send"}
    row |= {"origin": "a", "seq": 1, "time": 0}
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps({**row, "run": None}) + "\n")
    assert "log.jsonl, row 2, field run: it is empty" in refusal("audit", file)


SHIVIZ = """ana {"ana":1}
send a
ben {"ben":1, "ana":1}
receive a
ben {"ben":2, "ana":1}
send b
ana {"ana":2, "ben":2}
receive b
"""
EDITING = '{"kind": "concurrent", "endContent": "", "numAgents": 2, "txns": [\
{"parents": [], "agent": 0, "patches": []}, {"parents": [0], "agent": 1, "patches": []}]}'


@pytest.mark.parametrize(
    ("text", "records", "causes"), [(SHIVIZ, 4, 4), (EDITING, 2, 1)], ids=["shiviz", "editing"]
)
def test_formats_that_import_reads_are_recognised_by_audit(
    text: str, records: int, causes: int, tmp_path: Path
) -> None:
    for name, data in (("my.log", text.encode()), ("data.gz", gzip.compress(text.encode()))):
        file = tmp_path / name
        file.write_bytes(data)
        code, found = run_json("audit", file)
        assert (code, found["records"], found["causes"]) == (0, records, causes)
        (read,) = found["lineage"]["files"]
        assert (read["file"], read["bytes"], read["rows"]) == (str(file), len(data), records)
        assert run_json("graph", file)[1]["runs"][0]["messages"] == records
        assert str(tmp_path) in run("audit", file)[1] or name in run("audit", file)[1]


def test_the_commits_of_a_repository_are_recognised(tmp_path: Path) -> None:
    environment = ["-c", "user.name=ana", "-c", "user.email=ana@example.org"]
    for words in (["init", "-q"], *(["commit", "-q", "--allow-empty", "-m", text] for text in "ab")):
        subprocess.run(["git", "-C", str(tmp_path), *environment, *words], check=True)
    code, found = run_json("audit", tmp_path)
    assert (code, found["records"], found["causes"]) == (0, 2, 1)


def test_audit_counts_rows_that_import_would_skip(tmp_path: Path) -> None:
    file = tmp_path / "my.log"
    file.write_text(SHIVIZ + "no clock here\n")
    code, found = run_json("audit", file)
    assert (code, found["bad_rows"], found["lineage"]["rows_skipped"]) == (0, 1, 1)
    assert f"{file}, line 9" in refusal("audit", file, "--strict")
    file.write_text("just some text\nand more of it\n")
    assert "antecede sources" in refusal("audit", file)


def test_a_clean_verdict_mentions_events_logged_out_of_order(tmp_path: Path) -> None:
    """ShiViz sorts such events by their clocks too, and draws them; it says nothing."""
    file = tmp_path / "my.log"
    file.write_text('ana {"ana":2}\nsecond\nana {"ana":1}\nfirst\nben {"ben":1, "ana":2}\nreceive\n')
    code, out = run("audit", file)
    assert code == 0
    assert "events logged after a later one of their host, put where their clocks say: 1" in out
    assert "line 3: ana 1 after 2" in out
    assert "clean, apart from the rows above: every cause is present" in " ".join(out.split())
    assert "line 3: ana 1 after 2" in refusal("audit", file, "--strict")
    file.write_text(SHIVIZ)
    assert "clean: every cause is present" in " ".join(run("audit", file)[1].split())


SPANS = [
    '{"traceId": "0a", "spanId": "01", "name": "x", "startTimeUnixNano": "1"}',
    '{"traceId": "0a", "spanId": "02", "parentSpanId": "01", "name": "y", "startTimeUnixNano": "2"}',
]


def test_a_document_with_a_span_on_each_line_is_one_document(tmp_path: Path) -> None:
    file = tmp_path / "spans.json"
    file.write_text('{"resourceSpans": [{"scopeSpans": [{"spans": [\n' + ",\n".join(SPANS) + "\n]}]}]}\n")
    code, found = run_json("audit", file)
    assert (code, found["records"], found["causes"], found["preset"]) == (0, 2, 1, "otlp")


def test_a_table_with_id_author_and_parents_is_recognised_as_a_graph(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("id,author,parents\n001,ana,\n01,ana,001\n")
    code, found = run_json("audit", file)
    assert (code, found["records"], found["causes"], found["preset"]) == (0, 2, 1, "graph")
    assert run_json("graph", file)[1]["runs"][0]["messages"] == 2
    assert run("order", file, "--out", tmp_path / "out")[0] == 0


def test_a_record_with_an_unreadable_time_is_not_skipped(tmp_path: Path) -> None:
    file = tmp_path / "spans.csv"
    file.write_text(
        "TraceId,SpanId,ParentSpanId,ServiceName,Timestamp\n0a,01,,a,2026-01-01T00:00:00Z\n0a,02,01,b,nonsense\n"
    )
    code, found = run_json("audit", file)
    assert (code, found["records"], found["bad_rows"]) == (0, 2, 1)
    assert (found["lineage"]["rows_read"], found["lineage"]["rows_skipped"]) == (2, 0)


def test_a_table_truncated_within_a_utf_16_character_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "graph.csv"
    file.write_bytes("node,process,parents\n".encode("utf-16") + b"a")
    refused = refusal("audit", file, "--preset", "dependencies")
    assert "is not text in the encoding of its first bytes" in refused


@pytest.mark.parametrize("words", [["explain"], ["explore"], ["export", "shiviz"]])
def test_commands_that_show_deliveries_name_those_that_read_a_recognised_log(
    words: list[str], tmp_path: Path
) -> None:
    """Rather than --preset alone, which they do not have."""
    more: dict[str, list[str | Path]] = {
        "explain": ["--message", "a"],
        "explore": ["--out", tmp_path / "x.html"],
    }
    rest = more.get(words[0], ["--out", tmp_path / "x"])
    for name in ("otlp.json", "kcat.jsonl"):
        refused = refusal(*words, SAMPLES / name, *rest)
        assert f"({FORMATS[name]}) says what depends on what, but not who delivered what" in refused
        assert refused.endswith("antecede audit, graph, advise and order read it")
    (tmp_path / "log.csv").write_text("host,what,id\n")
    assert "; audit, graph, advise and order recognise" in refusal(*words, tmp_path / "log.csv", *rest)


def test_a_table_with_a_map_may_be_called_anything(tmp_path: Path) -> None:
    rows = [{"process": name, "kind": kind, "m": 1} for name, kind in (("a", "send"), ("b", "deliver"))]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "folder").mkdir()
    contents = {"a.log": lines, "b.json": lines, "array.json": json.dumps(rows, indent=1), "folder/c": lines}
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    for name in ("a.log", "b.json", "array.json", "folder"):
        code, found = run_json("audit", tmp_path / name, "--map", "message=m")
        assert (code, found["messages"], found["deliveries"]) == (0, 1, 1)
        assert (
            "depends immediately on nothing"
            in run("explain", tmp_path / name, "--map", "message=m", "--message", "1")[1]
        )


def test_the_folder_of_a_page_is_made(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("process,kind,m\na,send,1\nb,deliver,1\n")
    page = tmp_path / "new" / "pages" / "a.html"
    assert run("audit", tmp_path / "log.csv", "--map", "message=m", "--html", page)[0] == 0
    assert page.is_file()
