"""What always holds between two steps; for tests, after each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.scheduling.blocks import BlockPool
from engine.scheduling.policies import Order
from engine.scheduling.request import Request, RequestState


def check_queues(
    waiting: Sequence[Request], running: Sequence[Request], rank: Callable[[Request], Order]
) -> None:
    """Compare each request with the queue it is in.

    Raises:
        AssertionError: a queue is out of order, or a state does not go with its queue.
    """
    for queue, state in ((waiting, RequestState.WAITING), (running, RequestState.RUNNING)):
        if list(queue) != sorted(queue, key=rank):
            raise AssertionError("a queue is not in the order of rank")
        if any(request.state is not state for request in queue):
            raise AssertionError("a request is not in the state of its queue")
    for request in waiting:
        if request.block_table or request.num_computed_tokens or request.chain.num_blocks:
            raise AssertionError("a waiting request holds blocks")


def check_running(request: Request, pool: BlockPool) -> None:
    """Compare a running request's progress with its blocks.

    Raises:
        AssertionError: it computed what it can not have, or could write where others read.
    """
    computed = request.num_computed_tokens
    if not 0 <= computed < request.num_known_tokens:
        raise AssertionError("a request computed more than it knows")
    if computed > len(request.block_table) * pool.block_size:
        raise AssertionError("a request computed more than it has room for")
    to_write = request.block_table[computed // pool.block_size :]
    if not all(map(pool.is_exclusive, to_write)):
        raise AssertionError("a request is about to write into a block that others may read")
