"""What `unshift reproduce` measures, prints and writes; a new experiment is one file and one line."""

from __future__ import annotations

import base64
import json
import re
import sys
import types
from dataclasses import replace

import pytest
import torch

import unshift
from unshift.data.files import DataError, root
from unshift.experiments import catalogue, experiments, find, mitogenomes, reproduce
from unshift.experiments.answers import Remembering
from unshift.experiments.cases import CASES
from unshift.experiments.record import Case, Experiment, Options, Row, Table

QUICK = {"quick": True, "progress": False}

NAMES = [experiment.name for experiment in experiments()]
ONLY_WITH_DATA = {"genomes": "mitogenomes-teleost.fa.gz", "light-curves": "rr-lyrae-stripe82.csv.gz"}
"""Experiments on data that the package has no sample of."""


# --- records and renderers -------------------------------------------------------------------------


@pytest.fixture
def toy(monkeypatch):
    """A new experiment: one module, and one line in the catalogue."""
    record = Experiment(
        name="toy",
        title="a toy",
        claim="Two and two are four.",
        cost="no time",
        cases=[Case("sums", "integers", lambda options: 2 + options.quick)],
        measure=lambda loaded: {"sum": 2 + loaded, "pictures": [[1.0]]},
        show=lambda case, results: [Table("", [case], [Row("sum", [results[case]["sum"]], form="{}")])],
        paper={"sums": 4},
    )
    monkeypatch.setitem(sys.modules, "unshift.experiments.toy", types.SimpleNamespace(EXPERIMENT=record))
    monkeypatch.setattr(catalogue, "MODULES", [*catalogue.MODULES, "toy"])


def test_a_new_experiment_is_one_file_and_one_line(toy, tmp_path, capsys):
    results = reproduce(["toy"], tmp_path)
    assert "sum       4" in capsys.readouterr().out
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert stored["toy"]["sums"]["sum"] == stored["toy"]["sums"]["paper"] == results["toy"]["sums"]["sum"] == 4
    assert "pictures" not in stored["toy"]["sums"]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<h2>Not in the paper: a toy</h2>" in page
    assert "Two and two are four." in page
    assert "<td>4</td>" in page


# --- the measurements ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def few():
    """20 digits, the shipped LeNet-5, and both restorers."""
    case = CASES["mnist"].load(Options(quick=True, seeds=(0, 1), progress=False))
    return replace(case, images=case.images[:20], labels=case.labels[:20])


@pytest.mark.parametrize("name", ["table1", "fig4"])
def test_the_accuracy_is_one_number_at_every_scope(few, name):
    result = find(name).measure(few)
    assert result["without"][0] > 95
    assert result["without"][-1] < 60
    for entry in result["restored"].values():
        assert len(set(entry["accuracy"])) == 1
        assert entry["same_at_every_scope"]
        assert set(entry["consistent"]) == {100.0}


def test_the_restored_are_measured_on_all_images_where_the_bare_are_not(few):
    result = find("fig4").measure(replace(few, bare=5))
    assert result["bare_images"] == 5
    for entry in result["restored"].values():
        assert entry["all"]["images"] == 20
        assert entry["all"]["same_at_every_scope"]


def test_the_tables_measure_the_bare_on_all_images(few):
    assert find("table2").measure(replace(few, bare=5))["bare_images"] == 20


def test_a_row_of_one_draw_claims_no_spread(few):
    drawn = [
        find("table2").measure(replace(few, restorers={"mnist": few.restorers["mnist"]}, seeds=seeds))
        for seeds in ((0,), (0, 1))
    ]
    (table,) = find("table2").summary(dict(zip(("cifar10-vgg16", "cifar10-resnet18"), drawn, strict=True)))
    one, two = (row.cells for row in table.rows)
    assert "±" not in one[3]
    assert "±" in two[3]
    assert (one[5], two[5]) == ("20 x 1", "20 x 2")


def test_no_shift_costs_the_restored_anything(few):
    result = find("fig1").measure(few)
    assert {value for row in result["lost_restored"] for value in row} == {0.0}
    assert max(max(row) for row in result["lost_without"]) > 10
    assert result["lost_without"][3][3] == 0.0  # no shift, no loss


def test_the_pictures_show_what_was_done(few):
    result = find("fig3").measure(few)
    original, shifted, restored = (torch.tensor(result["pictures"][k]) for k in ("original", "shifted", "restored"))
    assert torch.equal(shifted, unshift.apply(original, torch.tensor(result["applied"])))
    assert torch.equal(restored, unshift.undo(shifted, torch.tensor(result["estimated"])))


class Counting(torch.nn.Module):
    """A classifier that counts the images it is shown."""

    seen = 0

    def forward(self, images):
        self.seen += len(images)
        return images.flatten(1)[:, :10]


def test_a_remembering_classifier_looks_once_and_says_the_same():
    images = torch.rand(6, 1, 4, 4)
    inner = Counting()
    model = Remembering(inner)
    first = model(images)
    again = model(torch.cat([images[3:], images[:3], images[:1] + 1]))
    assert inner.seen == 7
    assert torch.equal(first, inner(images))
    assert torch.equal(again, inner(torch.cat([images[3:], images[:3], images[:1] + 1])))


def test_a_remembering_classifier_tells_minus_zero_from_zero():
    inner = Counting()
    model = Remembering(inner)
    model(torch.zeros(1, 1, 4, 4))
    model(-torch.zeros(1, 1, 4, 4))
    assert inner.seen == 2


