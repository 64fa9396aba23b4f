"""Clients that each keep one request under way: a closed loop of a fixed concurrency.

Clients start one after the other over the time of one answer alone. Equal answers would else keep
them in step for good: all prompts at once, then all tokens at once, which no service sees.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.measuring.client import Client, Stopped
from engine.measuring.reply import Failure, Reply

_HOPELESS = 5
"""Failures without any answer, and at least one a client, after which a point is given up."""

Told = Callable[[Reply], None]


@dataclass(slots=True)
class Load:
    """One point's requests: ``prompts`` are made beforehand, one for each request.

    ``spread``: seconds over which the clients start. ``told`` hears of each reply, one at a time.
    """

    client: Client
    prompts: list[str]
    output_tokens: int
    concurrency: int
    spread: float
    told: Told
    given_up: bool = False
    replies: list[Reply] = field(default_factory=list[Reply])
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _fault: BaseException | None = None

    def run(self) -> list[Reply]:
        """Sends all of them, and gives the replies in the order of their ends.

        Raises:
            KeyboardInterrupt: as it comes; what is under way is then stopped, ``replies`` kept.
        """
        clients = min(self.concurrency, len(self.prompts))
        threads = [
            threading.Thread(target=self._work, args=(self.spread * place / clients,), daemon=True)
            for place in range(clients)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.client.stop.set()
            raise
        if self._fault is not None:
            raise self._fault
        return self.replies

    def _work(self, delay: float) -> None:
        try:
            self.client.stop.wait(delay)
            while (prompt := self._take()) is not None:
                reply = self.client.ask(prompt, self.output_tokens)
                self._keep(reply)
                if reply.failure is Failure.RATE_LIMITED:
                    self.client.wait(reply)
        except Stopped:
            return
        except BaseException as error:
            # Raised again by ``run``, in its thread.
            self._fault = error

    def _take(self) -> str | None:
        with self._lock:
            done = self.given_up or self._fault is not None or self.client.stop.is_set()
            if done or self._next >= len(self.prompts):
                return None
            self._next += 1
            return self.prompts[self._next - 1]

    def _keep(self, reply: Reply) -> None:
        with self._lock:
            self.replies.append(reply)
            enough = len(self.replies) >= max(_HOPELESS, self.concurrency)
            if enough and not any(item.ok for item in self.replies):
                self.given_up = True
            self.told(reply)
