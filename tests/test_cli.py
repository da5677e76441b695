"""The command line: what each command does, and one line and an exit code for every kind of bad input."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from samples import blobs
from torch import nn
from typer.testing import CliRunner

import unshift
from unshift import Restorer, apply, evaluation, experiments, training, weights
from unshift.cli import app, options
from unshift.cli.images import open_prepared
from unshift.data import pad, resize, sources, to_float
from unshift.data.pixels import ImageSet
from unshift.estimator import PRESETS
from unshift.experiments import classifiers

ROOT = Path(unshift.__file__).parents[1]
SETTINGS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.03, "progress": False}
QUICK = ("--epochs", 2, "--batch-size", 8, "--learning-rate", 0.03)
COMMANDS = ("reproduce", "demo", "fit", "evaluate", "restore", "verify", "export", "models", "data list", "data get")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run every test in its own folder, with its own (empty) data folder, and no shipped classifier."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "unshift-data"))
    monkeypatch.delenv("UNSHIFT_DEBUG", raising=False)


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="unshift")


def good(*args: object):
    result = run(*args)
    assert result.exit_code == 0, result.stderr
    return result


def good_json(*args: object):
    """Stdout must be JSON and nothing else."""
    return json.loads(good(*args, "--json").stdout)


def bad(*args: object, code: int = 2) -> str:
    """Return the message: one line on stderr, nothing on stdout."""
    result = run(*args)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("unshift: error: ")
    return lines[0].removeprefix("unshift: error: ")


def child(*args: object, **options) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "unshift.cli", *map(str, args)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return (400 * blobs(80, 1, (12, 12))).round().to(torch.uint8)


@pytest.fixture(scope="module")
def made(tmp_path_factory, pixels) -> Path:
    """A folder with images as arrays and files, and restorers for them."""
    folder = tmp_path_factory.mktemp("made")
    np.save(folder / "blobs.npy", pixels.numpy())
    labels = np.arange(len(pixels)) % 3
    np.savez(folder / "labelled.npz", images=pixels.numpy(), labels=labels)
    (folder / "photos").mkdir()
    for i, image in enumerate(pixels[:20]):
        Image.fromarray(image[0].numpy()).save(folder / "photos" / f"{i:02}.png")
    for preset in ("paper", "dense"):
        restorer = unshift.fit(pixels, preset, **SETTINGS, data_name="blobs.npy")
        restorer.save(folder / f"{preset}.safetensors")
    return folder


# --- help, usage, errors ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_explains_it(command):
    text = good(*command.split(), "--help").stdout
    assert text.startswith(f"Usage: unshift {command} ")
    assert command == "data list" or f"  unshift {command}" in text  # an example
    assert command == "demo" or "--json" in text


def test_help_shows_every_command_and_so_does_no_argument():
    text = good("--help").stdout
    assert all(f"  {command.split()[0]} " in text for command in COMMANDS)
    assert good().stdout == good("-h").stdout == text
    assert good("data").stdout == good("data", "--help").stdout


def test_version():
    assert good("--version").stdout == f"unshift {unshift.__version__}\n"


def test_nothing_heavy_is_imported_before_a_command_runs():
    code = "import sys, unshift.cli; print(*sys.modules)"
    names = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).split()
    assert not {"torch", "numpy", "PIL", "safetensors", "tqdm"} & set(names)
    assert {name.split(".")[1] for name in names if name.startswith("unshift.")} == {"cli"}


def test_the_presets_and_kinds_are_those_of_the_library():
    assert tuple(kind.value for kind in options.Kind) == training.KINDS
    assert [preset.value for preset in options.Preset] == list(PRESETS)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["dance"], "No such command 'dance'"),
        (["--dance"], "--dance"),
        (["fit"], "DATA"),
        (["fit", "x.npy"], "--out"),
        (["fit", "x.npy", "--out", "y", "--dance"], "--dance"),
        (["fit", "x.npy", "--out", "y", "--preset", "cheap"], "'cheap' is not one of"),
        (["fit", "x.npy", "--out", "y", "--size", "big"], "wanted is 32 or 32x48 (height x width), got 'big'"),
        (["fit", "x.npy", "--out", "y", "--size", "0x4"], "wanted is 32 or 32x48 (height x width), got '0x4'"),
        (["fit", "x.npy", "--out", "y", "--size", "3x3x3"], "wanted is 32 or 32x48"),
        (["fit", "x.npy", "--out", "y", "--pad", "-1"], "--pad"),
        (["fit", "x.npy", "--out", "y", "--seed", "-1"], "--seed"),
        (["fit", "x.npy", "--out", "y", "--epochs", "many"], "--epochs"),
        (["fit", "x.npy", "--out", "y", "--validation", "some"], "a number of images or a share such as 0.1"),
        (["evaluate", "--data", "x", "--restorer", "y", "--scopes", "8-0"], "such as 0-8 or 0,2,4, got '8-0'"),
        (["evaluate", "--data", "x", "--restorer", "y", "--scopes", ""], "such as 0-8 or 0,2,4, got ''"),
        (["evaluate", "--data", "x", "--restorer", "y", "--scopes", "-3"], "such as 0-8"),
        (["evaluate", "--data", "x", "--restorer", "y", "--seeds", "0"], "--seeds"),
        (["evaluate", "--data", "x", "--restorer", "y", "--limit", "0"], "--limit"),
        (["evaluate", "--data", "x"], "--restorer"),
        (["verify", "--restorer", "x"], "--data"),
        (["restore", "--restorer", "x", "--out", "y"], "IMAGES"),
        (["data", "get"], "NAME"),
        (["data", "lose"], "No such command 'lose'"),
    ],
)
def test_a_wrong_command_line(args, words):
    message = bad(*args)
    assert words.lower() in message.lower().replace("images...", "images")


def test_lists_of_scopes():
    assert options.read_scopes("0-8") == list(range(9))
    assert options.read_scopes("0, 2,4-6") == [0, 2, 4, 5, 6]


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_debug_shows_the_traceback(how, monkeypatch):
    flags = ["--debug"] if how == "flag" else []
    if how == "environment":
        monkeypatch.setenv("UNSHIFT_DEBUG", "1")
    result = run(*flags, "fit", "nothing.npy", "--out", "x.safetensors")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("unshift: error: no data set named 'nothing.npy'")


def test_a_bug_is_not_dressed_up_as_bad_input(monkeypatch):
    def broken() -> list:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("unshift.data.status", broken)
    assert isinstance(run("data", "list").exception, ZeroDivisionError)


def test_a_warning_is_one_line(made):
    slow = ("--learning-rate", 1e-9, "--epochs", 1, "--batch-size", 1)
    result = good("fit", made / "blobs.npy", "--out", "x.safetensors", *slow)
    assert result.stderr.startswith("unshift: warning: after one epoch the loss ")
    assert result.stderr.count("\n") == 1


# --- reproduce ----------------------------------------------------------------------------------------


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
    options = {"data": (), "train": False, "quick": False, "progress": True}
    assert told == [{"items": [], "out": Path("report"), **options}]


def test_reproduce_passes_its_options_on(told):
    good("reproduce", "fig6", "table1", "--train", "--quick", "--out", "there/deep", "--data", "mnist")
    options = {"data": ["mnist"], "train": True, "quick": True, "progress": True}
    assert told == [{"items": ["fig6", "table1"], "out": Path("there/deep"), **options}]


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
    assert message.startswith("no experiment named 'table9'; there are table1, fig1")
    Path("file").write_text("")
    assert bad("reproduce", "--out", "file").startswith("cannot write to file (")
    assert not told


# --- fit ----------------------------------------------------------------------------------------------


def test_fit_writes_a_restorer_that_knows_its_preparation(made, pixels):
    result = good(
        "fit", made / "blobs.npy", "--size", 14, "--pad", 2, "--preset", "dense", "--out", "x.safetensors", *QUICK
    )
    restorer = unshift.load("x.safetensors")
    assert restorer.metadata["preparation"] == {"resize": [14, 14], "pad": 2}
    assert restorer.metadata["size"] == [18, 18]
    assert restorer.metadata["data"] == "blobs.npy"
    assert "test" not in restorer.metadata  # a file has no test split
    assert result.stderr == ""  # quiet without a terminal
    head, trained, validation = result.stdout.splitlines()
    assert head.startswith("x.safetensors  ")
    assert head.endswith(" kB, preset dense for 18x18")
    assert trained.startswith("trained on 72 images of blobs.npy, ")
    assert "8 images: " in validation
    assert "within 1 pixel" in validation
    assert sorted(os.listdir()) == ["x.safetensors"]  # the checkpoint is gone
    again = unshift.fit(pad(resize(to_float(pixels), (14, 14)), 2), "dense", **SETTINGS)
    for name, tensor in again.scorer.state_dict().items():
        assert torch.equal(tensor, restorer.scorer.state_dict()[name])


def test_fit_as_json(made):
    found = good_json("fit", made / "blobs.npy", "--preset", "dense", "--out", "deep/x.safetensors", *QUICK)
    assert found["preset"] == "dense"
    assert found["bytes"] == Path("deep/x.safetensors").stat().st_size
    assert set(found["validation"]) == {"images", "exact", "within_1", "confidence", "tied"}
    assert found["epochs_run"] == 2


def test_fit_passes_its_options_on(made, monkeypatch):
    seen = {}

    def fit(images, preset, **options):
        seen.update(options, shape=tuple(images.shape), preset=preset)
        raise ValueError("enough")

    monkeypatch.setattr(training, "fit", fit)
    before = torch.get_num_threads()
    bad(
        *("fit", made / "blobs.npy", "--out", "x", "--preset", "seam", "--epochs", 7, "--batch-size", 9),
        *("--learning-rate", 0.5, "--validation", 12, "--patience", 3, "--seed", 4, "--checkpoint", "c", "--resume"),
        *("--drop-unusable", "--threads", 1, "--channels", 3, "--kind", "rotation", "--mirror", "--windows"),
    )
    torch.set_num_threads(before)
    assert seen == {
        **{"shape": (80, 3, 12, 12), "preset": "seam", "epochs": 7, "batch_size": 9, "learning_rate": 0.5},
        **{"validation": 12, "patience": 3, "seed": 4, "device": "cpu", "checkpoint": Path("c"), "resume": True},
        **{"drop_unusable": True, "data_name": "blobs.npy", "kind": "rotation", "mirror": True, "windows": True},
    }
    bad("fit", made / "blobs.npy", "--out", "x", "--validation", "0.25")
    assert seen["validation"] == 0.25
    assert seen["checkpoint"] == Path("x.checkpoint")
    assert seen["learning_rate"] is seen["epochs"] is None


def test_fit_on_a_folder_with_a_test_split(made, pixels):
    for split, images in (("train", pixels[:30]), ("test", pixels[30:50])):
        Path("set", split).mkdir(parents=True)
        for i, image in enumerate(images):
            Image.fromarray(image[0].numpy()).resize((16, 12)).save(Path("set", split, f"{i}.png"))
    good("fit", "set", "--size", "10x12", "--crop", "--channels", 1, "--out", "x.safetensors", *QUICK)
    metadata = unshift.load("x.safetensors").metadata
    assert metadata["preparation"] == {"channels": 1, "crop": [10, 12]}
    assert metadata["train_images"] + metadata["validation"]["images"] == 30
    assert metadata["test"]["images"] == 20
    assert good_json("evaluate", "--data", "set", "--restorer", "x.safetensors")["rates"] == metadata["test"]
    good("fit", "set", "--size", 12, "--no-test", "--out", "y.safetensors", *QUICK)
    assert "test" not in unshift.load("y.safetensors").metadata


def test_fit_on_a_named_dataset_measures_its_test_split(monkeypatch):
    real = sources.dataset

    def few(name, split):
        found = real(name, split)
        return replace(found, images=found.images[:60], labels=found.labels[:60])

    monkeypatch.setattr(sources, "dataset", few)
    result = good("fit", "mnist-10k", "--out", "x.safetensors", *QUICK)
    assert "of mnist-10k/train" in result.stdout
    assert unshift.load("x.safetensors").metadata["test"]["images"] == 60
    assert result.stdout.splitlines()[-1].startswith("test       60 images: ")


def test_fit_does_not_overwrite(made):
    out, again = "x.safetensors", ("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    good(*again)
    first = Path(out).read_bytes()
    assert bad(*again) == "x.safetensors exists; --force overwrites it, --resume goes on with it"
    assert Path(out).read_bytes() == first
    good(*again, "--force", "--seed", 1)
    assert Path(out).read_bytes() != first


def test_resuming_a_finished_run_leaves_it_alone(made):
    again = ("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    good(*again)
    first = Path("x.safetensors").read_bytes()
    result = good(*again, "--resume")
    assert "finished already" in result.stderr
    assert Path("x.safetensors").read_bytes() == first
    message = bad(*again, "--resume", "--seed", 1, "--pad", 1)
    assert message == "x.safetensors is finished, but of another run (preparation, seed differ); --force overwrites it"


def interrupted_fit(made, monkeypatch, out: str = "x.safetensors") -> None:
    """Leave a checkpoint behind, as a kill after the first epoch would."""
    real = training.Checkpoint.save

    def stop(self, state):
        real(self, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.Checkpoint, "save", stop)
        result = run("fit", made / "blobs.npy", "--out", out, *QUICK)
    assert result.exit_code == 130
    first, last = result.stderr.strip().splitlines()
    assert first == f"the state is in {out}.checkpoint: the same command with --resume goes on"
    assert last == "unshift: error: interrupted"


def test_an_interrupted_run_is_resumed_and_never_lost_by_mistake(made, monkeypatch):
    interrupted_fit(made, monkeypatch)
    again = ("fit", made / "blobs.npy", "--out", "x.safetensors", *QUICK)
    assert "is left from a run that did not finish; --resume goes on, --force starts anew" in bad(*again)
    assert "a checkpoint of another run (seed differ)" in bad(*again, "--resume", "--seed", 1)
    good(*again, "--resume")
    good(*again[:3], "y.safetensors", *QUICK)
    resumed, whole = unshift.load("x.safetensors"), unshift.load("y.safetensors")
    for name, tensor in whole.scorer.state_dict().items():
        assert torch.equal(tensor, resumed.scorer.state_dict()[name])
    assert whole.metadata["history"] == resumed.metadata["history"]
    interrupted_fit(made, monkeypatch, "z.safetensors")
    good(*again[:3], "z.safetensors", *QUICK, "--force")
    assert not Path("z.safetensors.checkpoint").exists()


def test_a_damaged_checkpoint_is_named(made):
    Path("x.safetensors.checkpoint").write_bytes(b"nonsense")
    message = bad("fit", made / "blobs.npy", "--out", "x.safetensors", "--resume")
    assert message.startswith("x.safetensors.checkpoint: not a readable checkpoint")


def test_fit_looks_at_its_output_before_it_trains(made, monkeypatch):
    monkeypatch.setattr(training, "fit", lambda *args, **options: pytest.fail("it trained"))
    Path("file").write_text("")
    assert bad("fit", made / "blobs.npy", "--out", ".") == "--out . is a folder; give the name of a file in it"
    assert bad("fit", made / "blobs.npy", "--out", "file/x.safetensors").startswith("cannot write to file (")
    assert bad("fit", made / "blobs.npy", "--out", "x", "--checkpoint", "file/c").startswith("cannot write to file (")
    assert bad("fit", made / "blobs.npy", "--out", "/proc/nothing/x").startswith("cannot write to /proc/nothing (")


def save(name: str, images: torch.Tensor) -> str:
    np.save(name, images.numpy())
    return name


def test_fit_refuses_bad_images(pixels):
    def refused(source: str, *options: object) -> str:
        message = bad("fit", source, "--out", "x.safetensors", *QUICK, *options)
        assert not Path("x.safetensors").exists()
        return message

    assert "no data set named 'mnits' (did you mean mnist?)" in refused("mnits")
    assert "fit needs at least two images, got 1" in refused(save("one.npy", pixels[:1]))
    grey = torch.cat([pixels, torch.full((3, 1, 12, 12), 7, dtype=torch.uint8)])
    message = refused(save("constant.npy", grey))
    assert message.startswith("3 of 83 images are constant (the first is number 80)")
    assert message.endswith("give --drop-unusable")
    copies = torch.cat([pixels, apply(pixels[:5], torch.tensor([[1, 2]]).expand(5, 2))])
    assert refused(save("copies.npy", copies)).startswith("5 of 85 images are shifted copies of others (the first is")
    Path("text.npy").write_text("hello")
    assert "text.npy cannot be read as NumPy arrays" in refused("text.npy")
    Path("text.txt").write_text("hello")
    assert "neither an image" in refused("text.txt")
    Path("empty").mkdir()
    assert refused("empty").startswith("empty holds no image files")
    assert "channels must be 1 (grey) or 3 (RGB), got 2" in refused(save("fine.npy", pixels), "--channels", 2)
    assert refused("fine.npy", "--split", "train") == "fine.npy is one file: it has no split 'train'"
    assert refused("fine.npy", "--crop") == "--crop needs the --size to cut to"
    assert refused("mnist-10k", "--split", "dev") == "no split named 'dev'; there are train and test"
    assert "must be positive" in refused("fine.npy", "--patience", 0)
    assert "--batch-size" in refused("fine.npy", "--batch-size", -1)
    assert "--learning-rate" in refused("fine.npy", "--learning-rate", "nan")
    assert "validation must leave images to train on" in refused("fine.npy", "--validation", 80)
    assert refused("fine.npy", "--device", "toaster").startswith("--device toaster cannot be used here (")
    assert refused("fine.npy", "--device", "cuda:77").startswith("--device cuda:77 cannot be used here (")
    np.save("nan.npy", np.full((4, 1, 5, 5), np.nan, dtype=np.float32))
    assert "must be finite" in refused("nan.npy")
    Path("mixed").mkdir()
    for n in (8, 9):
        Image.new("L", (n, n)).save(f"mixed/{n}.png")
    assert refused("mixed").endswith("give one size, such as --size 8x8")


def test_fit_drops_unusable_images_when_told(pixels):
    grey = torch.full((2, 1, 12, 12), 7, dtype=torch.uint8)
    source = save("x.npy", torch.cat([pixels, grey, apply(pixels[:3], torch.ones(3, 2, dtype=torch.int64))]))
    good("fit", source, "--out", "x.safetensors", "--drop-unusable", *QUICK)
    metadata = unshift.load("x.safetensors").metadata
    assert metadata["train_images"] + metadata["validation"]["images"] == 80


# --- evaluate -----------------------------------------------------------------------------------------


class Rows(nn.Module):
    """Classifies by the brightness of three bands of rows: the shift matters."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), (3, 1)).flatten(1)


