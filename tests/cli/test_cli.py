"""The command line as a whole: help, usage, errors, processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import ROOT, bad, child, good, run

import unshift
from unshift.cli import options
from unshift.coordinates import GROUPS
from unshift.estimator import PRESETS

COMMANDS = ("reproduce", "demo", "fit", "evaluate", "restore", "verify", "export", "models", "data list", "data get")


# --- help, usage, errors ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_explains_it(command):
    text = good(*command.split(), "--help").stdout
    assert text.startswith(f"Usage: unshift {command} ")
    assert command == "data list" or f"  unshift {command}" in text  # an example
    assert command == "demo" or "--json" in text


def test_help_shows_every_command_and_so_does_no_argument():
    text = good("--help").stdout
    assert all(f"  {command.split()[0]} " in text for command in COMMANDS)
    assert "..." not in text.partition("Commands:")[2]  # no summary is cut short
    assert good().stdout == good("-h").stdout == text
    assert good("data").stdout == good("data", "--help").stdout


def test_version():
    assert good("--version").stdout == f"unshift {unshift.__version__}\n"


def test_nothing_heavy_is_imported_before_a_command_runs():
    code = "import sys, unshift.cli; print(*sys.modules)"
    names = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).split()
    assert not {"torch", "numpy", "PIL", "safetensors", "tqdm"} & set(names)
    assert {name.split(".")[1] for name in names if name.startswith("unshift.")} == {"cli"}


def test_the_presets_and_groups_are_those_of_the_library():
    assert [group.value for group in options.TurnGroup] == list(GROUPS)
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
        (
            ["fit", "x.npy", "--out", "y", "--size", "big"],
            "--size takes one number (32) or height x width (32x48), got 'big'",
        ),
        (
            ["fit", "x.npy", "--out", "y", "--size", "0x4"],
            "--size takes one number (32) or height x width (32x48), got '0x4'",
        ),
        (["fit", "x.npy", "--out", "y", "--size", "3x3x3"], "--size takes one number"),
        (["fit", "x.npy", "--out", "y", "--turns", "wheel"], "'wheel' is not one of"),
        (["fit", "x.npy", "--out", "y", "--kind", "rotation"], "--kind"),
        (["fit", "x.npy", "--out", "y", "--pad", "-1"], "--pad"),
        (["fit", "x.npy", "--out", "y", "--seed", "-1"], "--seed"),
        (["fit", "x.npy", "--out", "y", "--epochs", "many"], "--epochs"),
        (["fit", "x.npy", "--out", "y", "--validation", "some"], "--validation takes a number of images (500)"),
        (
            ["evaluate", "--data", "x", "--restorer", "y", "--scopes", "8-0"],
            "--scopes takes whole numbers (0-8, or 0,2,4) and any, got '8-0'",
        ),
        (["evaluate", "--data", "x", "--restorer", "y", "--scopes", ""], "and any, got ''"),
        (["evaluate", "--data", "x", "--restorer", "y", "--scopes", "-3"], "--scopes takes"),
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
    assert options.read_scopes("0,any") == [0, None]


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
    told = [line for line in result.stderr.splitlines() if not line.startswith("fit")]
    assert len(told) == 1
    assert told[0].startswith("unshift: warning: after one epoch the loss ")


# --- the real thing, as a process ------------------------------------------------------------------


def test_as_a_process(made):
    process = child("evaluate", "--data", made / "blobs.npy", "--restorer", made / "paper.safetensors", "--json")
    failing = child("models", "nothing")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["rates"]["images"] == 80
    told = [line for line in err.splitlines() if b": at work, " not in line]  # on a busy machine
    assert len(told) == 1  # no bars, no other warnings: what takes a moment is not told of
    assert told[0].startswith(b"unshift: warning: 64 of the 64 training images ")
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
