"""Downloads: whole or not at all, whatever the mirror does."""

from __future__ import annotations

import gzip
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mirrors import BLOB, NOISE, md5, tar_of, tree

from unshift.data import download, files
from unshift.data.files import DataError, File


def test_download_puts_the_file_in_its_place_and_nothing_else(root, server, capfd):
    server.content["/blob.bin"] = NOISE
    for _ in range(2):
        download.fetch(BLOB, [f"{server.url}/blob.bin"])
        assert (root / BLOB.path).read_bytes() == NOISE
        assert tree(root) == {BLOB.path}
    assert capfd.readouterr() == ("", "")  # quiet without a terminal
    assert len(server.log) == 1, "a file that is there is not asked for again"


def test_a_gz_stays_packed_and_its_content_is_read(root, server):
    inner = b"digits" * 1000
    packed = gzip.compress(inner, 1)
    file = File("set/a.gz", len(inner), md5(inner), md5(packed))
    server.content["/a.gz"] = packed
    download.fetch(file, [f"{server.url}/a.gz"])
    assert file.place().read_bytes() == packed
    assert files.read(file.place(), file, "") == inner
    file.place().write_bytes(gzip.compress(inner, 9))  # packed again since: the same content counts
    assert files.read(file.place(), file, "") == inner


def test_the_next_mirror_is_tried_when_one_is_dead_broken_wrong_or_breaks_off(root, server):
    with socket.socket() as unused:  # bound, not listening: a dead host
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}/blob.bin"
        paths = [f"/{name}/blob.bin" for name in ("none", "broken", "wrong", "dropping", "good", "spare")]
        server.content = dict.fromkeys(paths[1:], NOISE) | {paths[2]: NOISE[:-1] + b"!"}
        server.broken.add(paths[1])
        server.dropping.add(paths[3])
        download.fetch(BLOB, [dead, *(server.url + path for path in paths)])
    assert (root / BLOB.path).read_bytes() == NOISE
    assert server.log == paths[:-1]
    assert tree(root) == {BLOB.path}


def test_when_all_mirrors_fail_the_error_gives_the_reason_for_each_and_no_file_is_left(root, server):
    server.content |= {"/a/blob.bin": NOISE, "/b/blob.bin": b"<html>log in first</html>"}
    server.broken.add("/a/blob.bin")
    with_password = server.url.replace("http://", "http://someone:password@")
    with pytest.raises(DataError, match=r"/a/blob\.bin: 503.*/b/blob\.bin: MD5 hash of downloaded file") as caught:
        download.fetch(BLOB, [f"{with_password}/a/blob.bin", f"{server.url}/b/blob.bin"])
    assert "password" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert tree(root) == set()


def test_a_kill_in_mid_download_leaves_no_file_and_the_next_run_clears_up(root, server):
    server.content["/blob.bin"] = NOISE
    server.hanging.add("/blob.bin")
    url = f"{server.url}/blob.bin"
    code = (
        "import sys; from unshift.data.download import fetch; from unshift.data.files import File; "
        "fetch(File('set/blob.bin', 500_000, sys.argv[1], sys.argv[1]), sys.argv[2:])"
    )
    with subprocess.Popen([sys.executable, "-c", code, BLOB.md5, url], cwd=Path(__file__).parents[1]) as process:
        assert server.half_sent.wait(60)
        process.send_signal(signal.SIGKILL)
    assert not (root / BLOB.path).exists()
    server.hanging.clear()
    download.fetch(BLOB, [url])
    assert (root / BLOB.path).read_bytes() == NOISE
    assert tree(root) == {BLOB.path}, "what the killed run left behind is cleared away"


def test_many_at_once_download_once(root, server):
    server.content["/blob.bin"] = NOISE
    threads = [threading.Thread(target=download.fetch, args=(BLOB, [f"{server.url}/blob.bin"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.log) == 1
    assert (root / BLOB.path).read_bytes() == NOISE


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSHIFT_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(DataError, match=r"cannot write to .*below.*set UNSHIFT_DATA"):
        download.fetch(BLOB, ["http://127.0.0.1:9/blob.bin"])


def test_of_an_archive_only_what_is_wanted_and_missing_is_taken(root, server):
    members = {"batches/one.bin": b"1" * 100, "batches/two.bin": b"2" * 50}
    wanted = [File(name, len(content), md5(content)) for name, content in members.items()]
    packed = tar_of(members | {"../evil": b"", "batches/readme.html": b"hello"})
    server.content["/a.tar.gz"] = packed
    for _ in range(2):
        download.fetch_archive(wanted, [f"{server.url}/a.tar.gz"], md5(packed))
        assert tree(root) == set(members)
    assert len(server.log) == 1
    (root / "batches/two.bin").unlink()
    download.fetch_archive(wanted, [f"{server.url}/a.tar.gz"], md5(packed))
    assert (root / "batches/two.bin").read_bytes() == members["batches/two.bin"]
    (root / "batches/two.bin").unlink()
    with pytest.raises(DataError, match="could not be downloaded from any address"):
        download.fetch_archive(wanted, [f"{server.url}/a.tar.gz"], "0" * 32)
    assert tree(root) == {"batches/one.bin"}
