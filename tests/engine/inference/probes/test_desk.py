"""Sessions of texts are kept within so many bytes."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequest
from engine.inference.probes import desk as desk_module
from engine.inference.probes.desk import ProbeDesk
from engine.inference.probes.session import ProbeSession, session_bytes
from engine.inference.weights.tiny import tiny_random_checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

CONFIG = tiny_random_checkpoint().config


def _tensor_bytes(session: ProbeSession) -> int:
    held = [*session.residuals, *session.seen(0).values()]
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}.values()
    )


@pytest.mark.parametrize("num_tokens", [256, 512])
def test_the_estimate_is_what_a_session_holds(num_tokens: int) -> None:
    session = ProbeDesk(tiny_random_checkpoint()).session({"token_ids": [1] * num_tokens})
    assert _tensor_bytes(session) == session_bytes(CONFIG, num_tokens)


def test_the_longest_unused_session_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "KEPT_BYTES", 2 * session_bytes(CONFIG, 8) + 1)
    desk = ProbeDesk(tiny_random_checkpoint())
    texts = [{"token_ids": [number] * 8} for number in range(3)]
    first, second = (desk.session(text) for text in texts[:2])
    assert desk.session(texts[0]) is first
    desk.session(texts[2])
    assert desk.session(texts[0]) is first
    assert desk.session(texts[1]) is not second


def test_a_text_that_takes_more_than_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "KEPT_BYTES", session_bytes(CONFIG, 8))
    desk = ProbeDesk(tiny_random_checkpoint())
    assert desk.answer("hidden-norms", {"token_ids": [1] * 8})["kind"] == "hidden_norms"
    with pytest.raises(InvalidRequest, match="may be held") as refusal:
        desk.answer("hidden-norms", {"token_ids": [1] * 9})
    assert refusal.value.field == "token_ids"
