"""Logs of events with vector clocks: those of other programs, and ours as such a log."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from importing import imported, wrote

from antecede.causality import CausalOrder
from antecede.errors import InputError
from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario
from antecede.trace.execution_from_rows import execution
from antecede.trace.foreign.import_formats import import_path
from antecede.trace.foreign.shiviz import compile_pattern, find_with_deadline
from antecede.trace.foreign.shiviz_export import REGEX, export_shiviz

SWAPPED = "events logged after a later one of their host, put where their clocks say"


@pytest.mark.parametrize(
    ("name", "hosts", "events", "messages", "bad"),
    [
        ("chord", 8, 1_235, 541, {SWAPPED: 2}),
        ("reliable-broadcast", 4, 116, 48, {"lines without a clock, left out": 1}),
        ("simple-reliable-broadcast", 3, 39, 16, {}),
    ],
)
def test_real_clock_logs_match_their_descriptions(
    real_traces: Path, tmp_path: Path, name: str, hosts: int, events: int, messages: int, bad: dict[str, int]
) -> None:
    file = wrote(tmp_path, (real_traces / f"shiviz_{name}.log").read_bytes())
    about, _ = imported("shiviz", file)
    assert (about.processes, about.rows, about.parents_of_others) == (hosts, events, messages)
    assert about.parents == events - hosts + messages
    assert {each.what: each.rows for each in about.bad} == bad
    assert about.bad_rows == sum(bad.values())
    if name == "chord":
        places = about.bad[0].examples
        assert ["kv-node-60 25 after 26" in places[0], "kv-node-60 136 after 137" in places[1]] == [
            True,
            True,
        ]
    if bad:
        with pytest.raises(InputError, match="without --strict it is only counted"):
            import_path("shiviz", file, tmp_path / "strict", strict=True)
        assert not (tmp_path / "strict").exists()


def clocked(*events: tuple[str, dict[str, int]], form: str = "{host} {clock}\nit happened\n") -> str:
    return "".join(form.format(host=host, clock=json.dumps(clock)) for host, clock in events)


EVENTS = (
    ("a", {"a": 1}),
    ("b", {"b": 1, "a": 1}),
    ("c", {"c": 1, "b": 1, "a": 1}),
    ("a", {"a": 2, "c": 1, "b": 1}),
)
EXPECTED = {"a:1": [], "b:1": ["a:1"], "c:1": ["b:1"], "a:2": ["a:1", "c:1"]}


@pytest.mark.parametrize(
    "form",
    [
        "{host} {clock}\nit {{happened}}\n",
        "{host} {clock}\r\nit happened\r\n",
        "1234567 {host} {clock}\nit happened\n",
        "it happened\n{host} {clock}\n",
        "[INFO] [10/13/2014 04:23:20] [system-2] [akka://System/user/{host}] {clock} it happened\n",
        "{host} {clock} it happened\n",
    ],
)
def test_known_log_formats_are_recognised(tmp_path: Path, form: str) -> None:
    for content in (clocked(*EVENTS, form=form), clocked(*EVENTS, form=form).rstrip("\n")):
        about, rows = imported("shiviz", wrote(tmp_path, content))
        assert {row["node"]: row["parents"] for row in rows} == EXPECTED
        assert [row["seq"] for row in rows if row["process"] == "a"] == [1, 2]
        assert about.bad == []
    packed = wrote(tmp_path, gzip.compress(clocked(*EVENTS, form=form).encode()), "it.gz")
    assert imported("shiviz", packed)[0].rows == 4


def test_a_custom_format_by_regular_expression(tmp_path: Path) -> None:
    log = wrote(tmp_path, clocked(*EVENTS, form="<{clock}> at {host}: it happened\n"))
    with pytest.raises(InputError, match="none of the known forms"):
        imported("shiviz", log)
    for regex in (
        r"^<(?<clock>.*)> at (?<host>\w+): (?<event>.*)$",
        r"<(?P<clock>.*)> at (?P<host>\w+)(?!x).*",
    ):
        _, rows = imported("shiviz", log, regex=regex)
        assert {row["node"]: row["parents"] for row in rows} == EXPECTED
    for regex, says in {
        "(": "not a valid regular expression",
        "(?<host>.*)": "no group",
        "x(?<host>.)(?<clock>.)": "in the form",
    }.items():
        with pytest.raises(InputError, match=says):
            imported("shiviz", log, regex=regex)


@pytest.mark.parametrize(
    ("events", "what", "parents"),
    [
        ([("a", {"a": 1}), ("a", {"a": 1}), ("a", {"a": 2})], "repeat a", {"a:1": [], "a:2": ["a:1"]}),
        ([("a", {"a": 2}), ("a", {"a": 1})], "after a later one", {"a:1": [], "a:2": ["a:1"]}),
        ([("a", {"a": 1}), ("a", {"a": 7})], "skips", {"a:1": [], "a:7": ["a:1"]}),
        ([("a", {"a": 1}), ("b", {"b": 1, "a": 5})], "not in the log", {"a:1": [], "b:1": ["a:1"]}),
        ([("b", {"b": 1, "ghost": 5})], "not in the log", {"b:1": []}),
        (
            [("a", {"a": 1}), ("b", {"b": 1, "a": 1}), ("b", {"b": 2})],
            "forget",
            {"a:1": [], "b:1": ["a:1"], "b:2": ["b:1"]},
        ),
        ([("a", {"a": 1}), ("b", {"a": 1})], "lacks its host", {"a:1": []}),
        ([("a", {"a": 1}), ("b", {"b": 2**63})], "cannot be read", {"a:1": []}),
        ([("a", {"a": 1}), ("b", {"b": -1})], "cannot be read", {"a:1": []}),
    ],
)
def test_faulty_clocks_are_counted(
    tmp_path: Path, events: list[tuple[str, dict[str, int]]], what: str, parents: dict[str, list[str]]
) -> None:
    about, rows = imported("shiviz", wrote(tmp_path, clocked(*events)))
    assert {row["node"]: row["parents"] for row in rows} == parents
    (bad,) = about.bad
    assert (what in bad.what, bad.rows) == (True, 1)
    assert bad.examples[0].startswith("line ")


def test_undecodable_event_text_does_not_stop_the_import(tmp_path: Path) -> None:
    assert imported("shiviz", wrote(tmp_path, b'\xef\xbb\xbfa {"a": 1}\n\xff\xfe\n'))[0].rows == 1


@pytest.mark.parametrize("protocol", ["basic", "mbcp", "multigroup"])
def test_an_exported_run_is_read_back_with_the_same_order(tmp_path: Path, protocol: str) -> None:
    """What happened before what in the log is what the oracle says of the trace."""
    extra = {"groups": {"a": [0, 1, 2], "b": [2, 3]}} if protocol == "multigroup" else {"peers": 5}
    simulate_to(tmp_path / "t", scenario(protocol=protocol, seconds=1, delay="wild:1us-1s", **extra))
    made = export_shiviz(tmp_path / "t", tmp_path / "run.log")
    about, rows = imported("shiviz", tmp_path / "run.log", strict=True)
    assert (about.rows, about.processes) == (made.events, made.processes)
    table = pq.read_table(tmp_path / "t" / "part-00000.parquet")
    whole = execution(table, {})
    order = CausalOrder(whole)
    events = [row for row in table.sort_by("index").to_pylist() if row["kind"] != "receive"]
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for event in events:
        counts[event["process"]] = counts.get(event["process"], 0) + 1
        if event["kind"] == "send":
            names[f"{event['process']}:{counts[event['process']]}"] = f"{event['origin']}:{event['seq']}"
    pasts: dict[str, set[str]] = {}
    for row in rows:
        pasts[row["node"]] = {*row["parents"]}.union(*(pasts[parent] for parent in row["parents"]))
    shown = {message: whole.show(message) for message in order.messages}
    for message in order.messages:
        before = {shown[other] for other in order.messages if order.happened_before(other, message)}
        (node,) = [node for node, name in names.items() if name == shown[message]]
        assert {names[other] for other in pasts[node] if other in names} == before


def test_the_regex_of_an_export_matches_its_log(tmp_path: Path) -> None:
    simulate_to(tmp_path / "t", scenario(protocol="mbcp", peers=3, seconds=0.3))
    export_shiviz(tmp_path / "t", tmp_path / "run.log")
    given, _ = imported("shiviz", tmp_path / "run.log", regex=REGEX, strict=True)
    guessed, _ = imported("shiviz", tmp_path / "run.log", strict=True)
    assert given == guessed


def lines(*rows: tuple[str, int, str, str, int]) -> str:
    names = ("process", "index", "kind", "origin", "seq")
    whole = {"run": "r", "group": "g", "time": 0}
    return "".join(json.dumps(whole | dict(zip(names, row, strict=True))) + "\n" for row in rows)


def test_exports_handle_names_with_spaces_orphans_and_cycles(tmp_path: Path) -> None:
    rows = [("ana b", 0, "send", "ana b", 1), ("c", 0, "deliver", "ana b", 1), ("c", 1, "deliver", "x", 4)]
    export_shiviz(wrote(tmp_path, lines(*rows), "t.jsonl"), tmp_path / "deep" / "run.log")
    text = (tmp_path / "deep" / "run.log").read_text()
    assert text.splitlines()[0] == 'ana_b {"ana_b": 1}'
    assert "deliver x:4, which nobody sent" in text
    twins = wrote(tmp_path, lines(("a b", 0, "send", "a b", 1), ("a\tb", 0, "send", "a\tb", 1)), "u.jsonl")
    with pytest.raises(InputError, match="differ in spaces or control characters only"):
        export_shiviz(twins, tmp_path / "u.log")
    early = wrote(tmp_path, lines(("a", 0, "deliver", "a", 1), ("a", 1, "send", "a", 1)), "v.jsonl")
    with pytest.raises(InputError, match="a delivers a:1 before it was sent"):
        export_shiviz(early, tmp_path / "v.log")
    nothing = wrote(tmp_path, lines(("a", 0, "receive", "a", 1)), "w.jsonl")
    with pytest.raises(InputError, match="no send and no delivery"):
        export_shiviz(nothing, tmp_path / "w.log")


TWO_LINES = 'a {"a": 1}\nx\nb {"b": 1, "a": 1}\ny\n'


def test_a_regular_expression_has_a_deadline() -> None:
    before = signal.getsignal(signal.SIGALRM)
    evil = compile_pattern(r"(?<host>(a+)+)b (?<clock>{.*})")
    with pytest.raises(InputError, match=r"more than 0\.2 s to find an event from line 2 on"):
        for _ in find_with_deadline(evil, 'x\nab {"a": 1}\n\n' + "a" * 40 + "!", 0.2):
            pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.parametrize(
    "regex", ["(?<host>a{99999999999})(?<clock>b)", "(" * 3000 + "(?<host>a)" + ")" * 3000]
)  # the second compiles wherever something has raised the recursion limit
def test_an_oversized_regular_expression_is_refused(tmp_path: Path, regex: str) -> None:
    with pytest.raises(InputError, match="--regex is not a valid regular expression"):
        imported("shiviz", wrote(tmp_path, TWO_LINES), regex=regex)


def test_an_unmatched_host_or_clock_counts_as_missing(tmp_path: Path) -> None:
    regex = r"^(?:(?<host>a) )?(?<clock>\{.*\})?"
    about, _ = imported("shiviz", wrote(tmp_path, TWO_LINES), regex=regex)
    assert (about.rows, about.bad[0].what) == (
        1,
        "events whose clock cannot be read or lacks its host, left out",
    )


def test_a_format_is_recognised_from_whole_lines(tmp_path: Path) -> None:
    about, _ = imported("shiviz", wrote(tmp_path, "x" * (1 << 20) + "\n" + TWO_LINES))
    assert (about.rows, about.bad_rows) == (2, 1)
    others = ", ".join(f'"h{place}": 1' for place in range(100_000))
    about, _ = imported("shiviz", wrote(tmp_path, f'a {{"a": 1, {others}}}\nx\n'))
    assert (about.rows, about.bad_rows) == (1, 100_000)


def test_exporting_a_log_to_a_folder_is_refused(tmp_path: Path) -> None:
    simulate_to(tmp_path / "trace", scenario(protocol="mbcp", peers=2, seconds=0.2))
    with pytest.raises(InputError, match="is a folder; a log goes into a file"):
        export_shiviz(tmp_path / "trace", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["trace"]
