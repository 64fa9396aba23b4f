"""Prompts that a reader can pick, each to make one thing visible.

Prompts keep their own language in every language of the page; only their labels are translated.
"""

from __future__ import annotations

from dataclasses import dataclass

_LONG = """\
Read the notes below, then say in one sentence what they have in common.

A library keeps its most wanted books on a trolley by the door. When ten readers come at once, the \
librarian pushes the trolley past all of them and every reader takes what is needed: one walk, ten \
answers. When one reader comes alone, the trolley is pushed just as far for a single book.

A baker heats the oven before dawn. The oven costs the same whether it holds one loaf or sixty, so \
the baker waits until the shelves are full. A customer who wants one roll at noon either pays for \
an empty oven or is asked to come back with the others.

A ferry crosses the river every quarter of an hour. The crossing takes the same fuel with three \
cars or with thirty. On a quiet morning almost all of the fuel moves the ferry itself. On a \
holiday almost all of it moves people, and the captain worries about the engine instead of the \
tickets.

A printing house sets the type for a page once. Setting the page takes an hour; each sheet after \
that takes a second. A pamphlet of one copy costs an hour, a pamphlet of ten thousand costs three. \
Nobody would reset the type between two sheets, and yet that is what happens when each letter of a \
message has to be carried from the cellar to the press and back again.

A postman has a bag with every letter for the street and walks from door to door. If the houses \
wrote their answers at once, he could bring all of them back on the same walk. But each answer \
depends on the one before: the second house can only write after the first one has been read. So \
he walks the whole street again for every single letter, with a bag that grows a little each time, \
because the houses want to see all that was written before.

A choir learns a new song. The first reading takes the whole evening: every page is opened, every \
voice is sung, and the director marks each bar in the score. After that, each further verse is \
short. The pages are open, the marks are there, and only the new words have to be found. Without \
the marks, the choir would have to begin at the first bar for every new word.

A mountain guide walks ahead with a lamp. The group behind could run, for the path is wide and \
their legs are rested, but nobody can go faster than the light. More runners would not help; a \
brighter lamp would. Lower down, where the path is narrow and steep, the lamp is more than bright \
enough, and there it is the legs that set the pace.
"""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A prompt with the id of its label (see the template) and the language it is written in."""

    id: str
    prompt: str
    language: str = "en"
    chat: bool = True


SUGGESTIONS = (
    Suggestion(
        "english", "Explain in two sentences why the first token is slow and the rest are fast."
    ),
    Suggestion("chinese", "请用两句话介绍一下长城。", language="zh-Hans"),
    Suggestion("emoji", "Write a very short story with a 🦊, a 🐢 and a 👩‍🚀. Use the emoji."),
    Suggestion("code", "def fibonacci(n):\n    ", chat=False),
    Suggestion("long", _LONG),
)
