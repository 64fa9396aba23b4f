"""Texts that scripts put on the page. They travel as JSON in a data attribute.

A single text is marked with ``_N``, one with two forms with ``_P``; ``{name}`` is filled in by
the script. Keys are stable names, grouped by widget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.refusals import REFUSALS
from webapp.i18n import Texts


@dataclass(frozen=True, slots=True)
class _Plural:
    one: str
    other: str


def _N(text: str) -> str:  # noqa: N802 - a marker for extraction, as short as gettext's own
    return text


def _P(one: str, other: str) -> _Plural:  # noqa: N802
    return _Plural(one, other)


SCRIPT_TEXTS: dict[str, str | _Plural] = {
    # words that stand alone
    "prefill": _N("prefill"),
    "decode": _N("decode"),
    "mixed": _N("mixed"),
    "recompute": _N("recompute"),
    "prefill.mixed": _N("prefill, in one step with other work of others"),
    "decode.mixed": _N("decode, in one step with prefill or recompute of others"),
    "recompute.mixed": _N("recompute, in one step with other work of others"),
    "kind.measured": _N("measured"),
    "kind.counted": _N("counted"),
    "kind.countedPerMeasured": _N("counted ÷ measured"),
    # the line beside Run, and what a screen reader hears
    "status.connecting": _N("Connecting…"),
    "status.sending": _N("Sent. Waiting for the engine to take it in…"),
    "status.opening": _N("Preparing the engine for {lane}…"),
    "status.opening.ahead": _P(
        "Waiting for {lane}: {n} other form of the model is prepared first.",
        "Waiting for {lane}: {n} other forms of the model are prepared first.",
    ),
    "status.opening.quantizing": _N("Preparing {lane}: quantizing {part}, {share} done."),
    "status.opening.loading": _N("Preparing {lane}: loading {part}, {share} done."),
    "status.opening.warmingUp": _N("Preparing {lane}: a trial run."),
    "opening.layer": _N("layer {number} of {total}"),
    "opening.head": _N("the matrix that scores the vocabulary"),
    "opening.rest": _N("the rest"),
    "status.waiting": _P(
        "Waiting: {n} prompt is before yours.", "Waiting: {n} prompts are before yours."
    ),
    "status.next": _N("Waiting: yours is next."),
    "status.prefill": _P("Prefill: {n} token…", "Prefill: {n} tokens…"),
    "status.prefillPart": _P("Prefill: token {read} of {n}…", "Prefill: token {read} of {n}…"),
    "status.decode": _N("Decoding: token {n} of at most {max}."),
    "status.stopping": _N("Stopping…"),
    "status.preempted": _P(
        "Its cache was needed elsewhere: {n} token is being computed again.",
        "Its cache was needed elsewhere: {n} tokens are being computed again.",
    ),
    "done.stop": _P(
        "Done: the model ended its answer after {n} token.",
        "Done: the model ended its answer after {n} tokens.",
    ),
    "done.length": _P(
        "Done: cut off at your limit of {n} token.", "Done: cut off at your limit of {n} tokens."
    ),
    "done.abort": _P("Stopped by you after {n} token.", "Stopped by you after {n} tokens."),
    "done.error": _P("The engine failed after {n} token.", "The engine failed after {n} tokens."),
    "done.seed": _N("Seed {seed}, {dtype}, on the {device}."),
    "done.greedy": _N("Temperature 0 draws nothing, so no seed; {dtype}, on the {device}."),
    "done.known": _P(
        "{n} token of the prompt was found in the prefix cache.",
        "{n} tokens of the prompt were found in the prefix cache.",
    ),
    "done.drafts": _P(
        "{accepted} of {n} draft was accepted.", "{accepted} of {n} drafts were accepted."
    ),
    "say.start": _N("Running."),
    "say.first": _N("First token after {time}."),
    "say.done": _N("{status} Median time between tokens: {itl}. The answer: {text}"),
    "say.doneMean": _N("{status} Mean time between tokens: {itl}. The answer: {text}"),
    "say.ready": _N("The engine is ready."),
    "say.notReady": _N("The engine is not ready."),
    # what can go wrong
    "error.engine_restarted": _N(
        "The engine stopped in the middle of this run and is starting again. What you see ends "
        "where it stopped. Run it again when the engine is ready."
    ),
    "error.engine_unavailable": _N("The engine is not ready yet. Run it again when it is."),
    "error.queue_full": _N("Too many prompts are waiting already. Try again in a moment."),
    "error.never_fits": _N(
        "Prompt and answer together are larger than the model's context of {max} tokens. Shorten "
        "the prompt or the length."
    ),
    "error.too_many_requests": _N("Too many runs at once from this page. Wait for one to end."),
    "error.server_stopping": _N("The server is being stopped. Run it again when it is back."),
    "error.step_failed": _N("A step of the engine failed, and this run ended with it."),
    "error.connection": _N(
        "The connection was lost, so this run ended here. It was not sent again: run it again "
        "when you like."
    ),
    "error.refused": _N("The server refused the connection. Reload the page."),
    "error.left": _N("The run ended when the page was left."),
    "error.back": _N(
        "The engine was not there, and this run ended early. It is ready again: run it again when "
        "you like."
    ),
    "engine.unreachable": _N("The server cannot be reached."),
    "elsewhere.unreachable": _N("No prediction came: the server cannot be reached. Try again."),
    "elsewhere.failed": _N("No prediction came: the server answered with an error. Try again."),
    "error.empty": _N("Write a prompt first."),
    "error.too_long": _N(
        "The prompt is too long: {max} characters at most, and fewer where a character takes "
        "several bytes. Shorten it."
    ),
    "error.form": _N("Nothing was sent: a value in the form is not possible."),
    "error.other": _N("The server said: {message}"),
    "error.because": _N("Refused: {message}."),
    # questions to the REST interface
    "api.offline": _N("The server was not reached. Try again in a moment."),
    "api.notReady": _N("The engine is not ready yet. Try again in a moment."),
    "api.busy": _N("Others are being served just now. Try again in a moment."),
    "api.failed": _N("The server could not answer this. Reload the page and try again."),
    "notice.byte_order_mark_removed": _N("An invisible byte order mark was taken off the prompt."),
    "notice.characters_left_out": _N(
        "The model's vocabulary cannot spell some characters of the prompt; they were left out."
    ),
    # the way: five stages
    "way.tokens.details": _P(
        "{characters} became {n} token: {ratio} characters a token.",
        "{characters} became {n} tokens: {ratio} characters a token.",
    ),
    "way.tokens.characters": _P("{n} character", "{n} characters"),
    "way.tokens.chat": _P(
        "The chat template adds {n} more, {total} in all: markers that say who speaks, and its own "
        "system message if it has one.",
        "The chat template adds {n} more, {total} in all: markers that say who speaks, and its own "
        "system message if it has one.",
    ),
    "way.tokens.more": _P("Show {n} more", "Show {n} more"),
    "way.vectors.shape": _N("{n} × {hidden} numbers × {size} bytes = {bytes}"),
    "way.vectors.table": _N(
        "Picked from a table of {vocabulary} rows, {tableBytes} in {dtype}; 0 FLOPs."
    ),
    "way.vectors.stream": _N(
        "From here on, and between the layers, the vectors are kept in float32: each layer adds "
        "its part to them, and bfloat16 would round much of that away."
    ),
    "way.layers.makeup": _N(
        "{layers} layers, each with {heads} query heads and {kvHeads} key-value heads of {dim} "
        "numbers, and a gated feed-forward network {ffn} wide."
    ),
    "way.layers.prefill": _N("this prefill"),
    "way.layers.decode": _N("one decode step (median)"),
    "way.layers.recompute": _N("one recompute step (median)"),
    "way.layers.tokens": _N("tokens in the step"),
    "way.layers.flops": _N("arithmetic"),
    "way.layers.bytes": _N("bytes moved"),
    "way.layers.intensity": _N("FLOP per byte"),
    "way.layers.time": _N("time, whole step"),
    "way.layers.layersTime": _N("of it in the layers"),
    "way.choices.probability": _N("probability {p}, before temperature"),
    "way.choices.time": _N(
        "{logits} to score the last vector against the vocabulary, {sample} to choose."
    ),
    "way.token.bytes": _N("id {id} → {bytes} → {text}"),
    "way.token.partial": _P(
        "{n} token of this answer ended inside a character; its text waited for the next one.",
        "{n} tokens of this answer ended inside a character; their text waited for the next one.",
    ),
    "way.token.whole": _N("Every token of this answer ended on a whole character."),
    "way.wait": _N("Run a prompt to see its numbers here."),
    "way.missing": _N("— : the engine did not time this part on its own."),
    "way.noCost": _N(
        "— : FLOPs and bytes are counted by the roofline model, which gave none for this step."
    ),
    # the two answers
    "ttft.wait": _N("Being measured: the first token has not come yet."),
    "ttft.none": _N("This run ended before its first token."),
    "ttft.parts": _N("{tokenize} cutting the text, {wait} waiting, {compute} computing."),
    "ttft.compute": _P(
        "{n} prompt token went through all {layers} layers in {steps}.",
        "{n} prompt tokens went through all {layers} layers in {steps}.",
    ),
    "ttft.steps": _P("one step", "{n} steps"),
    "ttft.rate": _N(
        "That is {flops} at {rate}, {share} of what this machine's arithmetic was measured to "
        "reach."
    ),
    "ttft.rateMemory": _N(
        "So short a prompt is still memory-bound: {bytes} moved at {rate}, {share} of this "
        "machine's measured bandwidth."
    ),
    "ttft.rateUnknown": _N("That is {flops} at {rate}."),
    "ttft.waited": _N("The prediction leaves the waiting out."),
    "ttft.mates": _N("Its prefill shared a step with other prompts."),
    "itl.wait": _N("Measured from the second token on."),
    "itl.one": _N("One token has no gap to the next: ask for a longer answer."),
    "itl.caption": _P(", median of {n} gap", ", median of {n} gaps"),
    "itl.captionMean": _P(", mean of {n} gap", ", mean of {n} gaps"),
    "itl.off": _N(
        "With the KV cache off, each step reads all weights and computes the whole text again, to "
        "write a single token."
    ),
    "itl.drafts": _N(
        "Each step reads all weights again, and {kv} of KV cache, to check the drafts: those that "
        "are accepted come at once, so the mean counts here."
    ),
    "itl.weights": _N(
        "Each step reads all weights again, and {kv} of KV cache, to write a single token."
    ),
    "itl.rate": _N(
        "All in all {bytes} moved in {time}: {rate}, {share} of the {bandwidth} that this machine "
        "was measured to read."
    ),
    "itl.rateUnknown": _N("All in all {bytes} moved in {time}: {rate}."),
    "itl.mates": _P(
        "{shared} of {n} decode step was shared with other prompts, up to {max} at once: the "
        "weights were read once for all.",
        "{shared} of {n} decode steps were shared with other prompts, up to {max} at once: the "
        "weights were read once for all.",
    ),
    "itl.pauses": _N(
        "{share} of the time between tokens was in no step of this prompt. No prediction counts "
        "that."
    ),
    "itl.spread": _N("fastest {min} · slowest {max}"),
    "itl.spread.title": _N(
        "All {n} gaps between tokens on a line from 0 to {max}; the median is {usual}."
    ),
    "itl.spread.titleMean": _N(
        "All {n} gaps between tokens on a line from 0 to {max}; the mean is {usual}."
    ),
    "predicted.ideal": _N("predicted {value}, ideal"),
    "predicted.ideal.noWait": _N("predicted {value} without the wait, ideal"),
    "predicted.typical": _N("predicted {value}, typical here (ideal {ideal})"),
    "predicted.typical.noWait": _N(
        "predicted {value} without the wait, typical here (ideal {ideal})"
    ),
    "predicted.wait": _N("predicted —"),
    "predicted.more": _N("measured is {share} more"),
    "predicted.less": _N("measured is {share} less"),
    "predicted.times": _N("measured is {ratio} times that"),
    "predicted.same": _N("measured is the same within 1%"),
    "predicted.none": _N("no prediction: this machine has not been measured"),
    # the strip
    "strip.prefill": _P(
        "prefill · {n} token at once · {time}", "prefill · {n} tokens at once · {time}"
    ),
    "strip.prefillSteps": _N("prefill · {n} tokens in {steps} steps · {time}"),
    "strip.decode": _P("{n} decode step · {time}", "{n} decode steps · {time} each (median)"),
    "strip.recompute": _P(
        "{n} recompute step · {time}", "{n} recompute steps · {time} each (median)"
    ),
    "strip.waiting": _N("waiting · {time}"),
    "strip.running": _N("running · {time}"),
    "strip.first": _N("first token {time}"),
    "strip.step": _N("step {n} of {total}: {phase}, measured {time}, begun at {start}"),
    "strip.step.tokens": _P("{n} token in the step", "{n} tokens in the step"),
    "strip.step.batch": _P("one prompt", "{n} prompts"),
    "strip.step.ideal": _N("predicted {time}, ideal"),
    "strip.step.typical": _N("predicted {time}, typical"),
    "strip.step.token": _N("gave {piece}"),
    "strip.empty": _N("no steps yet"),
    # others in the batch
    "batch.alone": _N("This prompt was alone in every step."),
    "batch.aloneNow": _N("This prompt is alone in the batch."),
    "batch.shared": _N(
        "{n} prompts share each step now; the weights are read once for all of them."
    ),
    "batch.aloneInOwn": _N("This prompt was alone in each of its own steps."),
    "batch.was": _P(
        "{shared} of {n} step was shared with other prompts, up to {max} at once: the line under "
        "it marks it.",
        "{shared} of {n} steps were shared with other prompts, up to {max} at once: the line "
        "under them marks them.",
    ),
    "batch.pauses": _P(
        "In {n} pause between its steps, {time}, the engine did other work.",
        "In {n} pauses between its steps, {time} in all, the engine did other work.",
    ),
    "batch.pausesOf": _P(
        "In {n} pause between its steps, {time}, the engine did other work: {causes}.",
        "In {n} pauses between its steps, {time} in all, the engine did other work: {causes}.",
    ),
    "pause.lane": _N("steps of other forms of the model {time}"),
    "pause.prefill": _N("prefill of other prompts {time}"),
    "pause.decode": _N("decode of other prompts {time}"),
    "pause.preparing": _N("preparing another form of the model {time}"),
    "pause.engine": _N("the engine itself stood still {time}"),
    "batch.waiting": _P("{n} more prompt is waiting.", "{n} more prompts are waiting."),
    "batch.dropped": _P(
        "{n} step is not shown: this connection was too slow for it.",
        "{n} steps are not shown: this connection was too slow for them.",
    ),
    # the roofline
    "roof.prefill": _P("prefill, {n} token", "prefill, {n} tokens"),
    "roof.decode": _P("{n} decode step", "{n} decode steps"),
    "roof.recompute": _P("{n} recompute step", "{n} recompute steps"),
    "roof.decodeMixed": _P(
        "{n} decode step, {mixed} of it mixed", "{n} decode steps, {mixed} of them mixed"
    ),
    "roof.mark": _N("step {n}, {kind}: {intensity} FLOP/byte counted, {rate} measured"),
    "roof.predicted": _N("step {n}, {kind}: {intensity} FLOP/byte counted, {rate} predicted"),
    "roof.other": _N("The last run was in {dtype}; its steps are not drawn on this roof."),
    "roof.noCost": _N(
        "Steps cannot be placed here: the roofline model gave no FLOPs and bytes for them."
    ),
    "roof.below": _P(
        "{n} step lies below the edge of the chart.", "{n} steps lie below the edge of the chart."
    ),
    # the answer, token by token
    "token.card.id": _N("id"),
    "token.card.probability": _N("probability"),
    "token.card.itl": _N("ITL"),
    "token.card.ttft": _N("TTFT"),
    "token.card.step": _N("step"),
    "token.card.batch": _N("prompts in the step"),
    "token.card.number": _N("token {n}"),
    "token.card.partial": _N("part of a character: its text came later"),
    "token.card.joined": _N("it goes on with a character that an earlier token began"),
    "token.card.held": _N("it has no text: it ends the answer, or its text was held back"),
    "token.check.same": _P(
        "{n} character; the streamed pieces equal the whole decode.",
        "{n} characters; the streamed pieces equal the whole decode.",
    ),
    "token.check.cut": _N("It was cut off inside a character, which is shown as �."),
    "token.check.different": _N("The streamed pieces differ from the whole decode."),
    "token.name": _N("{piece}, {p}"),
    # the KV cache
    "cache.count": _P("{n} token", "{n} tokens"),
    "cache.blocks": _P("{n} block of {size}", "{n} blocks of {size}"),
    "cache.pool": _N("{used} of {total} blocks in use by all prompts."),
    "cache.sentence": _P(
        "{n} token of the prompt and {answer} of the answer keep their keys and values: "
        "{perToken} a token, {bytes} in all.",
        "{n} tokens of the prompt and {answer} of the answer keep their keys and values: "
        "{perToken} a token, {bytes} in all.",
    ),
    "cache.off": _N(
        "The KV cache is off: nothing is kept, and every step computes the whole text again."
    ),
    "cache.gone": _N("The engine's process ended, and its whole cache with it."),
    "cache.freed": _N("The run is over: its blocks went back to the pool."),
    "cache.cell": _N("block {n}: tokens {from} to {to}, {prompt} of the prompt, {answer} new"),
    "cache.cell.free": _N("block {n}: not needed yet, reserved by no one"),
    "cache.more": _P("{n} more block is not drawn.", "{n} more blocks are not drawn."),
    # the step table
    "table.range": _N("steps {from} to {to} of {total}"),
    # why the engine refused: its own sentences
    **{f"refusal.{reason}": sentence for reason, sentence in REFUSALS.items()},
}


def script_texts(texts: Texts) -> dict[str, str | tuple[str, str]]:
    """All script texts in one language; those with two forms as (one, other)."""
    return {
        key: texts.gettext(text) if isinstance(text, str) else texts.forms(text.one, text.other)
        for key, text in SCRIPT_TEXTS.items()
    }


def translated(
    source: Mapping[str, str | tuple[str, str]], texts: Texts
) -> dict[str, str | tuple[str, str]]:
    """Texts of scripts that are kept elsewhere, in one language; a pair is (one, other), each
    marked and translated on its own."""
    return {
        key: texts.gettext(text)
        if isinstance(text, str)
        else (texts.gettext(text[0]), texts.gettext(text[1]))
        for key, text in source.items()
    }
