"""Commands run in a folder of somebody else: its files are read, never executed."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from antecede.sim.record import simulate_to
from antecede.sim.scenario import scenario

SCRIPT = Path(sysconfig.get_path("scripts")) / "antecede"
SHADOWS = (
    "antecede", "json", "llvmlite", "msgspec", "multiprocessing", "numba", "numpy", "pandas", "py4j",
    "pyarrow", "pyspark", "rich", "sitecustomize", "typer", "typing", "usercustomize", "yaml", "zoneinfo",
)  # fmt: skip
HOSTILE = (
    'import os\nwith open(os.path.join({folder!r}, "executed"), "a") as marker:\n    marker.write(__file__)\n'
)
PROTOCOL = "from antecede.protocols.mbcp import Mbcp\n\n\nclass Mine(Mbcp):\n    name = 'mine'\n"
GRID = '[run]\nseconds = 0.3\npeers = 3\nprotocol = "{protocol}"\n[grid]\nseed = [1]\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every kind that a command reads, next to modules that record their own execution."""
    folder = tmp_path_factory.mktemp("hostile")
    simulate_to(folder / "trace", scenario(protocol="mbcp", peers=3, seconds=0.5, seed=7))
    (folder / "log.jsonl").write_text(
        '{"run":"r","group":"g","process":"ana","index":0,"kind":"send","origin":"ana","seq":1,"time":0}\n'
        '{"run":"r","group":"g","process":"bo","index":0,"kind":"deliver","origin":"ana","seq":1,"time":1}\n'
    )
    (folder / "parents.csv").write_text("node,process,seq,parents\na,ana,1,\nb,bo,1,a\n")
    (folder / "govector.log").write_text('ana {"ana":1}\nhello\n')
    (folder / "editing.json.gz").write_bytes(gzip.compress(b'{"txns":[{"parents":[],"agent":0}]}'))
    (folder / "mine.py").write_text(PROTOCOL)
    (folder / "grid.toml").write_text(GRID.format(protocol="mine:Mine"))
    git = ["git", "-C", str(folder), "-c", "user.name=ana", "-c", "user.email=ana@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(HOSTILE.format(folder=str(folder)))
    return folder


def executed(folder: Path) -> str:
    marker = folder / "executed"
    text = marker.read_text() if marker.exists() else ""
    marker.unlink(missing_ok=True)
    return text


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=300, env=os.environ | environment
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "log.jsonl"],
        ["audit", "trace", "--html", "page.html"],
        ["explain", "trace", "--message", "p0:1"],
        ["graph", "log.jsonl"],
        ["graph", "parents.csv"],
        ["advise", "trace", "--deliveries", "100"],
        ["order", "parents.csv", "--id", "node", "--deps", "parents", "--out", "{out}/ordered"],
        ["import", "dependencies", "parents.csv", "--out", "{out}/table"],
        ["import", "shiviz", "govector.log", "--out", "{out}/shiviz"],
        ["import", "editing", "editing.json.gz", "--out", "{out}/editing"],
        ["import", "git", ".", "--out", "{out}/git"],
        ["export", "shiviz", "trace", "--out", "{out}/log"],
        ["explore", "trace", "--out", "{out}/explore.html"],
        ["simulate", "--peers", "3", "--seconds", "0.2", "--out", "{out}/simulated"],
        ["verify", "mbcp", "--runs", "110", "--jobs", "2"],
        ["protocols"],
        ["doctor"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_no_file_of_the_current_folder_is_executed(
    folder: Path, tmp_path: Path, arguments: list[str]
) -> None:
    done = run(folder, str(SCRIPT), *(each.format(out=tmp_path) for each in arguments))
    assert executed(folder) == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments", [["audit", "trace", "--engine", "spark"], ["sweep", "grid.toml", "--out", "{out}/sweep"]]
)
def test_spark_workers_execute_no_file_of_the_current_folder(
    folder: Path, tmp_path: Path, arguments: list[str]
) -> None:
    """A sweep still finds the one class that the user named, in the folder where the command runs."""
    done = run(folder, str(SCRIPT), *(each.format(out=tmp_path) for each in arguments))
    assert executed(folder) == ""
    assert done.returncode == 0, done.stderr


def test_python_dash_m_imports_nothing_from_the_current_folder_after_startup(folder: Path) -> None:
    """At startup Python itself searches the current folder for `antecede` first, except with -P."""
    early = folder / "antecede.py", folder / "typing.py"
    for file in early:
        file.rename(file.with_suffix(".off"))
    try:
        done = run(folder, sys.executable, "-m", "antecede", "audit", "log.jsonl")
    finally:
        for file in early:
            file.with_suffix(".off").rename(file)
    assert executed(folder) == ""
    assert done.returncode == 0, done.stderr
    done = run(folder, sys.executable, "-P", "-m", "antecede", "audit", "log.jsonl")
    assert executed(folder) == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--protocol", "mine:Mine", "--peers", "3", "--seconds", "0.2"],
        ["verify", "mine:Mine", "--runs", "110", "--jobs", "2"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_only_the_class_named_by_the_user_is_loaded_from_the_current_folder(
    folder: Path, arguments: list[str]
) -> None:
    done = run(folder, str(SCRIPT), *arguments, "--json")
    assert executed(folder) == ""
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_settings_of_numba_are_not_taken_from_the_current_folder(tmp_path: Path) -> None:
    """They could name a folder of compiled code, which numba would load and run."""
    hostile, installed = tmp_path / "hostile", tmp_path / "installed"
    hostile.mkdir()
    installed.mkdir()
    (hostile / ".numba_config.yaml").write_text("cache_dir: code\n")
    (installed / "yaml.py").write_text("def safe_load(stream):\n    raise SystemExit('settings were read')\n")
    path = os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH"))))
    arguments = ["simulate", "--peers", "3", "--seconds", "0.2", "--engine", "event"]
    done = run(hostile, str(SCRIPT), *arguments, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
