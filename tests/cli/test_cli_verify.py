"""``unshift verify``: exactness, a restorer that is not exact, and bounded checks."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch
from commands import bad, good, good_json, read_image, run
from PIL import Image
from samples import make_restorer
from torch import nn

import unshift
from unshift import Restorer
from unshift import files as weights


def test_verify_checks_every_move_of_every_image(made):
    command = ("verify", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--limit", 6, "--all")
    found = good_json(*command)
    assert (found["images"], found["moves"], found["mismatches"]) == (6, 6 * 144, 0)
    assert found["exact"]
    assert found["complete"]
    text = good(*command).stdout
    assert "blobs.npy" in text
    assert "864" in text


class Placed(nn.Module):
    """Scores that depend on the place, not on the image alone."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores = (255 * images[:, 0]).long()
        scores[:, 0, 0] = 1000
        return scores


def test_verify_fails_with_exit_code_1(made, monkeypatch):
    monkeypatch.setattr(weights, "load", lambda name, **_: Restorer(Placed()))
    command = ("verify", made / "blobs.npy", "--restorer", "placed", "--limit", 4)
    result = run(*command)
    assert result.exit_code == 1
    assert "NOT EXACT" in result.stdout
    result = run(*command, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["mismatches"] > 0


def test_verify_checks_the_restorer_with_its_min_confidence(made, pixels):
    """With `min_confidence=1` all images pass unchanged, so all moves are mismatches."""
    restorer = unshift.load(made / "paper.safetensors", min_confidence=1)
    restorer.save("bounded.st")
    command = ("verify", made / "blobs.npy", "--limit", 2, "--max-moves", 9, "--restorer")
    for changed in (("bounded.st",), (made / "paper.safetensors", "--min-confidence", 1)):
        result = run(*command, *changed, "--json")
        assert result.exit_code == 1
        assert json.loads(result.stdout)["mismatches"] > 0
    assert good_json(*command, "bounded.st", "--min-confidence", 0)["exact"]
    assert torch.equal(restorer(pixels[:2]), pixels[:2])


def test_verify_is_bounded_by_moves(made):
    command = ("verify", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--max-moves", 10)
    found = good_json(*command)
    assert (found["moves"], found["possible"], found["complete"]) == (800, 80 * 144, False)
    assert "--all" in good(*command).stdout
    assert good_json(*command[:-2], "--limit", 2, "--all")["moves"] == 2 * 144


def test_verify_is_bounded_by_time():
    """40 photos of 96x96, of which all shifts take hours with this network."""
    make_restorer("paper", 3, (96, 96)).save("paper.safetensors")
    Path("photos").mkdir()
    pixels = torch.randint(0, 256, (40, 96, 96, 3), dtype=torch.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image.numpy()).save(f"photos/{i}.png")
    started = time.monotonic()
    found = good_json("verify", "photos", "--restorer", "paper.safetensors", "--seconds", 2)
    assert time.monotonic() - started < 20
    assert found["exact"]
    assert 0 < found["moves"] < found["possible"] == 40 * 96 * 96


def test_images_of_several_sizes_are_checked_each_at_its_own(made):
    Path("mixed").mkdir()
    for i, path in enumerate(sorted((made / "photos").iterdir())[:6]):
        read_image(path).resize((12 + i % 3, 14)).save(f"mixed/{path.name}")
    assert "--size 14x12" in bad("verify", "mixed", "--restorer", made / "dense.safetensors")
    found = good_json("verify", "mixed", "--restorer", made / "paper.safetensors", "--all")
    assert (found["images"], found["moves"]) == (6, 2 * 14 * (12 + 13 + 14))
