"""antecede simulate --console: a run of the simulator in the console, at its own pace."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from consoles import first_picture, serving, wait_until

import command_line
from antecede.console.overview import overview
from antecede.console.playback import Playback
from antecede.errors import InputError
from antecede.membership.catalog import CHANGING as CHANGING_CLASSES
from antecede.protocols import catalog
from antecede.sim import engines
from antecede.sim.scenario import scenario
from antecede.sim.world import World

LOSSY = ("--peers", "4", "--seconds", "2", "--fault", "loss:3%", "--rate", "20")
CHANGING = ("--peers", "4", "--seconds", "4", "--churn", "join:1s", "--churn", "leave:2s:1", "--rate", "20")

CRASHING = ("--protocol", "flooding", "--peers", "4", "--seconds", "2", "--fault", "crash:1s:2")


def play(run: tuple[str, ...], folder: Path, speed: str = "50") -> tuple[dict[str, Any], dict[str, Any]]:
    """The last picture of a run that is played, and what is printed."""
    out = folder / "out"
    command = ("simulate", *run, "--console", "--console-speed", speed, "--out", f"{folder}/trace", "--json")
    with serving(*command, out=out) as address:
        first_picture(address)
        wait_until(lambda: out.read_bytes().endswith(b"\n"), "the result")
        return first_picture(address), json.loads(out.read_bytes())


def simulate(run: tuple[str, ...], folder: Path) -> dict[str, Any]:
    done = command_line.antecede("simulate", *run, "--out", str(folder), "--engine", "reference", "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def digests(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_console_shows_a_held_message_with_its_cause(tmp_path: Path) -> None:
    picture, printed = play(LOSSY, tmp_path)
    assert picture["held"] == printed["stuck"] > 0
    assert [each["label"] for each in picture["members"]] == ["p0", "p1", "p2", "p3"]
    assert all(each["answers"] for each in picture["members"])
    for missing in picture["missing"]:
        assert missing["origin"] in missing["has"]
        assert {each["member"] for each in missing["at"]} <= set(missing["lacks"])
        assert missing["id"].partition(":")[2].isdecimal()
    assert sum(each["count"] for each in picture["missing"]) == picture["held"]
    # Since when: in the run's own seconds, of which there are little more than two.
    assert 0 < picture["held_seconds"] < 3
    assert sum(each["broadcast"] for each in picture["members"]) == printed["messages"]
    assert sum(each["delivered"] for each in picture["members"]) == printed["deliveries"]
    assert not picture["knows_stability"]


@pytest.mark.parametrize("run", [LOSSY, CHANGING, CRASHING])
def test_playing_a_run_in_the_console_does_not_change_it(tmp_path: Path, run: tuple[str, ...]) -> None:
    picture, printed = play(run, tmp_path)
    assert [each["name"] for each in picture["silent"]] == (["p2"] if run == CRASHING else [])
    same = simulate(run, tmp_path / "same")
    other = {"cpu_seconds", "deliveries_per_second", "trace", "engine_reason"}
    assert {key: value for key, value in printed.items() if key not in other} == {
        key: value for key, value in same.items() if key not in other
    }
    assert digests(tmp_path / "trace") == digests(tmp_path / "same")


def test_joining_and_leaving_members_are_shown(tmp_path: Path) -> None:
    picture, _ = play(CHANGING, tmp_path)
    (joined,) = (each for each in picture["changes"] if each["kind"] == "joined")
    (left,) = (each for each in picture["changes"] if each["kind"] == "left")
    assert left["about"].strip("0") == "p1"
    labels = {each["label"] for each in picture["members"]}
    assert joined["about"] in labels
    assert left["about"] not in labels
    assert left["first"] - joined["first"] == pytest.approx(1, abs=0.5)
    assert picture["knows_stability"]
    assert any(each["stable"] > 0 for each in picture["origins"])


FIXED: list[dict[str, Any]] = [{"protocol": name} for name in sorted(catalog.PROTOCOLS)]
FIXED += [{"protocol": "multigroup", "groups": {"a": [0, 1, 2], "b": [2, 3, 4, 5], "c": [0, 5]}}]
CHANGES = {"churn": ("poisson:4",), "faults": ("crash:500ms:2",)}
CUT = {"protocol": "mbcp", "churn": ("poisson:4",), "faults": ("partition:300-600ms:0,1",)}
CHANGING_ONES = [{"protocol": name, **CHANGES} for name in sorted(CHANGING_CLASSES)]
CHANGING_ONES += [{"protocol": "mbcp", "detector": "vcube,test=100ms,report=100ms,remove=500ms", **CHANGES}]


@pytest.mark.parametrize(
    "fields", [*FIXED, *CHANGING_ONES, CUT], ids=lambda fields: " ".join([fields["protocol"], *[*fields][1:]])
)
def test_observing_a_run_does_not_change_it_with_any_protocol(fields: dict[str, Any]) -> None:
    run = scenario(peers=6, seconds=1, delay="1-200ms", rate=20, **fields)
    playback = Playback(run, 1.0)

    def look(world: World) -> None:
        playback.prepare(world)
        steps = 0
        while world.step():
            steps += 1
            if steps % 200 == 0:
                asyncio.run(compare(world))

    async def compare(world: World) -> None:
        sources = {source.name: source for source in playback.sources()}
        down = {run.peer_names()[peer] for peer in range(len(world.members)) if world.is_down(peer)}
        reports = [await source.ask("state") for name, source in sources.items() if name not in down]
        for name in down & sources.keys():
            with pytest.raises(InputError, match="crashed"):
                await sources[name].ask("state")
        assert sum(each.held for each in reports) == world.count_stuck()
        assert all(0 <= each.held_seconds < 2 for each in reports)
        assert {(await source.ask("messages")).me for source in sources.values()} == sources.keys()
        document = overview(reports, playback.clock())
        assert sum(each["count"] for each in document["missing"]) == document["held"]
        for each in document["missing"]:
            assert not set(each["has"]) & {at["member"] for at in each["at"]}

    played = engines.simulate(run, [playback.notes], "reference", drive=look)
    assert played.metrics == engines.simulate(run, engine="reference").metrics


def test_a_run_is_played_at_the_pace_of_its_clock(tmp_path: Path) -> None:
    run = ("simulate", "--peers", "3", "--seconds", "60", "--rate", "20", "--metrics-only", "--console")
    with serving(*run, ends_with=130) as address:
        first_picture(address)
        time.sleep(2)
        after = first_picture(address)
        passed = after["time"] - after["members"][0]["opened"]
        assert 1.5 < passed < 30
        assert sum(each["broadcast"] for each in after["members"]) == pytest.approx(60 * passed, rel=0.3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--console-speed", "2"), "--console-speed is for --console"),
        (("--console", "--console-speed", "0"), "--console-speed"),
        (("--console", "--engine", "event"), "the reference engine alone"),
        (("--console", "--protocol", "freescale", "--churn", "phones:2"), "groups with phones that change"),
    ],
)
def test_runs_the_console_cannot_show_are_refused(arguments: tuple[str, ...], said: str) -> None:
    refused = command_line.antecede("simulate", "--peers", "3", *arguments)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
