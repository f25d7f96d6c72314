"""Audits a trace and writes a page: the verdict, the counts, and diagrams of the violations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from antecede.audit.core import Finding
from antecede.audit.page_layout import MAX_DRAWN, AuditPageData, audit_page
from antecede.audit.run import AuditResult, Progress, audit_and_excerpt, refuse_without_deliveries
from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.lineage import Lineage, lineage
from antecede.trace.writer import write_whole


def check_page(page: Path) -> None:
    """Refuse a page that cannot be written, before the audit rather than after it; make its folder."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--html {page}: {page.parent} cannot be a folder ({error.strerror})") from error
    if page.is_dir():
        raise InputError(f"--html {page} is a folder; name a file, such as {page / 'audit.html'}")


def audit_to_page(
    page: Path,
    trace: str,
    path: str,
    engine: str,
    limit: int,
    master: str | None,
    violation: int | None = None,
    progress: Progress = lambda *_: None,
    bad: BadRows | None = None,
    renamed: Callable[[Lineage], Lineage] = lambda found: found,
    explorer: str = "",
) -> AuditResult:
    """Audit what lies at `path`, which the user calls `trace`, and draw its violations.

    `renamed` gives the files in a lineage the names that the user knows. The violations are linked to the
    `explorer` at this address.

    The chosen `violation`, from 1, comes first. Those after the first `MAX_DRAWN` are described in words
    only.
    """
    check_page(page)

    def choose(findings: list[Finding]) -> list[int]:
        if violation is not None and violation > len(findings):
            remedy = f"choose 1 to {len(findings):,}" if findings else "there is none to draw"
            many = f"{len(findings):,} violation{'' if len(findings) == 1 else 's'}"
            raise InputError(f"--violation {violation}: the audit reports {many}; {remedy}")
        return sorted({*range(min(MAX_DRAWN, len(findings))), *([violation - 1] if violation else [])})

    bad = bad or BadRows(trace)
    result, excerpts = audit_and_excerpt(
        path, engine, max(limit, violation or 1), master, choose, progress, bad
    )
    refuse_without_deliveries(path, result.verdict, bad)
    data = AuditPageData(
        trace,
        result.verdict,
        result.findings,
        result.faults,
        excerpts,
        chosen=(violation or 1) - 1,
        tally=result.tally,
        tally_of=result.tally_of,
        lineage=renamed(lineage(bad, result.runs, result.engine)),
        names_receivers=bad.names_receivers,
        explorer=explorer,
    )
    write_whole(page, audit_page(data).encode())
    return result
