"""``unshift models`` and ``unshift data``: lists and downloads."""

from __future__ import annotations

from commands import bad, good, good_json

import unshift
from unshift import files as weights


def test_models_lists_restorers(made, monkeypatch):
    files = {name: made / f"{name}.safetensors" for name in ("dense", "paper")}
    monkeypatch.setattr(weights, "pretrained", lambda: files)
    head, dense, paper, *_ = good("models").stdout.splitlines()
    assert head.split() == ["name", "preset", "images", "file", "validation", "test", "trained", "on", "undoes"]
    assert dense.split()[:3] == ["dense", "dense", "12x12"]
    assert "blobs.npy" in paper
    rows = good_json("models")
    assert [row["name"] for row in rows] == ["dense", "paper"]
    assert rows[0]["bytes"] == files["dense"].stat().st_size
    assert good("models", "paper").stdout.startswith("# paper\n")
    card = good_json("models", "paper")
    assert (card["preset"], card["trained_on"]["size"]) == ("paper", [12, 12])
    assert "'mnits'" in bad("models", "mnits")


def test_models_prints_the_card_of_a_file(made, posed):
    assert "12x12" in good("models", made / "paper.safetensors").stdout
    assert "rotations" in good_json("models", posed / "chain.safetensors")["undoes"]


def test_the_shipped_restorers_are_listed():
    listed = {row["name"]: row["images"] for row in good_json("models")}
    assert list(weights.pretrained()) == list(listed)
    assert {"mnist", "mnist-paper", "fashion-mnist", "cifar10", "cifar10-seam"} <= listed.keys()
    assert [listed[name] for name in ("photos", "mnist-scene", "mitogenome")] == [
        "any size", "scenes of any size", "any length",
    ]  # fmt: skip


def test_data_list():
    rows = {row["name"]: row for row in good_json("data", "list")}
    assert {"mnist", "mnist-10k", "fashion-mnist", "cifar10", "mnist3d"} <= set(rows)
    assert rows["mnist-10k"]["present"]
    assert not rows["cifar10"]["present"]
    text = good("data", "list").stdout
    assert all(name in text for name in rows)
    assert "CC BY-SA 3.0" in text


def test_data_get(monkeypatch):
    assert "mnist-10k" in good("data", "get", "mnist-10k").stdout
    assert list(good_json("data", "get", "mnist-10k")) == ["mnist-10k"]

    def fail(name):
        raise unshift.data.DataError(f"no mirror has {name}.\nTry again")

    monkeypatch.setattr("unshift.data.get", fail)
    assert "Try again" in bad("data", "get", "mnist")  # one line
    assert "'cifar'" in bad("data", "get", "mnist", "cifar")  # all names are checked before the first download
