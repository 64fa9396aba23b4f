"""``python -m engine probe``: what the model computes on one text, inside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Annotated

import typer

from engine.commands.refusing import refuse
from engine.errors import EngineError
from engine.inference.probes.ablations import Ablation, parse_ablation
from engine.inference.probes.documents import (
    AttentionDetail,
    AttentionOverview,
    Comparison,
    Continuation,
    LogitLens,
    NextToken,
    TokenPiece,
)

if TYPE_CHECKING:
    from engine.inference.probes.session import ProbeSession

_MOST_LOOKED_AT = 5
_OPTIONS = {
    "k": "--top",
    "token_ids": "--prompt",
    "query": "--position",
    "ablations": "--ablate",
}


@dataclass(frozen=True, slots=True)
class _Answers:
    model: str
    random_weights: bool
    tokens: tuple[TokenPiece, ...]
    overview: AttentionOverview
    detail: AttentionDetail
    lens: LogitLens
    next_token: NextToken
    comparison: Comparison | None


def probe(
    prompt: Annotated[str, typer.Option(help="The text, or the user's message.")],
    layer: Annotated[int, typer.Option(help="The layer to look into, from 0.")] = 0,
    head: Annotated[int, typer.Option(help="The head of that layer, from 0.")] = 0,
    position: Annotated[
        int | None, typer.Option(help="The token that looks back, from 0; the last if left out.")
    ] = None,
    top: Annotated[int, typer.Option(help="Likeliest tokens to show.")] = 3,
    ablate: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare without a part: head:LAYER.HEAD, layer:LAYER, no-rotation, no-mask or "
            "hidden-scale; repeatable."
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Tokens to go on for, with --ablate.")] = 8,
    chat: Annotated[bool, typer.Option("--chat", help="Wrap it in the chat template.")] = False,
    model: Annotated[str, typer.Option(help="auto, tiny, a GGUF file or a model folder.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Show attention, what each layer would say, and what a part of the model is good for."""
    try:
        # Refused before anything is loaded.
        ablations = [parse_ablation(name) for name in ablate or []]
        session, tokens, random_weights = _open(model, prompt, chat)
        query = len(tokens) - 1 if position is None else position
        answers = _Answers(
            model=session.model.config.name,
            random_weights=random_weights,
            tokens=tokens,
            overview=session.overview(),
            detail=session.attention_detail(layer, head, query),
            lens=session.logit_lens(query, top),
            next_token=session.next_token(query, top),
            comparison=_compare(session, ablations, top, max_tokens) if ablations else None,
        )
    except EngineError as error:
        refuse(error, _OPTIONS)
    typer.echo(json.dumps(_document(answers)) if as_json else _for_people(answers))


# Torch takes a second to load, and a wrong option should not wait for it.


def _open(model: str, prompt: str, chat: bool) -> tuple[ProbeSession, tuple[TokenPiece, ...], bool]:
    """A session of the prompt, its tokens, and whether the weights are random."""
    from engine.inference.loading import find_model
    from engine.inference.probes.model import ProbeModel
    from engine.inference.probes.session import ProbeSession

    source = find_model(model)
    checkpoint = source.open()
    tokenizer = checkpoint.tokenizer()
    if chat:
        token_ids = tokenizer.encode_chat([{"role": "user", "content": prompt}])
    else:
        token_ids = tokenizer.encode_prompt(prompt)
    session = ProbeSession(ProbeModel(checkpoint), token_ids)
    pieces = tuple(TokenPiece(token, tokenizer.piece(token)) for token in token_ids)
    return session, pieces, source.random_weights


def _compare(
    session: ProbeSession, ablations: list[Ablation], top: int, max_tokens: int
) -> Comparison:
    from engine.inference.probes.comparison import compare

    return compare(session, ablations, top, max_tokens)


def _document(answers: _Answers) -> dict[str, object]:
    comparison = answers.comparison
    return {
        "model": answers.model,
        "random_weights": answers.random_weights,
        "tokens": [token.to_dict() for token in answers.tokens],
        "attention_overview": answers.overview.to_dict(),
        "attention_detail": answers.detail.to_dict(),
        "logit_lens": answers.lens.to_dict(),
        "next_token": answers.next_token.to_dict(),
        "comparison": None if comparison is None else comparison.to_dict(),
    }


def _for_people(answers: _Answers) -> str:
    label = " (random weights: its answers are noise)" if answers.random_weights else ""
    parts = [
        f"measured on {answers.model}{label} in float32, {len(answers.tokens)} tokens",
        _attention(answers),
        _lens(answers),
    ]
    if answers.comparison is not None:
        parts.append(_comparison(answers.comparison))
    return "\n\n".join(parts)


def _attention(answers: _Answers) -> str:
    detail = answers.detail
    summary = next(
        s for s in answers.overview.heads if (s.layer, s.head) == (detail.layer, detail.head)
    )
    asker = answers.tokens[detail.query]
    ranked = sorted(range(len(detail.weights)), key=lambda key: -detail.weights[key])
    lines = [
        f"layer {detail.layer}, head {detail.head} (keys and values of KV head {detail.kv_head}): "
        f"entropy {summary.entropy:.2f} nats, looks {summary.distance:.1f} tokens back (means)",
        f"token {detail.query} {asker.piece!r} looks at, by weight = softmax(q · k × "
        f"{detail.scale:.4f}):",
    ]
    lines += [
        f"  {detail.weights[key]:7.2%}  {key:4d} {answers.tokens[key].piece!r}  "
        f"q · k = {detail.dots[key]:.2f}"
        for key in ranked[:_MOST_LOOKED_AT]
    ]
    return "\n".join(lines)


def _lens(answers: _Answers) -> str:
    lines = [f"after token {answers.lens.position}, if the model ended there, it would say:"]
    for row in answers.lens.rows:
        name = "embedding" if row.layer < 0 else f"layer {row.layer}"
        said = ", ".join(f"{_share(token.logprob)} {token.piece!r}" for token in row.top)
        lines.append(f"  {name:9s}  {said}")
    return "\n".join(lines)


def _comparison(comparison: Comparison) -> str:
    mean = sum(comparison.kl) / len(comparison.kl)

    def side(continuation: Continuation) -> str:
        said = ", ".join(f"{_share(t.logprob)} {t.piece!r}" for t in continuation.top)
        return f"{said}\n             goes on: {continuation.text!r}"

    return (
        f"ablation {', '.join(comparison.ablations)}: KL {mean:.3f} nats (mean over positions), "
        f"same likeliest token at {comparison.same_top:.0%} of positions\n"
        f"  as it is:  {side(comparison.as_it_is)}\n"
        f"  ablated:   {side(comparison.ablated)}"
    )


def _share(logprob: float) -> str:
    return f"{exp(logprob):.1%}"
