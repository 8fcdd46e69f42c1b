"""A taskiq task that is published, and retried by its middleware. scripts/record-frameworks runs it."""
import asyncio
import os
import sys

from taskiq import SmartRetryMiddleware
from taskiq_aio_pika import AioPikaBroker
from taskiq_aio_pika.exchange import Exchange
from taskiq_aio_pika.queue import Queue, QueueType

broker = AioPikaBroker(
    os.environ["EVERONCE_TEST_RABBITMQ_URL"],
    exchange=Exchange(name="fw.taskiq"),
    delay_queue=Queue(name="fw.taskiq.delay", type=QueueType.CLASSIC),
    dead_letter_queue=Queue(name="fw.taskiq.dead", type=QueueType.CLASSIC),
).with_queue(Queue(name="fw.taskiq", type=QueueType.CLASSIC)).with_middlewares(SmartRetryMiddleware(default_retry_count=3, default_delay=600))


@broker.task(task_name="payments.charge", retry_on_error=True)
async def charge(order: str, cents: int) -> None:
    raise RuntimeError("the gateway did not answer")


async def main() -> None:
    await broker.startup()
    for _ in range(int(sys.argv[3])):
        await charge.kicker().with_task_id(sys.argv[1]).kiq(sys.argv[2], 1200)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
