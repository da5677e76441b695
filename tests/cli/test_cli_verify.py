"""``unshift verify``: the promise, and a restorer that breaks it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from commands import bad, good, good_json, run
from torch import nn

from unshift import Restorer, weights


def test_verify_checks_all_images_and_a_sample_by_brute_force(made):
    command = ("verify", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors")
    found = good_json(*command, "--sample", 5)
    assert found["exact"]
    every = found["every_image"]
    assert (every["images"], every["moves"], every["mismatches"]) == (80, 80 * 144, 0)
    assert not every["brute_force"]
    assert (found["sample"]["images"], found["sample"]["mismatches"], found["sample"]["brute_force"]) == (5, 0, True)
    text = good(*command, "--limit", 6, "--sample", 3).stdout
    assert text.startswith("blobs.npy, restorer ")
    assert "6 images x 144 moves = 864 checked (scores once, every move chosen): 0 mismatches" in text
    assert "3 images x 144 moves = 432 checked (every moved image through the whole network): 0 mis" in text
    assert "Proven, not computed" in text


def test_verify_with_brute_force_only_or_without(made):
    command = ("verify", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors", "--limit", 3)
    found = good_json(*command, "--brute-force")
    assert found["every_image"]["brute_force"]
    assert "sample" not in found
    found = good_json(*command, "--no-brute-force")
    assert not found["every_image"]["brute_force"]
    assert "sample" not in found
    assert "Proven" not in good(*command, "--brute-force").stdout


class Liar(nn.Module):
    """Scores that depend on the place, not on the image alone."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores = (255 * images[:, 0]).long()
        scores[:, 0, 0] = 1000
        return scores


def test_verify_fails_with_exit_code_1(made, monkeypatch):
    monkeypatch.setattr(weights, "load", lambda name: Restorer(Liar()))
    monkeypatch.setattr(weights, "image_shape", lambda restorer: (1, None))
    command = ("verify", "--data", made / "blobs.npy", "--restorer", "liar", "--limit", 4)
    result = run(*command)
    assert result.exit_code == 1
    assert result.stdout.startswith("blobs.npy, restorer liar: NOT EXACT\n")
    assert "verify: 4 images x 144 moves = 576, through the whole network: checking all of them" in result.stderr
    found = run(*command, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["sample"]["mismatches"] > 0


@pytest.mark.parametrize(("kind", "moves"), [("turns", 4 * 64), ("rotation", 4), ("chain", 4 * 64)])
def test_verify_checks_the_moves_of_the_restorers_own_group(kind, moves, posed):
    command = ("verify", "--data", posed / "labelled.npz", "--restorer", posed / f"{kind}.safetensors", "--limit", 5)
    found = good_json(*command, "--sample", 2)
    assert found["exact"]
    assert (found["sample"]["moves"], found["sample"]["brute_force"]) == (2 * moves, True)
    text = good(*command, "--sample", 2).stdout
    assert f"  2 images x {moves} moves = {2 * moves:,} checked (every moved image through the whole network)" in text
    assert f"  It undoes {found['undoes']}.\n" in text
    # Nothing is proven of a chain: its sample is all there is.
    assert ("every_image" in found) == ("Proven" in text) == (kind != "chain")


def test_verify_of_a_chain_is_by_brute_force(posed):
    command = ("verify", "--data", posed / "labelled.npz", "--restorer", posed / "chain.safetensors", "--limit", 1)
    assert good_json(*command, "--brute-force")["every_image"]["brute_force"]
    assert bad(*command, "--no-brute-force").startswith("a chain of restorers can be checked by brute force only")


def test_verify_is_bounded_by_moves_and_says_what_it_did_not_check(made):
    command = ("verify", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--moves", 10)
    result = good(*command, "--sample", 3)
    assert "80 images, 800 of 11,520 moves checked (scores once, each move chosen): 0 mismatches" in result.stdout
    assert "3 images, 30 of 432 moves checked (each moved image through the whole network)" in result.stdout
    assert "Not checked: the moves left out." in result.stdout
    first, second = result.stderr.splitlines()
    assert first.startswith("verify: 80 images x 144 moves = 11,520, by their scores: checking 10 of each of 80 images")
    assert "(all would take about " in first
    assert second.startswith("verify: 3 images x 144 moves = 432, through the whole network: checking 10 of each")
    found = good_json(*command, "--no-brute-force")["every_image"]
    assert (found["moves"], found["possible"], found["complete"]) == (800, 11520, False)
    everything = good_json(*command[:-2], "--all", "--no-brute-force", "--limit", 2)["every_image"]
    assert everything["complete"]
    assert everything["moves"] == 2 * 144


def test_verify_of_photos_ends_in_the_time_it_is_given():
    """40 photos of 96x96, of which all shifts would take hours with this net: it once ran on in silence."""
    import time

    from PIL import Image
    from samples import make_restorer

    make_restorer("paper", 3, (96, 96)).save("paper.safetensors")
    Path("photos").mkdir()
    pixels = torch.randint(0, 256, (40, 96, 96, 3), dtype=torch.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image.numpy()).save(f"photos/{i}.png")
    started = time.monotonic()
    found = good_json("verify", "--data", "photos", "--restorer", "paper.safetensors", "--seconds", 2)
    assert time.monotonic() - started < 20
    assert found["exact"]
    for name in ("every_image", "sample"):
        assert 0 < found[name]["moves"] < found[name]["possible"] == 40 * 96 * 96
