"""Every item runs at a tiny size and gives a record of the stored structure; the command writes and skips as stated."""

from __future__ import annotations

import json
import re
import sys
import types
from dataclasses import replace

import pytest

import unshift
from reproduction import items, records, sources
from reproduction.__main__ import SKIPPED, main, run
from reproduction.items import ITEMS, find, header, rivals
from reproduction.records import Options, commit, is_ancestor
from reproduction.tables import Picture, Row, Table, render

QUICK = Options(quick=True, seeds=(0, 1), progress=False)
CASES = [(name, case) for name in ITEMS for case in find(name).CASES]
OPTIONAL = {"checks", "data", "lost", "verified", "forced", "equiadapt", "training", "fitting", "milliseconds", "bytes"}
"""Keys of results that depend on the classifier, on what is installed, or on the version."""
SLOW = {("moves", "cifar10"), ("unaligned", "mnist"), ("scenes", "mnist-scene"), ("poses", "turns"), ("poses", "pose")}
SLOW |= {("rotation", "mnist-rotation"), ("rivals", "mnist"), ("rivals", "mnist-rotated"), ("scenes", "rivals")}
SLOW |= {("noise", "mnist"), ("rivals", "cifar10-padded"), ("rivals", "cifar10-plain")}  # of ResNet-18


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "nothing"))


def structure(value):
    """The keys of nested results, without those of optional parts and of named rows."""
    if isinstance(value, dict):
        named = all(isinstance(one, dict) for one in value.values()) and value
        if named:
            return [max(map(structure, value.values()), key=len)]
        return {
            key: structure(one) for key, one in value.items() if key not in OPTIONAL | {"pictures", "all", "others"}
        }
    if isinstance(value, list):
        return [structure(value[0])] if value and isinstance(value[0], dict | list) else []
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "case"), [pytest.param(*one, marks=pytest.mark.slow) if one in SLOW else one for one in CASES]
)
def test_every_item_runs_without_data_and_its_record_has_the_stored_structure(name, case, tmp_path, capsys):
    assert run([name], options=QUICK, out=tmp_path, data=[case], dirty=True) == 0
    record = records.read(name, tmp_path)[case]
    result, stored = record["result"], records.read(name)
    for block in find(name).tables({case: result}, case):  # from plain data alone
        assert isinstance(block, str | Table | Picture)
    assert header(find(name))["title"].split(":")[0] in capsys.readouterr().out
    if case in stored:
        assert structure(result) == structure(stored[case]["result"])
    if isinstance(result.get("restored"), dict):
        assert all(entry["same_at_every_scope"] for entry in result["restored"].values())
    assert result.get("verified", {"mismatches": 0})["mismatches"] == 0


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_states_its_claim_the_papers_value_and_its_cost(name):
    assert {"title", "claim", "paper", "cost"} <= header(find(name)).keys()


def test_what_cases_need_has_a_source_or_comes_with_the_package():
    known = {*sources.SOURCES, "mnist-10k", "mnist3d", *unshift.classifiers.names()}
    assert {need for name in ITEMS for needs in find(name).CASES.values() for need in needs} <= known


# --- the command and its records


@pytest.fixture
def toy(monkeypatch):
    """A new item: one module, and one line in the list."""
    module = types.SimpleNamespace(
        __doc__="A toy.\n\nClaim: Two and two are four.\nPaper: 4.\nCost: none.\n",
        CASES={"sums": (), "fish": ("mitogenomes",)},
        measure=lambda case, options: {"sum": 4, "images": 2, "pictures": {"x": [1.0]}},
        tables=lambda results, case: [Table("", [case], [Row("sum", [results[case]["sum"]], form="{}")])],
    )
    monkeypatch.setitem(sys.modules, "reproduction.items.toy", module)
    monkeypatch.setattr(items, "ITEMS", [*ITEMS, "toy"])
    return module


def test_a_case_whose_data_are_missing_is_skipped_with_one_line_and_the_rest_is_done(toy, tmp_path, capsys):
    assert main(["toy", "--out", str(tmp_path), "--dirty"]) == SKIPPED
    shown = capsys.readouterr()
    assert "sum       4" in shown.out
    (line,) = shown.err.strip().splitlines()
    assert "fish" in line
    assert "mitogenomes-vertebrates.fa.gz" in line
    assert set(records.read("toy", tmp_path)) == {"sums"}


def test_a_record_says_what_gave_it_and_keeps_other_cases(toy, tmp_path):
    records.write("toy", "old", {"sum": 1}, command="", options=QUICK, seconds=1.0, folder=tmp_path, dirty=True)
    main(["toy", "--data", "sums", "--seeds", "2", "--out", str(tmp_path), "--dirty"])
    stored = records.read("toy", tmp_path)
    assert stored["old"]["result"] == {"sum": 1}
    made = stored["sums"]["run"]
    assert stored["sums"]["result"] == {"sum": 4, "images": 2}  # without pixels
    assert made["command"] == f"python -m reproduction toy --data sums --seeds 2 --out {tmp_path} --dirty"
    assert made["options"]["seeds"] == [0, 1]
    assert {"commit", "dirty", "versions", "machine", "threads", "seconds"} <= made.keys()


