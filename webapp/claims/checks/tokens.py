"""Checks of the claims about tokens: C02, C03, C04. All of it is computed, so at once."""

from __future__ import annotations

import anyio.to_thread
from babel import Locale

from engine.catalog.bpe import train
from engine.catalog.parallel_texts import parallel_source, parallel_texts
from engine.catalog.units import significant
from engine.catalog.vocabularies import vocabulary, vocabulary_sources
from engine.simulator.search.document import read_cell
from engine.simulator.search.estimate import estimate
from webapp.claims.bench import Bench
from webapp.claims.claim import Check, Evidence, Finding, Verdict
from webapp.i18n import N_, Texts
from webapp.lessons.lesson import Basis
from webapp.tokenizing import LanguageCount, count_languages

_WORD = "unhappiness"
_PIECES = ("un", "happi", "ness")
_SENTENCE = "How does inference work?"
_IDS = (2437, 1374, 32278, 670, 30)
_TRAINED_ON = 400
_MERGES = 60
_PROMPT_TOKENS = 1_000
_MODEL, _HARDWARE = "llama-3.1-8b", "h100-sxm"


async def check_merging(bench: Bench) -> Finding:
    """C02: merges are learned by frequency, and what GPT-2's own make of the article's word."""
    return await anyio.to_thread.run_sync(_merging, bench.said)


def _merging(said: Texts) -> Finding:
    gpt2 = vocabulary("r50k")
    text = parallel_texts()[0].articles[1][:_TRAINED_ON]
    learned = train(gpt2.words(text), _MERGES)
    counts = [merge.count for merge in learned.merges]
    by_frequency = counts == sorted(counts, reverse=True)
    pieces = {
        name: tuple(token.bytes.decode() for token in vocabulary(name).encode(_WORD))
        for name in vocabulary_sources()
    }
    evidence = [
        Evidence(
            said.gettext(N_("merges learned from {n} characters, counts falling")).format(
                n=len(text)
            ),
            f"{counts[0]} … {counts[-1]} ({len(counts)})",
            Basis.COMPUTED,
            parallel_source(),
        ),
        *(
            Evidence(f"{_WORD}, {about.name}", " · ".join(pieces[name]), Basis.COMPUTED)
            for name, about in vocabulary_sources().items()
        ),
        Evidence(
            said.gettext(N_("ordinary tokens of GPT-2 and of SmolLM2")),
            f"{len(gpt2):,} · {len(vocabulary('smollm2')):,}",
            Basis.PUBLISHED,
            gpt2.about.source,
        ),
    ]
    verdict = _of_merging(by_frequency, pieces["r50k"])
    return Finding(
        verdict,
        said.gettext(
            N_(
                "Learning by frequency is right: each merge took the pair that was most frequent "
                "just then. GPT-2's tokenizer cuts the word into {pieces}."
            )
            if by_frequency
            else N_("A later pair was more frequent than an earlier one; GPT-2 gives {pieces}.")
        ).format(pieces=" · ".join(pieces["r50k"])),
        tuple(evidence),
        ""
        if verdict is Verdict.RIGHT
        else said.gettext(
            N_(
                "The tokenizers here start from bytes and not from characters, and the article's "
                "un · happi · ness is not what GPT-2 makes: pieces follow frequency, not meaning."
            )
        ),
    )


def _of_merging(by_frequency: bool, pieces: tuple[str, ...]) -> Verdict:
    if not by_frequency:
        return Verdict.WRONG
    return Verdict.RIGHT if pieces == _PIECES else Verdict.CAVEAT


async def check_ids(bench: Bench) -> Finding:
    """C03: the ids of the article's sentence, from GPT-2's own vocabulary."""
    return await anyio.to_thread.run_sync(_ids, bench.said)


