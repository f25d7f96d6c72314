"""How commands are registered, grouped and given shared options."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import command_line
from antecede.cli.live_options import MemberOptions
from antecede.cli.main import COMMANDS, app
from antecede.cli.options import expand_options
from antecede.units import SECOND, parse_duration

REGISTERED = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_every_command_is_in_one_panel() -> None:
    names = [name for panel in COMMANDS.values() for name in panel]
    assert sorted(names) == sorted(REGISTERED)
    assert list(COMMANDS) == [
        "Start here",
        "Live groups",
        "Logs and streams",
        "Research",
        "This installation",
    ]
    assert {name: command.rich_help_panel for name, command in REGISTERED.items()} == {
        name: panel for panel, commands in COMMANDS.items() for name in commands
    }


@pytest.mark.parametrize("name", REGISTERED)
def test_every_command_and_option_has_a_help_text(name: str) -> None:
    command = REGISTERED[name]
    summary = command.help.strip().splitlines()[0]
    assert len(summary) <= 110
    for parameter in command.params:
        assert parameter.help, parameter.name


def test_node_and_chat_share_their_options() -> None:
    shared = [field.name for field in fields(MemberOptions)]
    for name in ("node", "chat"):
        assert [parameter.name for parameter in REGISTERED[name].params][: len(shared)] == shared


def test_the_former_name_of_broadcast_input_is_still_accepted() -> None:
    options = {parameter.name: parameter.opts for parameter in REGISTERED["node"].params}
    assert options["broadcast_input"] == ["--broadcast-input", "--say"]


@dataclass(frozen=True)
class Durations:
    seconds: Annotated[float, typer.Option(help="How long.")] = 2.0


@dataclass(frozen=True)
class DurationsAsText:
    seconds: Annotated[str, typer.Option(help="How long.")] = "20s"


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [([], None), (["20s"], 20.0), (["20"], 20.0), (["1.5m"], 90.0), (["300ms"], 0.3), (["1e1"], 10.0)],
)
@pytest.mark.parametrize("options", [Durations, DurationsAsText])
def test_an_option_in_seconds_takes_a_number_or_a_duration(
    options: type[Durations | DurationsAsText], arguments: list[str], seconds: float | None
) -> None:
    found = []

    def command(all_options: Any) -> None:
        found.append(all_options.seconds)

    command.__annotations__["all_options"] = options
    small = typer.Typer()
    small.command()(expand_options(command))
    result = CliRunner().invoke(small, [f"--seconds={each}" for each in arguments])
    assert result.exit_code == 0, result.output
    if seconds is None:
        seconds = 2.0 if options is Durations else 20.0
    (value,) = found
    assert (parse_duration(value) / SECOND if isinstance(value, str) else value) == seconds


@pytest.mark.parametrize("command", ["simulate", "cluster 3"])
@pytest.mark.parametrize("value", ["soon", "20 parsecs", "-1", "nan", "inf"])
def test_an_invalid_duration_is_refused_in_one_line(command: str, value: str) -> None:
    ran = command_line.antecede(*command.split(), f"--seconds={value}")
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert line.startswith("error: ")


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Argument(help="Width.")]
    height: Annotated[int, typer.Option("--tall", help="Height.")] = 2


def test_a_dataclass_parameter_is_expanded_into_options() -> None:
    def area(size: Size, unit: Annotated[str, typer.Option(help="Unit.")] = "m") -> None:
        print(size.width * size.height, unit)

    area.__annotations__ = {"size": Size, "unit": Annotated[str, typer.Option(help="Unit.")], "return": None}
    small = typer.Typer()
    small.command()(expand_options(area))
    runner = CliRunner()
    assert runner.invoke(small, ["3"]).output == "6 m\n"
    assert runner.invoke(small, ["3", "--tall", "5", "--unit", "km"]).output == "15 km\n"
    assert runner.invoke(small, []).exit_code == 2
