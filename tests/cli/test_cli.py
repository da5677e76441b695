"""The command line as a whole: help, usage, errors, processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import ROOT, bad, child, good, run
from typer.main import get_command

import unshift
from unshift.cli import app, fit, options
from unshift.coordinates import GROUPS
from unshift.network import PRESETS
from unshift.pose_network import POSE_PRESETS

COMMANDS = ("evaluate", "fit", "restore", "verify", "calibrate", "models", "export", "demo", "data list", "data get")


# --- help, usage, errors ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example(command):
    text = good(*command.split(), "--help").stdout
    assert text.startswith(f"Usage: unshift {command} ")
    assert command == "data list" or f"  unshift {command}" in text
    assert command == "demo" or "--json" in text


def test_help_shows_every_command_and_so_does_no_argument():
    text = good("--help").stdout
    assert all(f"  {command.split()[0]} " in text for command in COMMANDS)
    assert "..." not in text.partition("Commands:")[2]  # no summary is cut short
    assert good().stdout == good("-h").stdout == text
    assert good("--version").stdout == f"unshift {unshift.__version__}\n"
    assert good("data").stdout == good("data", "--help").stdout


def test_options_are_listed_in_groups():
    text = good("fit", "--help").stdout
    sections = re.split(r"^(\w+):$", text, flags=re.M)
    groups = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert [*groups] == ["Arguments", "Options", "Images", "Moves", "Training", "Output"]
    assert "--size" in groups["Images"]
    assert "--turns" in groups["Moves"]
    assert "--epochs" in groups["Training"]
    assert not re.search(r"\[/?(bold|dim)", text)


def test_an_option_has_one_meaning_in_all_commands():
    """Options of one name take the same values, apart from --scope: one number in fit, several in evaluate."""
    kinds: dict[str, set[object]] = {}
    for command in get_command(app).commands.values():
        for param in command.params:
            for name in [*param.opts, *param.secondary_opts]:
                if name.startswith("-"):
                    kinds.setdefault(name, set()).add((param.is_flag, param.metavar))
    assert {name for name, forms in kinds.items() if len(forms) > 1} <= {"--scope", "--out", "-o"}
    long = {name for name in kinds if name.startswith("--")}
    assert not [name for name in long if f"{name}s" in long]


def test_shell_completion():
    environment = {"_UNSHIFT_COMPLETE": "complete_bash", "COMP_WORDS": "unshift fit --bor", "COMP_CWORD": "2"}
    process = child(environment=environment)
    assert process.communicate(timeout=60)[0].split() == [b"--border"]


@pytest.mark.parametrize("arguments", ["", "app(['fit', '--help'])"], ids=["import", "help"])
def test_help_imports_nothing_heavy(arguments):
    code = f"import atexit, sys; from unshift.cli import app; atexit.register(lambda: print(*sys.modules)); {arguments}"
    names = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).splitlines()[-1].split()
    assert not {"torch", "numpy", "PIL", "safetensors", "tqdm", "matplotlib", "rich"} & set(names)


def test_the_presets_and_groups_are_those_of_the_library():
    assert list(fit.TURNS) == list(GROUPS)
    assert [preset.value for preset in options.Preset] == [*PRESETS, *POSE_PRESETS]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["dance"], "'dance'"),
        (["fit"], "DATA"),
        (["fit", "x.npy", "--out", "y", "--size", "3x3x3"], "--size"),
        (["fit", "mnist-10k", "--out", "y", "--border", "zeros", "--scope", "28"], "28x28"),
        (["fit", "x.npy", "--out", "y", "--validation", "some"], "--validation"),
        (["fit", "x.npy", "--out", "y", "--device", "toaster"], "toaster"),
        (["evaluate", "x", "-r", "y", "--scope", "8-0"], "'8-0'"),
        (["evaluate", "x"], "--restorer"),
        (["restore", "--restorer", "x", "--out", "y"], "missing argument"),
    ],
)
def test_a_wrong_command_line(args, words):
    assert words.lower() in bad(*args).lower()


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("evaluate", ["--data", "x", "--scopes", "0,3", "--seeds", "2"], ["x", "--scope", "0,3", "--repeats", "2"]),
        ("evaluate", ["--data=x.npy", "--moves=zeros"], ["x.npy", "--border", "zeros"]),
        ("verify", ["--data", "x.npy", "--moves", "9", "--no-brute-force"], ["x.npy", "--max-moves", "9"]),
        ("export", ["--size", "32"], ["--image-size", "32"]),
        ("fit", ["x", "--strand", "--mirror"], ["x", "--turns", "strand", "--augment", "mirror"]),
        ("fit", ["x", "--windows"], ["x", "--augment", "windows"]),
        ("fit", ["x", "--", "--mirror"], ["x", "--", "--mirror"]),
    ],
)  # fmt: skip
def test_old_names_of_options_work_with_a_warning(command, old, new, capsys):
    assert options.renamed(command, old) == new
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == (0 if old == new else sum(arg.startswith("--") for arg in old))


def test_debug_shows_the_traceback():
    result = run("--debug", "fit", "nothing.npy", "--out", "x.safetensors")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "'nothing.npy'" in result.stderr.splitlines()[-1]


def test_a_bug_keeps_its_traceback(monkeypatch):
    def broken() -> Path:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("unshift.data.root", broken)
    assert isinstance(run("data", "list").exception, ZeroDivisionError)


# --- as a process ----------------------------------------------------------------------------------


def test_as_a_process(made):
    process = child("evaluate", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--json", "--quiet")
    failing = child("models", "nothing")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["rates"]["images"] == 80
    assert len(err.splitlines()) == 1  # the images are training images; no progress
    assert err.startswith(b"unshift: warning: 64 of the 64 training images ")
    out, err = failing.communicate(timeout=60)
    assert (failing.returncode, out) == (2, b"")
    assert err.startswith(b"unshift: error: no restorer 'nothing'")
    assert err.count(b"\n") == 1


INTERRUPT_IMPORT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize("moment", ["training", "quantising", "typer", "torch"])
def test_ctrl_c_ends_with_exit_code_130(moment, made):
    """Also during imports, where it ended in a traceback, or was ignored by an import that may fail."""
    epochs = 100_000 if moment == "training" else 1
    command = ["fit", made / "blobs.npy", "--epochs", epochs, "--patience", 100_000, "--out", "x.safetensors"]
    before = "" if moment == "training" else INTERRUPT_IMPORT.format(module=moment)
    if moment == "quantising":
        before = (
            "import time, unshift.training.fitting as fitting\n"
            "fitting.quantise = lambda *_, **__: print('now', flush=True) or time.sleep(60)"
        )
    process = child(*command, before=before)
    if moment == "training":
        deadline = time.monotonic() + 60
        while not Path("x.safetensors.checkpoint").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    elif moment == "quantising":
        assert process.stdout.readline() == b"now\n"
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.decode().splitlines()[-1] == "unshift: error: interrupted"
    assert len(err.splitlines()) == 1 or moment in ("training", "quantising")
    assert b"Traceback" not in err
    assert moment != "training" or b"--resume" in err


def test_a_closed_pipe_is_no_error():
    process = child("data", "list", "--json")
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 1
