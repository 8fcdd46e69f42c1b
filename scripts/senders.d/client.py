"""Sends one request: client.py NAME METHOD URL KEY [warm]. With warm, a GET goes before, over the same connection."""

import asyncio
import sys

name, method, url, key, warm = (sys.argv + [""])[1:6]
headers = {"Idempotency-Key": key}
body = None if method == "DELETE" else b'{"amount":100}'
steps = ([("GET", None, {})] if warm else []) + [(method, body, headers)]


def use_requests(retries=0):
    import requests

    with requests.Session() as session:
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        for method, body, headers in steps:
            session.request(method, url, data=body, headers=headers)


def use_urllib3():
    import urllib3

    pool = urllib3.PoolManager()
    for method, body, headers in steps:
        pool.request(method, url, body=body, headers=headers)


def use_httpx():
    import httpx

    with httpx.Client(transport=httpx.HTTPTransport(retries=3)) as client:
        for method, body, headers in steps:
            client.request(method, url, content=body, headers=headers)


def use_aiohttp():
    import aiohttp

    async def run():
        async with aiohttp.ClientSession() as session:
            for method, body, headers in steps:
                async with session.request(method, url, data=body, headers=headers) as answer:
                    await answer.read()

    asyncio.run(run())


def use_pycurl():
    import pycurl

    curl = pycurl.Curl()
    for method, body, headers in steps:
        curl.setopt(curl.URL, url)
        curl.setopt(curl.WRITEFUNCTION, lambda _: None)
        curl.setopt(curl.CUSTOMREQUEST, method)
        curl.setopt(curl.HTTPHEADER, [f"{k}: {v}" for k, v in headers.items()])
        if body:
            curl.setopt(curl.POSTFIELDS, body)
        curl.perform()


def use_boto3():
    import boto3

    sqs = boto3.client("sqs", endpoint_url=url, region_name="a", aws_access_key_id="a", aws_secret_access_key="a")
    sqs.meta.events.register("before-sign.sqs.*", lambda request, **_: request.headers.add_header("Idempotency-Key", key))
    sqs.send_message(QueueUrl=url, MessageBody="a")


{
    "requests": use_requests,
    "requests-retry": lambda: use_requests(3),
    "urllib3": use_urllib3,
    "httpx": use_httpx,
    "aiohttp": use_aiohttp,
    "pycurl": use_pycurl,
    "boto3": use_boto3,
}[name]()
