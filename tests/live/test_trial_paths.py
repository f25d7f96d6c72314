"""A trial in a relative folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from antecede.live.trial.cluster import TrialPlan, configure


def test_members_of_a_trial_in_a_relative_folder_write_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their configurations are in a folder of the trial, to which relative paths in them are relative."""
    monkeypatch.chdir(tmp_path)
    for settings in configure(TrialPlan(size=2), Path("trial/members"), Path("trial/trace")):
        assert settings.trace == str(tmp_path / "trial" / "trace")
        assert settings.store == str(tmp_path / "trial" / "members" / f"{settings.me}-store")
