"""A Celery task that is published, retried, rejected and replaced. scripts/record-frameworks runs it."""
import os
import sys

from celery import Celery
from celery.exceptions import Reject
from kombu import Exchange, Queue

QUEUE, RETRY, DEAD = "fw.celery", "fw.celery.retried", "fw.celery.dead"
app = Celery("payments", broker=os.environ["EVERONCE_TEST_RABBITMQ_URL"])
app.conf.update(
    task_default_queue=QUEUE,
    task_queues=[
        Queue(QUEUE, Exchange(""), routing_key=QUEUE, queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}),
        Queue(RETRY, Exchange(""), routing_key=RETRY),
        Queue(DEAD, Exchange(""), routing_key=DEAD),
    ],
    worker_hijack_root_logger=False,
    worker_prefetch_multiplier=1,
    task_publish_retry=False,
)


@app.task(bind=True, name="payments.charge", acks_late=True, max_retries=5)
def charge(self, order, cents):
    mode = os.environ["FW_MODE"]
    if mode == "retry":
        raise self.retry(countdown=0, queue=RETRY)
    if mode == "reject":
        raise Reject("no", requeue=False)
    return self.replace(refund.s(order).set(queue=RETRY))


@app.task(name="payments.refund")
def refund(order):
    return order


if __name__ == "__main__":
    with app.connection_for_write() as connection:
        for queue in app.conf.task_queues:
            queue(connection).declare()
    charge.apply_async((sys.argv[2], 1200), task_id=sys.argv[1])
