"""One call as a caller sees it: its code, its answer, and how long it took. Knows nothing of what is right."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc

from recall_service.client import AsyncRecallClient, RecallClientError
from recall_service.serving.query import CacheMode
from recall_service.stubs.recall.v1 import recall_pb2, recall_pb2_grpc
from tests.faults.questions import Question

PATIENCE_SECONDS = 15.0  # the deadline of a call that has to be answered
_NEVER_SECONDS = 5.0  # a call that has not ended so long after its deadline never will
_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class Outcome:
    """code: None when the call never ended. answer: a RecallResponse, or a RecallResult of the client."""

    code: grpc.StatusCode | None
    seconds: float
    timeout: float
    answer: Any = None
    details: str = ""


@asynccontextmanager
async def connect(address: str) -> AsyncIterator[Any]:
    """A stub on a connection of its own, which repeats nothing."""
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield recall_pb2_grpc.RecallServiceStub(channel)  # type: ignore[no-untyped-call]


async def ask(
    stub: Any,
    question: Question,
    cache_mode: CacheMode = CacheMode.BYPASS,
    *,
    timeout: float = PATIENCE_SECONDS,  # noqa: ASYNC109 - of the call
    cancel_after: float | None = None,
) -> Outcome:
    """Ask, and leave after `cancel_after` seconds where that is given."""
    return await _outcome(_leaving(stub.Recall(question.message(cache_mode), timeout=timeout), cancel_after), timeout)


async def ask_batch(
    stub: Any, questions: Sequence[Question], cache_mode: CacheMode, *, cancel_after: float | None
) -> list[Outcome]:
    """Ask all in one call. What ends the call ends every question."""
    request = recall_pb2.BatchRecallRequest(requests=[question.message(cache_mode) for question in questions])
    outcome = await _outcome(
        _leaving(stub.BatchRecall(request, timeout=PATIENCE_SECONDS), cancel_after), PATIENCE_SECONDS
    )
    if outcome.answer is None:
        return [outcome] * len(questions)
    return [
        replace(outcome, answer=result.response)
        if result.HasField("response")
        else replace(outcome, code=_CODES[result.failure.code], answer=None, details=result.failure.message)
        for result in outcome.answer.results
    ]


async def ask_client(client: AsyncRecallClient, question: Question, cache_mode: CacheMode) -> Outcome:
    """Ask as an application does, with the client that it would use."""
    fields: dict[str, Any] = {"history": question.history} if question.prompt is None else {"prompt": question.prompt}
    return await _outcome(
        client.recall(
            **fields,
            num_items=question.num_items,
            beam_width=question.beam_width,
            search_mode=question.search_mode.name.lower(),  # type: ignore[arg-type]
            include_steps=question.include_steps,
            where=question.where,
            exclude_item_ids=question.exclude_item_ids,
            exclude_history=question.exclude_history,
            cache=cache_mode.value,  # type: ignore[arg-type]
            timeout=PATIENCE_SECONDS,
        ),
        PATIENCE_SECONDS,
    )


def _leaving(call: Any, cancel_after: float | None) -> Any:
    """The call, which is cancelled after so many seconds where they are given."""
    if cancel_after is not None:
        leaving = asyncio.get_running_loop().call_later(cancel_after, call.cancel)
        call.add_done_callback(lambda _: leaving.cancel())
    return call


async def _outcome(call: Awaitable[Any], timeout: float) -> Outcome:  # noqa: ASYNC109 - of the call
    started = time.monotonic()

    def ended(code: grpc.StatusCode | None, answer: Any = None, details: str = "") -> Outcome:
        return Outcome(code, time.monotonic() - started, timeout, answer, details)

    try:
        async with asyncio.timeout(timeout + _NEVER_SECONDS):
            return ended(grpc.StatusCode.OK, await call)
    except TimeoutError:
        return ended(None)
    except grpc.aio.AioRpcError as error:
        return ended(error.code(), details=error.details() or "")
    except RecallClientError as error:
        return ended(error.code, details=str(error))
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return ended(grpc.StatusCode.CANCELLED)
