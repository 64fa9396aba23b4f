"""Probes by name: what the worker answers, from a kind and its arguments to a document.

The texts that were looked at last stay, so that the next question about one costs no run of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import torch

from engine.catalog.units import bytes_label
from engine.errors import EngineError, InvalidRequest
from engine.inference.lane_settings import WeightSettings, parse_kv, parse_weights
from engine.inference.probes.arguments import (
    TEXT_FIELDS,
    Arguments,
    ablations,
    integer,
    integers,
    read_text,
    text,
)
from engine.inference.probes.comparison import compare
from engine.inference.probes.documents import ProbeDocument, TokenPiece
from engine.inference.probes.fidelity import fidelity
from engine.inference.probes.format_documents import Fidelity, WeightRow
from engine.inference.probes.limits import MAX_HELD_OUT
from engine.inference.probes.model import ProbeModel
from engine.inference.probes.rounding import weight_row
from engine.inference.probes.session import ProbeSession, session_bytes
from engine.inference.probes.texts import TEXT_KINDS, TextDesk, check_names
from engine.inference.quantization.calibration_text import HELD_OUT, token_windows
from engine.inference.quantization.lane import Lane, open_lane
from engine.inference.weights.checkpoint import Checkpoint
from engine.refusals import refused

KEPT_BYTES = 256 * 2**20
"""What the sessions of texts that were looked at last may hold together."""

_Answer = Callable[["ProbeDesk", Arguments], ProbeDocument]

WeightsAs = Callable[[WeightSettings], Lane]
"""The model with its weights as the settings say."""


class ProbeDesk:
    """Answers questions about one model. For one thread at a time.

    Nothing is loaded before the first question; ``layer_bytes`` of layers' weights stay in memory.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        layer_bytes: int = 0,
        weights_as: WeightsAs | None = None,
    ) -> None:
        """``weights_as``: where the model in another form comes from, such as the lanes that are
        open; None loads it for each question, with float32 activations."""
        self._checkpoint = checkpoint
        self._weights_as = weights_as or self._load
        self._tokenizer = checkpoint.tokenizer()
        self.texts = TextDesk(self._tokenizer)
        self._layer_bytes = layer_bytes
        self._model: ProbeModel | None = None
        self._sessions: OrderedDict[tuple[object, ...], ProbeSession] = OrderedDict()

    @property
    def model(self) -> ProbeModel:
        """The model as probes see it."""
        if self._model is None:
            self._model = ProbeModel(self._checkpoint, layer_bytes=self._layer_bytes)
        return self._model

    def answer(self, kind: str, arguments: Arguments) -> dict[str, object]:
        """One question's answer, JSON-able.

        Where ``token_ids`` are taken, ``text`` or ``messages`` may stand instead; the answer then
        has the ``tokens`` that they are.

        Raises:
            InvalidRequest: no such kind, an argument is missing, unknown or out of range, or the
                text takes more memory than probes may hold; names the field.
        """
        if kind in TEXT_KINDS:
            return self.texts.answer(kind, arguments)
        known = _KINDS.get(kind)
        if known is None:
            raise InvalidRequest(f"choose one of {', '.join((*_KINDS, *TEXT_KINDS))}", field="kind")
        make, names = known
        takes_text = "token_ids" in names
        check_names(kind, arguments, (*names, *(TEXT_FIELDS if takes_text else ())))
        given = [name for name in TEXT_FIELDS if name in arguments]
        if not given:
            return make(self, arguments).to_dict()
        return self._answer_about(given[0], make, arguments)

    def _answer_about(self, given: str, make: _Answer, arguments: Arguments) -> dict[str, object]:
        """The answer where a text is ``given`` instead of ids, with its tokens."""
        if "token_ids" in arguments:
            raise refused("token_ids_or_text", field=given)
        token_ids = read_text(arguments, self._tokenizer)
        rest = {name: value for name, value in arguments.items() if name not in TEXT_FIELDS}
        try:
            document = make(self, {**rest, "token_ids": token_ids}).to_dict()
        except EngineError as error:
            if error.field == "token_ids":
                error.field = given
            raise
        tokens = [TokenPiece(token, self._tokenizer.piece(token)).to_dict() for token in token_ids]
        return {**document, "tokens": tokens}

    def session(self, arguments: Arguments) -> ProbeSession:
        """The session of ``token_ids`` with ``ablations``; made now, or kept from before."""
        token_ids = tuple(integers(arguments, "token_ids"))
        without = ablations(arguments)
        key = (token_ids, tuple(ablation.name for ablation in without))
        session = self._sessions.get(key)
        if session is None:
            self._make_room(len(token_ids))
            session = ProbeSession(self.model, token_ids, without)
            self._sessions[key] = session
        self._sessions.move_to_end(key)
        return session

    def fidelity(self, arguments: Arguments) -> Fidelity:
        """A form of the model beside the file's own, on ``token_ids`` or on the first ``held_out``
        tokens of a text that no method was fitted to."""
        weights = parse_weights(text(arguments, "weights"))
        kv = parse_kv(text(arguments, "kv_cache") if "kv_cache" in arguments else "paged")
        if "held_out" in arguments:
            if "token_ids" in arguments:
                raise InvalidRequest("give a text or held_out, not both", field="held_out")
            count = integer(arguments, "held_out")
            if not 2 <= count <= MAX_HELD_OUT:
                raise InvalidRequest(f"give 2 to {MAX_HELD_OUT} tokens", field="held_out")
            config = self._checkpoint.config
            arguments = {"token_ids": token_windows(HELD_OUT, self._tokenizer, config, count)[0]}
        session = self.session({"token_ids": arguments.get("token_ids")})
        lane = self._weights_as(weights)
        return fidelity(session, lane, weights, kv, self._checkpoint.source_format)

    def weight_row(self, arguments: Arguments) -> WeightRow:
        """A row of a matrix before and after rounding."""
        weights = parse_weights(text(arguments, "weights"))
        name, row = text(arguments, "matrix"), integer(arguments, "row")
        return weight_row(self._checkpoint, name, row, weights)

    def _load(self, weights: WeightSettings) -> Lane:
        cpu = torch.device("cpu")
        return open_lane(self._checkpoint, weights, activations=torch.float32, device=cpu)

    def _make_room(self, num_tokens: int) -> None:
        """Let go of the sessions that were asked longest ago, until one more fits."""
        config = self.model.config
        needed = session_bytes(config, num_tokens)
        if needed > KEPT_BYTES:
            raise refused(
                "probe_memory",
                field="token_ids",
                needed=bytes_label(needed),
                most=bytes_label(KEPT_BYTES),
            )
        while needed + self._held_bytes() > KEPT_BYTES:
            self._sessions.popitem(last=False)

    def _held_bytes(self) -> int:
        config = self.model.config
        return sum(session_bytes(config, len(s.token_ids)) for s in self._sessions.values())


