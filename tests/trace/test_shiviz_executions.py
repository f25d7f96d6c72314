"""Logs of several executions, and clocks with escaped quotes, as ShiViz reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from importing import imported
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import InputError
from antecede.trace.foreign.import_formats import import_path

TWO = """\
=== Execution #1 ===
ana sends
ana {"ana":1}
ben receives
ben {"ben":1, "ana":1}
=== Execution #2 ===
ana starts again
ana {"ana":1}
cleo receives
cleo {"cleo":1, "ana":1}
"""


def nodes(folder: Path) -> dict[str, tuple[str, list[str]]]:
    table = pq.read_table(folder / "dependencies.parquet").to_pylist()
    return {row["node"]: (row["process"], row["parents"]) for row in table}


def test_executions_in_one_log_are_separate_runs(tmp_path: Path) -> None:
    file = tmp_path / "two.log"
    file.write_text(TWO)
    about = import_path("shiviz", file, tmp_path / "out")
    assert (about.rows, about.processes, about.bad_rows, about.runs) == (4, 4, 0, 2)
    done = CliRunner().invoke(app, ["audit", str(tmp_path / "out")])
    assert "2 runs; in this process" in done.output
    assert nodes(tmp_path / "out") == {
        "Execution #1/ana:1": ("Execution #1/ana", []),
        "Execution #1/ben:1": ("Execution #1/ben", ["Execution #1/ana:1"]),
        "Execution #2/ana:1": ("Execution #2/ana", []),
        "Execution #2/cleo:1": ("Execution #2/cleo", ["Execution #2/ana:1"]),
    }


GOVECTOR = """\
=== one ===
ana {"ana":1}
asks
ben {"ben":1, "ana":1}
answers
=== two ===
ana {"ana":1}

cleo {"cleo":1, "ana":1}
hears
"""


def test_clocks_before_their_events_after_a_delimiter(tmp_path: Path) -> None:
    """The delimiter is no event, although it is a line before a clock."""
    file = tmp_path / "go.log"
    file.write_text(GOVECTOR)
    about = import_path("shiviz", file, tmp_path / "out")
    assert (about.rows, about.bad_rows) == (4, 0)
    assert set(nodes(tmp_path / "out")) == {"one/ana:1", "one/ben:1", "two/ana:1", "two/cleo:1"}


@pytest.mark.parametrize("text", [TWO, GOVECTOR])
@pytest.mark.parametrize("command", ["audit", "graph", "order"])
def test_each_shiviz_execution_is_audited_as_a_run(tmp_path: Path, text: str, command: str) -> None:
    file = tmp_path / "two.log"
    file.write_text(text)
    words = [command, str(file), *(["--out", str(tmp_path / "out")] if command == "order" else [])]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, "skipped" in done.stdout) == (0, False)
    assert "; 2 runs" in done.stdout
    words[-1] += "2" if command == "order" else ""
    done = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(done.stdout)["lineage"]["runs"] == 2


def test_a_custom_delimiter_or_no_delimiter_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "two.log"
    file.write_text(TWO.replace("=== Execution #1 ===\n", "").replace("=== Execution #2 ===", "-----"))
    import_path("shiviz", file, tmp_path / "out", delimiter="^-+$")
    assert set(nodes(tmp_path / "out")) == {"ana:1", "ben:1", "1/ana:1", "1/cleo:1"}
    about = import_path("shiviz", file, tmp_path / "merged", delimiter="")
    assert [kind.what for kind in about.bad] == [
        "lines without a clock, left out",
        "events that repeat a clock, left out",
    ]


def test_lines_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "two.log"
    file.write_text(TWO.replace('"cleo":1', '"cleo":0'))
    regex = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
    about = import_path("shiviz", file, tmp_path / "out", regex)
    assert about.bad[0].examples == ['line 10: cleo {"cleo":0, "ana":1}']


def test_two_executions_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "two.log"
    file.write_text(TWO.replace("#2", "#1"))
    with pytest.raises(InputError, match="two executions called Execution #1"):
        import_path("shiviz", file, tmp_path / "out")
    with pytest.raises(InputError, match="--delimiter is not a valid regular expression"):
        import_path("shiviz", file, tmp_path / "out", delimiter="(")
    with pytest.raises(InputError, match="--delimiter is for shiviz"):
        import_path("editing", file, tmp_path / "out", delimiter="x")


def test_tla_clocks_with_escaped_quotes_are_read(tmp_path: Path) -> None:
    file = tmp_path / "tla.log"
    states = [("n1", r"{\"n1\":1,\"n2\":0}"), ("n2", r"{\"n1\":1,\"n2\":1}")]
    file.write_text(
        "=== deadlock ===\nTLC2 Version 2.16\n"
        + "".join(
            f'State {place}: <Send line 1>\n/\\ Host = {host}\n/\\ Clock = "{clock}"\n/\\ active = TRUE\n'
            for place, (host, clock) in enumerate(states, start=2)
        )
    )
    about, table = imported("shiviz", file)
    assert [(row["node"], row["parents"]) for row in table] == [
        ("deadlock/n1:1", []),
        ("deadlock/n2:1", ["deadlock/n1:1"]),
    ]
    assert about.rows == 2


HEADER = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"


@pytest.mark.parametrize("second", ["", "=== (?<trace>.*) ==="])
def test_the_regex_lines_at_the_head_of_a_shiviz_file_are_used(tmp_path: Path, second: str) -> None:
    """GoVector's own tool writes the first, and ShiViz takes both."""
    file = tmp_path / "shiviz.log"
    file.write_text(f"{HEADER}\n{second}\n{GOVECTOR}")
    about = import_path("shiviz", file, tmp_path / "out")
    assert (about.rows, about.bad_rows) == (4, 0)
    done = CliRunner().invoke(app, ["audit", str(file), "--json"])
    found = json.loads(done.output)
    assert (found["records"], found["bad_rows"], found["lineage"]["runs"]) == (4, 0, 2)


def test_a_custom_regex_at_the_head_of_a_file_is_used(tmp_path: Path) -> None:
    """It is used if it finds more than the known ones; lines keep their numbers; what comes second may be
    the log already."""
    file = tmp_path / "shiviz.log"
    log = 'clock={"ana":1} of=ana\nclock={"ana":1,"ben":1} of=ben\nnothing\n'
    for second in ("\n", ""):
        file.write_text(f"clock=(?<clock>{{.*}}) of=(?<host>.*)\n{second}{log}")
        done = CliRunner().invoke(app, ["audit", str(file), "--json"])
        found = json.loads(done.output)
        assert (found["records"], found["causes"]) == (2, 1)
        assert found["bad"][0]["examples"] == [f"line {4 + len(second)}: nothing"]
    file.write_text(f"(?<host>.*(?<clock>\n\n{log}")
    with pytest.raises(InputError, match="line 1, is not a valid regular expression"):
        import_path("shiviz", file, tmp_path / "out")
