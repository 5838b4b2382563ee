# Asks a verifier again and again over one connection: python_clients.py <library> <verifyKey|authz> <base> <key> <count>
import json
import sys

library, endpoint, base, key, count = sys.argv[1:5] + [int(sys.argv[5])]
method, path, body, headers = {
    "verifyKey": ("POST", "/v1/keys.verifyKey", json.dumps({"key": key}), {"Content-Type": "application/json"}),
    "authz": ("GET", "/authz/forward-auth", None, {"Authorization": "Bearer " + key}),
}[endpoint]
url = base + path


def check(status):
    if status != 200:
        raise SystemExit(f"{library}: {status}")


def ask_requests():
    import requests

    with requests.Session() as session:
        session.trust_env = False
        for _ in range(count):
            check(session.request(method, url, data=body, headers=headers).status_code)


def ask_httpx():
    import httpx

    with httpx.Client(trust_env=False) as client:
        for _ in range(count):
            check(client.request(method, url, content=body, headers=headers).status_code)


def ask_urllib3():
    import urllib3

    pool = urllib3.PoolManager()
    for _ in range(count):
        check(pool.request(method, url, body=body, headers=headers).status)


def ask_http_client():
    from http.client import HTTPConnection

    connection = HTTPConnection(base.removeprefix("http://"))
    for _ in range(count):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        check(answer.status)


def ask_aiohttp():
    import asyncio

    import aiohttp

    async def ask():
        async with aiohttp.ClientSession() as session:
            for _ in range(count):
                async with session.request(method, url, data=body, headers=headers) as answer:
                    await answer.read()
                    check(answer.status)

    asyncio.run(ask())


def ask_pycurl():
    import pycurl

    handle = pycurl.Curl()
    handle.setopt(pycurl.URL, url)
    handle.setopt(pycurl.NOPROXY, "*")
    handle.setopt(pycurl.HTTPHEADER, [f"{name}: {value}" for name, value in headers.items()])
    handle.setopt(pycurl.WRITEFUNCTION, lambda _: None)
    if body is not None:
        handle.setopt(pycurl.POSTFIELDS, body)
    for _ in range(count):
        handle.perform()
        check(handle.getinfo(pycurl.RESPONSE_CODE))


{
    "requests": ask_requests,
    "httpx": ask_httpx,
    "urllib3": ask_urllib3,
    "http.client": ask_http_client,
    "aiohttp": ask_aiohttp,
    "pycurl": ask_pycurl,
}[library]()