def _lens(desk: ProbeDesk, arguments: Arguments) -> ProbeDocument:
    layer = None if arguments.get("layer") is None else integer(arguments, "layer")
    position, k = integer(arguments, "position"), integer(arguments, "k", 5)
    return desk.session(arguments).logit_lens(position, k, layer)


def _comparison(desk: ProbeDesk, arguments: Arguments) -> ProbeDocument:
    plain = desk.session({"token_ids": arguments.get("token_ids")})
    return compare(
        plain,
        ablations(arguments),
        integer(arguments, "k", 5),
        integer(arguments, "max_tokens", 8),
    )


_TEXT = ("token_ids", "ablations")

_KINDS: dict[str, tuple[_Answer, tuple[str, ...]]] = {
    "embeddings": (
        lambda desk, a: desk.model.embeddings.rows(integers(a, "token_ids")),
        ("token_ids",),
    ),
    "neighbours": (
        lambda desk, a: desk.model.embeddings.neighbours(
            integer(a, "token_id"), integer(a, "k", 10)
        ),
        ("token_id", "k"),
    ),
    "analogy": (
        lambda desk, a: desk.model.embeddings.analogy(
            integers(a, "plus"), integers(a, "minus"), integer(a, "k", 10)
        ),
        ("plus", "minus", "k"),
    ),
    "map": (
        lambda desk, a: desk.model.embeddings.map(integers(a, "token_ids")),
        ("token_ids",),
    ),
    "overview": (lambda desk, a: desk.session(a).overview(), _TEXT),
    "attention-maps": (lambda desk, a: desk.session(a).attention_maps(), _TEXT),
    "attention": (
        lambda desk, a: desk.session(a).attention(integer(a, "layer"), integer(a, "head")),
        (*_TEXT, "layer", "head"),
    ),
    "attention-detail": (
        lambda desk, a: desk.session(a).attention_detail(
            integer(a, "layer"), integer(a, "head"), integer(a, "query")
        ),
        (*_TEXT, "layer", "head", "query"),
    ),
    "rotation": (
        lambda desk, a: desk.session(a).rotation(integer(a, "layer"), integer(a, "position")),
        (*_TEXT, "layer", "position"),
    ),
    "hidden-norms": (lambda desk, a: desk.session(a).hidden_norms(), _TEXT),
    "logit-lens": (_lens, (*_TEXT, "layer", "position", "k")),
    "feed-forward": (
        lambda desk, a: desk.session(a).feed_forward(
            integer(a, "layer"), integer(a, "position"), integer(a, "k", 10)
        ),
        (*_TEXT, "layer", "position", "k"),
    ),
    "next-token": (
        lambda desk, a: desk.session(a).next_token(integer(a, "position"), integer(a, "k", 10)),
        (*_TEXT, "position", "k"),
    ),
    "fidelity": (
        lambda desk, a: desk.fidelity(a),
        ("token_ids", "held_out", "weights", "kv_cache"),
    ),
    "weight-row": (lambda desk, a: desk.weight_row(a), ("matrix", "row", "weights")),
    "comparison": (_comparison, (*_TEXT, "k", "max_tokens")),
}
