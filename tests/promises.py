"""The guarantees of Antecede to its users, and the tests that show them.

    python tests/promises.py             # runs them, a line for each promise
    python tests/promises.py 3 8         # only these
    python tests/promises.py --list

Exit code 1 if a promise is not kept.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Promise(NamedTuple):
    name: str
    tests: tuple[str, ...]


PROMISES = (
    Promise(
        "a killed sender does not lose its own message",
        (
            "tests/live/test_group_own.py",
            "tests/live/test_examples.py::test_a_list_survives_kills_with_nothing_lost_or_applied_twice",
        ),
    ),
    Promise("only what was processed is acknowledged", ("tests/live/test_group_acks.py",)),
    Promise(
        "a restored or copied store is noticed",
        ("tests/live/test_forks.py", "tests/live/test_hostile_forks.py"),
    ),
    Promise("bodies come back as they were", ("tests/live/test_bodies.py",)),
    Promise(
        "a damaged store is not taken as truth",
        (
            "tests/live/test_journal.py",
            "tests/live/test_journal_damage.py",
            "tests/live/test_journal_failures.py",
            "tests/live/test_group_store.py",
            "tests/live/test_group_trace.py",
            "tests/cli/test_store_command.py",
        ),
    ),
    Promise("setting the clock stops nothing", ("tests/live/test_clock.py",)),
    Promise("no file of the current folder is executed", ("tests/cli/test_hostile_folder.py",)),
    Promise(
        "nobody speaks in another's name, and lies are proven",
        (
            "tests/live/test_liars.py::test_a_message_in_anothers_name_is_refused",
            "tests/live/test_liars.py::test_an_unsolicited_repair_is_refused",
            "tests/live/test_liars.py::test_a_repair_of_messages_not_requested_is_refused",
            "tests/live/test_liars.py::test_a_forged_repair_is_refused_where_messages_are_signed",
            "tests/live/test_liars.py::test_a_repair_with_altered_causes_does_not_change_the_order",
            "tests/live/test_liars.py::test_a_relayed_message_is_proven_by_its_origin",
            "tests/live/test_liars.py::test_equivocation_is_proven_to_all_and_its_author_refused",
            "tests/live/test_liars.py::test_evidence_cannot_be_faked",
            "tests/live/test_liars.py::test_every_protocol_signs",
        ),
    ),
    Promise(
        "a lie about another's progress frees nothing",
        (
            "tests/live/test_liars.py::test_a_false_report_of_another_s_progress_does_not_release_messages",
            "tests/live/test_liars.py::test_counts_pass_through_others_if_their_member_has_signed_them",
        ),
    ),
    Promise(
        "a member over its quota disturbs nobody else",
        (
            "tests/live/test_liars.py::test_unread_repair_replies_do_not_pile_up",
            "tests/live/test_liars.py::test_requests_that_cost_much_are_refused",
            "tests/live/test_liars.py::test_numbers_far_behind_a_gap_are_refused",
            "tests/live/test_liars.py::test_a_frame_of_too_many_packets_is_refused",
            "tests/live/test_liars.py::test_messages_on_a_cause_that_never_arrives_block_only_their_sender",
            "tests/live/test_quotas.py",
        ),
    ),
    Promise(
        "strangers are bounded before they are known",
        ("tests/live/test_admission.py", "tests/live/test_group_strangers.py", "tests/live/test_metrics.py"),
    ),
    Promise(
        "browsers, secrets, expiry and revocation work",
        (
            "tests/live/test_web_browser.py",
            "tests/live/test_expiry_and_revocation.py",
            "tests/live/test_credentials.py",
            "tests/live/test_security.py",
        ),
    ),
    Promise(
        "what others write cannot control a terminal or a log",
        ("tests/cli/test_hostile_text.py", "tests/cli/test_live_terminal.py", "tests/test_terminal.py"),
    ),
    Promise(
        "files are bounded, verified, private and tidied up",
        (
            "tests/trace/test_bombs.py",
            "tests/cli/test_damaged_and_private_files.py",
            "tests/spark/test_spark_processes.py",
            "tests/sweep/test_sweeps.py::test_a_modified_run_is_executed_again",
            "tests/sweep/test_sweeps.py::test_a_foreign_part_in_a_run_is_noticed",
        ),
    ),
    Promise(
        "the live API says what a person must act on, and stays usable",
        (
            "tests/live/test_group_usability.py",
            "tests/live/test_group.py::test_a_lasting_cut_between_two_members_does_not_delay_the_messages_of_others",
            "tests/live/test_journal.py::test_a_store_works_without_fcntl",
        ),
    ),
    Promise("whole members keep all of this in a simulated world of faults", ("tests/vopr",)),
)


def run(promise: Promise) -> tuple[bool, str]:
    """Whether all its tests pass, and the last line of pytest's output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *promise.tests]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = (output.stdout.strip().splitlines() or [output.stderr.strip()])[-1]
    return output.returncode == 0, re.sub(r"^=+ | =+$", "", last)


def main() -> None:
    chosen = [int(each) for each in sys.argv[1:] if each.isdigit()] or range(1, len(PROMISES) + 1)
    kept = True
    for number in chosen:
        promise = PROMISES[number - 1]
        if "--list" in sys.argv:
            print(f"{number:>2} {promise.name}", *promise.tests, sep="\n      ")
            continue
        passed, summary = run(promise)
        kept &= passed
        print(f"{number:>2} {'kept  ' if passed else 'BROKEN'} {promise.name}: {summary}", flush=True)
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