def test_evaluate_measures_the_rates(made, pixels):
    found = good_json("evaluate", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors")
    wanted = evaluation.restoration_rates(unshift.load(made / "dense.safetensors"), pixels).as_dict()
    assert found["rates"] == wanted
    assert found["scopes"] == []
    text = good("evaluate", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors").stdout
    assert f"{100 * wanted['exact']:.2f}% restored exactly" in text
    fewer = good_json("evaluate", "--data", made / "blobs.npy", "--restorer", made / "dense.safetensors", "--limit", 7)
    assert fewer["rates"]["images"] == 7


def test_evaluate_opens_a_folder_as_the_restorer_wants_it(made, pixels):
    found = good_json("evaluate", "--data", made / "photos", "--restorer", made / "dense.safetensors")
    wanted = evaluation.restoration_rates(unshift.load(made / "dense.safetensors"), pixels[:20]).as_dict()
    assert found["rates"] == wanted  # one channel, though image files are read as RGB by default


def classify(made: Path, spec: object, *options: object) -> tuple[object, ...]:
    data, restorer = made / "labelled.npz", made / "paper.safetensors"
    return ("evaluate", "--data", data, "--restorer", restorer, "--classifier", spec, "--scopes", "0,3", *options)


def wanted_rows(made: Path, pixels: torch.Tensor, seeds: int = 1) -> list[evaluation.ScopeRow]:
    return evaluation.accuracy_over_scopes(
        Rows(),
        to_float(pixels),
        torch.arange(len(pixels)) % 3,
        unshift.load(made / "paper.safetensors"),
        scopes=[0, 3],
        seeds=range(seeds),
    )


def as_json(rows: list[evaluation.ScopeRow]) -> list[dict]:
    return json.loads(json.dumps([{**row.as_dict(), "effect": row.effect} for row in rows]))


@pytest.mark.parametrize("kind", ["script", "export", "fixed batch", "function", "module", "shipped"])
def test_evaluate_with_a_classifier_of_any_kind(kind, made, pixels, monkeypatch):
    spec, sample = "net.pt", torch.rand(5, 1, 12, 12)
    if kind == "script":
        torch.jit.trace(Rows(), sample).save(spec)
    elif kind in ("export", "fixed batch"):
        spec = "net.pt2"
        dynamic = ({0: torch.export.Dim("batch")},) if kind == "export" else None
        torch.export.save(torch.export.export(Rows(), (sample,), dynamic_shapes=dynamic), spec)
    elif kind in ("function", "module"):
        module = f"my_nets_{kind}"
        source = "from test_cli import Rows\ndef make():\n    return Rows()\nnet = Rows()\n"
        Path(f"{module}.py").write_text(source)
        spec = f"{module}:{'make' if kind == 'function' else 'net'}"
    else:
        spec = "rows"
        monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    found = good_json(*classify(made, spec))
    rows = wanted_rows(made, pixels)
    assert found["scopes"] == as_json(rows)
    assert found["scopes"][0]["restored"] == found["scopes"][1]["restored"]  # the flat line
    assert os.getcwd() not in sys.path


def test_evaluate_prints_an_aligned_table(made, pixels, monkeypatch):
    monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    lines = good(*classify(made, "rows", "--seeds", 2)).stdout.splitlines()
    rows = wanted_rows(made, pixels, seeds=2)
    table = lines[-6:]
    assert [line[:20].strip() for line in table] == [
        "scope", "without", "with", "effect", "consistent without", "consistent with",
    ]  # fmt: skip
    assert len({len(line) for line in table}) == 1
    assert table[0].split() == ["scope", "0", "3"]
    assert table[1].split() == ["without", *(f"{50 * sum(row.without):.2f}" for row in rows)]
    assert table[3].split() == ["effect", *(f"{100 * row.effect:+.2f}" for row in rows)]
    assert table[5].split() == ["consistent", "with", "100.00", "100.00"]
    assert "consistent" not in good(*classify(made, "rows")).stdout  # one seed: nothing to compare


def test_evaluate_names_what_is_wrong_with_a_classifier(made, monkeypatch):
    def refused(spec: object) -> str:
        return bad(*classify(made, spec))

    monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    assert refused("nothing.pt") == ("no classifier 'nothing.pt': neither a file, nor module:function, nor one of rows")
    Path("folder").mkdir()
    assert refused("folder") == "classifier folder is a folder; wanted is a file"
    Path("text.pt").write_text("hello")
    assert refused("text.pt").startswith("classifier text.pt is no TorchScript model; write one with torch.jit.script")
    Path("text.pt2").write_text("hello")
    assert refused("text.pt2").startswith("classifier text.pt2 is no torch.export program (")
    save_file({"a": torch.zeros(1)}, "weights.safetensors")
    assert "is no TorchScript model" in refused("weights.safetensors")
    assert refused("no_such_module:f").startswith("classifier no_such_module:f: cannot import no_such_module (")
    Path("nets_bad.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "number = 3\n"
        "def text(): return 'net'\n"
        "def fails(): raise KeyError('weights')\n"
        "def needs(x): return x\n"
        "def flat(): return nn.Flatten(0)\n"
        "def pixels(): return nn.Identity()\n"
        "def colour(): return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 3))\n"
        "def two(): return nn.Sequential(nn.Flatten(), nn.Linear(144, 2))\n"
        "class Pair(nn.Module):\n"
        "    def forward(self, x): return x, x\n"
    )
    Path("nets_broken.py").write_text("import nothing_of_that_name\n")
    assert "cannot import nets_broken (No module named 'nothing_of_that_name')" in refused("nets_broken:f")
    assert refused("nets_bad:absent") == "classifier nets_bad:absent: module 'nets_bad' has no attribute 'absent'"
    assert refused("nets_bad:number") == "classifier nets_bad:number is a int, not a function"
    assert refused("nets_bad:text") == "classifier nets_bad:text() returned a str, wanted is an nn.Module"
    assert refused("nets_bad:fails") == "classifier nets_bad:fails() failed ('weights')"
    assert "missing 1 required positional argument" in refused("nets_bad:needs")
    assert "must return logits (batch, classes), got shape (288,)" in refused("nets_bad:flat")
    assert "must return logits (batch, classes), got shape (2, 1, 12, 12)" in refused("nets_bad:pixels")
    assert "must return logits (batch, classes), got a tuple" in refused("nets_bad:Pair")
    assert refused("nets_bad:two") == "classifier nets_bad:two tells 2 classes apart, the data has 3"
    message = refused("nets_bad:colour")
    assert "cannot take these images, (batch, channel, height, width) = (2, 1, 12, 12): " in message
    assert "3 channels" in message


def test_an_exported_classifier_for_another_size_is_refused(made):
    torch.export.save(torch.export.export(Rows(), (torch.rand(1, 1, 9, 9),)), "net.pt2")
    assert "cannot take these images" in bad(*classify(made, "net.pt2"))


def test_a_scripted_classifier_for_another_size_is_refused_in_one_line(made):
    torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Linear(81, 3)), torch.rand(1, 1, 9, 9)).save("net.pt")
    message = bad(*classify(made, "net.pt"))
    assert "mat1 and mat2 shapes cannot be multiplied" in message
    assert "Traceback" not in message


