"""Builds the pages of the site from the pages of the repository, which must read well there too.

Pages of `docs` keep their paths. A link to another file leads to its page on the site (`OUTSIDE`), to a page
that shows its source, or to a copy of it.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "benchmarks/README.md": "benchmarks.md",
    "clients/typescript/README.md": "clients/typescript.md",
    "examples/dispatch/README.md": "examples/dispatch.md",
}
"""Pages outside of `docs`, and their places on the site."""
FOLDERS = {"docs/decisions": "decisions/index.md", "examples": "examples/index.md"}
"""Folders that pages link to, and the pages that list their contents."""
_COPIED = {".svg", ".png", ".json", ".csv", ".ipynb", ".txt", ".toml"}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_LIST = re.compile(r"^(?![-*>#|\s<]|\d+\. )(.+)\n(?=- )", re.MULTILINE)
"""A list directly below a paragraph, which the generator would treat as part of it."""
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def prose(text: str, change: Callable[[str], str]) -> str:
    """A page whose text outside of code blocks is changed."""
    return "".join(part if index % 2 else change(part) for index, part in enumerate(_FENCE.split(text)))


def place(file: Path) -> str:
    """Where a file or folder of the repository is on the site."""
    name = file.relative_to(ROOT).as_posix()
    if name in OUTSIDE or name in FOLDERS:
        return OUTSIDE.get(name) or FOLDERS[name]
    if file.suffix == ".md" and file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    if file.suffix in {".py", ".js", ".ts"}:
        return f"files/{name}.md"
    if file.is_relative_to(DOCS) and file.suffix in _COPIED:
        return file.relative_to(DOCS).as_posix()
    return f"files/{name}"


class Stage:
    """A folder with the pages of the site, as they are written there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: set[str] = set()

    def write(self, name: str, text: str) -> None:
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        self._written.add(name)

    def add(self, file: Path) -> None:
        """A page with all that it links to."""
        name = place(file)
        if name in self._written:
            return
        self._written.add(name)

        def follow(link: re.Match[str]) -> str:
            target = (file.parent / link[1]).resolve()
            if not target.exists():
                raise FileNotFoundError(f"{file.relative_to(ROOT)} links to {link[1]}, which does not exist")
            if target.is_dir() and (target / "README.md").exists():
                target /= "README.md"
            self._add_linked(target)
            relative = os.path.relpath(place(target), Path(name).parent)
            return relative + (link[2] or "")

        def change(text: str) -> str:
            text = text.replace("<details>", '<details markdown="1">')
            text = _LIST.sub(r"\1\n\n", text)
            return _LINK.sub(follow, text)

        self.write(name, prose(file.read_text(encoding="utf-8"), change))

    def _add_linked(self, target: Path) -> None:
        name = place(target)
        if name in self._written or (target.suffix == ".md" and name == OUTSIDE["README.md"]):
            return
        if target.suffix == ".md":
            self.add(target)
        elif target.is_dir():
            if target.relative_to(ROOT).as_posix() not in FOLDERS:
                raise IsADirectoryError(f"a page links to the folder {target.relative_to(ROOT)}: name a file")
        elif name.endswith(".md"):
            language = {".py": "python", ".js": "javascript", ".ts": "typescript"}[target.suffix]
            title = target.relative_to(ROOT).as_posix()
            self.write(name, f"# {title}\n\n````{language}\n{target.read_text(encoding='utf-8')}````\n")
        else:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, self.folder / name)
            self._written.add(name)


def title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def list_of_decisions() -> str:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    lines = [f"- {page.stem[:4]} [{re.sub(r'^[0-9]+[.] ', '', title(page))}]({page.name})" for page in pages]
    return "\n".join(
        ["# Decisions", "", "Why things are as they are, in the order they were decided.", "", *lines, ""]
    )


def list_of_examples() -> str:
    """The example programs, each with the first sentence of its docstring."""
    lines = ["# Examples", ""]
    for file in sorted((ROOT / "examples").rglob("*.py")):
        said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        name = file.relative_to(ROOT).as_posix()
        lines.append(f"- [{name}](../files/{name}.md): {' '.join(said.split(chr(10) + chr(10))[0].split())}")
    return "\n".join([*lines, ""])


def listed(nav: list[dict[str, object]]) -> Iterator[str]:
    """The pages that a navigation lists."""
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                yield from listed(value)


def stage(folder: Path) -> Stage:
    """All pages but the generated reference."""
    pages = Stage(folder)
    for file in [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OUTSIDE if name != "README.md")]:
        pages.add(file)
    pages.write("decisions/index.md", list_of_decisions())
    for file in sorted((ROOT / "examples").rglob("*.py")):
        pages._add_linked(file)
    pages.write("examples/index.md", list_of_examples())
    for name in ("site.css", "site.js"):
        shutil.copyfile(Path(__file__).parent / name, folder / name)
    return pages
