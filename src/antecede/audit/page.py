"""An audit that leaves a page: the verdict, the counts, and its violations drawn."""

from __future__ import annotations

from pathlib import Path

from antecede.audit.core import Finding
from antecede.audit.page_layout import AuditPageData, audit_page
from antecede.audit.run import AuditResult, Progress, audit_and_excerpt
from antecede.errors import InputError
from antecede.trace.bad_rows import BadRows
from antecede.trace.foreign.mapped_trace import refuse_without_deliveries

MAX_DRAWN = 20


def check_page(page: Path) -> None:
    """Whether a page can be written there; better said before an audit than after."""
    if not page.parent.is_dir():
        raise InputError(f"--html {page}: the folder {page.parent} does not exist")
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
) -> AuditResult:
    """Audit what lies at `path`, which the user calls `trace`, and draw the violations of the page.

    The one that is chosen, from 1, stands first; those after the first twenty are told in words only.
    """
    check_page(page)

    def choose(findings: list[Finding]) -> list[int]:
        if violation is not None and violation > len(findings):
            there = f"choose 1 to {len(findings):,}" if findings else "there is none to draw"
            many = f"{len(findings):,} violation{'' if len(findings) == 1 else 's'}"
            raise InputError(f"--violation {violation}: the audit tells of {many}; {there}")
        return sorted({*range(min(MAX_DRAWN, len(findings))), *([violation - 1] if violation else [])})

    outcome, excerpts = audit_and_excerpt(path, engine, max(limit, violation or 1), master, choose, progress)
    refuse_without_deliveries(path, outcome.verdict, bad)
    audited = AuditPageData(
        trace,
        outcome.verdict,
        outcome.findings,
        excerpts,
        chosen=(violation or 1) - 1,
        tally=outcome.tally,
        tally_of=outcome.tally_of,
    )
    page.write_text(audit_page(audited), encoding="utf-8")
    return outcome
