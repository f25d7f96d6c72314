"""Builds the wheel and the sdist into dist/, and installs them as users do: `./dev package`.

Each extra is installed into an environment of its own, and tested in an empty folder, without Java on the
path and without access to the repository. `--build` only builds and looks inside; `--extra sim` tries one
extra; `--tool uv` and `--tool pipx` install with these instead of pip, `--sdist` the source archive instead
of the wheel; `--light` measures `uvx --from WHEEL[sim] antecede audit log.jsonl` with an empty cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
_EVENT = '{{"run":"r","group":"g","process":"{}","index":{},"kind":"{}","origin":"{}","seq":1,"time":{}}}\n'
LOG = "".join(
    _EVENT.format(*event)
    for event in (
        ("ana", 1, "send", "ana", 0),
        ("bo", 1, "deliver", "ana", 1),
        ("bo", 2, "send", "bo", 2),
        ("cleo", 1, "deliver", "bo", 3),
        ("cleo", 2, "deliver", "ana", 4),
        ("ana", 2, "deliver", "bo", 5),
    )
)
"""A log in which cleo delivers bo's answer before ana's question."""
_AUDIT = ["antecede", "audit", "log.jsonl"]
_VIOLATION = "cleo delivered bo:1 before its cause ana:1"
_WRITE_DELTA = (
    "import deltalake, pyarrow.json as j; deltalake.write_deltalake('table', j.read_json('log.jsonl'))"
)
_ICEBERG = "iceberg/n/log"
_EXPLORE = """
from antecede.explore.notebook import NotebookExplorer
from antecede.trace import read_trace
explorer = NotebookExplorer(read_trace("trace"))
explorer.selected = "p1:1"
print(explorer.rows("message").num_rows, "rows")
"""
_TRACED = """
import asyncio, antecede

async def main():
    peers = ["bo@127.0.0.1:9"]
    async with antecede.join("room", me="ana", peers=peers, listen="127.0.0.1:0", otel=True) as group:
        print(await group.broadcast("hello"))

