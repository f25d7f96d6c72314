"""CSV as other programs write it: fields stay as they are, and bad rows do not affect their neighbours."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from antecede.errors import InputError
from antecede.trace.csv_records import CsvFormat
from antecede.trace.reader import csv_rows

Bad = list[tuple[int, str]]


def read(file: Path, form: CsvFormat = CsvFormat()) -> tuple[list[list[str]], Bad]:  # noqa: B008
    bad: Bad = []
    rows = csv_rows(file, on_unreadable=lambda number, why: bad.append((number, why)), form=form)
    return [list(row.values()) for _, row in rows], bad


def test_bad_csv_rows_are_reported_and_the_others_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(
        b'\xef\xbb\xbfid,text\r\n001,"two\r\nlines"\r\n\r\n01,"say ""hi"", you"\r\n1\r\n2,a,b\r\n'
        b'3,"x"y\r\n4,caf\xe9\r\n5, padded \r\n6,\r\n7,it"s\r\n8,"open\r\n9,x\r\n'
    )
    rows, bad = read(file)
    assert rows == [
        ["001", "two\r\nlines"],
        ["01", 'say "hi", you'],
        ["5", " padded "],
        ["6", ""],
        ["7", 'it"s'],
    ]
    assert bad == [
        (3, "it does not have the header's 2 fields, but 1"),
        (4, "it does not have the header's 2 fields, but 3"),
        (5, "it is not CSV: ',' expected after '\"'"),
        (6, "it is not text in UTF-8; give the --encoding"),
        (10, "it is not CSV: unexpected end of data"),
    ]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8"])
def test_encodings_and_separators(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "t.tsv"
    rows = [["né", "a, b"], ["ü\tö", '"']]
    with file.open("w", encoding=encoding, newline="") as out:
        csv.writer(out, delimiter="\t").writerows([["id", "text"], *rows])
    assert read(file, CsvFormat(encoding, "\t")) == (rows, [])
    if encoding == "utf-16":  # has a byte-order mark
        assert read(file, CsvFormat(None, "\t")) == (rows, [])


def test_headers_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(b"id,caf\xe9\n1,2\n")
    with pytest.raises(InputError, match="its header is not text in UTF-8; give the --encoding"):
        read(file)
    for form, message in (
        (CsvFormat("klingon"), "no encoding 'klingon'"),
        (CsvFormat(separator="ab"), "'ab' is not one character"),
    ):
        with pytest.raises(InputError, match=message):
            form.validate()


def test_csv_text_round_trips(tmp_path: Path) -> None:
    rng = random.Random(5)
    file = tmp_path / "t.csv"
    for _ in range(100):
        pieces = ["a", "é", '"', ",", "\n", "\r", "\r\n", " ", "", "007", "\u2028", "\x00", "🙂"]
        rows = [["".join(rng.choices(pieces, k=rng.randrange(4))) for _ in "xyz"] for _ in range(20)]
        with file.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator=rng.choice(["\n", "\r\n"]), quoting=csv.QUOTE_ALL)
            writer.writerows([["x", "y", "z"], *rows])
        assert read(file) == (rows, [])


def test_the_error_for_another_encoding_names_an_option_the_command_has(tmp_path: Path) -> None:
    """`audit` has no --encoding, which is an option of `order`."""
    file = tmp_path / "trace.csv"
    file.write_bytes(b"run,process\nr,caf\xe9\n")
    with pytest.raises(InputError, match="write it in UTF-8, or read it with --map encoding"):
        list(csv_rows(file))
