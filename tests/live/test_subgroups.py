"""Paper 003's group over real sockets: subgroups on real, vector and linear clocks, joined by gateways."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from live_groups import run, until
from subgroup_members import CLOCKS, LAYOUT, Sites

from antecede.errors import InputError

MIXED = 0.055
"""Clocks that differ by nearly as much as is promised, in seconds."""


def test_three_kinds_of_clocks_with_skew_up_to_the_bound(tmp_path: Path) -> None:
    """Every member broadcasts, some in reply to deliveries, so causes cross all gateways."""

    async def test() -> None:
        async with Sites(tmp_path, ahead={"pam": MIXED, "pat": 0.0, "gus": MIXED / 2}).running() as sites:
            await asyncio.gather(*(sites.broadcast(name, 15, 0.02) for name in sites.names))
            await sites.all_have(15 * 7)
            for name in reversed(sites.names):  # each follows all before it
                count = 15 * 7 + len(sites.names) - 1 - sites.names.index(name)
                await sites.all_have(count)
                await sites.groups[name].broadcast(f"after {count}")
            await sites.all_have(15 * 7 + 7)
            assert all(group.problems() == [] for group in sites.groups.values())
            gus = sites.groups["gus"]
            assert gus.clock_offsets["pam"] == pytest.approx(MIXED / 2, abs=0.02)
            assert [sites.groups[name].gateway for name in ("gus", "pat", "pia", "leo")] == [
                "gus",
                "gus",
                "gil",
                "lea",
            ]

    run(test())
    Sites(tmp_path).audit(15 * 7 + 7)


def test_real_time_waits_as_long_as_the_bounds_say(tmp_path: Path) -> None:
    """Messages on real time are delivered neither on arrival nor on confirmation, but after the wait."""

    async def test() -> None:
        layout = {"gus": ["pam"], "gil": ["pia"]}
        async with Sites(tmp_path, layout).running() as sites:
            await sites.groups["pam"].broadcast("measured")
            await sites.all_have(1)
            began = asyncio.get_running_loop().time()
            await sites.groups["pam"].broadcast("now")
            await until(lambda: len(sites.ears["gus"].messages) == 2)
            assert asyncio.get_running_loop().time() - began >= 0.31

    run(test())


def test_skew_beyond_the_bound_is_reported_and_holds_messages_in_causal_order(tmp_path: Path) -> None:
    """One clock goes wrong by ten times what is promised while everybody broadcasts."""

    async def test() -> None:
        async with Sites(tmp_path).running() as sites:
            await asyncio.gather(*(sites.broadcast(name, 5) for name in sites.names))
            await sites.all_have(35)
            sites.time["pam"].ahead = 0.6
            sending = [asyncio.create_task(sites.broadcast(name, 40, 0.05)) for name in sites.names]
            for name in ("gus", "pat"):
                problems = sites.groups[name].problems
                await until(lambda problems=problems: any("pam: its clock is" in p.text for p in problems()))  # type: ignore[misc]
                await until(
                    lambda ear=sites.ears[name]: any(  # type: ignore[misc]
                        "60.0 ms at most is promised" in text for text in ear.texts("bounds")
                    )
                )
            await asyncio.gather(*sending)
            await sites.all_have(35 + 280)
            for name in reversed(sites.names):
                await sites.groups[name].broadcast("once more")
                await until(
                    lambda name=name: all(  # type: ignore[misc]
                        "once more" in [m.body for m in ear.messages + ear.own if m.origin == name]
                        for ear in sites.ears.values()
                    )
                )

    run(test())
    Sites(tmp_path).audit(35 + 280 + 7)


def test_an_absent_real_time_member_delays_only_its_subgroup(tmp_path: Path) -> None:
    async def test() -> None:
        async with Sites(tmp_path, store=None).running() as sites:
            await asyncio.gather(*(sites.broadcast(name, 2) for name in sites.names))
            await sites.all_have(14)
            sites.groups["pat"].go_offline(3.0)
            await sites.groups["pam"].broadcast("held")
            await sites.groups["pia"].broadcast("passes")
            await until(lambda: "passes" in sites.ears["leo"].bodies())
            gus = sites.groups["gus"]
            # On a busy machine others may be late for a moment, too.
            await until(lambda: {p.member for p in gus.problems() if "not confirmed" in p.text} == {"pat"})
            assert "held" not in sites.ears["gus"].bodies()
            assert [wait.cause for wait in gus.waiting()] == [None, None]
            await sites.all_have(16)
            await until(lambda: not [each for each in gus.problems() if each.kind == "bounds"])
            await until(lambda: "pat keeps what is promised again" in sites.ears["gus"].texts("bounds"))

    run(test())
    Sites(tmp_path).audit(16)


def test_a_member_whose_clock_is_wrong_at_startup_is_stopped(tmp_path: Path) -> None:
    async def test() -> None:
        async with Sites(tmp_path, ahead={"pam": -0.4}).running() as sites:
            with pytest.raises(InputError, match=r"pam cannot run in its subgroup on real time: .* ahead of"):
                await sites.groups["pam"].broadcast("never")
            await until(lambda: sites.ears["pam"].has_ended)
            with pytest.raises(InputError, match=r"60\.0 ms at most is promised"):
                await anext(sites.groups["pam"])
            assert {each.kind for each in sites.groups["pam"].problems()} == {"bounds"}
            await sites.groups["gus"].broadcast("held")  # it agrees with pat
            await until(lambda: sites.groups["pat"].problems())
            assert sites.ears["pat"].messages == []

    run(test())


def test_two_members_with_differing_clocks_are_both_stopped(tmp_path: Path) -> None:
    async def test() -> None:
        async with Sites(tmp_path, {"gus": ["pam"]}, ahead={"pam": 0.4}).running() as sites:
            for name, way in (("gus", "ahead of"), ("pam", "behind")):
                with pytest.raises(InputError, match=f"clock is .* ms {way} this one"):
                    await sites.groups[name].broadcast("never")

    run(test())


def test_broadcast_waits_for_clock_comparisons_and_reports_it(tmp_path: Path) -> None:
    async def test() -> None:
        sites = Sites(tmp_path, {"gus": ["pam"], "gil": []})
        sites.names = ["gus", "gil"]
        async with sites.running():
            gus = sites.groups["gus"]
            with pytest.raises(TimeoutError):
                await gus.broadcast("too early", timeout=0.2)
            waiting = asyncio.create_task(gus.broadcast("later"))
            await until(lambda: [each for each in gus.problems() if "clocks of pam" in each.text])
            await sites.start("pam")
            await waiting
            await until(lambda: "later" in sites.ears["gil"].bodies())
            assert not [each for each in gus.problems() if "clocks of pam" in each.text]

    run(test())


@pytest.mark.parametrize("protocol", ["hcg", "basic"])
def test_subgroups_work_with_signatures(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "secret").write_text("a secret that all of them share")
    (tmp_path / "secret").chmod(0o600)

    async def test() -> None:
        async with Sites(tmp_path, protocol=protocol, secret=str(tmp_path / "secret")).running() as sites:
            await asyncio.gather(*(sites.broadcast(name, 6, 0.05) for name in sites.names))
            await sites.all_have(42)

    run(test())
    Sites(tmp_path).audit(42)


@pytest.mark.parametrize("protocol", ["hcg", "basic"])
def test_with_stores_a_restart_loses_and_repeats_nothing(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        sites = Sites(tmp_path, protocol=protocol)
        sites.names.sort(key=lambda name: name not in LAYOUT)
        async with _with_stores(sites).running():
            await asyncio.gather(*(sites.broadcast(name, 4) for name in sites.names))
            for name in ("gus", "pam", "gil", "leo"):
                await sites.stop(name)
                others = [other for other in sites.names if other != name]
                sending = [asyncio.create_task(sites.broadcast(other, 2)) for other in others]
                before = sites.ears[name]
                await sites.start(name)
                sites.ears[name].messages[:0] = before.messages
                sites.ears[name].own[:0] = before.own
                await asyncio.gather(*sending)
            await sites.all_have(4 * 7 + 4 * 12)

    run(test())
    Sites(tmp_path).audit(4 * 7 + 4 * 12)


def _with_stores(sites: Sites) -> Sites:
    plain = sites.settings

    def settings(me: str):  # type: ignore[no-untyped-def]
        sites.options["store"] = str(sites.folder / f"{me}-store")
        return plain(me)

    sites.settings = settings  # type: ignore[method-assign]
    return sites


def test_all_must_name_the_same_clocks(tmp_path: Path) -> None:
    async def test() -> None:
        sites = Sites(tmp_path, {"gus": ["pam"], "gil": []})
        await sites.start("gus")
        sites.clocks["gus"] = "real 300ms 60ms"
        await sites.start("pam")
        try:
            await until(lambda: sites.ears["gus"].texts("refused"))
            assert "gus real 300ms 60ms" in sites.ears["gus"].texts("refused")[0]
        finally:
            await sites.stop("gus")
            await sites.stop("pam")

    run(test())
    assert CLOCKS["gus"] == "real 250ms 60ms"
