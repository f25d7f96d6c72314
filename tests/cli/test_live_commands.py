"""antecede node and cluster as users run them: real processes that talk to each other."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from antecede.causality import MessageId
from antecede.cli.main import main
from antecede.cli.node import _text_line
from antecede.live.envelope import wrap
from antecede.live.messages import Message
from antecede.live.transport.wires import CUT
from antecede.protocols.base import Delivery

LOGGER = logging.getLogger("antecede.live")
ANTECEDE = [sys.executable, "-c", "from antecede.cli.main import main; main()"]


def antecede(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ANTECEDE, *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("protocol", ["mbcp", "freescale", "hcg", "basic"])
def test_a_cluster_under_faults_loses_nothing(protocol: str) -> None:
    # A subgroup on real time begins when two of its members have compared their clocks.
    seconds, kill_every = ("8s", "4s") if protocol in ("hcg", "basic") else ("2s", "1s")
    arguments = [
        "4", "--messages", "60", "--seconds", seconds, "--kill-every", kill_every, "--delay", "0-20ms",
        "--no-sync", "--json",
    ]  # fmt: skip
    done = antecede("cluster", *arguments, "--protocol", protocol)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert shown["ok"]
    assert shown["audit"] == {"clean": True, "engine": "local"}
    assert [each["accepted"] for each in shown["members"]] == [15] * 4
    assert [each["delivered"] for each in shown["members"]] == [60] * 4
    assert shown["kills"] == sum(each["kills"] for each in shown["members"]) >= 1
    kinds = {each["kind"] for each in shown["members"]}
    assert ("internal" in kinds) == (protocol == "freescale")
    assert ("local" in kinds) == (protocol in ("hcg", "basic"))


def test_a_cluster_counts_its_cuts_and_leaves_the_folder_of_a_run_that_failed(tmp_path: Path) -> None:
    arguments = ["3", "--messages", "300", "--seconds", "60s", "--cut-every", "200ms", "--no-sync", "--json"]
    with subprocess.Popen(
        [*ANTECEDE, "cluster", *arguments],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as cluster:
        logs = members_with_a_cut(tmp_path)
        children = Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGQUIT)
        shown = json.loads(cluster.communicate(timeout=60)[0])
    assert cluster.returncode == 1
    assert shown["cuts"] >= 1
    assert "exited" in shown["faults"][0]
    assert {log.name for log in logs} <= {each.name for each in Path(shown["folder"], "members").iterdir()}


def members_with_a_cut(folder: Path) -> list[Path]:
    """Wait until a member has cut a connection; returns the logs of the members that have."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        logs = [log for log in folder.glob("*/members/*.log") if CUT in log.read_text()]
        if logs:
            return logs
        time.sleep(0.1)
    raise AssertionError("no connection was cut")


def test_a_cluster_of_overlapping_groups_loses_nothing(tmp_path: Path) -> None:
    arguments = ["4", "--messages", "80", "--seconds", "2s", "--kill-every", "1s", "--no-sync", "--json"]
    done = antecede("cluster", *arguments, "--protocol", "multigroup", "--trace", str(tmp_path / "trace"))
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert shown["ok"]
    assert shown["audit"] == {"clean": True, "engine": "local"}
    assert {len(each["groups"]) for each in shown["members"]} == {2}
    assert shown["verdict"]["clean"]
    assert antecede("audit", str(tmp_path / "trace")).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["cluster"], "N"),
        (["cluster", "4", "--protocol", "multigroup", "--loss", "0.1"], "--loss is for one group"),
        (["cluster", "1"], "N"),
        (["cluster", "3", "--protocol", "nonsense"], "nonsense"),
        (["cluster", "3", "--protocol", "hcg", "--internal", "1"], "for freescale, not for hcg"),
        (["cluster", "3", "--protocol", "hcg", "--super-peers", "4"], "4 gateways in a group of 3"),
        (["cluster", "9", "--protocol", "hcg", "--churn", "4", "--internal", "1"], "not for --churn"),
        (["cluster", "9", "--protocol", "hcg", "--churn", "4", "--super-peers", "4"], "at least 5 members"),
        (["cluster", "9", "--protocol", "hcg", "--churn", "4", "--trace", "t"], "hcg leaves none"),
        (["cluster", "9", "--protocol", "vcube", "--churn", "4", "--super-peers", "6"], "not for --churn"),
        (["cluster", "3", "--levels", "2"], "--levels is for freescale, not for mbcp"),
        (
            ["cluster", "3", "--protocol", "freescale", "--levels", "2"],
            "2 levels of super peers are 3, with 3 members in all",
        ),
        (["cluster", "3", "--seconds", "soon"], "'soon' is not a duration"),
        (["cluster", "3", "--delay", "20ms"], "'20ms' is not a range"),
        (["cluster", "3", "--kill-every", "often"], "'often' is not a duration"),
        (["cluster", "3", "--cut-every", "often"], "'often' is not a duration"),
        (["cluster", "3", "--cut-every", "0s"], "cut_every"),
        (["cluster", "3", "--loss", "2"], "loss"),
        (["cluster", "3", "--super-peers", "1"], "for freescale, not for mbcp"),
        (
            ["cluster", "3", "--protocol", "freescale", "--super-peers", "2", "--internal", "2"],
            "more than 3 members",
        ),
        (["cluster", "3", "--trace", str(Path(__file__).parent)], "is not empty"),
        (["cluster", "3", "--engine", "steam"], "steam"),
        (["node"], "--me"),
        (["node", "nowhere.toml"], "nowhere.toml"),
        (["node", "--me", "ana", "--peer", "bo@nowhere"], "'nowhere' is not an address"),
        (["node", "--me", "ana", "--peer", "ana"], "ana is this member itself"),
        (["node", "--me", "ana", "--listen", "7000"], "listen: '7000' is not an address"),
        (["chat", "--me", "ana", "--protocol", "multigroup"], "multigroup"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["antecede", *arguments])
    before = dict(os.environ), LOGGER.level, list(LOGGER.handlers)
    began = time.monotonic()
    with pytest.raises(SystemExit) as ended:
        main()
    assert (dict(os.environ), LOGGER.level, list(LOGGER.handlers)) == before, "the process is left as it was"
    assert time.monotonic() - began < 15, "it must fail before anything is started"
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1, err
    assert expected in err


class Node:
    """A process whose output is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.out, self.err = (self._lines(pipe) for pipe in (process.stdout, process.stderr))

    @staticmethod
    def _lines(pipe: IO[str] | None) -> queue.Queue[str]:
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            for line in pipe or ():
                lines.put(line.rstrip("\n"))

        threading.Thread(target=read, daemon=True).start()
        return lines

    def write(self, line: str) -> None:
        pipe = self.process.stdin
        assert pipe is not None

        def write_line() -> None:
            with suppress(BrokenPipeError):
                pipe.write(line + "\n")
                pipe.flush()

        writing = threading.Thread(target=write_line, daemon=True)
        writing.start()
        writing.join(30)

    def read_message(self) -> Any:
        read: dict[str, Any] = json.loads(self.out.get(timeout=30))
        assert 0 <= time.time() - read.pop("time") < 60
        return read


@contextmanager
def node(*arguments: str, stdin: Any = subprocess.PIPE) -> Iterator[Node]:
    process = subprocess.Popen(
        [*ANTECEDE, "node", *arguments, "--broadcast-input", "--json", "--no-log"],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Node(process)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Configuration files of two members, ana and bo, at free ports."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (one, other)]
    made = []
    for me, you, mine, yours in (("ana", "bo", *ports), ("bo", "ana", *reversed(ports))):
        made.append(tmp_path / f"{me}.toml")
        made[-1].write_text(
            f'group = "room"\nme = "{me}"\nlisten = ":{mine}"\npeers = ["{you}@127.0.0.1:{yours}"]\n'
            f'store = "{me}.db"\n[faults]\ndelay = "0-5ms"\n'
        )
    return made[0], made[1]


def message(origin: str, seq: int, body: Any, *causes: str, own: bool = False) -> dict[str, Any]:
    named = {"origin": origin, "seq": seq, "body": body, "causes": list(causes)}
    return {**named, "own": own, "redelivered": False}


def test_a_redelivered_message_is_marked() -> None:
    delivery = Delivery(MessageId(0, 7), wrap("hello", False, {}))
    assert _text_line(Message(delivery, ["ana"], deliveries=2)) == "ana:7  hello  (redelivered)"
    assert _text_line(Message(delivery, ["ana"], deliveries=1)) == "ana:7  hello"


def test_node_accepts_keys_and_metrics_options(files: tuple[Path, Path], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    subprocess.run([*ANTECEDE, "keys", str(keys), "ana", "bo", "--group", "room"], check=True)
    options = ["--metrics", "127.0.0.1:0"]
    with (
        node(str(files[0]), "--keys", str(keys / "ana"), *options) as ana,
        node(str(files[1]), "--keys", str(keys / "bo")) as bo,
    ):
        ana.write("behind locked doors")
        assert bo.read_message() == message("ana", 1, "behind locked doors")
    with node(str(files[0]), "--secret", str(tmp_path / "none")) as ana:
        assert "secret" in ana.err.get(timeout=30)
        assert ana.process.wait(30) == 2


def test_two_nodes_talk(files: tuple[Path, Path], tmp_path: Path) -> None:
    with node(str(files[0])) as ana, node(str(files[1]), "--trace", str(tmp_path / "trace")) as bo:
        assert ana.err.get(timeout=30).startswith("ana of room at 127.0.0.1:")
        ana.write("shall we?")
        assert ana.read_message() == message("ana", 1, "shall we?", own=True)
        assert bo.read_message() == message("ana", 1, "shall we?")
        bo.write("yes! — gladly")
        assert ana.read_message() == message("bo", 1, "yes! — gladly", "ana:1")
        assert bo.read_message() == message("bo", 1, "yes! — gladly", "ana:1", own=True)
        # A line longer than any buffer, and another after it.
        ana.write("x" * 200_000)
        ana.write("")
        assert bo.read_message() == message("ana", 2, "x" * 200_000, "bo:1")
        assert bo.read_message() == message("ana", 3, "", "ana:2")
        assert [ana.read_message()["seq"] for _ in range(2)] == [2, 3]
        for each in (ana, bo):
            each.process.send_signal(signal.SIGTERM)
            assert each.process.wait(30) == 0
    assert (tmp_path / "ana.db").exists()
    with node(str(files[0])) as ana, node(str(files[1])) as bo:
        bo.write("after a night")
        assert ana.read_message() == message("bo", 2, "after a night", "ana:3")


def test_a_waiting_founder_reports_it_and_can_be_stopped(tmp_path: Path) -> None:
    config = tmp_path / "ana.toml"
    config.write_text(
        'group = "room"\nme = "ana"\nfounders = ["ana@127.0.0.1:1", "bo@127.0.0.1:2", "cy@127.0.0.1:3"]\n'
        'store = "s"\n'
    )
    arguments = [*ANTECEDE, "node", str(config)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        waiting = Node(process)
        lines = [waiting.err.get(timeout=30) for _ in range(3)]
        assert lines[2].endswith("the group begins when most founders are there; waiting for bo, cy")
        for more in ([], ["add", "dana"]):
            asked = antecede("members", str(config), *more)
            assert (asked.returncode, asked.stdout) == (2, "")
            assert asked.stderr.startswith("error: ana is not in the group yet")
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert waiting.err.get(timeout=30) == "stopped before it was in the group"


def test_chat_reports_which_contacts_it_waits_for_before_admission(tmp_path: Path) -> None:
    arguments = ["chat", "--me", "eve", "--contact", "ana@127.0.0.1:1", "--contact", "bo@127.0.0.1:2"]
    with subprocess.Popen(
        [*ANTECEDE, *arguments], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        line = Node(process).out.get(timeout=30)
        process.kill()
    assert line == "— eve is not in room yet, and waits for ana, bo; Ctrl-C ends it"


def test_a_node_broadcasts_the_lines_of_a_file(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\nthree without an end")
    with (tmp_path / "lines").open() as file, node(str(files[0]), stdin=file), node(str(files[1])) as bo:
        assert [bo.read_message()["body"] for _ in range(3)] == ["one", "two", "three without an end"]


def test_a_line_that_is_too_long_ends_the_node_with_the_reason(files: tuple[Path, Path]) -> None:
    with node(str(files[0])) as ana:
        ana.write("x" * 9_000_000)
        assert ana.process.wait(30) == 2
        lines = [ana.err.get(timeout=10) for _ in range(2)]
        assert lines[1].startswith("error: body: 9,000,000 bytes; a message has ")
