"""``unshift models`` and ``unshift data``: what there is, and what is fetched."""

from __future__ import annotations

import pytest
from commands import ROOT, bad, good, good_json

import unshift
from unshift import weights


def test_models_lists_the_shipped_restorers(made, monkeypatch):
    files = {name: made / f"{name}.safetensors" for name in ("dense", "paper")}
    monkeypatch.setattr(weights, "pretrained", lambda: files)
    head, dense, paper, *_ = good("models").stdout.splitlines()
    assert head.split() == ["name", "preset", "images", "file", "validation", "test", "trained", "on", "undoes"]
    assert dense.split()[:3] == ["dense", "dense", "12x12"]
    assert paper.endswith("-  blobs.npy   circular shifts, exactly")
    found = good_json("models")
    assert [row["name"] for row in found] == ["dense", "paper"]
    assert found[0]["bytes"] == files["dense"].stat().st_size
    assert good("models", "paper").stdout.startswith("# paper\n")
    card = good_json("models", "paper")
    assert (card["preset"], card["trained_on"]["size"]) == ("paper", [12, 12])
    assert bad("models", "mnits") == "no restorer 'mnits': neither a file nor one of dense, paper"


def test_models_prints_the_card_of_a_file(made):
    text = good("models", made / "paper.safetensors").stdout
    assert "| training data | blobs.npy, 72 images, no labels |" in text


def test_models_tells_the_sizes_of_a_restorer_for_any(made):
    text = good("models", "photos").stdout
    assert "| images | 3 channel(s), any size |\n| preparation | none |" in text
    sizes = unshift.load("photos").metadata["sizes"]
    told = f"{100 * sizes['96x96']['exact']:.1f}% of {sizes['96x96']['images']} at 96x96, "
    assert f"| test, by size | restored exactly: {told}" in text  # the smallest first
    assert all(f" at {size}" in text for size in sizes)
    assert "| images | 1 channel(s), 12x12 |" in good("models", made / "paper.safetensors").stdout


def test_the_lists_of_restorers_agree():
    """``unshift models`` and the table in the README once differed on what takes any size."""
    listed = {row["name"]: f", {row['images']} | " for row in good_json("models")}
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `")]
    table = {line.split("`")[1]: line for line in lines if line.split("`")[1] in listed}
    assert listed.keys() == table.keys()
    assert [name for name, images in listed.items() if images not in table[name]] == []
    assert {listed[name] for name in ("photos", "mnist-scene", "mitogenome")} == {
        ", any size | ", ", scenes of any size | ", ", any length | ",
    }  # fmt: skip


def test_models_tells_what_a_chain_undoes(posed):
    card = good_json("models", posed / "chain.safetensors")
    assert card["undoes"] == "circular shifts, exactly, and rotations, quarter turns exactly"


def test_the_shipped_restorers_are_listed():
    names = list(weights.pretrained())
    assert {"mnist", "mnist-paper", "fashion-mnist", "cifar10", "cifar10-seam"} <= set(names)
    assert [row["name"] for row in good_json("models")] == names
    for name in names:
        assert good("models", name).stdout.startswith(f"# {name}\n")


def test_data_list():
    rows = {row["name"]: row for row in good_json("data", "list")}
    assert {"mnist", "mnist-10k", "fashion-mnist", "cifar10", "mnist3d"} <= set(rows)
    assert rows["mnist-10k"]["present"]
    assert not rows["cifar10"]["present"]
    text = good("data", "list").stdout
    assert "mnist-10k" in text
    assert "CC BY-SA 3.0" in text
    assert "absent" in text


def test_data_get_checks_what_is_there():
    text = good("data", "get", "mnist-10k").stdout
    assert text.startswith("mnist-10k  complete and intact in ")
    assert list(good_json("data", "get", "mnist-10k")) == ["mnist-10k"]


def test_data_get_knows_its_names_before_it_downloads(monkeypatch):
    monkeypatch.setattr("unshift.data.get", lambda name: pytest.fail("it downloaded"))
    message = bad("data", "get", "mnist", "cifar")
    assert message.startswith("no data set named 'cifar' (did you mean cifar10?); there are ")


def test_a_failed_download_is_one_line(monkeypatch):
    def fail(name):
        raise unshift.data.DataError("cannot download mnist to here: no mirror gave the file.\nTry again")

    monkeypatch.setattr("unshift.data.get", fail)
    assert bad("data", "get", "mnist") == "cannot download mnist to here: no mirror gave the file. Try again"
