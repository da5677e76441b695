"""``unshift restore``: files in, files out. Nothing is overwritten, left behind or lost."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from commands import bad, child, good, good_json, run
from PIL import Image
from samples import blobs

import unshift
from unshift import Restorer
from unshift.cli import restoring
from unshift.files import write_atomically


def names(folder: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


def write_pngs(folder: str, pixels, count: int) -> None:
    Path(folder).mkdir()
    for number in range(count):
        Image.fromarray(pixels[number % len(pixels), 0].numpy()).save(f"{folder}/{number:03}.png")


def test_restore_keeps_subfolders_and_ignores_other_files(made, pixels):
    Path("in/deep").mkdir(parents=True)
    Image.fromarray(pixels[0, 0].numpy()).save("in/deep/a,b.jpg", quality=100)
    Image.fromarray(pixels[1, 0].numpy()).save("in/c.PNG")
    Path("in/notes.txt").write_text("hello")
    Image.fromarray(pixels[1, 0].numpy()).save("in/.hidden.png")
    assert good("restore", "in", "-r", made / "paper.safetensors", "-o", "out").stderr == ""
    assert names("out") == ["c.PNG", "deep/a,b.jpg", "poses.csv"]
    with Path("out/poses.csv").open(newline="") as file:
        assert [row["file"] for row in csv.DictReader(file)] == ["c.PNG", "deep/a,b.jpg"]


def test_restore_overwrites_nothing(made, pixels):
    for folder in ("a", "b"):
        write_pngs(folder, pixels, 1)
    model = ("-r", made / "paper.safetensors")

    def refused(*args: object) -> str:
        before = sorted(Path().rglob("*"))
        message = bad("restore", *args, *model)
        assert sorted(Path().rglob("*")) == before
        return message

    assert "--out a " in refused("a", "--out", "a")
    assert "--out a/deep " in refused("a", "--out", "a/deep", "--force")
    assert "a/000.png" in refused("a/000.png", "--out", "b/../a")
    assert "c/000.png" in refused("a", "b", "--out", "c")
    assert "c/000.png" in refused("a/000.png", "b/000.png", "--out", "c")
    good("restore", "a", "a/000.png", *model, "--out", "c")  # the same file twice is one file
    assert "--force" in refused("a", "--out", "c")
    good("restore", "a", *model, "--out", "c", "--force")
    Path("d/d").mkdir(parents=True)
    for place in ("d/d/x.png", "d/x.png"):
        Image.fromarray(pixels[0, 0].numpy()).save(place)
    assert "d/x.png" in refused("d", "--out", ".", "--force")


def test_restore_writes_nothing_if_a_file_is_bad(made, pixels):
    def refused(*args: object) -> str:
        message = bad("restore", *args, "-r", made / "paper.safetensors", "-o", "deep/out")
        assert not Path("deep").exists()
        return message

    write_pngs("in", pixels, 12)
    data = Path("in/000.png").read_bytes()
    for content in (data[: len(data) // 2], b"hello"):
        Path("in/b.png").write_bytes(content)
        message = refused("in")
        assert "in/b.png" in message
        assert "--skip-unreadable" in message
    Image.fromarray(pixels[0, 0, :4].numpy()).save("in/b.png")  # smaller than the filters
    message = refused("in")
    assert "in/b.png" in message
    assert "--resize" not in message  # this network takes any size
    assert "text.txt" in (Path("text.txt").write_text("hello"), refused("text.txt"))[1]
    assert "nothing.png" in refused("nothing.png")
    Path("empty").mkdir()
    assert "empty" in refused("empty")
    Path("out").write_text("")
    assert "out" in bad("restore", "in/000.png", "-r", made / "paper.safetensors", "-o", "out")
    volume = Restorer(unshift.quantise(unshift.ShiftEstimator.preset("dense", 1, (6, 6, 6)), blobs(3, 1, (6, 6, 6))))
    volume.save("volume.safetensors")
    assert "3 axes" in bad("restore", "in/000.png", "-r", "volume.safetensors", "-o", "out2")


def test_restore_copies_images_of_low_confidence(made):
    command = ("restore", made / "photos", "-r", made / "paper.safetensors")
    confidence = {row["file"]: row["confidence"] for row in good_json(*command, "-o", "all")}
    least = sorted(confidence.values())[10]
    assert "10 images" in good(*command, "-o", "best", "--min-confidence", least).stdout
    with Path("best/poses.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["file"]: row["restored"] for row in rows} == {f: str(c >= least).lower() for f, c in confidence.items()}
    for row in rows:
        wanted = Path("all") if row["restored"] == "true" else made / "photos"
        assert Path("best", row["file"]).read_bytes() == (wanted / row["file"]).read_bytes()
        assert (row["written"] == "rejected") == (row["restored"] == "false")


def test_restore_skips_and_names_files_that_cannot_be_restored(made, pixels):
    write_pngs("in", pixels, 2)
    Image.new("L", (1, 1)).save("in/000.png")  # too small; the first, and one among others
    Image.new("L", (1, 1)).save("in/b.png")
    Path("in/c.png").write_bytes(Path("in/001.png").read_bytes()[:60])
    Path("in/d.png").write_text("hello")
    command = ("restore", "in", "-r", made / "paper.safetensors", "-o", "out", "--skip-unreadable")
    result = good(*command, "--json")
    assert [row["file"] for row in json.loads(result.stdout)] == ["001.png"]
    assert re.findall(r"in/\w+\.png", result.stderr.replace("'in/d.png'", "")) == [
        *("in/000.png", "in/b.png", "in/c.png", "in/d.png")
    ]
    assert names("out") == ["001.png", "poses.csv"]
    Path("in/001.png").unlink()
    assert "in/000.png" in bad(*command, "--force")


@pytest.mark.skipif(sys.platform != "linux", reason="threads are used elsewhere")
def test_processes_and_threads_give_the_same_output(made, pixels, monkeypatch):
    write_pngs("many", pixels, 70)
    for number in range(0, 70, 3):
        with Image.open(f"many/{number:03}.png") as image:
            (image.convert("RGB") if number > 60 else image.resize((13, 12))).save(f"many/{number:03}.png")
    output = {}
    command = ("restore", "many", "-r", made / "paper.safetensors")
    for out, many, *options in (("processes", 64, "-q"), ("threads", 1000), ("one", 64, "--workers", 1)):
        monkeypatch.setattr(restoring, "MANY", many)
        result = good(*command, "-o", out, *options)
        output[out] = (result.stdout + result.stderr).replace(f"{out}/", "")
    assert len({*output.values()}) == 1
    assert output["threads"].count("many/063.png") == 1  # the first in colour
    files = {out: {name: Path(out, name).read_bytes() for name in names(out)} for out in output}
    assert files["processes"] == files["threads"] == files["one"]
    assert len(files["one"]) == 71
    Path("many/010.png").write_bytes(Path("many/010.png").read_bytes()[:60])
    monkeypatch.setattr(restoring, "MANY", 64)
    assert "010.png" in bad(*command, "-o", "none")
    assert not Path("none").exists()


def members(session: int) -> list[str]:
    """Return the living processes of a session."""
    return [
        stat
        for path in Path("/proc").glob("[0-9]*/stat")
        if (stat := _read(path)) and int((fields := stat.rpartition(")")[2].split())[3]) == session and fields[0] != "Z"
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


KILLED = {
    "restore": ("in", "-o", "out", "--force"),
    "fit": ("in", "-o", "out/x.safetensors", "--epochs", 3, "--force"),
    "export": ("-o", "out/x.onnx", "--force"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("command", "kills"), [("restore", 2), *(pytest.param(name, 20, marks=pytest.mark.slow) for name in KILLED)]
)
def test_kills_leave_no_process_and_the_next_run_leaves_nothing_stale(command, kills, made, pixels, monkeypatch):
    write_pngs("in", pixels, 200)
    Path("scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(Path("scratch").absolute()))
    model = () if command == "fit" else ("-r", made / "paper.safetensors")
    arguments = (command, *KILLED[command], *model)
    chance = random.Random(0)
    for _ in range(kills):
        process = child(*arguments, before="import os; os.setsid()")
        deadline = time.monotonic() + 60
        started = "out/.restoring-*" if command == "restore" else "out"
        while not list(Path().glob(started)) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 1 if command == "restore" else 15))
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 5
        while members(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert members(process.pid) == []
    if command == "restore":
        Path("out/.restoring-abcdefgh").mkdir(parents=True, exist_ok=True)  # of version 0.2
    good(*arguments)
    wanted = {"restore": {*names("in"), "poses.csv"}, "fit": {"x.safetensors"}, "export": {"x.onnx"}}[command]
    assert {path.name for path in Path("out").iterdir()} == wanted


def test_two_runs_into_one_folder_do_not_overwrite_each_other(made, pixels, monkeypatch):
    """The other run finishes after this one has found the folder empty."""
    write_pngs("in", pixels, 2)
    write_pngs("other", pixels[2:], 2)
    command = ("-r", made / "paper.safetensors", "-o", "out")
    run_files, others = restoring.Restoring.run, ["other"]

    def overtaken(*args: object) -> object:
        if others:
            good("restore", others.pop(), *command)
        return run_files(*args)

    monkeypatch.setattr(restoring.Restoring, "run", overtaken)
    assert "out/poses.csv" in bad("restore", "in", *command)
    content = {name: Path("out", name).read_bytes() for name in names("out")}
    assert len(content) == 3
    good("restore", "other", *command, "--force")
    assert content == {name: Path("out", name).read_bytes() for name in names("out")}


def test_pipes_and_broken_links_are_named(made, pixels):
    """Reading a pipe waits forever."""
    write_pngs("in", pixels, 1)
    os.mkfifo("in/pipe.png")
    Path("in/link.png").symlink_to("nowhere.png")
    command = ("-r", made / "paper.safetensors", "-o", "out")
    assert "in/link.png" in bad("restore", "in", *command)
    result = good("restore", "in", *command, "--skip-unreadable")
    assert "in/link.png" in result.stderr
    assert "in/pipe.png" in result.stderr
    assert names("out") == ["000.png", "poses.csv"]
    os.mkfifo("pipe.npy")
    for arguments in (("restore", "in/pipe.png", *command), ("fit", "pipe.npy", "-o", "x.safetensors")):
        assert "pipe" in bad(*arguments)
    assert "in/link.png" in bad("fit", "in", "-o", "x.safetensors")


def test_the_staging_folder_of_a_live_run_is_left_alone(made, pixels):
    write_pngs("in", pixels, 1)
    with subprocess.Popen(["sleep", "60"]) as other:
        live = Path(f"out/.restoring-{other.pid}@{os.uname().nodename}-x")
        elsewhere = Path("out/.restoring-1@another-machine-x")
        for folder in (live, elsewhere):
            folder.mkdir(parents=True)
        good("restore", "in", "-r", made / "paper.safetensors", "-o", "out")
        assert live.exists()
        assert elsewhere.exists()
        other.send_signal(signal.SIGKILL)
    good("restore", "in", "-r", made / "paper.safetensors", "-o", "out", "--force")
    assert not live.exists()


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"])
def test_a_full_disk_is_reported_as_such(made, suffix):
    """A JPEG may fill the disk to the last byte: Pillow's own file would end there, without an error."""
    noise = torch.randint(0, 256, (60, 60, 3), dtype=torch.uint8)
    Image.fromarray(noise.numpy()).save(f"large{suffix}", quality=100)
    Path("disk").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", "disk"], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        result = run("restore", f"large{suffix}", "-r", made / "paper.safetensors", "-o", "disk/out")
        assert result.exit_code == 2
        assert "disk is full" in result.stderr.splitlines()[-1]
        assert "disk/out" in result.stderr.splitlines()[-1]
        assert not list(Path("disk").iterdir())
    finally:
        subprocess.run(["umount", "disk"], check=True)


def test_two_writers_of_one_file_do_not_mix():
    contents = [bytes([number]) * 2**20 for number in range(8)]
    threads = [threading.Thread(target=write_atomically, args=(Path("file"), content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Path("file").read_bytes() in contents
    assert names(".") == ["file"]


def test_a_name_that_is_no_text_is_printed_with_escapes(made, pixels):
    write_pngs("odd", pixels, 1)
    Image.fromarray(pixels[1, 0].numpy()).save("odd/lossy.jpg")
    Path("odd/lossy.jpg").rename(os.fsdecode(b"odd/\xff.jpg"))
    words = ("restore", "odd", "--restorer", made / "paper.safetensors", "--out", "out")
    process = child(*words, environment={"PYTHONIOENCODING": "utf-8:strict"})
    output, _ = process.communicate()
    assert process.returncode == 0
    assert rb"\udcff.jpg" in output
