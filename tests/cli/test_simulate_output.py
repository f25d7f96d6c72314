"""What `simulate` prints, and options that would have no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import antecede

SHORT = ("simulate", "--peers", "4", "--seconds", "1")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--burst", "3"], "--burst is for the workload rounds, not for periodic; add --workload rounds"),
        (["--interval", "exp:1ms"], "--interval is for the workload drawn or starts, not for periodic"),
        (["--workload", "own:Bursts", "--burst", "3"], "--workload own:Bursts,burst=3"),
        (["--metrics-only", "--out", "trace"], "--metrics-only writes no trace"),
        (["--seconds", "2", "--fault", "crash:10s:3"], "crash:10s:3 comes after the 2 s"),
        (["--network", "graph"], "graph needs a file: graph,file=NAME"),
        (["--protocol", "mbpc"], "no protocol 'mbpc'; did you mean mbcp? There are timestamp,"),
    ],
)
def test_an_option_without_effect_is_refused(options: list[str], sentence: str, tmp_path: Path) -> None:
    done = antecede(*SHORT, *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_a_run_says_how_it_is_judged(tmp_path: Path) -> None:
    done = antecede(*SHORT, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "Not audited: with --out TRACE, antecede audit TRACE judges it."
    assert "CPU second" not in done.stdout, "a short run is no measurement of speed"
    traced = antecede(*SHORT, "--out", "a trace", cwd=tmp_path)
    assert traced.stdout.splitlines()[-1] == "Not audited: antecede audit 'a trace' judges it."


def test_the_size_on_paper_is_named_after_who_counts_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from antecede.protocols import Mbcp\n\n\nclass Own(Mbcp):\n    name = 'own'\n"
    )
    assert "by the rules of its paper" in antecede(*SHORT, cwd=tmp_path).stdout
    own = antecede(*SHORT, "--protocol", "own:Own", cwd=tmp_path).stdout
    assert "as its paper_bytes() counts" in own


def test_changes_that_did_not_happen_are_left_out() -> None:
    done = antecede(*SHORT, "--fault", "crash:500ms:2")
    rows = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if len(line.split()) > 1)
    assert rows["crashes"] == "1"
    assert "joins" not in rows
    assert "Measurements that are 0 are left out; --json has them all." in done.stdout
    assert "simulate" not in rows


def test_one_peer_is_singular() -> None:
    assert antecede("simulate", "--peers", "1").stdout.startswith("mbcp, 1 peer, 2 s")


@pytest.mark.parametrize("command", ["simulate", "verify", "check", "sweep", "reproduce"])
def test_help_is_not_cut_in_a_narrow_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = antecede(command, "--help")
    whole = done.stdout.replace("://…", "://")
    assert "…" not in whole
    assert "docs/" not in whole, "who installs a wheel has no docs folder"


def test_a_seed_out_of_range_is_refused() -> None:
    for seed in ("-1", "x", str(1 << 64)):
        done = antecede("simulate", "--seed", seed)
        assert done.returncode == 2
        assert f"{seed} is not a seed; write a whole number from 0 to" in done.stderr
