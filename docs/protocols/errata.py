"""Finds the smallest run in which each printed error fails: `python docs/protocols/errata.py`, two minutes;
`python docs/protocols/errata.py NoWait` looks for that one again, and prints it.

Writes the diagrams and runs in src/antecede/papers/errata, which the papers' reports show too, the runs on
these pages, and the tables of docs/check.md, each between its markers.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))

from errata_catalogue import ERRATA, NOT_OF_ORDER, Erratum  # noqa: E402

from antecede.check.counterexample import CounterExample, find_smallest  # noqa: E402
from antecede.check.draw import draw  # noqa: E402
from antecede.check.failing_run import smallest_failure  # noqa: E402
from antecede.check.schedule import carried, columns, show_steps  # noqa: E402
from antecede.papers.errata import RUNS, SmallestRun, smallest_runs  # noqa: E402

IMAGES = HERE.parents[1] / "src" / "antecede" / "papers" / "errata"
TABLES = HERE.parent / "check.md"
START, END = "<!-- errata: written by docs/protocols/errata.py -->", "<!-- end of errata -->"
MAX_STATES = 700_000
"""States explored for each number of messages and for each group."""


def find(erratum: Erratum) -> CounterExample:
    if erratum.scenario is not None:
        found = smallest_failure(erratum.scenario, max_states=1, claims=True)
    else:
        found = find_smallest(erratum.kind, erratum.bounds, MAX_STATES)
    if found is None:
        raise SystemExit(f"{erratum.name} does not fail")
    return found


def record(erratum: Erratum, found: CounterExample) -> SmallestRun:
    """The run, as the papers' reports show it."""
    messages, processes, steps = found.size
    return SmallestRun(
        erratum.paper, erratum.name, erratum.rule, erratum.status, _kind(found.violation.text), messages,
        processes, steps, _text(found), erratum.corrected,
    )  # fmt: skip


def _text(found: CounterExample) -> list[str]:
    return [
        *columns(show_steps(found), found.size[1]),
        f"p{found.violation.process}: {found.violation.text}",
        *carried(found),
    ]


def run(erratum: Erratum, found: CounterExample) -> str:
    """The run, as it stands on the protocol's page."""
    messages, processes, steps = found.size
    lines = [
        f"<details><summary><code>{erratum.name}</code>: {erratum.rule}. {_count(messages, 'message')}, "
        f"{_count(processes, 'process')}, {_count(steps, 'step')}</summary>",
        "",
        *([setting, ""] if (setting := _setting(found)) else []),
        "```",
        *_text(found),
        "```",
        "",
        f"![The smallest run in which {erratum.name} fails]"
        f"(../../src/antecede/papers/errata/{erratum.name}.svg)",
        "",
        "</details>",
    ]
    return "\n".join(lines)


def _count(number: int, word: str) -> str:
    plural = f"{word}es" if word.endswith("s") else f"{word}s"
    return f"{number} {word if number == 1 else plural}"


def _setting(found: CounterExample) -> str:
    bounds = found.group.bounds
    parts = []
    if bounds.layout is not None:
        parts.append(f"layout `{json.dumps(bounds.layout)}`")
    if bounds.groups is not None:
        parts.append(f"groups `{json.dumps(bounds.groups)}`")
    if bounds.clocks:
        parts.append("clocks ahead by " + ", ".join(map(str, bounds.clocks)))
    if bounds.longest_delay != 1:
        parts.append(f"longest delay {bounds.longest_delay}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def row(erratum: Erratum, found: CounterExample) -> str:
    """The run's row of the table."""
    messages, processes, steps = found.size
    at_most = "" if found.is_smallest else "≤ "
    cells = [
        erratum.paper,
        f"[{erratum.rule}](protocols/{erratum.page}.md) `{erratum.name}`",
        _kind(found.violation.text),
        f"{at_most}{messages}",
        f"{processes}",
        f"{steps}",
        f"{found.explored:,}" if found.explored else "a random run, shrunk",
    ]
    return f"| {' | '.join(cells)} |"


def _kind(violation: str) -> str:
    """What fails, in a word or two."""
    kinds = {
        "never delivers": "never delivered",
        "which it has delivered": "held though delivered",
        "what did not happen before": "held for a concurrent one",
        "names": "names too much",
        "before": "order",
    }
    return next(kind for words, kind in kinds.items() if words in violation)


def read_part(page: Path) -> str:
    _, _, rest = page.read_text(encoding="utf-8").partition(START)
    return rest.partition(END)[0].strip()


def write_part(page: Path, text: str) -> None:
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def runs_on(page: Path) -> dict[str, str]:
    """The runs on a page, by the names of their rules."""
    runs = re.findall(r"<details>.*?</details>", read_part(page), re.DOTALL)
    return {re.findall(r"<code>(\w+)</code>", run)[0]: run for run in runs}


def rows_there() -> dict[str, str]:
    """The rows of the table, by the names of their rules."""
    return {
        name: row for row, name in re.findall(r"^(\|.* `(\w+)` \|.*\|)$", read_part(TABLES), re.MULTILINE)
    }


def write(found: dict[str, CounterExample]) -> None:
    """Write the findings; entries for rules that were not searched stay."""
    rows = rows_there()
    records = {each.name: each for each in smallest_runs()} | {
        erratum.name: record(erratum, found[erratum.name]) for erratum in ERRATA if erratum.name in found
    }
    listed = msgspec.json.encode([records[erratum.name] for erratum in ERRATA])
    (IMAGES / RUNS).write_bytes(msgspec.json.format(listed, indent=1) + b"\n")
    for page in dict.fromkeys(erratum.page for erratum in ERRATA):
        runs, here = runs_on(HERE / f"{page}.md"), [each for each in ERRATA if each.page == page]
        for erratum in here:
            if (example := found.get(erratum.name)) is not None:
                runs[erratum.name], rows[erratum.name] = run(erratum, example), row(erratum, example)
                (IMAGES / f"{erratum.name}.svg").write_text(draw(example) + "\n", encoding="utf-8")
        write_part(HERE / f"{page}.md", "\n\n".join(runs[each.name] for each in here))
    header = "| paper | rule as printed or read | fails by | messages | processes | steps | states |"
    lines = [header, "|---|---|---|---|---|---|---|", *(rows[each.name] for each in ERRATA), ""]
    lines += [
        "`check` does not find the following errors, most of them because they do not affect the order:",
        "",
        "| paper | error | shown by |",
    ]
    lines += ["|---|---|---|"]
    for paper, page, error, shown in NOT_OF_ORDER:
        lines.append(f"| {paper} | [{error}](protocols/{page}.md) | {shown} |")
    write_part(TABLES, "\n".join(lines))


if __name__ == "__main__":
    names = [erratum.name for erratum in ERRATA]
    wanted = sys.argv[1:] or names
    if unknown := set(wanted) - set(names):
        raise SystemExit(f"no rule {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    examples = {erratum.name: find(erratum) for erratum in ERRATA if erratum.name in wanted}
    write(examples)
    for erratum in ERRATA:
        if erratum.name in sys.argv:
            print(f"{erratum.name}: {erratum.rule}", *_text(examples[erratum.name]), sep="\n")
