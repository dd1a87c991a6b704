"""Several addresses behind one name: all are asked alike, and one that leaves is not missed."""

import asyncio
import sys

from recall_service.client import AsyncRecallClient
from tests.client.conftest import Ask
from tests.client.replica import GONE, Replica, running_replica
from tests.rpc.fake_backend import FakeBackend, running, until
from tests.rpc.serve_fake import SCENE_OF_HOURS


def name_of(*addresses: str) -> str:
    """A target of several addresses, as a name has that several replicas stand behind."""
    return f"ipv4:{','.join(addresses)}"


async def test_replicas_are_asked_in_turn() -> None:
    backends = [FakeBackend(), FakeBackend(), FakeBackend()]
    async with running(backends[0]) as first, running(backends[1]) as second, running(backends[2]) as third:
        name = name_of(first.address, second.address, third.address)
        async with AsyncRecallClient(name) as client:
            await ask_until_all_were_asked(client, *backends)
            for backend in backends:
                backend.queries.clear()
            for _ in range(60):
                await client.recall(history=["a"])
    assert [len(backend.queries) for backend in backends] == [20, 20, 20]


async def test_a_replica_gets_calls_from_warm_up_to_drain() -> None:
    staying, passing = FakeBackend(), FakeBackend()
    async with (
        running(staying) as kept,
        running(passing, serving=False) as service,
        AsyncRecallClient(name_of(kept.address, service.address)) as client,
    ):
        await ask_until_all_were_asked(client, staying)
        for _ in range(20):
            await client.recall(history=["a"])
        assert service.observer.started == []

        await service.server.mark_serving()
        await ask_until_all_were_asked(client, passing)

        drain = asyncio.create_task(service.server.drain())
        while not drain.done():
            await client.recall(history=["a"])
        await drain
    assert {code for _, code in service.observer.handled} <= {"OK", "UNAVAILABLE"}


async def test_the_calls_of_a_replica_that_is_killed_are_answered_by_another() -> None:
    words = [sys.executable, "-m", "tests.rpc.serve_fake"]
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    killed = f"127.0.0.1:{int(await process.stdout.readline())}"
    staying = FakeBackend()
    async with running(staying) as kept, AsyncRecallClient(name_of(kept.address, killed)) as client:
        await ask_until_half_reach(client, staying)
        staying.queries.clear()
        # In the other process each of these takes hours; here it is answered at once.
        calls = [asyncio.create_task(client.recall(history=["a"], scene=SCENE_OF_HOURS, timeout=30)) for _ in range(20)]
        await until(lambda: sum(call.done() for call in calls) == 10)
        for _ in range(2):  # one for each; once the other process has answered, the ten are inside it
            await client.recall(history=["a"])
        assert (sum(call.done() for call in calls), len(staying.queries)) == (10, 11)
        process.kill()
        await process.wait()
        assert all(result.items for result in await asyncio.gather(*calls))
        assert len(staying.queries) == 21
        for _ in range(20):
            assert (await client.recall(history=["a"])).items


async def test_the_next_attempt_goes_to_another_replica(ask: Ask) -> None:
    async with running_replica(Replica(lambda _: GONE)) as broken, running_replica(Replica()) as sound:
        for _ in range(3):
            assert (await ask(name_of(broken.address, sound.address), history=["a"])).request_id == "answered"
    assert len(sound.came) == 3


async def ask_until_half_reach(client: AsyncRecallClient, backend: FakeBackend) -> None:
    """The connections to this backend and to one other are made then."""
    async with asyncio.timeout(10):
        while len(backend.queries) != 10:
            backend.queries.clear()
            for _ in range(20):
                await client.recall(history=["a"])


async def ask_until_all_were_asked(client: AsyncRecallClient, *backends: FakeBackend) -> None:
    """Their connections are made then, and their health is known."""
    async with asyncio.timeout(10):
        while not all(backend.queries for backend in backends):
            await client.recall(history=["a"])
