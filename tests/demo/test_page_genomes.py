"""The genomes tab: its graph, and in a real browser the start, the strand and the text of Python."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from page import HOME, RIGHT, Page, wait

import unshift
from unshift.data.sequences import Record, encode, encode_letters, oriented, read_fasta, to_fasta
from unshift.demo.site import GENOMES as RESTORER
from unshift.demo.site import Windows, export_windows

DEPOSITED = Path(__file__).parents[1] / "data" / "mitogenomes.fa.gz"
LETTERS = "ACGT" * 12 + "acgtRYSWKMBDHVNn"


@pytest.fixture(scope="module")
def restorer():
    return unshift.load(RESTORER)


def sequence(length: int, letters: str = LETTERS) -> str:
    return "".join(random.Random(length).choices(letters, k=length))


def located(restorer, text: str) -> tuple[int, int, bool, float]:
    """Return the first base (counted from 1), the turn, whether it was tied, and the confidence."""
    estimate = restorer.estimate([encode(text)], [encode_letters(text)])
    shift, turn = int(estimate.shift), int(estimate.turn)
    return (shift - turn) % len(text) + 1, turn, bool(estimate.tied), float(estimate.confidence)


def restored(restorer, records: list[Record]) -> str:
    """Return the output of `unshift restore`."""
    written = []
    for record in records:
        estimate = restorer.estimate([encode(record.text)], [encode_letters(record.text)])
        written.append(Record(record.header, oriented(record.text, int(estimate.shift), int(estimate.turn))))
    return to_fasta(written, Path("x.fa")).decode()


# --- the graph ---------------------------------------------------------------------------------------------


def test_windows_score_as_the_restorer_does_at_any_length(restorer, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    windows = Windows(restorer.scorer)
    export_windows(windows, tmp_path / "windows.onnx")
    session = runtime.InferenceSession(tmp_path / "windows.onnx")
    for length in (33, 500, 16_537):
        text = sequence(length)
        strands = torch.stack([encode(text), encode(oriented(text, 0, 1))]).float()
        around = strands[:, :, torch.arange(-windows.margin, length + windows.margin) % length]
        (scores,) = session.run(None, {"windows": around.numpy()})
        assert torch.equal(torch.from_numpy(scores).to(torch.int64), restorer.scorer(strands))
        assert torch.equal(windows(around), torch.from_numpy(scores))


# --- the page ----------------------------------------------------------------------------------------------


class Genomes(Page):
    """The page with its genomes tab open."""

    def settle(self) -> None:
        super().settle()
        if self.js("return document.documentElement.dataset.tab") == "genomes":
            wait(lambda: self.js("return window.unshift.genomes && !window.unshift.genomes.busy()"), 120, "the genomes")

    @property
    def refused(self) -> bool:
        return "bad" in self.find("#fasta-note").get_attribute("class").split()

    def open_sample(self) -> None:
        self.find("#fasta-sample").click()
        self.settle()

    def paste(self, content: str) -> None:
        code = "const f = document.getElementById('fasta'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))"
        self.js("document.getElementById('fasta-note').textContent = ''")
        self.js(code, content)
        wait(lambda: self.text("fasta-note"), what="a note")
        self.settle()

    @property
    def result(self) -> str:
        return self.js("return window.unshift.genomes.result()")

    @property
    def estimates(self) -> list[tuple[int, int, bool, float]]:
        row = "({ estimate: e }) => [e.start + 1, e.turn, e.tied, e.confidence]"
        return [tuple(values) for values in self.js(f"return window.unshift.genomes.state.records.map({row})")]


@pytest.fixture
def page(browser, address) -> Genomes:
    """The open tab with the sample."""
    pytest.importorskip("onnxscript")
    if browser.current_url == f"{address}#genomes":
        page = Genomes(browser, None)
    else:
        page = Genomes(browser, address)
        page.find("#tabs [data-tab=genomes]").click()
    page.settle()
    return page


def test_loads_nothing_before_it_is_opened(browser, address):
    page = Genomes(browser, address)
    code = "return performance.getEntriesByType('resource').map((entry) => entry.name.split('/').pop())"
    assert not {"genomes.js", "sequences.js", "mitogenomes.fa"} & set(page.js(code))
    assert not page.find("#genomes").is_displayed()
    page.find("#tabs [data-tab=genomes]").click()
    page.settle()
    assert {"genomes.js", "sequences.js", "mitogenomes.fa"} <= set(page.js(code))
    assert page.find("#genomes").is_displayed()
    assert not page.find("#stage").is_displayed()
    assert page.errors() == []


def test_sample_starts_at_trna_phe(page):
    deposited = read_fasta(DEPOSITED)
    page.open_sample()
    assert page.result == to_fasta([deposited[0], deposited[2]], Path("x.fa")).decode()
    assert [row[1] for row in page.estimates] == [1, 0]
    assert page.text("genome-name") == deposited[0].name
    assert page.text("genome-text").startswith(deposited[0].text[:60])


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("shift", [0, 7, 401])
def test_rotates_text_as_python_does(page, restorer, shift, turn):
    given = [Record("one of two", sequence(800)), Record("two", sequence(1_201).replace("T", "U").replace("t", "u"))]
    moved = [Record(record.header, oriented(record.text, shift, turn)) for record in given]
    page.paste(to_fasta(moved, Path("x.fa")).decode())
    assert page.result == restored(restorer, moved) == restored(restorer, given)
    for estimate, record in zip(page.estimates, moved, strict=True):
        wanted = located(restorer, record.text)
        assert estimate[:3] == wanted[:3]
        assert math.isclose(estimate[3], wanted[3], rel_tol=1e-9)


@pytest.mark.parametrize("text", ["ACGGT" * 40, "A" * 99, "ACGT" * 25, "ACGGt" + "ACGGT" * 20, "acR" * 17 + "ACR" * 17])
def test_breaks_ties_as_python_does(page, restorer, text):
    moved = [Record(f"{shift} {turn}", oriented(text, shift, turn)) for shift in (0, 3, 31) for turn in (0, 1)]
    page.paste(to_fasta(moved, Path("x.fa")).decode())
    assert page.result == restored(restorer, moved)
    assert len({record.split("\n", 1)[1] for record in page.result.split(">")[1:]}) == 1
    assert [row[2] for row in page.estimates] == [located(restorer, record.text)[2] for record in moved]


def test_sequences_longer_than_a_window(page, restorer):
    """Windows are 2^16 bases: this one takes two, and has its start in the margin between them."""
    motif = read_fasta(DEPOSITED)[0].text[:400]
    filler = sequence(70_000, "ACGT")
    record = Record("long", filler[: 2**16 - 20] + motif + filler[2**16 - 20 :])
    page.paste(to_fasta([record], Path("x.fa")).decode())
    assert page.result == restored(restorer, [record])


def test_the_start_is_dragged_and_moved_by_keys(page):
    from selenium.webdriver import ActionChains

    page.open_sample()
    before, length = page.estimates[0][0], page.js("return window.unshift.genomes.state.records[0].text.length")
    start = lambda: page.js("return window.unshift.genomes.state.records[0].start + 1")  # noqa: E731
    handle = page.find("#handle")
    handle.send_keys(RIGHT)
    assert start() == before + 1
    handle.send_keys(HOME)
    assert start() == before
    frame = page.find(".round")
    page.js("arguments[0].scrollIntoView({ block: 'center' })", frame)
    right = round(0.475 * frame.rect["width"])
    ActionChains(page.driver).click_and_hold(handle).move_to_element_with_offset(
        frame, 0, right
    ).move_to_element_with_offset(frame, right, 0).release().perform()
    assert abs(start() - length / 4) < length / 100  # a quarter of the circle, clockwise from the top
    text = page.js("return window.unshift.genomes.state.records[0].text")
    chosen = start() - 1
    wanted = oriented(text, (chosen + 1) % length, 1)
    assert page.result.split(">")[1].split("\n", 1)[1].replace("\n", "") == wanted
    assert page.data("genome-estimate", "state") == "by-hand"
    page.find("#turn-strand").click()
    assert page.result.split(">")[1].split("\n", 1)[1].replace("\n", "") == text[chosen:] + text[:chosen]
    page.find("#reset-start").click()
    assert start() == before
    assert page.data("genome-estimate", "state") == "estimated"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (" \n", "no sequence"),
        ("ACGT\n", "FASTA"),
        (">x\n>y\nAC\n", "sequence 1 (x) is empty"),
        (">p\nMKVLAAGIVPLLEQ\n", "'E', 'I', 'L', 'P', 'Q'"),
        (">p\nAC-GT\n", "gaps"),
        (">p\nACUT\n", "T and U"),
        (">p\nACGT\n", "4 bases"),
    ],
)
def test_invalid_text_is_refused(page, content, value):
    page.paste(content)
    assert page.refused
    assert value in page.text("fasta-note")
    assert not page.find("#download").is_enabled()


def test_a_dropped_file_is_opened_and_a_damaged_one_refused(page, restorer):
    record = Record("dropped", sequence(700))
    code = """
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([Uint8Array.from(arguments[0])], "x.fa"));
        document.getElementById("circle").dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true }));
    """
    page.js(code, list(to_fasta([record], Path("x.fa"))))
    wait(lambda: page.text("genome-length").startswith("700"), what="the file")
    page.settle()
    assert page.result == restored(restorer, [record])
    page.js(code, list(to_fasta([record], Path("x.fa.gz"))[:-99]))
    wait(lambda: page.refused, what="the refusal")
    assert "gzip" in page.text("fasta-note")
