"""Fifty short prompts: half of them call for text that repeats itself, half for free text."""

from __future__ import annotations

REPETITIVE = "repetitive"
FREE = "free"

_COPIES = (
    "Items: apples, pears, plums, cherries, quinces, figs, dates, olives.\nThe same items again: "
    "apples, pears, plums,",
    "Original: The ferry leaves the north pier at seven and returns at nine.\nCopy: The ferry "
    "leaves the north",
    "Say it three times.\n1. A slow river cuts a deep valley.\n2. A slow river cuts a deep valley."
    "\n3.",
    "Names: Ada, Grace, Alan, Edsger, Barbara, Donald.\nNames: Ada, Grace, Alan, Edsger, Barbara, "
    "Donald.\nNames:",
    "Shopping list:\n- flour\n- butter\n- sugar\n- eggs\n- milk\n\nShopping list (copy):\n- flour\n"
    "- butter\n",
    "Stations: Elm Street, Old Mill, Harbour, Museum, Castle, Airport.\nOn the way back: Airport, "
    "Castle, Museum,",
    "The key is 7391-AB22-90KX. Please repeat the key.\nThe key is 7391-AB22-",
    "Chorus:\nRow on, row on, over the bay,\nrow on, row on, until the day.\n\nChorus:\nRow on, "
    "row on,",
)
_CODE = (
    "class Point:\n    def __init__(self, x, y, z):\n        self.x = x\n        self.y = y\n"
    "        self.z = z\n\nclass Vector:\n    def __init__(self, x, y, z):\n",
    "def get_name(self):\n    return self._name\n\ndef get_size(self):\n    return self._size\n\n"
    "def get_color(self):\n",
    'if day == 1:\n    print("Monday")\nelif day == 2:\n    print("Tuesday")\nelif day == 3:\n',
    '#include <stdio.h>\n\nint main(void) {\n    printf("%d\\n", 1);\n    printf("%d\\n", 2);\n'
    '    printf("%d\\n", 3);\n',
    "import os\nimport sys\n\nRED = 'red'\nGREEN = 'green'\nBLUE = 'blue'\nCOLORS = [RED, GREEN, "
    "BLUE]\nNAMES = {RED: 'red', GREEN:",
    "INSERT INTO users (id, name) VALUES (1, 'ann');\nINSERT INTO users (id, name) VALUES (2, "
    "'bob');\nINSERT INTO",
    "assert add(1, 2) == 3\nassert add(2, 3) == 5\nassert add(3, 4) == 7\nassert add(4, 5) ==",
    "for i in range(10):\n    for j in range(10):\n        a[i][j] = 0\n\nfor i in range(10):\n"
    "    for j in range(10):\n        b[i][j]",
)
_TABLES = (
    "| city | country |\n|---|---|\n| Paris | France |\n| Rome | Italy |\n| Madrid | Spain |\n"
    "| Berlin |",
    "n, square\n1, 1\n2, 4\n3, 9\n4, 16\n5,",
    '[{"id": 1, "ok": true, "tags": []}, {"id": 2, "ok": true, "tags": []}, {"id": 3,',
    '{"width": 10, "height": 10, "depth": 10}\n{"width": 20, "height": 20, "depth": 20}\n{"width":',
    "<ul>\n  <li>one</li>\n  <li>two</li>\n  <li>three</li>\n",
    "2024-01-01 10:00 INFO started\n2024-01-01 10:01 INFO started\n2024-01-01 10:02 INFO",
    "Q: 2 + 2?\nA: 4\nQ: 3 + 3?\nA: 6\nQ: 4 + 4?\nA:",
    "server1:\n  host: localhost\n  port: 8001\nserver2:\n  host: localhost\n  port: 8002\n"
    "server3:",
    "one two three four one two three four one two three four one two",
)
_STORIES = (
    "The lighthouse keeper had not spoken to anyone for a year when",
    "On the last train of the night, a woman opened a small wooden box and",
    "My grandmother used to say that the sea",
    "The robot looked at the garden for the first time and",
    "It was raining in the old market, and the baker",
    "When the telescope was switched on, the astronomers",
    "The letter had no stamp and no address, only",
    "Two brothers inherited a farm, but",
)
_QUESTIONS = (
    "Why is the sky blue? The short answer is that",
    "The most important thing about learning to cook is",
    "Explain what an atom is to a child:",
    "The difference between weather and climate is",
    "What makes a good friend? In my opinion,",
    "How do birds find their way when they migrate?",
    "The history of paper begins",
    "A heart pumps blood by",
    "If I could travel anywhere, I would",
)
_ESSAYS = (
    "Advice for a first day at a new job:",
    "Dear neighbour, I am writing to you because",
    "A review of the new restaurant in town:",
    "The economy of the small island depends on",
    "In the morning light the mountains look",
    "Music matters to people because",
    "The main causes of the war were",
    "Sleep is important because",
)

PROMPTS: tuple[tuple[str, str], ...] = (
    *((REPETITIVE, text) for text in (*_COPIES, *_CODE, *_TABLES)),
    *((FREE, text) for text in (*_STORIES, *_QUESTIONS, *_ESSAYS)),
)
"""Pairs of the kind of text that a prompt calls for, and the prompt."""