asyncio.run(main())
"""
TRIALS: dict[str, list[tuple[list[str], int, str]]] = {
    "": [
        (["antecede", "protocols"], 0, "mbcp"),
        (["antecede", "check", "mbcp"], 2, "pip install 'antecede[sim]'"),
        (["antecede", "load", "2", "--messages", "100"], 0, "memory"),
        (["antecede", "simulate", "--peers", "5"], 0, "deliveries"),
        (_AUDIT, 2, "pip install 'antecede[sim]'"),
    ],
    "sim": [
        (_AUDIT, 1, _VIOLATION),
        (["antecede", "simulate", "--out", "trace"], 0, "Trace: trace"),
        (["antecede", "audit", "trace"], 0, "clean"),
        (["antecede", "check", "mbcp"], 0, "holds"),
        (["antecede", "cluster", "3", "--messages", "30"], 0, ""),
    ],
    "live": [
        (["antecede", "keys", "keys", "ana", "bo"], 0, "ana"),
        (["antecede", "load", "2", "--messages", "100", "--security", "tls"], 0, "memory"),
    ],
    "spark": [([*_AUDIT, "--engine", "spark"], 1, _VIOLATION)],
    "delta": [
        (["python", "-c", _WRITE_DELTA], 0, ""),
        (["antecede", "audit", "table"], 1, _VIOLATION),
    ],
    "notebook": [
        (["antecede", "simulate", "--out", "trace"], 0, "Trace: trace"),
        (["python", "-c", _EXPLORE], 0, "rows"),
    ],
    "otel": [(["python", "-c", _TRACED], 0, "ana:1")],
    "iceberg": [(["antecede", "audit", _ICEBERG], 1, _VIOLATION)],
}
"""For each extra: commands, their exit codes, and a part of their expected output."""


def build() -> Path:
    """Build the wheel, and check the contents of both archives."""
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(DIST)], cwd=ROOT, check=True)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    with tarfile.open(sdist) as packed:
        sources = {name.partition("/")[2] for name in packed.getnames()}
    for file in (ROOT / "src" / "antecede").rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            name = file.relative_to(ROOT / "src").as_posix()
            if name not in names or f"src/{name}" not in sources:
                sys.exit(f"{name} is not in both archives")
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")
    return wheel


def clean_environment(binaries: Path) -> dict[str, str]:
    """Without Java, and without anything of this repository."""
    kept = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "LANG", "HOME"))
    }
    tools = binaries.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("sh", "bash", "env", "uname", "dirname", "ps", "cat", "ip"):
        if (found := shutil.which(name)) and not (tools / name).exists():
            (tools / name).symlink_to(found)
    return kept | {
        "PATH": f"{binaries}{os.pathsep}{tools}",
        "NUMBA_CACHE_DIR": str(binaries.parent / "numba"),
    }


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def install(requirement: str, tool: str, folder: Path, python: str) -> Path | None:
    """Install as a user of this tool does. Returns the folder of the commands, or None if the installation
    fails."""
    venv = folder / "venv"
    subprocess.run([python, "-m", "venv", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    environment = os.environ | {
        "UV_TOOL_DIR": f"{folder}/tools",
        "UV_TOOL_BIN_DIR": f"{folder}/bin",
        "PIPX_HOME": f"{folder}/pipx",
        "PIPX_BIN_DIR": f"{folder}/bin",
    }
    if tool == "pip":
        command, binaries = [*pip, requirement], venv / "bin"
    else:
        subprocess.run([*pip, tool], check=True)
        name = str(venv / "bin" / tool)
        if tool == "uv":
            command = [name, "tool", "install", "--quiet", "--python", python, requirement]
            binaries = folder / "tools" / "antecede" / "bin"
        else:
            command = [name, "install", "--quiet", "--python", python, requirement]
            binaries = folder / "pipx" / "venvs" / "antecede" / "bin"
    done = subprocess.run(command, cwd=folder, env=environment)
    return binaries if done.returncode == 0 else None


def write_iceberg(folder: Path) -> None:
    """The log as an Iceberg table: writing one needs a catalog, which the extra does not bring."""
    import pyarrow.json
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse = folder / "iceberg"
    warehouse.mkdir()
    rows = pyarrow.json.read_json(folder / "log.jsonl")
    catalog = SqlCatalog("t", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{warehouse}")
    catalog.create_namespace("n")
    catalog.create_table("n.log", schema=rows.schema).append(rows)


def trial(requirement: str, extra: str, python: str, tool: str = "pip") -> bool:
    """Install, run, report. Returns whether everything passed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        empty = folder / "empty"
        empty.mkdir()
        (empty / "log.jsonl").write_text(LOG)
        if extra == "iceberg":
            write_iceberg(empty)
        begun = time.monotonic()
        binaries = install(requirement, tool, folder, python)
        if binaries is None:
            print(f"{extra or 'no extra'}: {tool} cannot install it")
            return False
        seconds, installed = time.monotonic() - begun, size(binaries.parent) / 1e6
        print(
            f"{extra or 'no extra'}: installed by {tool} in {seconds:.0f} s, {installed:,.0f} MB", flush=True
        )
        environment = clean_environment(binaries)
        for command, code, expected in TRIALS[extra]:
            begun = time.monotonic()
            binary = str(binaries / command[0])
            done = subprocess.run(
                [binary, *command[1:]], cwd=empty, env=environment, capture_output=True, text=True
            )
            output = " ".join((done.stdout + done.stderr).split())
            if done.returncode != code or expected not in output:
                print(f"  {' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
                return False
            shown = [command[0], "-c ..."] if command[0] == "python" else command
            print(f"  {' '.join(shown)}: {time.monotonic() - begun:.1f} s", flush=True)
    return True


def light(wheel: Path) -> bool:
    """The time to a verdict for a user who has only uv, and the size of the download."""
    with tempfile.TemporaryDirectory() as folder:
        venv, empty = Path(folder) / "venv", Path(folder) / "empty"
        empty.mkdir()
        (empty / "log.jsonl").write_text(LOG)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        python = str(venv / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
        downloads = Path(folder) / "downloads"
        requirement = f"{wheel}[sim]"
        subprocess.run(
            [python, "-m", "pip", "download", "--quiet", "-d", str(downloads), requirement], check=True
        )
        command = [str(venv / "bin" / "uv"), "tool", "run", "--from", requirement, *_AUDIT]
        environment = os.environ | {"UV_CACHE_DIR": f"{folder}/cache", "NUMBA_CACHE_DIR": f"{folder}/numba"}
        for cache in ("empty", "filled"):
            begun = time.monotonic()
            done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True)
            seconds = time.monotonic() - begun
            if done.returncode != 1:
                print(done.stdout + done.stderr)
                return False
            print(f"uvx, {cache} cache: a verdict after {seconds:.1f} s")
        print(f"downloads: {size(downloads) / 1e6:.0f} MB in {len(list(downloads.iterdir()))} wheels")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--extra", choices=sorted(TRIALS), action="append")
    parser.add_argument("--tool", choices=("pip", "uv", "pipx"), default="pip")
    parser.add_argument("--sdist", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    wheel = build()
    if options.build:
        return
    if options.light:
        sys.exit(not light(wheel))
    (sdist,) = DIST.glob("*.tar.gz")
    archive = sdist if options.sdist else wheel
    good = True
    for extra in options.extra if options.extra is not None else TRIALS:
        requirement = f"{archive}[{extra}]" if extra else str(archive)
        good &= trial(requirement, extra, options.python, options.tool)
    if options.extra is None and not options.sdist:
        print("from the sdist:")
        good &= trial(str(sdist), "", options.python, options.tool)
    sys.exit(not good)


if __name__ == "__main__":
    main()