# --- a run and its report --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return folder, reproduce(["table1", "fig3"], folder, data=["mnist"], **QUICK)


def test_the_page_is_whole_and_needs_nothing_else(made):
    folder, results = made
    page = (folder / "index.html").read_text(encoding="utf-8")
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(pictures) == 2
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "$" not in page
    result = results["table1"]["mnist"]
    assert f"<h1>{result['restored']['mnist']['accuracy'][-1]:.2f}% instead of {result['without'][-1]:.2f}%" in page
    for value in result["without"]:
        assert f"<td>{value:.2f}</td>" in page
    assert "<td>35.70</td>" in page  # the paper's, beside ours
    stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert stored["table1"]["mnist"]["without"] == result["without"]
    assert "pictures" not in stored["fig3"]["mnist"]


def test_a_folder_keeps_what_earlier_runs_left_there(tmp_path):
    reproduce(["fig3"], tmp_path, data=["mnist"], **QUICK)
    picture = (tmp_path / "fig3-mnist.png").read_bytes()
    reproduce(["seam"], tmp_path, **QUICK)
    assert set(reproduce(["fig3"], tmp_path, data=["fashion-mnist"], **QUICK)["fig3"]) == {"fashion-mnist"}
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert {name: set(cases) for name, cases in stored.items()} == {
        "fig3": {"mnist", "fashion-mnist"},
        "seam": {"cifar10-plain", "cifar10-resnet18-plain"},
    }
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert base64.b64encode(picture).decode() in page
    assert page.index("Figure 3") < page.index("Not in the paper")


def test_a_foreign_results_file_is_refused(tmp_path):
    (tmp_path / "results.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"results\.json is not a results file; choose another --out"):
        reproduce(["fig3"], tmp_path, data=["mnist"], **QUICK)


def test_a_run_that_dies_leaves_the_cases_that_were_done(toy, tmp_path, monkeypatch):
    def die(_):
        raise KeyboardInterrupt

    monkeypatch.setitem(find("seam").__dict__, "measure", die)
    with pytest.raises(KeyboardInterrupt):
        reproduce(["toy", "seam"], tmp_path, **QUICK)
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert stored["toy"]["sums"]["sum"] == 5


@pytest.mark.parametrize(
    ("item", "options", "message"),
    [
        ("table1", {"data": ["imagenet"]}, "no experiments on 'imagenet'; there are experiments on mnist"),
        ("table2", {"data": ["mnist"]}, "table2 does not run on mnist"),
        ("table1", {"data": ["cifar10"], "train": True}, "--train is for the embedded digits"),
        ("seam", {"train": True}, "cifar10-plain has no quick training"),
    ],
)
def test_what_cannot_be_run_is_refused(item, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        reproduce([item], tmp_path, **options, **QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_runs_at_small_scale_without_any_data(name, tmp_path, monkeypatch, capsys):
    if name not in ONLY_WITH_DATA:
        monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "nothing"))
    elif not (root() / ONLY_WITH_DATA[name]).is_file():
        pytest.skip(f"{ONLY_WITH_DATA[name]} is not in the data folder")
    results = reproduce([name], tmp_path, **QUICK)[name]
    stored = json.loads((tmp_path / "results.json").read_text(), parse_constant=lambda constant: pytest.fail(constant))
    assert set(stored[name]) == set(results) == {case.name for case in find(name).cases}
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert find(name).claim in page
    shown = capsys.readouterr().out
    for case, result in results.items():
        assert result.get("data", "") in page
        for block in find(name).show(case, stored[name]):
            if isinstance(block, Table):
                assert block.rows[0].label in shown
        if isinstance(result.get("restored"), dict):
            assert all(entry["same_at_every_scope"] for entry in result["restored"].values())


@pytest.mark.parametrize("name", ONLY_WITH_DATA)
def test_data_that_is_missing_is_named_with_where_it_comes_from(name, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path))
    mitogenomes.genomes.cache_clear()
    with pytest.raises(DataError, match=f"{ONLY_WITH_DATA[name]} is missing.*docs/sequences.md"):
        reproduce([name], tmp_path, **QUICK)


@pytest.mark.slow
def test_twice_the_same_seed_twice_the_same_numbers(tmp_path):
    def numbers():
        results = reproduce(["fig4"], tmp_path, data=["mnist"], **QUICK)["fig4"]
        return [{k: v for k, v in case.items() if k != "seconds"} for case in results.values()]

    assert numbers() == numbers()


@pytest.mark.slow
def test_training_from_scratch(tmp_path):
    result = reproduce(["table1"], tmp_path, train=True, **QUICK)["table1"]["mnist"]
    assert set(result["restored"]) == {"dense", "paper"}
    assert all(entry["same_at_every_scope"] for entry in result["restored"].values())


@pytest.mark.slow
def test_the_headline_on_all_test_digits(tmp_path):
    """With `mnist` no lower than bare minus 0.05 points, with `mnist-paper` minus 0.20."""
    result = reproduce(["table1"], tmp_path, data=["mnist"], progress=False)["table1"]["mnist"]
    assert result["images"] == 10_000
    assert result["restored"]["mnist"]["effect"][0] >= -0.05
    assert result["restored"]["mnist-paper"]["effect"][0] >= -0.20
    assert all(entry["same_at_every_scope"] for entry in result["restored"].values())
