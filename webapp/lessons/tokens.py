"""Lesson 2: text becomes tokens."""

from __future__ import annotations

from collections.abc import Mapping

from engine.catalog.parallel_texts import parallel_texts
from engine.catalog.vocabularies import vocabulary_sources
from webapp.i18n import N_
from webapp.lessons.lesson import Basis, CodeLink, Figure, Guess, Lesson, Task, Teaching


def _figures() -> Mapping[str, Figure]:
    sources = vocabulary_sources()
    counted = {name: f"{about.tokens:,}" for name, about in sources.items()}
    of_r50k = N_("ordinary tokens of r50k_base, as tiktoken publishes it")
    of_smollm2 = N_("ordinary tokens of SmolLM2, counted in its model file")
    of_o200k = N_("ordinary tokens of o200k_base, as tiktoken publishes it")
    texts = N_("translations of the Universal Declaration of Human Rights that are stored here")
    return {
        "r50k": Figure(counted["r50k"], Basis.PUBLISHED, of_r50k),
        "smollm2": Figure(counted["smollm2"], Basis.COMPUTED, of_smollm2),
        "o200k": Figure(counted["o200k"], Basis.PUBLISHED, of_o200k),
        "languages": Figure(f"{len(parallel_texts())}", Basis.COMPUTED, texts),
    }


_TASKS = (
    Task(
        "own-text",
        N_("Type a text of your own into the lab and look at the bytes of one token."),
        N_("A token is a run of bytes with a number. It need not be a word, nor a character."),
    ),
    Task(
        "replay",
        N_("Step through the merges of a word to its last one."),
        N_("The tokenizer decides nothing by meaning: it merges the pair of the lowest rank."),
    ),
    Task(
        "train",
        N_("Learn merges from a text of your own, and step through them."),
        N_("What is frequent in the text becomes one token; what is rare stays in pieces."),
    ),
    Task(
        "languages",
        N_("Measure the time to the first token for the same article in all languages."),
        N_("The same article costs more tokens in some languages, so its answer starts later."),
    ),
)

_CODE = (
    CodeLink("engine/catalog/bpe.py", "train", N_("learns merges, the most frequent pair first")),
    CodeLink("engine/catalog/bpe.py", "replay", N_("merges a word, one pair after the other")),
    CodeLink("engine/catalog/bpe.py", "merge_word", N_("the same with a heap")),
    CodeLink(
        "engine/catalog/vocabularies.py",
        "Vocabulary.encode",
        N_("cuts a text into words and merges each"),
    ),
    CodeLink(
        "engine/inference/tokenizer.py",
        "Tokenizer.encode_chat",
        N_("puts the markers of a conversation around its turns"),
    ),
    CodeLink(
        "engine/inference/detokenizer.py",
        "StreamDetokenizer.push",
        N_("gives text back only when its characters are whole"),
    ),
)

_TEACHING = Teaching(
    minutes=20,
    pitfalls=(
        N_("Tokens are taken for words or syllables. Let them look at the bytes of a rare word."),
        N_("The space is forgotten: a word at the start of a text is another token than inside."),
        N_(
            "Learners blame the model for what the tokenizer did: it never saw the letters of a "
            "word that is one token."
        ),
        N_("Counts are compared between tokenizers as if a token were a fixed amount of text."),
    ),
    questions=(
        N_("Why can a tokenizer on bytes spell any text, and one on words not?"),
        N_("Why is it hard for a model to count the letters of a word?"),
        N_("Who pays for the languages that a tokenizer saw little of, and how?"),
        N_("What would you merge first if all your texts were program code?"),
    ),
)

_TEXTS: dict[str, str | tuple[str, str]] = {
    "lab.count": (
        N_("{n} token, {characters} characters, {bytes} bytes: {rate} characters a token"),
        N_("{n} tokens, {characters} characters, {bytes} bytes: {rate} characters a token"),
    ),
    "lab.more": (N_("{n} more token is not shown."), N_("{n} more tokens are not shown.")),
    "lab.piece": N_("{piece}, id {id}"),
    "lab.special": N_("control token: ordinary text never becomes it"),
    "lab.part": N_("a part of a character: only with its neighbours it is whole"),
    "lab.id": N_("id"),
    "lab.bytes": N_("bytes"),
    "lab.empty": N_("Type something."),
    "lab.measured": N_("tokenized in {time} by the engine, measured"),
    "lab.computed": N_("computed from the stored vocabulary"),
    "lab.left_out": N_("The vocabulary has no bytes for some characters; they were left out."),
    "guess.truth": N_("GPT-2's tokenizer cuts it into {pieces}."),
    "ids.same": N_("the same"),
    "ids.different": N_("different: {id} is {piece}"),
    "ids.sum": (
        N_("{n} id of {total} differs."),
        N_("{n} ids of {total} differ."),
    ),
    "merge.start": N_("{word}: every byte for itself"),
    "merge.step": N_("Merge {step} of {total}: {left} and {right} become {piece}"),
    "merge.rank": N_("rank {rank}"),
    "merge.none": N_("Nothing to merge: every byte stays a token."),
    "merge.end": (
        N_("No pair of neighbours has a rank any more: {n} token is left."),
        N_("No pair of neighbours has a rank any more: {n} tokens are left."),
    ),
    "train.start": (
        N_("{n} character, each a token of its own"),
        N_("{n} characters, each a token of its own"),
    ),
    "train.step": (
        N_("Step {step} of {total}: {left} and {right} stood side by side {n} time"),
        N_("Step {step} of {total}: {left} and {right} stood side by side {n} times"),
    ),
    "train.size": (
        N_("The text is now {n} token long, from {before} characters."),
        N_("The text is now {n} tokens long, from {before} characters."),
    ),
    "train.none": N_("No pair stands in this text twice: there is nothing to learn."),
    "lang.article": N_("article {n}"),
    "lang.all": N_("all thirty articles"),
    "lang.tokens": (N_("{n} token"), N_("{n} tokens")),
    "lang.times": N_("×{n}"),
    "lang.measuring": N_("Measuring {language}, {done} of {total}…"),
    "lang.measured": N_("Measured on {model}: {slowest} takes {times} times as long as English."),
    "lang.stopped": N_("Stopped. What was measured stays."),
    "lang.usd": N_("US$ {n}"),
}

LESSON = Lesson(
    number=2,
    slug="tokens",
    title=N_("Text becomes tokens"),
    question=N_("A model reads numbers, not letters. Who decides where a word is cut?"),
    guess=Guess(
        N_("How does GPT-2's tokenizer cut “unhappiness”?"),
        (
            N_("unhappiness, in one piece"),
            N_("un · happiness"),
            N_("un · happi · ness"),
            N_("un · h · appiness"),
        ),
    ),
    tasks=_TASKS,
    claims=("C02", "C03", "C04"),
    code=_CODE,
    teaching=_TEACHING,
    scripts=("token-lab", "token-merges", "token-training", "token-languages"),
    styles=("tiles",),
    texts=_TEXTS,
    figures=_figures,
)
