"""The first hour of a new user: see ``first_hour.py``."""

from __future__ import annotations

import time

import first_hour
import pytest

from unshift import progress


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_command_on_100_photographs_is_quick_and_never_silent(tmp_path):
    first_hour.make_photographs(tmp_path / "photos")
    for name, step in first_hour.steps(tmp_path).items():
        assert first_hour.failures(step, tmp_path / f"{name}.log") == [], name
    assert "100 images" in (tmp_path / "restore.out").read_text()
    assert ": exact" in (tmp_path / "verify.out").read_text()


def test_a_silent_task_prints_a_sign_of_life(monkeypatch, capsys):
    """A fit of 48 s once wrote nothing to its log."""
    monkeypatch.setattr(progress, "EVERY_SECONDS", -1.5)
    with progress.heartbeat("fit"):
        time.sleep(2.3)
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 3
    assert all(line.startswith("fit: ") for line in lines)
