"""Runs `antecede` in a process of its own, without the second that its imports would take.

The process is forked from one that has imported what most commands need. It has its own streams, folder and
environment, and ends as every Python does. Tests of what is imported, and when, start a Python of their own.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_SERVER = """
import json, os, signal, sys
import antecede.advise, antecede.audit.core, antecede.causal_order.history, antecede.sim.engines
import antecede.sim.record, pyarrow.parquet
from antecede.cli.main import main

requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
for line in requests:
    arguments, folder, umask, environment, out, err = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
else:
    sys.exit()
signal.alarm(300)  # a command that hangs ends by a signal
for stream, name, mode in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
    os.dup2(os.open(name, mode), stream)
os.chdir(folder)
if umask >= 0:
    os.umask(umask)
os.environ.clear()
os.environ.update(environment)
sys.argv = ["antecede", *arguments]
main()
"""


@cache
def _server() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        text=True,
    )
    assert process.stdin is not None
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # is called before the other: the server then ends
    return process


def antecede(*arguments: str, cwd: Path | None = None, umask: int = -1) -> subprocess.CompletedProcess[str]:
    """What a command prints, and its exit code."""
    done = antecede_bytes(*arguments, cwd=cwd, umask=umask)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def antecede_bytes(
    *arguments: str, cwd: Path | None = None, umask: int = -1
) -> subprocess.CompletedProcess[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        out, err = (Path(folder) / name for name in ("out", "err"))
        for file in (out, err):
            file.touch()
        request = (arguments, str(cwd or Path.cwd()), umask, dict(os.environ), str(out), str(err))
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps(request), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, out.read_bytes(), err.read_bytes())
