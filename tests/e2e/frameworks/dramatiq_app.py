"""A Dramatiq actor that is published and retried. scripts/record-frameworks runs it."""
import os
import sys

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

broker = RabbitmqBroker(url=os.environ["EVERONCE_TEST_RABBITMQ_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="fw.dramatiq", max_retries=int(os.environ.get("FW_RETRIES", "3")), min_backoff=600_000)
def charge(order, cents):
    raise RuntimeError("the gateway did not answer")


if __name__ == "__main__":
    broker.declare_queue("fw.dramatiq", ensure=True)
    broker.enqueue(charge.message(sys.argv[1], 1200).copy(message_id=sys.argv[2]))
