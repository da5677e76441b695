"""Experiments as records: their renderers, their names, and where a result came from."""

from __future__ import annotations

import re
import subprocess

import pytest

from unshift.experiments import experiments, find
from unshift.experiments.provenance import commit
from unshift.experiments.record import Picture, Row, Table, Text
from unshift.experiments.renderers import html, markdown, terminal

# --- records and renderers -------------------------------------------------------------------------

TABLE = Table(
    "shift",
    ["0", "4 (any)"],
    [
        Row("with nothing", [99.0, 8.5], "bare"),
        Row("spread", [0, None], "detail", "±{:.1f}"),
        Row("ours", [99, 99], "restored", ["{:.2f}", "{}"]),
    ],
    ["n = 3 < 4, `mnist`."],
)


def test_a_table_for_a_terminal():
    assert terminal([TABLE, Text("The end.")]).splitlines() == [
        "shift              0  4 (any)",
        "-----------------------------",
        "with nothing   99.00     8.50",
        "  spread        ±0.0        -",
        "ours           99.00       99",
        "n = 3 < 4, `mnist`.",
        "The end.",
    ]


def test_a_table_in_markdown():
    assert markdown([TABLE], lambda _: "") == (
        "| shift | 0 | 4 (any) |\n|---|---:|---:|\n| with nothing | 99.00 | 8.50 |\n| spread | ±0.0 | - |\n"
        "| **ours** | **99.00** | **99** |\n\n<sub>n = 3 < 4, `mnist`.</sub>"
    )


def test_a_table_in_html_takes_its_styles_from_the_record_and_not_from_labels():
    page = html([TABLE], lambda _: "")
    assert '<tr class="bare"><th>with nothing</th><td>99.00</td><td>8.50</td></tr>' in page
    assert '<tr class="restored"><th>ours</th>' in page
    assert '<p class="soft">n = 3 &lt; 4, <code>mnist</code>.</p>' in page


def test_columns_can_be_selected():
    assert markdown([TABLE.select("4 (any)")], lambda _: "").splitlines()[2:] == [
        "| with nothing | 8.50 |",
        "| spread | - |",
        "| **ours** | **99** |",
    ]


def test_a_picture_without_a_link_leaves_its_notes():
    picture = Picture("name", "what it shows", None, ["seen"])
    assert html([picture], lambda _: "") == '<p class="soft">seen</p>'
    assert markdown([picture], lambda p: f"images/{p.name}.png") == (
        "![what it shows](images/name.png)\n\n<sub>seen</sub>"
    )
    assert terminal([picture]) == "seen"


def test_experiments_are_found_by_the_papers_numbers():
    for item in ("table1", "table2", "fig1", "fig3", "fig4", "fig5", "fig6"):
        kind, number = ("Table", item[5:]) if item.startswith("table") else ("Figure", item[3:])
        assert find(item).item == f"{kind} {number}"
    assert (find("fig5").name, find("fig6").name) == ("volumes", "rotation")
    with pytest.raises(ValueError, match=r"no experiment named 'fig99'; there are .*table1, fig1"):
        find("fig99")


def test_names_and_cases_are_not_used_twice():
    known = [name for each in experiments() for name in {each.name, each.alias}]
    assert len(known) == len(set(known))
    for experiment in experiments():
        cases = [case.name for case in experiment.cases]
        assert len(cases) == len(set(cases))
        assert set(experiment.paper) <= set(cases)


# --- where a result came from ----------------------------------------------------------------------


def repository(folder, project):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n')
    options = ["-c", "user.name=x", "-c", "user.email=x@x"]
    for command in (["init", "-q"], ["add", "."], [*options, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def test_only_our_own_commit_is_recorded(tmp_path):
    ours, theirs = repository(tmp_path / "ours", "unshift"), repository(tmp_path / "theirs", "other")
    assert re.fullmatch("[0-9a-f]{7,}", commit(ours))
    (ours / "pyproject.toml").write_text('[project]\nname = "unshift"\nversion = "1"\n')
    assert commit(ours).endswith("-dirty")
    assert commit(theirs) is None
    installed = theirs / "site-packages"
    installed.mkdir()
    assert commit(installed) is None
    (installed / "pyproject.toml").write_text('[project]\nname = "unshift"\n')  # vendored: still their repository
    assert commit(installed) is None
