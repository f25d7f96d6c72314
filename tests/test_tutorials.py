"""The five-minute pages and the README work as they are written: files are saved, commands run, in order."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from antecede.live.trial.ports import free_ports
from command_line import antecede

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "tutorials"
_BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
_NAMED = re.compile(r"`([\w-]+\.(?:py|csv|toml))`")


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """The language of each block, its text, and the file that the text before it names, if any."""
    text = (PAGES / page).read_text(encoding="utf-8")
    end = 0
    for block in _BLOCK.finditer(text):
        names = _NAMED.findall(text[end : block.start()])
        yield block[1], block[2], names[0] if names else ""
        end = block.end()


def save_files(page: str, folder: Path) -> None:
    for language, text, name in blocks(page):
        if language in ("python", "csv", "toml") and name:
            (folder / name).write_text(text, encoding="utf-8")


def run_python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("page", "code"), [("data.md", {"audit": 1}), ("research.md", {"check forgetful:Forgetful": 1})]
)
def test_commands_and_programs_of_a_page(page: str, code: dict[str, int], tmp_path: Path) -> None:
    """What a page shows below a block is in the output of that block."""
    save_files(page, tmp_path)
    output = ""
    for language, text, name in blocks(page):
        if language == "sh":
            output = ""
            for line in text.splitlines():
                program, command, *arguments = shlex.split(line)
                if program == "python":
                    done = run_python(command, folder=tmp_path)
                else:
                    done = antecede(command, *arguments, cwd=tmp_path)
                expected = code.get(" ".join([command, *arguments[:1]]), code.get(command, 0))
                assert done.returncode == expected or "trace" in arguments, done.stderr
                output += done.stdout
        elif language == "python" and not name.endswith(".py"):
            done = run_python("-c", text, folder=tmp_path)
            assert done.returncode == 0, done.stderr
            output = done.stdout
        elif language == "":
            assert " ".join(text.split()) in " ".join(output.split()), output


def test_figures_on_the_research_page_match_its_runs(tmp_path: Path) -> None:
    page = (PAGES / "research.md").read_text(encoding="utf-8")
    for protocol, figure in (("mbcp", "18.5"), ("timestamp", "28.0")):
        line = f"simulate --protocol {protocol} --peers 20 --seconds 5 --seed 7"
        assert f"{figure} on the wire" in antecede(*line.split(), cwd=tmp_path).stdout
        assert line in page
        assert figure in page


def test_readme_examples_run_as_pasted(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (shown,) = re.findall(r"```\n(ana:.*?)\n```", readme)
    for expected in (shown, "ana:2 {'text': 'shall we?'} after ana:1"):
        done = run_python("-c", program, folder=tmp_path)
        assert done.stdout == f"{expected}\n", done.stderr
    _, log, research = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    *makes_the_log, audit = log.splitlines()
    subprocess.run("\n".join(makes_the_log), shell=True, cwd=tmp_path, check=True)  # noqa: S602
    done = antecede(*shlex.split(audit)[1:], cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (shown,) = re.findall(r"```\n(• .*?)\n```", readme)
    assert shown in " ".join(done.stdout.split())
    for line in research.splitlines():
        done = antecede(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stderr


class Terminal:
    """A terminal in which `python room.py …` runs."""

    def __init__(self, command: str, folder: Path) -> None:
        _, *arguments = shlex.split(command)
        self._process = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        self._printed: list[str] = []

    def wait_for(self, text: str) -> str:
        """The line that begins with a text, once it is printed."""
        for line in chain(list(self._printed), self._lines()):
            if line.startswith(text):
                return line
        raise AssertionError(f"{text!r} is not printed, but {self._printed}")

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._printed.append(line.strip())
            yield self._printed[-1]

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.communicate(timeout=60)


def test_the_tutorial_application_runs(tmp_path: Path) -> None:
    save_files("application.md", tmp_path)
    program = (tmp_path / "room.py").read_text()
    for port in (7101, 7102):
        program = program.replace(f":{port}", f":{free_ports(1)[0]}")
    (tmp_path / "room.py").write_text(program)
    commands = [text.strip() for language, text, _ in blocks("application.md") if language == "sh"]
    *rooms, audit = commands
    question, greeting, answer, lonely, back = rooms
    open_terminals: list[Terminal] = []

    def terminal(command: str) -> Terminal:
        open_terminals.append(Terminal(command, tmp_path))
        return open_terminals[-1]

    try:
        ana, bo = terminal(question), terminal(greeting)
        for one in (ana, bo):
            assert one.wait_for("ana:1 ") == "ana:1 shall we meet? after nothing"
            one.wait_for("bo:1 ")
        bo.end(signal.SIGINT)
        bo = terminal(answer)
        assert "ana:1" in ana.wait_for("bo:2 ").partition(" after ")[2]
        bo.wait_for("bo:2 ")
        ana.end(signal.SIGKILL)
        bo.end(signal.SIGINT)
        bo = terminal(lonely)
        bo.wait_for("bo:3 ")
        ana = terminal(back)
        ana.wait_for("bo:3 ana? are you there? after")
        bo.wait_for("ana:2 back again after bo:2")
        ana.wait_for("ana:2 back again after bo:2")
    finally:
        for one in open_terminals:
            one.end(signal.SIGINT)
    done = antecede(*shlex.split(audit)[1:], cwd=tmp_path)
    assert "clean: every message was delivered once, after its causes" in done.stdout, (
        done.stdout + done.stderr
    )


def test_rows_with_several_causes_behave_as_the_data_page_says(tmp_path: Path) -> None:
    assert "`b a`, add `--split ' '`" in (PAGES / "data.md").read_text(encoding="utf-8")
    (tmp_path / "posts.csv").write_text("id,answers\nc,b a\nb,a\na,\n")
    order = ("order", "posts.csv", "--id", "id", "--deps", "answers", "--out")
    assert "--split ' '" in antecede(*order, "one", cwd=tmp_path).stdout
    assert "held" not in antecede(*order, "several", "--split", " ", cwd=tmp_path).stdout
