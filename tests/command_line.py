"""Runs `antecede` in a process of its own, without the second that its imports would take.

The process is forked from one that has imported what most commands need. It has its own streams, folder and
environment, and exits like any Python process. Tests of what is imported, and when, start a Python of their
own.
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

from typer.testing import CliRunner

from antecede.cli.main import app

_SERVER = """
import gc, json, os, signal, sys
import antecede.advise.run, antecede.audit.page, antecede.audit.run, antecede.causal_order.history
import antecede.causal_order.local, antecede.causal_order.run, antecede.check.run, antecede.explore
import antecede.graph.run, antecede.sim.engines, antecede.sim.record, antecede.sources.event_table
import antecede.sources.imported, antecede.trace.explain, antecede.trace.foreign.import_formats
import pandas, pyarrow.parquet, typer.rich_utils
from antecede.cli.main import main
from numba.core.registry import cpu_target

# Machine code that is loaded from the cache needs what numba knows of Python's types: half a second.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
gc.collect()
gc.freeze()  # a child that looked for garbage among all this would copy it

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


def antecede_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process: a command on Spark then uses the session that tests share.

    A JVM of its own would take most of the time. An error that ends the command is raised.
    """
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


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
