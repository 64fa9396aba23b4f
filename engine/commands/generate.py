"""``python -m engine generate``: one prompt through the real engine, in this process."""

from __future__ import annotations

import json
import time
from statistics import median
from typing import Annotated, NoReturn

import typer

from engine.errors import EngineError
from engine.inference.messages import Accepted, ChatTurn, Done, Failed, Generate, Message, Token
from engine.inference.options import EngineOptions
from engine.scheduling.scheduler import SchedulerLimits


def generate(
    prompt: Annotated[str, typer.Option(help="The text to go on from, or the user's message.")],
    chat: Annotated[bool, typer.Option("--chat", help="Wrap it in the chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="System message, with --chat.")] = None,
    model: Annotated[str, typer.Option(help="auto, tiny, a GGUF file or a model folder.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    max_tokens: Annotated[int, typer.Option(help="The most tokens to generate.")] = 64,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Keep the k likeliest; 0 keeps all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest up to this mass.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Keep those at least this share of the best.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Repeats a sampled answer.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End at this text; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Run a prompt on the real model and print the answer with its measured times."""
    messages: tuple[ChatTurn, ...] | None = None
    if chat:
        turns = [ChatTurn("system", system)] if system is not None else []
        messages = (*turns, ChatTurn("user", prompt))
    elif system is not None:
        raise typer.BadParameter("needs --chat", param_hint="--system")
    request = Generate(
        request_id="cli",
        prompt=None if chat else prompt,
        messages=messages,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=tuple(stop or ()),
    )
    options = EngineOptions(model=model, dtypes=dtype, device=device, calibrate="never")
    try:
        heard = _run(request, options)
    except EngineError as error:
        _refuse(error.message, error.field)
    for message in heard:
        if isinstance(message, Failed):
            _refuse(message.message, message.field)
    typer.echo(json.dumps(_document(heard)) if as_json else _for_people(heard))


def _run(request: Generate, options: EngineOptions) -> list[Message]:
    # Imported here: torch takes a second to load, and a wrong option should not wait for it.
    from engine.inference.engine import Engine
    from engine.inference.loading import load_model

    loaded = load_model(options)
    heard: list[Message] = []
    limits = SchedulerLimits(
        max_step_tokens=options.max_step_tokens, max_context=loaded.config.max_context
    )
    engine = Engine(loaded, limits, heard.append)
    engine.submit(engine.prepare(request, time.perf_counter()))
    while engine.has_work:
        engine.step()
    return heard


def _refuse(message: str, field: str | None) -> NoReturn:
    option = None if field is None else f"--{field.replace('_', '-')}"
    raise typer.BadParameter(message, param_hint=option)


def _document(heard: list[Message]) -> dict[str, object]:
    accepted = next(m for m in heard if isinstance(m, Accepted))
    done = next(m for m in heard if isinstance(m, Done))
    tokens = [m for m in heard if isinstance(m, Token)]
    return {
        "model": accepted.model,
        "device": accepted.device,
        "dtype": accepted.dtype,
        "seed": accepted.seed,
        "prompt_token_ids": list(accepted.prompt_token_ids),
        "token_ids": [token.id for token in tokens],
        "logprobs": [token.logprob for token in tokens],
        "text": done.text,
        "finish_reason": done.finish_reason,
        "ttft_ms": done.ttft_ms,
        "itl_ms": list(done.itl_ms),
    }


def _for_people(heard: list[Message]) -> str:
    accepted = next(m for m in heard if isinstance(m, Accepted))
    done = next(m for m in heard if isinstance(m, Done))
    gaps = done.itl_ms
    streamed = f"{median(gaps):.1f} ms (median of {len(gaps)})" if gaps else "— (one token only)"
    return (
        f"{done.text}\n\n"
        f"measured: TTFT {done.ttft_ms:.1f} ms · ITL {streamed} · "
        f"{accepted.model} · {accepted.dtype} on {accepted.device} · "
        f"ended by {done.finish_reason}"
    )
