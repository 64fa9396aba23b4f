"""Weights files: GGUF and safetensors readers behind one ``Checkpoint``."""

from engine.inference.weights.checkpoint import Checkpoint, RawTensor
from engine.inference.weights.open import open_checkpoint

__all__ = ["Checkpoint", "RawTensor", "open_checkpoint"]