def test_a_changed_checkout_writes_no_record_unless_told(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(records, "commit", lambda: ("abc1234", True))
    assert main(["toy", "--data", "sums", "--out", str(tmp_path)]) == 2
    assert "--dirty" in capsys.readouterr().err
    assert not records.read("toy", tmp_path)
    main(["toy", "--data", "sums", "--out", str(tmp_path), "--dirty"])
    assert records.read("toy", tmp_path)["sums"]["run"]["dirty"]


def test_a_killed_run_keeps_the_cases_that_are_done(toy, tmp_path):
    def die(case, options):
        raise KeyboardInterrupt

    toy.CASES = {"sums": (), "more": ()}
    done, toy.measure = toy.measure, lambda case, options: (done if case == "sums" else die)(case, options)
    with pytest.raises(KeyboardInterrupt):
        run(["toy"], options=QUICK, out=tmp_path, dirty=True)
    assert set(records.read("toy", tmp_path)) == {"sums"}


def test_wrong_names_and_foreign_files_are_refused(tmp_path, capsys):
    assert main(["table9"]) == 2
    assert "table9" in capsys.readouterr().err
    assert main(["table2", "--data", "mnist"]) == 2
    (tmp_path / "fig3.json").write_text("[1]", encoding="utf-8")
    assert main(["fig3", "--quick", "--data", "mnist", "--out", str(tmp_path), "--dirty"]) == 2
    assert main(["fetch", "rr-lyrae"]) == 1
    assert find("fig5") is find("volumes")


def test_a_method_of_ones_own_is_a_row_that_no_record_holds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from reproduction.items.rivals import Rival\n\n\ndef mirrored(contest):\n"
        "    return Rival('mirrored', contest.model, lambda images: iter([images.flip(3)]))\n"
    )
    monkeypatch.setitem(rivals.ROWS, "mnist", [rivals.nothing, rivals.restored])
    before = (records.RESULTS / "rivals.json").read_bytes()
    monkeypatch.setattr(rivals, "CASES", {"mnist": ()})
    monkeypatch.setitem(rivals.SETTINGS, "mnist", replace(rivals.SETTINGS["mnist"], data="mnist-10k", count=20))
    assert main(["rivals", "--data", "mnist", "--method", "mine:mirrored"]) == 0
    assert "mirrored" in capsys.readouterr().out
    assert (records.RESULTS / "rivals.json").read_bytes() == before
    assert main(["rivals", "--quick", "--data", "mnist", "--method", "mine.mirrored"]) == 2
    assert "mine.mirrored" in capsys.readouterr().err


def test_only_the_commit_of_this_repository_is_recorded(tmp_path):
    name, _ = commit()
    assert name is None or re.fullmatch("[0-9a-f]{7,}", name)
    assert commit(tmp_path) == (None, False)
    assert name is None or is_ancestor(name)
    assert not is_ancestor(None)


PENDING = {("unaligned", "mnist")}
"""Records that are to be measured again, at a commit of this history without changes."""


def test_stored_records_come_from_commits_of_this_history_and_hold_no_pixels():
    for path in records.RESULTS.glob("*.json"):
        for case, record in json.loads(path.read_text(encoding="utf-8"))["cases"].items():
            assert is_ancestor(record["run"]["commit"]) or (path.stem, case) in PENDING, f"{path.stem} {case}"
            assert record["run"]["command"] or record["run"]["earlier_command"]
            assert record["run"]["seconds"] >= 0
            assert "pictures" not in record["result"]


# --- tables

TABLE = Table(
    "shift",
    ["0", "4 (any)"],
    [
        Row("with nothing", [99.0, 8.5], "bare"),
        Row("spread", [0, None], "detail", "±{:.1f}"),
        Row("ours", [99, 99], "restored", ["{:.2f}", "{}"]),
    ],
    ["n = 3 < 4, `mnist`."],
)


def test_a_table_for_a_terminal_and_in_markdown():
    assert render([TABLE, "The end."], "terminal").splitlines() == [
        "shift              0  4 (any)",
        "-----------------------------",
        "with nothing   99.00     8.50",
        "  spread        ±0.0        -",
        "ours           99.00       99",
        "n = 3 < 4, `mnist`.",
        "The end.",
    ]
    assert render([TABLE], "markdown") == (
        "| shift | 0 | 4 (any) |\n|---|---:|---:|\n| with nothing | 99.00 | 8.50 |\n| spread | ±0.0 | - |\n"
        "| **ours** | **99.00** | **99** |\n\n<sub>n = 3 < 4, `mnist`.</sub>"
    )
