"""Texts that the scripts of the playground put on the page: replaying, keeping, comparing."""

from __future__ import annotations

from collections.abc import Mapping

from webapp.i18n import N_, Language, texts
from webapp.pages.script_texts import script_texts, translated

PLAYGROUND_TEXTS: Mapping[str, str | tuple[str, str]] = {
    # the stage of choices
    "choices.which": N_(
        "Token {n} of the answer, {piece}, id {id}: one choice out of {vocabulary} scores."
    ),
    "choices.caption": N_("The likeliest tokens, before temperature and filters"),
    "choices.chosen": N_("chosen"),
    "choices.rest": N_("all others together"),
    "choices.other": N_("Point at another token of the answer to see its choice here."),
    # replaying
    "replay.play": N_("Play"),
    "replay.pause": N_("Pause"),
    "replay.at": N_("{at} of {end}"),
    "run.loading": N_("The run is being loaded."),
    "again.filled": N_("The form holds the settings of the saved run. Run it when you like."),
    # keeping
    "keep.saved": N_("Saved. This is its link."),
    "keep.until": N_("It is kept until {date}. Only this browser can delete it before."),
    "keep.copied": N_("The link was copied."),
    "keep.copy": N_("The link is selected: copy it."),
    "keep.deleted": N_("It was deleted. The link leads nowhere now."),
    "keep.many": N_("Many runs were saved from this network. Try again in some minutes."),
    "keep.full": N_("There is no room for more saved runs here. Export it instead."),
    "picture.measured": N_("TTFT {ttft} · ITL {itl} · measured"),
    "picture.legend": N_("Filled: measured. Outlined: predicted."),
    "picture.where": N_("{model} on {machine} · {date} · First Token"),
    # comparing
    "kind.predicted": N_("predicted"),
    "compare.numbers": N_("Both runs in numbers"),
    "compare.beside": N_("B beside A"),
    "compare.ttft": N_("time to first token (TTFT)"),
    "compare.itl": N_("between tokens (ITL)"),
    "compare.rate": N_("tokens a second, after the first"),
    "compare.whole": N_("whole run"),
    "compare.prompt": N_("tokens of the prompt"),
    "compare.tokens": N_("tokens of the answer"),
    "compare.steps": N_("steps after the first token"),
    "compare.same": N_("the same"),
    "compare.more": N_("{share} more"),
    "compare.less": N_("{share} less"),
    "compare.times": N_("{ratio} times"),
    "compare.time": N_("Both on one time axis"),
    "compare.strip": N_("Run {name}: first token after {ttft}, all done after {whole}."),
    "compare.texts": N_("Both answers"),
    "compare.answer": N_("Answer {name}"),
    "compare.equal": N_("Both answers are the same, token for token."),
    "compare.diverge": N_(
        "They part at token {n}: A goes on with {a}, B with {b}. What only one of them has is "
        "underlined."
    ),
    "compare.parts": N_("token {n}, where the answers part: {piece}"),
    "compare.end": N_("its end"),
    "compare.settings": N_("Settings that differ"),
    "compare.settings.same": N_("All settings are the same, and so are model and machine."),
    "compare.setting.prompt": N_("Prompt"),
    "compare.setting.mode": N_("The prompt is"),
    "compare.chat": N_("a question"),
    "compare.plain": N_("a beginning"),
    "compare.setting.max_tokens": N_("Length, tokens"),
    "compare.setting.temperature": N_("Temperature"),
    "compare.setting.top_k": N_("Top-k"),
    "compare.setting.top_p": N_("Top-p"),
    "compare.setting.min_p": N_("Min-p"),
    "compare.setting.repetition_penalty": N_("Repetition penalty"),
    "compare.setting.seed": N_("Seed"),
    "compare.setting.stop": N_("Stop at this text"),
    "compare.setting.lane": N_("Weights and KV cache"),
    "compare.setting.prefix_cache": N_("Prefix cache"),
    "compare.on": N_("on"),
    "compare.off": N_("off"),
    "compare.setting.speculation": N_("Drafts"),
    "compare.setting.model": N_("Model"),
    "compare.setting.machine": N_("Machine"),
    "compare.ready": N_("Both runs stand side by side now."),
}


def playground_texts(language: Language) -> dict[str, str | tuple[str, str]]:
    """The texts of the scripts of every page that shows a run."""
    known = texts(language)
    return script_texts(known) | translated(PLAYGROUND_TEXTS, known)
