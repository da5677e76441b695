"""``unshift reproduce``: what it passes on, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import bad, good, good_json

from unshift import experiments


@pytest.fixture
def told(monkeypatch):
    """Stand in for the experiments; the list tells what was asked of them."""
    calls = []

    def reproduce(items, out, **options):
        calls.append({"items": items, "out": out, **options})
        print("a table")
        (Path(out) / "index.html").write_text("<p>")
        return {"table1": {"rows": [1.5], "pictures": [[0.0]]}, "seconds": 2}

    monkeypatch.setattr(experiments, "reproduce", reproduce)
    return calls


def test_reproduce_runs_the_main_job_and_names_the_report(told):
    assert good("reproduce").stdout == "a table\n\nreport: report/index.html\n"
    options = {"data": (), "train": False, "quick": False, "progress": True, "weights": {}}
    assert told == [{"items": [], "out": Path("report"), **options}]


def test_reproduce_passes_its_options_on(told):
    good("reproduce", "fig6", "table1", "--train", "--quick", "--out", "there/deep", "--data", "mnist")
    options = {"data": ["mnist"], "train": True, "quick": True, "progress": True, "weights": {}}
    assert told == [{"items": ["fig6", "table1"], "out": Path("there/deep"), **options}]


def test_reproduce_takes_files_of_classifiers(told, tmp_path):
    path = tmp_path / "a=b.pt"
    path.touch()
    good("reproduce", "table2", "--weights", f"resnet18-cifar10-autoattack={path}", "--out", str(tmp_path / "report"))
    assert told[0]["weights"] == {"resnet18-cifar10-autoattack": path}
    assert "--weights takes NAME=FILE, got 'file.pt'" in bad("reproduce", "--weights", "file.pt")
    assert "there is no file gone.pt" in bad("reproduce", "--weights", "x=gone.pt")
    assert len(told) == 1


def test_reproduce_as_json_keeps_the_tables_off_stdout(told):
    result = good("reproduce", "--json")
    assert json.loads(result.stdout) == {"table1": {"rows": [1.5]}, "seconds": 2, "report": "report/index.html"}
    assert result.stderr == "a table\n"


def test_reproduce_lists_its_items(told):
    listed = good("reproduce", "--list").stdout
    for item in ("Table 1", "Table 2", *(f"Figure {number}" for number in (1, 3, 4, 5, 6))):
        assert f"{item}: " in listed
    assert listed.endswith(f"\n{experiments.COST_NOTE}\n")
    assert {"name", "item", "title", "claim", "cost"} == set(good_json("reproduce", "--list")[0])
    assert not told


def test_reproduce_refuses_what_it_does_not_know(told):
    message = bad("reproduce", "table1", "table9")
    assert message.startswith("no experiment named 'table9'; there are ")
    assert "table1, fig1" in message
    Path("file").write_text("")
    assert bad("reproduce", "--out", "file").startswith("cannot write to file (")
    assert not told
