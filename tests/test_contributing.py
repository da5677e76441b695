"""CONTRIBUTING.md's recipes: one new file and one line elsewhere add a data set, an experiment, a kind of move."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DIFFS = re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M | re.S)

USE_THEM = """
import sys
import torch
import unshift
from unshift.cli import app
from unshift.coordinates.scanline import Scanline
from unshift.data import dataset

torch.set_num_threads(1)
out = sys.argv[1]
for words in (["data", "list"], ["reproduce", "negatives", "--quick", "--out", out]):
    try:
        app(words, prog_name="unshift")
    except SystemExit as end:
        assert not end.code, words

train, test = dataset("ramps").images, dataset("ramps", "test").images
assert (train.shape, test.shape) == ((90, 1, 8, 12), (10, 1, 8, 12))

restorer = unshift.fit(train, coordinates=Scanline(), epochs=1, progress=False)
checked = unshift.verify(restorer, test[:2], brute_force=True)
assert (checked.moves, checked.mismatches) == (2 * 96, 0)
moved = test.flatten(2).roll(31, -1).view(test.shape)
assert torch.equal(restorer(moved), restorer(test))
restorer.save(f"{out}/scanline.safetensors")
again = unshift.load(f"{out}/scanline.safetensors")
assert isinstance(again.coordinates, Scanline)
assert torch.equal(again(moved), restorer(test))
"""


def applied(diff: str, root: Path) -> tuple[list[str], int]:
    """Apply a diff of one hunk a file; return the new files, and how many lines it adds to others. None may go."""
    new, lines = [], 0
    for old_path, path, body in re.findall(r"^--- (\S+)\n\+\+\+ b/(\S+)\n@@.*\n((?:[ +].*\n)+)", diff, re.M):
        before = "".join(line[1:] + "\n" for line in body.splitlines() if line[0] == " ")
        after = "".join(line[1:] + "\n" for line in body.splitlines())
        if old_path == "/dev/null":
            assert not before
            assert not (root / path).exists()
            (root / path).write_text(after, encoding="utf-8")
            new.append(path)
        else:
            text = (root / path).read_text(encoding="utf-8")
            assert text.count(before) == 1, f"{path} does not hold, once,\n{before}"
            (root / path).write_text(text.replace(before, after), encoding="utf-8")
            lines += len(after.splitlines()) - len(before.splitlines())
    return new, lines


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A copy of the package with all three recipes applied, and what each has changed."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "unshift", root / "unshift", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root, [applied(diff, root) for diff in DIFFS]


def test_each_recipe_is_one_new_file_and_one_line_elsewhere(changed):
    _, found = changed
    assert found == [
        (["unshift/data/ramps.py"], 1),
        (["unshift/experiments/negatives.py"], 1),
        (["unshift/coordinates/scanline.py"], 1),
    ]


def test_the_recipes_work(changed, tmp_path):
    root, _ = changed
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run(
        [sys.executable, "-c", USE_THEM, str(tmp_path)], cwd=root, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert re.search(r"^ramps +here +0.0 kB  CC0 .* 8x12 grey, 90 \+ 10$", run.stdout, re.M)
    assert re.search(r"^black on white +5,120 +0$", run.stdout, re.M)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<h2>Not in the paper: black digits on white</h2>" in page
    assert "<th>black on white</th><td>5,120</td><td>0</td>" in page


def test_the_recipes_keep_to_the_style(changed):
    root, found = changed
    ruff = shutil.which("ruff", path=Path(sys.executable).parent) or pytest.skip("no ruff here")
    files = [root / path for new, _ in found for path in new]
    for command in (["check"], ["format", "--check"]):
        run = subprocess.run([ruff, *command, "--no-cache", *files], cwd=root, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


def test_a_kind_of_move_that_says_too_little_cannot_be_made():
    from torch import nn

    from unshift.coordinates import Coordinates

    class Silent(nn.Module, Coordinates):
        """Says nothing."""

    with pytest.raises(TypeError, match=r"abstract methods? .*candidate"):
        Silent()
