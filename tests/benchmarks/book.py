"""The results on disk, rewritten after each lane, so that a run that is cut keeps what it had."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.benchmarks.page import judge, to_markdown


class OtherResults(Exception):
    """The results that are to be kept are of something else."""


class Book:
    """``results.json`` and the page made of it, ``RESULTS.md``."""

    def __init__(self, folder: Path, about: Mapping[str, Any], *, keep: bool) -> None:
        """``about``: what all lanes share. ``keep``: go on with the lanes that are there.

        Raises:
            OtherResults: those are of another model, device or plan.
        """
        self._folder = folder
        self._about = dict(about)
        self._lanes: dict[str, dict[str, Any]] = {}
        path = folder / "results.json"
        if keep and path.is_file():
            document = json.loads(path.read_text(encoding="utf-8"))
            differing = [key for key in about if document.get(key) != about[key]]
            if differing:
                raise OtherResults(f"{path.name} is of another {', '.join(differing)}")
            self._lanes = {lane["lane"]: lane for lane in document["lanes"]}

    def __contains__(self, lane: str) -> bool:
        return lane in self._lanes

    def add(self, lane: Mapping[str, Any], order: Sequence[str]) -> str:
        """Keep a lane's results in place of older ones; the page as it is now.

        ``order``: of the lanes that come first on the page.
        """
        self._lanes[lane["lane"]] = dict(lane)
        names = [name for name in order if name in self._lanes]
        names += sorted(self._lanes.keys() - names)
        document = {**self._about, "lanes": [self._lanes[name] for name in names]}
        document["goals"] = [asdict(verdict) for verdict in judge(document)]
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        page = to_markdown(document)
        (self._folder / "results.json").write_text(text, encoding="utf-8")
        (self._folder / "RESULTS.md").write_text(page, encoding="utf-8")
        return page
