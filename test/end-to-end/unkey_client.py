"""Manages and verifies keys with the client unkey.py, unchanged; prints what it was answered as lines of JSON.

unkey_client.py <address> <root key> <API id>
"""

import json
import sys

from unkey.py import Unkey, errors

address, root_key, api_id = sys.argv[1:]


def tell(name, value):
    print(json.dumps({"name": name, "value": value}), flush=True)


def plain(data):
    return data.model_dump(by_alias=True, exclude_unset=True, mode="json")


with Unkey(root_key=root_key, server_url=address) as unkey:
    identities, keys = unkey.identities, unkey.keys
    limit = {"name": "requests", "limit": 100, "duration": 60000}
    identity_id = identities.create_identity(
        external_id="ada", meta={"plan": "pro"}, ratelimits=[limit]
    ).data.identity_id
    tell("identity", plain(identities.get_identity(identity="ada").data))
    tell("changed", plain(identities.update_identity(identity=identity_id, meta={"plan": "free"}).data))
    identities.create_identity(external_id="bob")
    page = identities.list_identities(limit=1)
    names = []
    while page is not None:
        names += [each.external_id for each in page.result.data]
        page = page.next()
    tell("listed", names)

    created = keys.create_key(
        api_id=api_id, name="Ada", external_id="ada", credits={"remaining": 10}, permissions=["files.read"]
    ).data
    tell("key", plain(keys.get_key(key_id=created.key_id).data))
    tell("verified", plain(keys.verify_key(key=created.key, permissions="files.read", credits={"cost": 2}).data))
    keys.update_key(key_id=created.key_id, enabled=False, name=None)
    tell("disabled", plain(keys.verify_key(key=created.key).data))
    tell("cleared", plain(keys.get_key(key_id=created.key_id).data))

    identities.delete_identity(identity="ada")
    for name, call in {
        "absent": lambda: identities.get_identity(identity="ada"),
        "twice": lambda: identities.create_identity(external_id="bob"),
        "wrong": lambda: keys.create_key(api_id="a b"),
    }.items():
        try:
            call()
            tell(name, "not refused")
        except errors.UnkeyError as error:
            tell(name, [error.status_code, type(error).__name__, json.loads(error.body)["error"]])