def _ids(said: Texts) -> Finding:
    gpt2 = vocabulary("r50k")
    found = tuple(token.id for token in gpt2.encode(_SENTENCE))
    right = sum(a == b for a, b in zip(found, _IDS, strict=False))
    differing = [at for at, (a, b) in enumerate(zip(found, _IDS, strict=False)) if a != b]
    if found == _IDS:
        verdict, caveat = Verdict.RIGHT, ""
    else:
        verdict = Verdict.WRONG
        caveat = said.gettext(
            N_("{right} of {total} ids are right. Where the article differs: {places}.")
        ).format(right=right, total=len(_IDS), places=_places(differing, found))
    return Finding(
        verdict,
        said.gettext(N_("GPT-2's own vocabulary gives {ids}.")).format(
            ids=", ".join(map(str, found))
        ),
        (
            Evidence(
                said.gettext(N_("ids of the sentence, r50k")),
                ", ".join(map(str, found)),
                Basis.COMPUTED,
                gpt2.about.source,
            ),
            Evidence(
                said.gettext(N_("ids that the article gives")),
                ", ".join(map(str, _IDS)),
                Basis.PUBLISHED,
            ),
        ),
        caveat,
    )


def _places(differing: list[int], found: tuple[int, ...]) -> str:
    """Each id of the article that differs, with what it really spells, and the right one."""

    def told(token: int) -> str:
        return f"{token} (“{vocabulary('r50k').spell(token).decode()}”)"

    return "; ".join(f"{told(_IDS[at])} → {told(found[at])}" for at in differing)


async def check_languages(bench: Bench) -> Finding:
    """C04: tokens for the same articles, and what they do to TTFT by prediction."""
    return await anyio.to_thread.run_sync(_languages, bench.said)


def _languages(said: Texts) -> Finding:
    english, *others = count_languages()
    ratios = [ratio for found in others for ratio in found.relative.values()]
    more = sum(ratio > 1 for ratio in ratios)
    old, new = "smollm2", "o200k"
    worst = max(others, key=lambda found: found.relative[old])
    worst_new = max(others, key=lambda found: found.relative[new])
    seconds = [_ttft(round(_PROMPT_TOKENS * found.relative[old])) for found in (english, worst)]
    verdict = _of_languages(more, len(ratios), seconds)
    return Finding(
        verdict,
        said.gettext(
            N_(
                "In {more} of {cells} cases, {languages} languages by {tokenizers} tokenizers, the "
                "same articles take more tokens than in English."
            )
        ).format(
            more=more,
            cells=len(ratios),
            languages=len(others),
            tokenizers=len(vocabulary_sources()),
        ),
        (
            _ratio_evidence(said, worst, old),
            _ratio_evidence(said, worst_new, new),
            Evidence(
                said.gettext(
                    N_("TTFT of {n} English tokens, and of the same text in {language}")
                ).format(n=f"{_PROMPT_TOKENS:,}", language=_language(said, worst)),
                f"{significant(1e3 * seconds[0])} ms · {significant(1e3 * seconds[1])} ms",
                Basis.PREDICTED,
                said.gettext(
                    N_("{model} on {hardware} at the roofline, as if its tokenizer were {name}'s")
                ).format(model=_MODEL, hardware=_HARDWARE, name=vocabulary_sources()[old].name),
            ),
        ),
        said.gettext(
            N_(
                "How much more depends on the tokenizer: a larger vocabulary that was learned from "
                "more languages narrows the gap, and a short prompt does not start later in "
                "proportion."
            )
        ),
    )


def _ratio_evidence(said: Texts, found: LanguageCount, name: str) -> Evidence:
    about = vocabulary_sources()[name]
    told = said.gettext(N_("most tokens over English by {tokenizer}: {language}"))
    return Evidence(
        told.format(tokenizer=about.name, language=_language(said, found)),
        f"×{found.relative[name]:.2f}",
        Basis.COMPUTED,
        parallel_source(),
    )


def _language(said: Texts, found: LanguageCount) -> str:
    """The language's name as the reader calls it."""
    locale = Locale.parse(found.language.tag, sep="-")
    return locale.get_display_name(said.language.locale) or found.language.name


def _ttft(prompt_tokens: int) -> float:
    """Seconds, predicted for one request."""
    cell = {"model": _MODEL, "hardware": _HARDWARE, "prompt_tokens": prompt_tokens}
    return estimate(read_cell(cell)).ttft


def _of_languages(more: int, cells: int, seconds: list[float]) -> Verdict:
    later = seconds[1] > seconds[0]
    if later and more == cells:
        return Verdict.RIGHT
    return Verdict.CAVEAT if later and 2 * more > cells else Verdict.WRONG


CHECKS: dict[str, Check] = {
    "C02": check_merging,
    "C03": check_ids,
    "C04": check_languages,
}