def test_an_exported_program_of_two_inputs_is_refused(made):
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    torch.export.save(torch.export.export(Sum(), (torch.rand(1, 3), torch.rand(1, 3))), "net.pt2")
    assert "wants 2 inputs" in bad(*classify(made, "net.pt2"))


def test_evaluate_needs_labels_for_a_classifier(made, monkeypatch):
    monkeypatch.setattr(classifiers, "shipped", lambda: {"rows": Rows})
    command = ("evaluate", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors")
    assert "has no labels, and accuracy needs them" in bad(*command, "--classifier", "rows")


@pytest.mark.parametrize("command", ["evaluate", "verify"])
def test_a_restorer_that_does_not_fit(command, made, pixels):
    def refused(data: object, restorer: object) -> str:
        return bad(command, "--data", data, "--restorer", restorer)

    small = save("small.npy", pixels[:, :, 1:, 1:])
    assert "was made for images of size (12, 12), got (11, 11)" in refused(small, made / "dense.safetensors")
    colour = save("colour.npy", pixels.repeat(1, 3, 1, 1))
    assert "wants 1 channel(s), got 3" in refused(colour, made / "paper.safetensors")
    assert "no restorer 'nothing': neither a file nor one of" in refused(small, "nothing")
    assert "is a folder; a restorer is one .safetensors file" in refused(small, made)
    Path("cut.safetensors").write_bytes((made / "paper.safetensors").read_bytes()[:-7])
    assert "not a readable safetensors file, or a truncated one" in refused(small, "cut.safetensors")
    assert "no data set named 'nothing'" in refused("nothing", made / "paper.safetensors")


# --- restore ------------------------------------------------------------------------------------------


def shifted_files(folder: str, image: Image.Image, suffix: str, count: int = 4) -> list[Path]:
    """The same image under ``count`` shifts, as files."""
    Path(folder).mkdir(exist_ok=True)
    paths = []
    for i in range(count):
        moved = image.copy()
        array = np.roll(np.asarray(image), (5 * i, 3 * i), (0, 1))
        moved.frombytes((np.packbits(array, axis=1) if image.mode == "1" else array).tobytes())
        paths.append(Path(folder, f"{i}{suffix}"))
        moved.save(paths[-1], lossless=True)
    return paths


def picture(mode: str, pixels: torch.Tensor) -> Image.Image:
    grey = Image.fromarray(pixels[3, 0].numpy())
    if mode == "P":
        return grey.convert("RGB").quantize(7)
    if mode == "I;16":
        return Image.fromarray(pixels[3, 0].numpy().astype(np.uint16) * 200)
    if mode in ("L", "1"):
        return grey.convert(mode)
    bands = [Image.fromarray(np.roll(pixels[3, 0].numpy(), k, 0)) for k in range(len(mode))]
    return Image.merge(mode, bands)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        ("L", ".png"), ("RGB", ".png"), ("RGBA", ".png"), ("LA", ".png"), ("P", ".png"), ("1", ".png"),
        ("I;16", ".png"), ("RGB", ".bmp"), ("P", ".gif"), ("L", ".tif"), ("RGB", ".webp"), ("CMYK", ".tif"),
    ],
)  # fmt: skip
def test_restore_moves_pixels_and_changes_none(mode, suffix, made, pixels):
    original = picture(mode, pixels)
    paths = shifted_files("in", original, suffix)
    good("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    images = []
    with Path("out/shifts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for path, row in zip(paths, rows, strict=True):
        with Image.open(path) as before, Image.open(Path("out", path.name)) as after:
            assert (after.format, after.mode, after.size) == (before.format, before.mode, before.size)
            images.append(np.asarray(after.convert("RGB") if after.mode == "P" else after))
            back = np.roll(np.asarray(before), (-int(row["down"]), -int(row["right"])), (0, 1))
            assert np.array_equal(np.asarray(after), back)
        assert row["file"] == path.name
        assert 0 < float(row["confidence"]) <= 1
        assert row["tied"] in ("true", "false")
    assert all(np.array_equal(image, images[0]) for image in images)  # the promise
    assert len({(row["down"], row["right"]) for row in rows}) == 4
    assert len({row["confidence"] for row in rows}) == 1
    assert list(rows[0]) == ["file", "down", "right", "confidence", "tied"]


def test_restore_agrees_with_the_library(made, pixels):
    rows = good_json("restore", made / "photos", "--restorer", made / "dense.safetensors", "--out", "out")
    restorer = unshift.load(made / "dense.safetensors")
    estimate = restorer.estimate(pixels[:20])
    assert [[row["down"], row["right"]] for row in rows] == estimate.shift.tolist()
    assert [row["confidence"] for row in rows] == estimate.confidence.tolist()
    for row, restored in zip(rows, restorer(pixels[:20]), strict=True):
        with Image.open(Path("out", row["file"])) as image:
            assert np.array_equal(np.asarray(image), restored[0].numpy())


def test_colours_of_the_same_grey_do_not_confuse_the_tie_rule(made):
    # A net that looks at greys sees a constant image: every position ties, and only the colours differ.
    array = np.full((12, 12, 3), 100, dtype=np.uint8)
    array[4, 7] = (64, 105, 165)
    assert np.asarray(Image.fromarray(array).convert("L")).std() == 0
    shifted_files("in", Image.fromarray(array), ".png")
    rows = good_json("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    assert all(row["tied"] for row in rows)
    images = [np.asarray(Image.open(f"out/{i}.png")) for i in range(4)]
    assert all(np.array_equal(image, images[0]) for image in images)


def test_restore_keeps_jpeg_and_subfolders_and_passes_other_files_over(made, pixels):
    Path("in/deep").mkdir(parents=True)
    Image.fromarray(pixels[0, 0].numpy()).save("in/deep/a,b.jpg", quality=100)
    Image.fromarray(pixels[1, 0].numpy()).save("in/c.PNG")
    Path("in/notes.txt").write_text("hello")
    Image.fromarray(pixels[1, 0].numpy()).save("in/.hidden.png")
    result = good("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    assert result.stdout.startswith("2 images restored, ")
    assert result.stderr == ""
    found = sorted(path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file())
    assert found == ["c.PNG", "deep/a,b.jpg", "shifts.csv"]
    with Image.open("out/deep/a,b.jpg") as image:
        assert (image.format, image.mode) == ("JPEG", "L")
    with Path("out/shifts.csv").open(newline="") as file:
        assert [row["file"] for row in csv.DictReader(file)] == ["c.PNG", "deep/a,b.jpg"]


def test_restore_turns_a_photo_upright(made, pixels):
    image, exif = Image.fromarray(pixels[0, 0].numpy()), Image.Exif()
    exif[0x0112] = 6
    image.save("turned.png", exif=exif)
    image.rotate(-90).save("upright.png")
    good("restore", "turned.png", "upright.png", "--restorer", made / "paper.safetensors", "--out", "out")
    with Image.open("out/turned.png") as turned, Image.open("out/upright.png") as upright:
        assert turned.getexif().get(0x0112, 1) == 1
        assert np.array_equal(np.asarray(turned), np.asarray(upright))


def test_restore_takes_any_size_if_the_network_does(made):
    Path("in").mkdir()
    Image.fromarray((255 * blobs(1, 1, (20, 31))[0, 0]).byte().numpy()).save("in/wide.png")
    good("restore", "in", "--restorer", made / "paper.safetensors", "--out", "out")
    assert Image.open("out/wide.png").size == (31, 20)
    message = bad("restore", "in", "--restorer", made / "dense.safetensors", "--out", "out2")
    assert message == "in/wide.png is 20x31, this restorer takes 12x12; --resize scales images to it"
    assert not Path("out2").exists()
    good("restore", "in", "--restorer", made / "dense.safetensors", "--out", "out2", "--resize")
    assert Image.open("out2/wide.png").size == (12, 12)
    tiny = save("tiny.npy", blobs(30, 1, (5, 5)))
    good("fit", tiny, "--out", "tiny.safetensors", *QUICK)
    good("restore", "in", "--restorer", "tiny.safetensors", "--out", "out3", "--resize")
    assert Image.open("out3/wide.png").size == (5, 5)


def test_restore_on_a_margin(made, pixels):
    good("fit", made / "blobs.npy", "--pad", 3, "--preset", "dense", "--out", "x.safetensors", *QUICK)
    message = bad("restore", made / "photos", "--restorer", "x.safetensors", "--out", "out", "--pad", 2)
    assert "is 12x12, this restorer takes 14x14" in message
    good("restore", made / "photos", "--restorer", "x.safetensors", "--out", "out", "--pad", 3)
    wanted = unshift.load("x.safetensors", pad=3)(pixels[:20])
    for i in range(20):
        assert np.array_equal(np.asarray(Image.open(f"out/{i:02}.png")), wanted[i, 0].numpy())
    good("fit", made / "blobs.npy", "--pad", 3, "--out", "any.safetensors", *QUICK)
    result = good("restore", made / "photos", "--restorer", "any.safetensors", "--out", "out2")
    assert result.stderr.endswith("with a black margin of 3 pixels; if yours have none, give --pad 3\n")


def test_restore_overwrites_nothing(made, pixels):
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Image.fromarray(pixels[0, 0].numpy()).save(f"{folder}/x.png")
    model = ("--restorer", made / "paper.safetensors")

    def refused(*args: object) -> str:
        before = sorted(Path().rglob("*"))
        message = bad("restore", *args, *model)
        assert sorted(Path().rglob("*")) == before
        return message

    assert refused("a", "--out", "a") == "--out a is where the inputs are (a); give another folder"
    assert refused("a", "--out", "a/deep", "--force") == "--out a/deep is where the inputs are (a); give another folder"
    assert refused("a/x.png", "--out", "b/../a").startswith("--out b/../a is where the inputs are (a/x.png)")
    assert refused("a", "b", "--out", "c") == "a/x.png and b/x.png would both become c/x.png; restore them separately"
    assert refused("a/x.png", "b/x.png", "--out", "c").endswith("would both become c/x.png; restore them separately")
    good("restore", "a", "a/x.png", *model, "--out", "c")  # the same file twice is one file
    assert refused("a", "--out", "c") == "c/x.png exists (2 such files); --force overwrites"
    good("restore", "a", *model, "--out", "c", "--force")
    Path("d/d").mkdir(parents=True)
    Image.fromarray(pixels[0, 0].numpy()).save("d/d/x.png")
    Image.fromarray(pixels[0, 0].numpy()).save("d/x.png")
    assert refused("d", "--out", ".", "--force") == "d/x.png is itself one of the inputs; give another --out"


def test_restore_writes_nothing_if_a_file_is_bad(made, pixels):
    def refused(*args: object) -> str:
        message = bad("restore", *args, "--restorer", made / "paper.safetensors", "--out", "out")
        assert not Path("out").exists()
        return message

    Path("in").mkdir()
    Image.fromarray(pixels[0, 0].numpy()).save("in/a.png")
    data = Path("in/a.png").read_bytes()
    Path("in/b.png").write_bytes(data[: len(data) // 2])
    assert refused("in").startswith("in/b.png cannot be read as an image (")
    Path("in/b.png").write_text("hello")
    assert refused("in").startswith("in/b.png cannot be read as an image (")
    Path("text.txt").write_text("hello")
    assert refused("text.txt").startswith("text.txt cannot be read as an image (")
    assert refused("nothing.png") == "no file or folder nothing.png"
    Path("empty").mkdir()
    assert refused("empty") == "empty holds no image files, such as .png or .jpg"
    frames = [Image.fromarray(image[0].numpy()) for image in pixels[:3]]
    frames[0].save("film.gif", save_all=True, append_images=frames[1:])
    assert refused("film.gif") == "film.gif has 3 frames; only single images are restored"
    Image.new("L", (5, 5)).save("small.png")
    assert refused("small.png").startswith("kernel (9, 9) is larger than the image (5, 5)")
    Path("out").write_text("")
    assert "out" in bad("restore", "in/a.png", "--restorer", made / "paper.safetensors", "--out", "out")
    volume = Restorer(unshift.quantise(unshift.ShiftEstimator.preset("paper", 1, (6, 6, 6)), blobs(3, 1, (6, 6, 6))))
    volume.save("volume.safetensors")
    message = bad("restore", "in/a.png", "--restorer", "volume.safetensors", "--out", "out2")
    assert message == "restore is for circular shifts of images; this restorer undoes something else"


# --- verify -------------------------------------------------------------------------------------------


def test_verify_checks_all_images_and_a_sample_by_brute_force(made):
    command = ("verify", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors")
    found = good_json(*command, "--sample", 5)
    assert found["exact"]
    every = found["every_image"]
    assert (every["images"], every["shifts"], every["mismatches"]) == (80, 80 * 144, 0)
    assert not every["brute_force"]
    assert (found["sample"]["images"], found["sample"]["mismatches"], found["sample"]["brute_force"]) == (5, 0, True)
    text = good(*command, "--limit", 6, "--sample", 3).stdout
    assert text.startswith("blobs.npy, restorer ")
    assert "6 images x 144 shifts = 864 checked (scores once, every shift chosen): 0 mismatches" in text
    assert "3 images x 144 shifts = 432 checked (every shifted image through the whole network): 0 mis" in text
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

    in_channels, axes, size = 1, 2, None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores = (255 * images[:, 0]).long()
        scores[:, 0, 0] = 1000
        return scores


def test_verify_fails_with_exit_code_1(made, monkeypatch):
    monkeypatch.setattr(weights, "load", lambda name: Restorer(Liar()))
    command = ("verify", "--data", made / "blobs.npy", "--restorer", "liar", "--limit", 4)
    result = run(*command)
    assert result.exit_code == 1
    assert result.stdout.startswith("blobs.npy, restorer liar: NOT EXACT\n")
    assert result.stderr == ""
    found = run(*command, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["sample"]["mismatches"] > 0


# --- models and data ----------------------------------------------------------------------------------


def test_models_lists_the_shipped_restorers(made, monkeypatch):
    files = {name: made / f"{name}.safetensors" for name in ("dense", "paper")}
    monkeypatch.setattr(weights, "pretrained", lambda: files)
    head, dense, paper, *_ = good("models").stdout.splitlines()
    assert head.split() == ["name", "preset", "size", "file", "validation", "test", "trained", "on"]
    assert dense.split()[:3] == ["dense", "dense", "12x12"]
    assert paper.split()[-2:] == ["-", "blobs.npy"]
    found = good_json("models")
    assert [row["name"] for row in found] == ["dense", "paper"]
    assert found[0]["bytes"] == files["dense"].stat().st_size
    assert good("models", "paper").stdout.startswith("# paper\n")
    assert good_json("models", "paper")["preset"] == "paper"
    assert bad("models", "mnits") == "no restorer 'mnits': neither a file nor one of dense, paper"


def test_models_prints_the_card_of_a_file(made):
    text = good("models", made / "paper.safetensors").stdout
    assert "| training data | blobs.npy, 72 images, no labels |" in text


def test_the_shipped_restorers_are_listed():
    names = list(weights.pretrained())
    assert {"mnist", "mnist-paper", "fashion-mnist", "cifar10", "cifar10-seam"} <= set(names)
    assert [row["name"] for row in good_json("models")] == names
    for name in names:
        assert good("models", name).stdout.startswith(f"# {name}\n")


def test_data_list():
    rows = {row["name"]: row for row in good_json("data", "list")}
    assert list(rows) == ["mnist", "mnist-10k", "fashion-mnist", "cifar10", "mnist3d"]
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
    assert message.startswith("no data set named 'cifar' (did you mean cifar10?); there are mnist, ")


def test_a_failed_download_is_one_line(monkeypatch):
    def fail(name):
        raise unshift.data.DataError("cannot download mnist to here: no mirror gave the file.\nTry again")

    monkeypatch.setattr("unshift.data.get", fail)
    assert bad("data", "get", "mnist") == "cannot download mnist to here: no mirror gave the file. Try again"


# --- the real thing, as a process ---------------------------------------------------------------------


def test_as_a_process(made):
    process = child("evaluate", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--json")
    failing = child("models", "nothing")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["rates"]["images"] == 80
    assert err == b""  # no bars, no warnings
    out, err = failing.communicate(timeout=60)
    assert (failing.returncode, out) == (2, b"")
    assert err.startswith(b"unshift: error: no restorer 'nothing'")
    assert err.count(b"\n") == 1


def test_ctrl_c_as_a_process(made):
    process = child("fit", made / "blobs.npy", "--epochs", 100_000, "--patience", 100_000, "--out", "x.safetensors")
    deadline = time.monotonic() + 60
    while not Path("x.safetensors.checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1] == "unshift: error: interrupted"
    assert b"--resume" in err
    assert b"Traceback" not in err


def test_a_reader_that_has_seen_enough_is_no_error():
    process = child("data", "list", "--json")
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=60) == 1
    assert err == b""


def test_an_image_set_is_what_open_returns(made):
    assert isinstance(open_prepared(str(made / "blobs.npy"), None, {}), ImageSet)
