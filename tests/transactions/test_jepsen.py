"""Histories of Jepsen, in EDN and JSON, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.errors import InputError
from antecede.transactions import read_history
from antecede.transactions.formats import recognise
from antecede.transactions.formats.edn import parse_edn
from antecede.transactions.history import Status

# Process 1 sees y = 2, which process 0 wrote after x = 1, and does not see x: not causal.
STALE = """\
{:process :nemesis, :type :info, :f :start, :value nil, :index 0}
{:process 0, :type :invoke, :f :txn, :value [[:w :x 1]], :index 1, :time 10}
{:process 0, :type :ok, :f :txn, :value [[:w :x 1]], :index 2, :time 20}
{:process 0, :type :invoke, :f :txn, :value [[:w :y 2]]}
{:process 0, :type :ok, :f :txn, :value [[:w :y 2]]}
{:process 1, :type :invoke, :f :txn, :value [[:r :y nil]]}
{:process 1, :type :ok, :f :txn, :value [[:r :y 2]]}
#jepsen.history.Op{:process 1, :type :invoke, :f :txn, :value [[:r :x nil]]}
#jepsen.history.Op{:process 1, :type :ok, :f :txn, :value [[:r :x nil]]}
{:process 2, :type :invoke, :f :txn, :value [[:w :x 7]]}
{:process 2, :type :fail, :f :txn, :value [[:w :x 7]]}
{:process 3, :type :invoke, :f :txn, :value [[:w :x 8] [:r :y nil]]}
{:process 3, :type :info, :f :txn, :value [[:w :x 8] [:r :y nil]], :error :timeout}
{:process 4, :type :invoke, :f :txn, :value [[:w :x 9]]}
"""


def as_json(text: str) -> list[Any]:
    return list(parse_edn(text))


@pytest.mark.parametrize("form", ["edn", "vector", "json", "lines"])
def test_a_stale_read_is_found(form: str, tmp_path: Path) -> None:
    file = tmp_path / "history"
    texts = {
        "edn": STALE,
        "vector": f"[{STALE}]",
        "json": json.dumps(as_json(STALE)),
        "lines": "\n".join(map(json.dumps, as_json(STALE))),
    }
    file.write_text(texts[form])
    done = CliRunner().invoke(app, ["audit", str(file), "--json"])
    assert done.exit_code == 1, done.output
    assert json.loads(done.output)["clean"] is False
    history = read_history(file)
    assert (history.sessions, history.transactions) == (5, 7)
    assert history.status.tolist().count(Status.ABORTED) == 1
    assert history.status.tolist().count(Status.UNKNOWN) == 2
    file.write_text(texts[form].replace("[[:r :x nil]]}\n{:process 2", "[[:r :x 1]]}\n{:process 2"))
    if form == "edn":
        assert CliRunner().invoke(app, ["audit", str(file)]).exit_code == 0


def test_registers_independent_keys_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    file.write_text(
        "{:type :ok, :f :write, :value 3, :process 0}\n{:type :ok, :f :cas, :value [3 4], :process 1}\n"
        "{:type :ok, :f :read, :value 4, :process 2}\n{:type :ok, :f :write, :value [7 1], :process 0}\n"
        "{:type :ok, :f :cas, :value [7 [1 2]], :process 0}\n"
        "{:type :ok, :f :txn, :value [[:append 9 5] [:r 9 [1 5]] [:r 8 []]], :process 0}\n"
    )
    history = read_history(file)
    keys = [history.key_name(key) for key in range(history.keys)]
    assert keys == ["register", "7", "9", "8"]
    last = history.operations_of(history.session_start[1] - 1)
    assert [(write, history.key_name(key), history.value_name(value)) for write, key, value in last] == [
        (True, "9", "5"),
        (False, "9", "5"),
        (False, "8", "nothing"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{:process 0 :type :ok :f :enqueue :value 5}", "it should be txn, read, write or cas"),
        ("{:process 0 :type :ok :f :txn :value [[:w {} 1]]}", "keys and values should be numbers or text"),
        ("{:process 0 :type :ok :f :txn :value [[:x 1 1]]}", "is none of r, w and append"),
        ("{:process 0 :type :ok :f :txn :value 5}", "is not a read or write"),
        ("{:process 0 :type :ok :f :cas :value 5}", "is not a read or write"),
        ("{:process 0 :type :ok :f :write :value nil}", "nothing is written"),
        (
            "{:process 0 :type :ok :f :txn :value [[:w 1 1]]} {:process 0 :type :huh :f :txn}",
            "its type is none of",
        ),
        ("{:process 0 :type :ok :f :txn :value [[:w 1 1", "it was cut off"),
        ("{:process 0 :type :ok :f :txn :value [[:w 1 1)]]}", "a bracket is closed that is not open"),
        ("{:process 0 :type :ok :f :txn :value} 5", "a key without a value"),
        ("{:process 0 :type :ok :f :txn :value []} 5", "is not an operation"),
        ("{:process 0 :type :ok :f " + "[" * 300, "brackets are open at once"),
        ('{:process 0 :type :ok :f "\\q"}', "is not a text of EDN"),
        ("[]", "it has no operation"),
    ],
)
def test_an_invalid_history_is_refused_with_the_reason(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_history(file, "jepsen")
    assert why in str(error.value)
    assert str(error.value).startswith(str(file))


def test_other_files_are_not_mistaken_for_jepsen_histories() -> None:
    samples = Path(__file__).parent.parent / "sources" / "samples"
    for file in samples.iterdir():
        assert recognise(file.read_bytes()[:4096]) is None, file


@given(st.text(alphabet='{}[]()#_":\\; \n,a1.-', max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        list(parse_edn(text))
    except InputError:
        return
