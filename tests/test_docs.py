"""The documentation is true: pictures show what protocols do, links resolve, commands and programs run."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from antecede.cli.main import app
from antecede.protocols.catalog import PROTOCOLS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = DOCS / "protocols"
IN_PAGES = sorted(PAGES.glob("*.md"))
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
WITH_PROGRAMS = [page for page in HOW_TO if "```python" in page.read_text()]


def shell_lines(page: Path) -> list[str]:
    """The `antecede …` commands of a page's blocks, each on one line."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("antecede ")]


COMMANDS = [line for page in [*IN_PAGES, *HOW_TO] for line in shell_lines(page)]
ELSEWHERE = {*DOCS.rglob("*.md"), ROOT / "README.md"} - {*IN_PAGES, *HOW_TO}
LINKED = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def test_pictures_match_protocol_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change: python docs/protocols/draw.py, and look at the difference."""
    monkeypatch.syspath_prepend(str(PAGES))
    drawn = dict(importlib.import_module("draw").drawings())
    there = {image.stem: image.read_text(encoding="utf-8") for image in (PAGES / "images").glob("*.svg")}
    assert drawn.keys() == there.keys()
    assert [name for name in drawn if drawn[name] != there[name]] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_has_a_row_a_page_and_a_command(protocol: str) -> None:
    index = (PAGES / "README.md").read_text()
    (page,) = re.findall(rf"^\| \[`{protocol}`\]\((.+?)\) \|", index, re.MULTILINE)
    text = (PAGES / page).read_text()
    assert protocol in text.splitlines()[0].removeprefix("# ").split(", ")
    assert f"](images/{protocol}.svg)" in text
    assert any(f"--protocol {protocol} " in line for line in shell_lines(PAGES / page))


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_and_pictures_resolve(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "page", [*LINKED, ROOT / "benchmarks" / "README.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_source_files_named_by_a_page_exist(page: Path) -> None:
    """As `package/file.py`, from the root, from the package or from the page's own folder."""
    names = re.findall(r"`([\w-]+(?:/[\w-]+)*/[\w-]+\.(?:py|c|h))`", page.read_text())
    folders = (ROOT, ROOT / "src" / "antecede", page.parent)
    assert [name for name in names if not any((folder / name).exists() for folder in folders)] == []


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_imports_shown_by_a_page_work(page: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    for node in (node for block in blocks for node in ast.walk(ast.parse(block))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("antecede"):
            module = importlib.import_module(node.module or "")
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize("page", IN_PAGES, ids=lambda page: page.stem)
def test_tests_named_by_a_page_exist(page: Path) -> None:
    text = page.read_text()
    files = {DOCS.parent / name for name in re.findall(r"`(tests/[\w/]+\.py)`", text)}
    assert [file.name for file in files if not file.exists()] == []
    sources = "".join(file.read_text() for file in files)
    names = re.findall(r"`(test_\w+|[A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text)
    assert [name for name in names if not re.search(rf"^(?:def|class) {name}\b", sources, re.MULTILINE)] == []


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_run(line: str) -> None:
    """Simulations run; of other commands only the options are parsed."""
    name, *arguments = shlex.split(line.partition(" > ")[0])[1:]
    if name == "simulate":
        result = CliRunner().invoke(app, [name, *arguments])
        assert result.exit_code == 0, result.output or result.exception
        assert re.search(r"still held at the end +0\b", result.output), result.output
    else:
        check_options(name, arguments)


@pytest.mark.parametrize("line", sorted({line for page in ELSEWHERE for line in shell_lines(page)}))
def test_commands_of_other_pages_have_these_options(line: str) -> None:
    name, *arguments = shlex.split(line.partition(" > ")[0], comments=True)[1:]
    check_options(name, arguments)


def test_every_page_is_in_the_navigation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a new page to `nav` in docs/site/zensical.toml."""
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    pages = importlib.import_module("pages")
    nav = list(pages.listed(tomllib.loads((DOCS / "site" / "zensical.toml").read_text())["project"]["nav"]))
    pages.stage(tmp_path)
    staged = {page.relative_to(tmp_path).as_posix() for page in tmp_path.rglob("*.md")}
    in_lists = {name for name in staged if name.startswith(("decisions/", "examples/", "files/"))}
    generated = {name for name in nav if name.startswith("reference/")}
    assert sorted(staged - in_lists - set(nav)) == []
    assert sorted(set(nav) - staged - generated) == []
    assert len(nav) == len(set(nav))


def check_options(name: str, arguments: list[str]) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert command.make_context(name, arguments) is not None


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: page.stem)
def test_programs_print_the_output_shown_on_their_page(
    spark: SparkSession, page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks run in order; paths below /tmp become this test's own."""
    programs = re.findall(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", page.read_text(), re.DOTALL)
    for program, shown in programs:
        exec(program.replace('"/tmp/', f'"{tmp_path}/'), {})  # noqa: S102
        assert capsys.readouterr().out.strip() == shown.strip()
