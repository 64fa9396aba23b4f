"""Opens a checkpoint of either format by its path."""

from __future__ import annotations

from pathlib import Path

from engine.errors import FileFormatError
from engine.inference.weights.checkpoint import Checkpoint
from engine.inference.weights.gguf_checkpoint import open_gguf
from engine.inference.weights.hf_checkpoint import open_hf_folder


def open_checkpoint(path: Path) -> Checkpoint:
    """A GGUF file, or a folder in Hugging Face layout with safetensors weights.

    Never reads pickles. Raises ``FileFormatError`` for what is neither or is malformed,
    ``UnsupportedModel`` for a model that the engine does not run.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return open_hf_folder(path)
        if path.is_file():
            return open_gguf(path)
    except OSError as error:
        raise FileFormatError("the model cannot be read from disk") from error
    raise FileFormatError("there is no file or folder at the model's path")
