"""Sends one POST per line of standard input with the SDK that the argument names, and writes what the SDK made of the answer."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor


def stripe_client(call):
    import stripe

    client = stripe.StripeClient("sk_test_1", base_addresses={"api": call["base"]}, max_network_retries=2)
    params = {"amount": 100, "currency": "eur", "source": "tok_visa"}
    return client.v1.charges.create(params, {"idempotency_key": call["key"]}).id


def azure(call):
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import RetryPolicy
    from azure.core.rest import HttpRequest

    client = PipelineClient(call["base"], policies=[RetryPolicy()])
    headers = {"Idempotency-Key": call["key"]}
    answer = client.send_request(HttpRequest("POST", call["base"] + "/v1/charges", json={"amount": 100}, headers=headers))
    answer.raise_for_status()
    return answer.json()["id"]


SDKS = {"stripe": stripe_client, "azure-core": azure}


def tell(line):
    call = json.loads(line)
    try:
        told = {"success": True, "id": SDKS[sys.argv[1]](call) or ""}
    except Exception as e:
        status = getattr(e, "http_status", None) or getattr(e, "status_code", None) or 0
        told = {"class": type(e).__name__, "status": status, "text": str(e)}
    return json.dumps({"row": call["row"], **told})


with ThreadPoolExecutor(64) as pool:
    for told in pool.map(tell, sys.stdin.read().splitlines()):
        print(told, flush=True)
