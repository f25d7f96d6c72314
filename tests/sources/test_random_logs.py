"""Random logs in the files of other programs give the verdict of a brute force on the log itself, and come
out as they were written; `random_logs.py` tries any number of them. Damaged files end in words."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest
from commands import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from random_logs import try_log

from antecede.audit.dependency_log import judge_dependency_log
from antecede.errors import InputError
from antecede.sources import PRESETS, find_source, read_source
from antecede.sources.recognise import recognise, recognise_file
from antecede.trace.bad_rows import BadRows


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_a_random_log_in_files(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 100):
        folder = tmp_path / str(seed)
        folder.mkdir()
        try_log(seed, folder)


DEEP_AND_ODD = [b"[" * 3000, b'{"a":' * 2000, b"null", b'"', b"\n", b"1e999", b"\xff\xfe"]
SAMPLE_BYTES = [file.read_bytes() for file in sorted(SAMPLES.iterdir())]


@settings(max_examples=300)
@given(
    sample=st.sampled_from(SAMPLE_BYTES),
    at=st.integers(0, 5000),
    cut=st.integers(0, 40),
    inserted=st.binary(max_size=6) | st.sampled_from(DEEP_AND_ODD),
    preset=st.sampled_from(list(PRESETS)),
)
def test_damaged_files_give_records_bad_rows_or_one_sentence(
    sample: bytes,
    at: int,
    cut: int,
    inserted: bytes,
    preset: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever is damaged, whichever preset reads it: records, counted bad rows, or a sentence."""
    place = at % len(sample)
    file = tmp_path_factory.getbasetemp() / "damaged"
    file.write_bytes(sample[:place] + inserted + sample[place + cut :])
    recognise(file.read_bytes()[:1024])
    with contextlib.suppress(InputError):
        recognise_file(file)
    for chosen in (preset, None):
        with contextlib.suppress(InputError):
            source = find_source(str(file), chosen)
            if source is not None:
                carried = {"payload": pa.string()}
                judge_dependency_log(read_source(source, BadRows("damaged", strict=False), carried))
