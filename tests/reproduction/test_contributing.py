"""The recipes of CONTRIBUTING.md: each adds one file or function, and its name elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIFFS = re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M | re.S)

USE_THEM = """
import sys
import torch
import unshift
from reproduction.__main__ import main
from reproduction.items import rivals
from unshift.cli import app
from unshift.coordinates.scanline import Scanline
from unshift.data import dataset

torch.set_num_threads(1)
out = sys.argv[1]
try:
    app(["data", "list"], prog_name="unshift")
except SystemExit as end:
    assert not end.code
assert main(["negatives", "--quick", "--out", out, "--dirty"]) == 0

rivals.ROWS["mnist"] = [rivals.nothing, rivals.restored]
assert main(["rivals", "--quick", "--data", "mnist", "--method", "mirrored:mirrored"]) == 0

train, test = dataset("ramps").images, dataset("ramps", "test").images
assert (train.shape, test.shape) == ((90, 1, 8, 12), (10, 1, 8, 12))

restorer = unshift.fit(train, coordinates=Scanline(), epochs=1, progress=False)
checked = unshift.verify(restorer, test[:2])
assert (checked.moves, checked.mismatches) == (2 * 96, 0)
moved = test.flatten(2).roll(31, -1).view(test.shape)
assert torch.equal(restorer(moved), restorer(test))
restorer.save(f"{out}/scanline.safetensors")
again = unshift.load(f"{out}/scanline.safetensors")
assert isinstance(again.coordinates, Scanline)
assert torch.equal(again(moved), restorer(test))
unshift.export(restorer, f"{out}/scanline.onnx", size=(8, 12))
import onnxruntime
session = onnxruntime.InferenceSession(f"{out}/scanline.onnx")
images = (moved.float() / 255).numpy()
restored = session.run(["restored"], {"images": images})[0]
assert torch.equal(torch.from_numpy(restored), restorer(torch.from_numpy(images)))
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A copy of the code with all recipes applied, and the new files and number of lines added by each."""
    root = tmp_path_factory.mktemp("copy")
    for folder in ("unshift", "reproduction"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "results"))
    shutil.copy(ROOT / "pyproject.toml", root)
    added = []
    for number, diff in enumerate(DIFFS):
        (root / f"{number}.diff").write_text(diff, encoding="utf-8")
        subprocess.run(["git", "apply", f"{number}.diff"], cwd=root, check=True)
        new = re.findall(r"^--- /dev/null\n\+\+\+ b/(\S+)", diff, re.M)
        elsewhere = re.sub(r"^--- /dev/null\n.*?(?=^--- |\Z)", "", diff, flags=re.M | re.S)
        added.append((new, len(re.findall(r"^\+(?!\+\+ )", elsewhere, re.M))))
    return root, added


def test_each_recipe_is_one_file_or_function_and_its_name_elsewhere(changed):
    assert changed[1] == [
        (["unshift/data/ramps.py"], 1),
        (["reproduction/items/negatives.py"], 1),
        (["mirrored.py"], 0),
        (["unshift/coordinates/scanline.py"], 2),  # an import, and the name
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_recipes_work(changed, tmp_path):
    pytest.importorskip("onnxruntime")
    root, _ = changed
    environment = {**os.environ, "PYTHONPATH": str(root), "UNSHIFT_DATA": str(tmp_path)}
    command = [sys.executable, "-c", USE_THEM, str(tmp_path)]
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^ramps .*CC0.* 8x12 ", run.stdout, re.M)
    assert re.search(r"^black on white +5,120 +0$", run.stdout, re.M)
    assert re.search(r"^mirrored +\d", run.stdout, re.M)


def test_the_recipes_keep_to_the_style(changed):
    root, added = changed
    ruff = shutil.which("ruff", path=Path(sys.executable).parent) or pytest.skip("no ruff here")
    files = [root / path for new, _ in added for path in new]
    for command in (["check"], ["format", "--check"]):
        run = subprocess.run([ruff, *command, "--no-cache", *files], cwd=root, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
