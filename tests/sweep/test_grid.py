"""Grids of scenarios."""

from __future__ import annotations

from pathlib import Path

import pytest

from antecede.errors import InputError
from antecede.sweep.grid import expand, read_grid
from command_line import antecede


def test_a_grid_is_every_combination() -> None:
    runs = expand({"seconds": 1}, {"protocol": ["mbcp", "timestamp"], "peers": [2, 3], "seed": [1, 2, 3]})
    assert len(runs) == len({run.key() for run in runs}) == 12
    assert (runs[0].protocol, runs[-1].protocol) == ("mbcp", "timestamp")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[run", "not TOML"),
        ("[runs]\nseconds = 1", "runs"),
        ("run = 3", "sections"),
        ('[grid]\nprotocol = "mbcp"', "protocol"),
        ('[grid]\nprotocol = ["mbcp"]\npeers = []', "0 runs"),
        ('[grid]\nprotocol = ["mbcp", "mbcp"]', "twice"),
        ('[run]\npeers = 3\n[grid]\nprotocol = ["mbcp"]\npeers = [1]', "peers"),
        ('[run]\ncolour = 1\n[grid]\nprotocol = ["mbcp"]', "colour"),
        ("[run]\nseconds = 1", "protocol is missing; write protocol = "),
        (
            '[run]\nprotocol = "mbcp"\n[grid]\nfaults = ["loss:1%"]',
            r"a list of lists, .* \[\[\], \['loss",
        ),
    ],
)
def test_an_invalid_grid_file_is_refused_with_the_reason(tmp_path: Path, text: str, names: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=names) as error:
        read_grid(file)
    assert str(file) in str(error.value)


def test_a_missing_grid_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_grid(tmp_path / "nothing.toml")


def test_an_unknown_grid_field_suggests_the_intended_one() -> None:
    with pytest.raises(InputError, match="unknown field `second`; did you mean seconds\\?"):
        expand({"second": 2}, {"protocol": ["mbcp"]})


@pytest.mark.parametrize("file", ["part-00000.parquet", "thesis.tex"])
def test_a_folder_with_something_else_is_refused(file: str, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text('[grid]\nprotocol = ["mbcp"]')
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / file).touch()
    done = antecede("sweep", "grid.toml", "--out", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert f"out holds other files, such as {file}; name an empty folder, or that of a sweep" in done.stderr
