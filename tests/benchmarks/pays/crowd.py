"""Users who come one after the other, and ask again as soon as their answers are complete."""

from __future__ import annotations

from dataclasses import dataclass

from engine.inference.loading import LoadedModel
from engine.inference.messages import Done, Token
from tests.benchmarks.pays.driver import Driver, Taken, greedy, passages


@dataclass(frozen=True, slots=True)
class BatchingPlan:
    """``steps_between`` two arrivals. The window is ``pieces`` of ``piece_steps`` steps. The
    machine is calibrated ``calibrations`` times: before, and again after."""

    users: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    prompt_tokens: int = 50
    max_tokens: int = 64
    dtype: str = "bfloat16"
    steps_between: int = 2
    piece_steps: int = 32
    pieces: int = 3
    calibrations: int = 2


class Crowd:
    """Users of one engine; each has a session of its own."""

    def __init__(self, model: LoadedModel, plan: BatchingPlan, users: int) -> None:
        self._driver = Driver(model, max_running=max(plan.users), policy="fair")
        self._plan = plan
        self._users = users
        self._asked = [0] * users
        self._prompts = passages(model, plan.prompt_tokens, 2 * users)

    def arrive(self) -> None:
        """Take users in one by one and step until the last of them has its first token."""
        waiting = set(range(self._users))
        for user in range(self._users):
            self._ask(user)
            for _ in range(self._plan.steps_between):
                waiting -= self._step_for()
        while waiting:
            waiting -= self._step_for()

    def step(self) -> Taken:
        """One step, after which those whose answer is complete ask again."""
        taken = self._driver.step()
        for done in taken.of(Done):
            self._ask(user_of(done))
        return taken

    def leave(self) -> None:
        """End all requests."""
        for user in range(self._users):
            self._driver.abort(self._name(user))

    def _step_for(self) -> set[int]:
        """One step; the users that got a token."""
        return {user_of(token) for token in self.step().of(Token)}

    def _ask(self, user: int) -> None:
        self._asked[user] += 1
        generate = greedy(
            self._name(user),
            self._plan.max_tokens,
            weights=self._plan.dtype,
            session_id=f"user {user}",
        )
        number = user + self._users * (self._asked[user] % 2)
        self._driver.submit(generate, self._prompts[number])

    def _name(self, user: int) -> str:
        return f"{user}/{self._asked[user]}"


def user_of(message: Token | Done) -> int:
    """The number of the user that a message is for."""
    return int(message.request_id.partition("/")[0])
