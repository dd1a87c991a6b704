"""How many questions of one client, and of one scene, may be under way at once. Knows neither gRPC nor the engine."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from recall_service.errors import Overloaded
from recall_service.serving.hooks import NullObserver, Observer

ANY_OTHER = "*"
_RETRY_SECONDS = 0.1  # about a question's time; halved or doubled by chance, so that the refused do not come as one


class Limits:
    """Counts those inside; a client or scene that nobody asks for takes no memory. For use by one event loop.

    clients: most questions by client name; "*" is for each client that is not named, which has so many of its own. All
    callers without a name are one client. scenes: most questions by scene; any other scene has no limit.
    observer: told of refusals. chance: draws from [0, 1).
    """

    def __init__(
        self,
        clients: Mapping[str, int] | None = None,
        scenes: Mapping[str, int] | None = None,
        *,
        observer: Observer | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clients, self._scenes = dict(clients or {}), dict(scenes or {})
        self._observer = observer or NullObserver()
        self._chance = chance
        self._inside: dict[tuple[str, str], int] = {}  # by kind of limit and name
        self._none = nullcontext()

    @property
    def num_counters(self) -> int:
        """How many clients and scenes are being counted now."""
        return len(self._inside)

    def enter(self, client: str, scene: str) -> AbstractContextManager[None]:
        """While it lasts, a question counts. Entering raises Overloaded, and counts nothing, at a limit."""
        if not self._clients and not self._scenes:
            return self._none
        bounds = []
        if (most := self._clients.get(client, self._clients.get(ANY_OTHER))) is not None:
            bounds.append((("client_limit", client), most))
        if (most := self._scenes.get(scene)) is not None:
            bounds.append((("scene_limit", scene), most))
        return self._counted(bounds) if bounds else self._none

    @contextmanager
    def _counted(self, bounds: list[tuple[tuple[str, str], int]]) -> Iterator[None]:
        inside = self._inside
        for key, most in bounds:
            if inside.get(key, 0) >= most:
                self._observer.rejected(key[0])
                raise self._refusal(*key, most)
        for key, _ in bounds:
            inside[key] = inside.get(key, 0) + 1
        try:
            yield
        finally:
            for key, _ in bounds:
                inside[key] -= 1
                if not inside[key]:
                    del inside[key]

    def _refusal(self, limit: str, name: str, most: int) -> Overloaded:
        whose = f"{limit.removesuffix('_limit')} {name!r}" if name else "callers without a name"
        return Overloaded(
            f"{whose}: {most:,} questions are under way, as many as may be; ask again in a moment",
            retry_after_seconds=_RETRY_SECONDS * 2 ** (2 * self._chance() - 1),
            limit=limit,
        )
