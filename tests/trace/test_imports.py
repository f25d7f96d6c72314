"""Logs and graphs of other programs as dependency tables, and their bad rows."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import import_as, imported, wrote

from antecede.errors import InputError
from antecede.trace.dependencies import DEPENDENCIES as TABLE
from antecede.trace.dependencies import TABLE_INFO
from antecede.trace.foreign.dependency_writer import DependencyWriter
from antecede.trace.foreign.import_formats import import_path


@pytest.mark.parametrize(
    ("name", "processes", "nodes", "parents", "mean", "most"),
    [
        ("clownschool", 3, 23_136, 26_763, 1.157, 2),
        ("git_makefile_A2", 375, 3_210, 6_721, 2.094, 9),
        ("postgres_25x400", 25, 10_000, 40_093, 4.009, 9),
        ("antidote_git", 57, 2_260, 2_676, 1.184, 2),
    ],
)
def test_real_graphs_match_their_descriptions(
    real_traces: Path,
    tmp_path: Path,
    name: str,
    processes: int,
    nodes: int,
    parents: int,
    mean: float,
    most: int,
) -> None:
    file = wrote(tmp_path, (real_traces / f"{name}.dag.csv").read_bytes())
    about, _ = imported("dependencies", file, strict=True)
    assert (about.processes, about.rows, about.parents, about.parents_most) == (
        processes,
        nodes,
        parents,
        most,
    )
    assert round(about.parents_mean, 3) == mean


def test_a_real_editing_trace_equals_its_graph(real_traces: Path, tmp_path: Path) -> None:
    _, graph = imported(
        "dependencies", wrote(tmp_path, (real_traces / "clownschool.dag.csv").read_bytes(), "graph")
    )
    raw = wrote(tmp_path, (real_traces / "clownschool.json.gz").read_bytes())
    about, rows = imported("editing", raw, strict=True)
    assert (about.processes, about.rows, about.parents, about.parents_most) == (3, 23_136, 26_763, 2)
    assert [(row["node"], row["parents"]) for row in rows] == [(row["node"], row["parents"]) for row in graph]


DEPENDENCIES = "node,process,seq,parents\n"


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("0,q,5,", "nodes that repeat a name"),
        ("1,q,5", "rows that cannot be read"),
        ("1,q,5,,,", "rows that cannot be read"),
        (",q,5,", "records without {node}"),
        ("1,,5,", "records without {process}"),
    ],
)
def test_bad_rows_are_left_out_and_counted(tmp_path: Path, row: str, what: str) -> None:
    file = wrote(tmp_path, f"{DEPENDENCIES}0,p,1,\n{row}\n2,p,2,0 0\n")
    about, rows = imported("dependencies", file)
    assert [(each["node"], each["parents"]) for each in rows] == [("0", []), ("2", ["0"])]
    assert (what in about.bad[0].what, about.bad_rows) == (True, 1)
    assert "row 2" in about.bad[0].examples[0]
    with pytest.raises(InputError, match="it, row 2"):
        imported("dependencies", file, strict=True)


@pytest.mark.parametrize("seq", ["five", "9" * 5000, str(2**63)])
def test_rows_without_a_usable_seq_are_numbered_in_row_order(tmp_path: Path, seq: str) -> None:
    file = wrote(tmp_path, f"{DEPENDENCIES}0,p,1,\n1,p,{seq},0\n")
    about, rows = imported("dependencies", file)
    assert [(each["node"], each["seq"]) for each in rows] == [("0", 1), ("1", 2)]
    assert (about.bad[0].what, about.bad_rows) == ("sequence numbers that are no whole number, ignored", 1)
    with pytest.raises(InputError, match="it, row 2"):
        imported("dependencies", file, strict=True)


def test_unknown_parents_are_dropped_and_counted(tmp_path: Path) -> None:
    file = wrote(tmp_path, f"{DEPENDENCIES}2,p,2,1 ghost 0\n1,p,1,0\n0,p,0,spirit\n")
    about, rows = imported("dependencies", file)
    assert {each["node"]: each["parents"] for each in rows} == {"0": [], "1": ["0"], "2": ["1", "0"]}
    assert about.bad_rows == 2
    assert "the parents of 2: ghost" in about.bad[0].examples[0]
    with pytest.raises(InputError, match="ghost"):
        imported("dependencies", file, strict=True)


def test_examples_are_few_and_short(tmp_path: Path) -> None:
    file = wrote(
        tmp_path, DEPENDENCIES + "0,p,0,\n" + f"0,p,0,{'x' * 1000}\n" * 1000 + f"{'y' * 1000},p,x,\n"
    )
    about, _ = imported("dependencies", file)
    assert about.bad_rows == 1001
    assert [len(each.examples) for each in about.bad] == [1, 5]
    assert all(len(example) <= 200 for each in about.bad for example in each.examples)


@pytest.mark.parametrize(
    ("form", "content", "says"),
    [
        ("dependencies", "", "it is empty"),
        ("dependencies", "node,process\n", "it has no column parents"),
        ("dependencies", DEPENDENCIES, "no row that could be taken"),
        ("dependencies", DEPENDENCIES + "x\n", "no row that could be taken; the first bad row: "),
        ("dependencies", DEPENDENCIES + "0,p,0,0\n", "node 0 is its own parent"),
        ("dependencies", DEPENDENCIES + "0,p,0,1\n1,p,1,2\n2,p,2,0\n", "a cycle of 3 nodes, each with"),
        ("dependencies", DEPENDENCIES.encode() + b"0,\xff,0,\n", "not text in UTF-8"),
        ("dependencies", b"\xe9" + DEPENDENCIES.encode(), "not text in UTF-8"),
        ("dependencies", DEPENDENCIES + '0,"p', "unexpected end of data"),
        ("dependencies", "node,process,seq,parents,parents\n0,p,0,,\n", "two columns parents"),
        ("dependencies", gzip.compress(b"node,", mtime=0)[:-9], "damaged gzip"),
        ("editing", "", "it is empty"),
        ("editing", "{", "is not an editing trace"),
        ("editing", "[" * 100_000, "is not an editing trace"),
        ("editing", '{"txns": 5}', "is not an editing trace: Expected `array`, got `int` - at `$.txns`"),
        ("editing", '{"txns": []}', "it has no transaction"),
        ("editing", '{"txns": [{"agent": 0, "parents": ["x"]}]}', "txns[0]: Expected `int`, got `str`"),
        ("editing", '{"txns": [{"parents": [1]}, {"parents": [0]}]}', "as a parent: 0, 1, 0"),
        ("editing", b'{"txns": [{"agent": "\xff"}]}', "the first bad row: txns[0]: "),
        ("editing", gzip.compress(b'{"txns": []}', mtime=0)[:-6], "damaged gzip"),
        ("shiviz", "", "it is empty"),
        ("shiviz", "once upon a time\n", "none of the known forms"),
        ("shiviz", 'a {"a": 1\nbroken\n', "none of the known forms"),
        ("shiviz", 'a {"a": 1}\nx\n'.encode("utf-16-le"), "not text in UTF-8"),
        ("shiviz", 'a {"a": 1, "b": 1}\nx\nb {"b": 1, "a": 1}\nx\n', "a cycle of 2 nodes"),
        ("git", "", "is not a folder"),
        ("yaml", "", "no format 'yaml'; there are shiviz, editing"),
    ],
)  # fmt: skip
def test_errors_name_the_unreadable_input(tmp_path: Path, form: str, content: str | bytes, says: str) -> None:
    file = wrote(tmp_path, content)
    with pytest.raises(InputError) as error:
        imported(form, file)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "it.imported").exists()


def test_a_missing_file_or_an_unsuitable_option_is_refused(tmp_path: Path) -> None:
    for form in ("shiviz", "editing", "dependencies"):
        with pytest.raises(InputError, match="nowhere does not exist"):
            import_as(form, tmp_path / "nowhere", tmp_path / "out")
        with pytest.raises(InputError, match=r"is not a file|holds no file"):
            import_as(form, tmp_path, tmp_path / "out")
    with pytest.raises(InputError, match="--regex is for shiviz logs"):
        import_path("editing", tmp_path, tmp_path / "out", regex="x")


def test_an_editing_trace_of_one_author_is_a_chain(tmp_path: Path) -> None:
    about, rows = imported(
        "editing", wrote(tmp_path, '{"startContent": "", "txns": [{"patches": []}, {"patches": []}]}')
    )
    assert [row["parents"] for row in rows] == [[], ["0"]]
    assert about.processes == 1


def test_parents_of_an_editing_trace_out_of_range_are_counted(tmp_path: Path) -> None:
    trace = (
        '{"txns": [{"agent": "ana", "parents": [-1, 7]}, {"agent": 1, "parents": [0, 12345678901234567890]}]}'
    )
    about, rows = imported("editing", wrote(tmp_path, trace))
    assert [(row["process"], row["parents"]) for row in rows] == [("ana", []), ("1", ["0"])]
    assert about.bad_rows == 3


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    return folder


def git(folder: Path, *words: str, author: str = "Ana") -> str:
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in
           (("NAME", author), ("EMAIL", f"{author.lower()}@example.org"))}  # fmt: skip
    alone = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": str(folder)}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=os.environ | who | alone, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_commits_of_a_git_repository_are_imported(repository: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "one")
    git(repository, "branch", "side")
    git(repository, "commit", "-q", "--allow-empty", "-m", "two", author="Bea\u00e9")
    git(repository, "checkout", "-q", "side")
    git(repository, "commit", "-q", "--allow-empty", "-m", "three")
    git(repository, "merge", "-q", "-m", "four", "main")
    git(repository, "notes", "add", "-m", "a note", "HEAD")
    (repository / "work").write_text("unfinished")
    git(repository, "add", "work")
    git(repository, "stash", "-q")
    # A repository's own settings run nothing.
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "gpg.program", "touch harm")
    about, rows = imported("git", repository)
    assert (about.rows, about.parents, about.parents_most, about.processes) == (4, 4, 2, 2)
    assert rows[-1]["node"] == git(repository, "rev-parse", "side")
    assert rows[-1]["parents"] == git(repository, "log", "-1", "--format=%P", "side").split()
    assert {row["process"] for row in rows} == {"Ana <ana@example.org>", "Bea\u00e9 <bea\u00e9@example.org>"}
    assert [row["seq"] for row in rows if row["process"].startswith("Ana")] == [1, 2, 3]
    assert not (repository / "harm").exists()


def test_a_folder_without_a_repository_or_without_commits_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="has no commit that a branch or a tag reaches"):
        imported("git", repository)
    (repository / "inside").mkdir()
    with pytest.raises(InputError, match=r"git cannot read .*not a git repository"):
        imported("git", repository / "inside")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="the program git"):
        imported("git", repository)


def test_an_import_overwrites_only_an_earlier_import(tmp_path: Path) -> None:
    file = wrote(tmp_path, f"{DEPENDENCIES}0,p,0,\n")
    imported("dependencies", file)
    imported("dependencies", file)
    for name in ("precious", "meta.json", TABLE):
        folder = tmp_path / f"with {name}"
        folder.mkdir()
        (folder / name).write_text("years of work")
        with pytest.raises(InputError, match="a folder of its own"):
            import_as("dependencies", file, folder)
        assert (folder / name).read_text() == "years of work"
    for text, says in {"{}": "does not describe", '{"schema_version": 99}': "does not describe"}.items():
        folder = tmp_path / f"with {len(text)}"
        folder.mkdir()
        (folder / TABLE_INFO).write_text(text)
        with pytest.raises(InputError, match=says):
            import_as("dependencies", file, folder)
    with pytest.raises(InputError, match="is a file"):
        import_as("dependencies", file, file)
    newer = (
        (tmp_path / "it.imported" / TABLE_INFO)
        .read_text()
        .replace('"schema_version": 1', '"schema_version": 99')
    )
    (tmp_path / "it.imported" / TABLE_INFO).write_text(newer)
    with pytest.raises(InputError, match="schema version 99"):
        imported("dependencies", file)


@given(st.permutations(range(30)), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=80))
def test_rows_in_any_order_are_written_with_parents_first(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], pairs: list[tuple[int, int]]
) -> None:
    parents: dict[int, list[int]] = {node: [] for node in order}
    for one, other in pairs:
        if one != other:
            parents[max(one, other)].append(min(one, other))
    into = DependencyWriter("here", "dependencies", strict=True)
    for node in order:
        into.add(str(node), str(node % 3), node, map(str, parents[node]), "here")
    folder = tmp_path_factory.mktemp("order")
    into.write(folder)
    seen: set[str] = set()
    for row in pq.read_table(folder / TABLE).to_pylist():
        assert seen.issuperset(row["parents"])
        assert {*row["parents"]} == {*map(str, parents[int(row["node"])])}
        seen.add(row["node"])
    assert len(seen) == 30


def test_an_unreadable_transaction_is_counted(tmp_path: Path) -> None:
    broken = '{"parents": "x"}, {"agent": null}, 5, {"parents": [0, 1], "agent": 0}'
    text = f'\ufeff{{"txns": [{{"parents": [], "agent": 0}}, {broken}]}}'
    about, rows = imported("editing", wrote(tmp_path, text))
    assert [(row["node"], row["seq"], row["parents"]) for row in rows] == [("0", 1, []), ("4", 2, ["0"])]
    assert [(each.what, each.rows) for each in about.bad] == [
        ("transactions that cannot be read, left out", 3),
        ("parents that are no node, left out", 1),
    ]
    assert about.bad[0].examples[0].startswith("txns[1]: Expected")


def test_parquet_tables_and_long_parent_lists_are_imported(tmp_path: Path) -> None:
    many = [f"n{place}" for place in range(30_000)]
    lines = [f"{name},p,{place},\n" for place, name in enumerate(many)]
    text = "".join(["node,process,seq,parents\n", *lines, f"z,p,1,{' '.join(many)}\n"])
    about, _ = imported("dependencies", wrote(tmp_path, text))
    assert (about.parents_most, about.bad_rows) == (30_000, 0)
    columns = {"node": [1, 2, None], "process": [7, 8, 9], "seq": [1.5, 1, 1], "parents": [[], [1], None]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    about, rows = imported("dependencies", tmp_path / "t.parquet")
    assert rows == [
        {"node": "1", "process": "7", "seq": 1, "parents": []},
        {"node": "2", "process": "8", "seq": 1, "parents": ["1"]},
    ]
    assert [each.what for each in about.bad] == [
        "sequence numbers that are no whole number, ignored",
        "records without {node}, left out",
    ]


def test_only_ascii_digits_and_spaces_count(tmp_path: Path) -> None:
    table = "node,process,seq,parents\na\u00a0b,p,1,\nc,p,2,a\u00a0b\nd,p,1_0,\ne,p,\u0663,\n"
    about, rows = imported("dependencies", wrote(tmp_path, table))
    assert [(row["node"], row["parents"]) for row in rows][:2] == [("a\u00a0b", []), ("c", ["a\u00a0b"])]
    assert about.bad[0].examples == ["row 3: 1_0", "row 4: \u0663"]


def test_the_end_of_a_shallow_clone_is_reported(repository: Path, tmp_path: Path) -> None:
    for place in range(3):
        git(repository, "commit", "-q", "--allow-empty", "-m", str(place))
    shallow = tmp_path / "shallow"
    git(repository, "clone", "-q", "--depth", "2", f"file://{repository}", str(shallow))
    about, rows = imported("git", shallow)
    assert [(each.what, each.examples) for each in about.bad] == [
        ("commits whose parents a shallow clone does not have", [f"commit {rows[0]['node']}"])
    ]
    with pytest.raises(InputError, match="shallow clone"):
        imported("git", shallow, strict=True)
