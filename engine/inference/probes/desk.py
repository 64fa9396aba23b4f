"""Probes by name: what the worker answers, from a kind and its arguments to a document.

The texts that were looked at last stay, so that the next question about one costs no run of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.catalog.units import bytes_label
from engine.errors import InvalidRequest
from engine.inference.probes.ablations import Ablation, parse_ablation
from engine.inference.probes.comparison import compare
from engine.inference.probes.documents import ProbeDocument
from engine.inference.probes.model import ProbeModel
from engine.inference.probes.session import ProbeSession, session_bytes
from engine.inference.weights.checkpoint import Checkpoint

KEPT_BYTES = 256 * 2**20
"""What the sessions of texts that were looked at last may hold together."""

Arguments = Mapping[str, Any]
_Answer = Callable[["ProbeDesk", Arguments], ProbeDocument]


class ProbeDesk:
    """Answers questions about one model. For one thread at a time.

    Nothing is loaded before the first question; ``layer_bytes`` of layers' weights stay in memory.
    """

    def __init__(self, checkpoint: Checkpoint, *, layer_bytes: int = 0) -> None:
        self._checkpoint = checkpoint
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

        Raises:
            InvalidRequest: no such kind, an argument is missing, unknown or out of range, or the
                text takes more memory than probes may hold; names the field.
        """
        known = _KINDS.get(kind)
        if known is None:
            raise InvalidRequest(f"choose one of {', '.join(_KINDS)}", field="kind")
        make, names = known
        for name in arguments.keys() - names:
            raise InvalidRequest(f"{kind} takes {', '.join(names)} only", field=name[:40])
        return make(self, arguments).to_dict()

    def session(self, arguments: Arguments) -> ProbeSession:
        """The session of ``token_ids`` with ``ablations``; made now, or kept from before."""
        token_ids = tuple(_integers(arguments, "token_ids"))
        ablations = _ablations(arguments)
        key = (token_ids, tuple(ablation.name for ablation in ablations))
        session = self._sessions.get(key)
        if session is None:
            self._make_room(len(token_ids))
            session = ProbeSession(self.model, token_ids, ablations)
            self._sessions[key] = session
        self._sessions.move_to_end(key)
        return session

    def _make_room(self, num_tokens: int) -> None:
        """Let go of the sessions that were asked longest ago, until one more fits."""
        config = self.model.config
        needed = session_bytes(config, num_tokens)
        if needed > KEPT_BYTES:
            raise InvalidRequest(
                f"to look inside this text takes {bytes_label(needed)}, and probes may hold"
                f" {bytes_label(KEPT_BYTES)}: give fewer tokens",
                field="token_ids",
            )
        while needed + self._held_bytes() > KEPT_BYTES:
            self._sessions.popitem(last=False)

    def _held_bytes(self) -> int:
        config = self.model.config
        return sum(session_bytes(config, len(s.token_ids)) for s in self._sessions.values())


def _integers(arguments: Arguments, name: str) -> Sequence[int]:
    values = arguments.get(name)
    if not isinstance(values, list | tuple) or any(type(value) is not int for value in values):
        raise InvalidRequest("give a list of token ids", field=name)
    return values


def _integer(arguments: Arguments, name: str, default: int | None = None) -> int:
    value = arguments.get(name, default)
    if type(value) is not int:
        raise InvalidRequest("give a whole number", field=name)
    return value


def _ablations(arguments: Arguments) -> list[Ablation]:
    names = arguments.get("ablations", ())
    if not isinstance(names, list | tuple) or any(not isinstance(name, str) for name in names):
        raise InvalidRequest("give a list of names", field="ablations")
    return [parse_ablation(name) for name in names]


def _lens(desk: ProbeDesk, arguments: Arguments) -> ProbeDocument:
    layer = None if arguments.get("layer") is None else _integer(arguments, "layer")
    position, k = _integer(arguments, "position"), _integer(arguments, "k", 5)
    return desk.session(arguments).logit_lens(position, k, layer)


def _comparison(desk: ProbeDesk, arguments: Arguments) -> ProbeDocument:
    plain = desk.session({"token_ids": arguments.get("token_ids")})
    return compare(
        plain,
        _ablations(arguments),
        _integer(arguments, "k", 5),
        _integer(arguments, "max_tokens", 8),
    )


_TEXT = ("token_ids", "ablations")

_KINDS: dict[str, tuple[_Answer, tuple[str, ...]]] = {
    "embeddings": (
        lambda desk, a: desk.model.embeddings.rows(_integers(a, "token_ids")),
        ("token_ids",),
    ),
    "neighbours": (
        lambda desk, a: desk.model.embeddings.neighbours(
            _integer(a, "token_id"), _integer(a, "k", 10)
        ),
        ("token_id", "k"),
    ),
    "map": (
        lambda desk, a: desk.model.embeddings.map(_integers(a, "token_ids")),
        ("token_ids",),
    ),
    "overview": (lambda desk, a: desk.session(a).overview(), _TEXT),
    "attention": (
        lambda desk, a: desk.session(a).attention(_integer(a, "layer"), _integer(a, "head")),
        (*_TEXT, "layer", "head"),
    ),
    "attention-detail": (
        lambda desk, a: desk.session(a).attention_detail(
            _integer(a, "layer"), _integer(a, "head"), _integer(a, "query")
        ),
        (*_TEXT, "layer", "head", "query"),
    ),
    "rotation": (
        lambda desk, a: desk.session(a).rotation(_integer(a, "layer"), _integer(a, "position")),
        (*_TEXT, "layer", "position"),
    ),
    "hidden-norms": (lambda desk, a: desk.session(a).hidden_norms(), _TEXT),
    "logit-lens": (_lens, (*_TEXT, "layer", "position", "k")),
    "feed-forward": (
        lambda desk, a: desk.session(a).feed_forward(
            _integer(a, "layer"), _integer(a, "position"), _integer(a, "k", 10)
        ),
        (*_TEXT, "layer", "position", "k"),
    ),
    "next-token": (
        lambda desk, a: desk.session(a).next_token(_integer(a, "position"), _integer(a, "k", 10)),
        (*_TEXT, "position", "k"),
    ),
    "comparison": (_comparison, (*_TEXT, "k", "max_tokens")),
}
