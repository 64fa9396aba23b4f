"""The small cache of the lessons: blocks are neither lost nor given twice, whatever is asked."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from webapp.i18n import Language, texts
from webapp.pages.pool_run import (
    CHUNKS,
    COMMON_TOKENS,
    LEAST_BLOCKS,
    MOST_BLOCKS,
    NAMES,
    OUTPUTS,
    PROMPTS,
    PoolQuestion,
    blocks_of,
    read_pool_question,
    run_pool,
)
from webapp.pages.pool_view import pool_view

SAID = texts(Language.ENGLISH)
EVERY_SIZE = pytest.mark.parametrize("blocks", range(LEAST_BLOCKS, MOST_BLOCKS + 1))


@EVERY_SIZE
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_blocks_and_tokens_add_up(blocks: int, share: bool, chunk: int) -> None:
    steps = run_pool(PoolQuestion(blocks, share, chunk))
    for step in steps:
        held = [block for table in step.tables.values() for block in table]
        assert set(held) <= set(range(blocks))
        assert len(set(held)) + len(step.cached) <= blocks
        assert share or len(held) == len(set(held)), "a block has two owners"
        assert not step.cached & set(held)
        assert sum(part.tokens for part in step.parts.values()) <= chunk
    # Every position is computed once, found, or computed again after it was lost. A position whose
    # owner yields before it was computed is not lost; the last sampled token is never computed.
    computed = sum(part.tokens for step in steps for part in step.parts.values())
    found = sum(sum(step.found.values()) for step in steps)
    lost = sum(sum(step.preempted.values()) for step in steps)
    assert computed + found == sum(PROMPTS) + sum(OUTPUTS) - len(NAMES) + lost


def test_enough_blocks_and_nobody_yields() -> None:
    whole = sum(map(blocks_of, range(len(NAMES))))
    roomy = run_pool(PoolQuestion(whole))
    assert not any(step.preempted for step in roomy)
    assert any(step.preempted for step in run_pool(PoolQuestion(12)))
    assert max(len(step.parts) for step in roomy) == len(NAMES)


def test_equal_beginnings_take_their_whole_blocks_once() -> None:
    steps = run_pool(PoolQuestion(MOST_BLOCKS, share=True))
    whole = COMMON_TOKENS // 16 * 16
    assert [dict(step.found) for step in steps if step.found] == [
        {"B": whole},
        {"C": whole},
        {"D": whole},
    ]
    together = next(step for step in steps if len(step.tables) == len(NAMES))
    first = {table[:2] for table in together.tables.values()}
    assert len(first) == 1
    assert together.owners(first.pop()[0]) == "ABCD"


def test_a_preempted_one_computes_again_what_it_lost() -> None:
    steps = run_pool(PoolQuestion(16))
    (name, lost), *_ = [item for step in steps for item in step.preempted.items()]
    again = [step.parts[name] for step in steps if name in step.parts]
    # What it had sampled last had not been computed yet: one position more than was lost.
    assert sum(part.tokens for part in again if part.phase == "recompute") == lost + 1


@EVERY_SIZE
def test_the_picture_holds_every_step(blocks: int) -> None:
    view = pool_view(PoolQuestion(blocks, at=10**6), SAID)
    assert view.at == view.steps
    for picture in (view.wide, view.narrow):
        right = picture.size.width - picture.size.right + 0.1
        assert all(picture.size.left <= bar.x <= bar.x + bar.width <= right for bar in picture.bars)
        assert len(picture.marks) == view.preemptions


def test_its_fragments(client: TestClient) -> None:
    form = client.get("/fragments/pool?blocks=12").text
    assert "Blocks ran out" in form
    assert 'aria-valuetext="12"' in form
    answer = client.get("/fragments/pool-answer?blocks=28&share=on&lang=zh-Hans").text
    assert "没有人需要交出块" in answer
    assert "96 个位置是找到的" in answer


def test_a_query_that_says_nothing_of_use() -> None:
    assert read_pool_question({"blocks": "1", "chunk": "17", "at": "-3"}) == PoolQuestion(
        LEAST_BLOCKS
    )
