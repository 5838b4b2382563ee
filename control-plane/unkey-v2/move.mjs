import { createHash } from 'node:crypto';
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { Unkey } from '@unkey/api';

const { API_ID: apiId, THERE_ROOT_KEY, THERE_URL, HERE_ROOT_KEY, HERE_URL, DECRYPT } = process.env;
const there = new Unkey({ rootKey: THERE_ROOT_KEY, serverURL: THERE_URL });
const here = new Unkey({ rootKey: HERE_ROOT_KEY, serverURL: HERE_URL });
const sha256 = (text) => createHash('sha256').update(text).digest('hex');
const linesOf = (file) => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : []);
const hashes = new Map(linesOf('hashes.csv').map((line) => line.split(',')));

// What was done for each key, so that a repeated run goes on where this one ends.
const journal = new Map();
const note = ({ keyId, ...facts }) => journal.set(keyId, { ...journal.get(keyId), ...facts });
for (const line of linesOf('moved.ndjson'))
  try {
    note(JSON.parse(line));
  } catch {} // cut off when a run was killed
const record = (facts) => {
  appendFileSync('moved.ndjson', `\n${JSON.stringify(facts)}`);
  note(facts);
};

const unless409 = (call) =>
  call.catch((error) => (error.statusCode === 409 ? undefined : Promise.reject(error)));
const limitsOf = (limits) =>
  limits?.map(({ name, limit, duration, autoApply }) => {
    return { name, limit, duration, autoApply: autoApply || name === 'default' };
  });

for await (const { result } of await there.permissions.listPermissions({}))
  for (const { name, slug, description } of result.data)
    await unless409(here.permissions.createPermission({ name, slug, description }));
for await (const { result } of await there.permissions.listRoles({}))
  for (const { name, description, permissions = [] } of result.data) {
    const slugs = permissions.map(({ slug }) => slug);
    await unless409(here.permissions.createRole({ name, description, permissions: slugs }));
  }
for await (const { result } of await there.identities.listIdentities({}))
  for (const { externalId, meta, ratelimits } of result.data)
    await unless409(here.identities.createIdentity({ externalId, meta, ratelimits: limitsOf(ratelimits) }));

let withoutHash = 0;
const decrypt = DECRYPT === 'true' ? { decrypt: true } : {};
for await (const { result } of await there.apis.listKeys({ apiId, limit: 100, ...decrypt })) {
  const oldIds = new Map();
  const keys = [];
  for (const { keyId, plaintext, identity, credits, ratelimits, ...key } of result.data) {
    if (journal.get(keyId)?.movedTo) continue;
    const hash = plaintext === undefined ? hashes.get(keyId) : sha256(plaintext);
    if (hash === undefined) {
      withoutHash++;
      continue;
    }
    const { name, meta, enabled, expires, permissions, roles } = key;
    // Recorded before the key is moved: step 3 subtracts what is used there afterwards.
    const remaining = journal.get(keyId)?.remaining ?? credits?.remaining ?? null;
    if (remaining !== null) record({ keyId, remaining });
    oldIds.set(hash, keyId);
    keys.push({
      ...{ hash, name, meta, enabled, expires, permissions, roles, externalId: identity?.externalId },
      ratelimits: limitsOf(ratelimits),
      credits: remaining === null ? undefined : { remaining, refill: credits?.refill },
    });
  }
  if (keys.length === 0) continue;
  const { data } = await here.keys.migrateKeys({ migrationId: 'unkey', apiId, keys });
  for (const { hash, keyId } of data.migrated) record({ keyId: oldIds.get(hash), movedTo: keyId });
  for (const hash of data.failed) console.error(`${oldIds.get(hash)} was not moved`);
}

// A verifier asks again about an unknown key after a second. Then nothing is used there any more.
await setTimeout(3000);
for (const [keyId, { remaining, movedTo, used, isSettled }] of journal) {
  if (remaining === undefined || movedTo === undefined || isSettled) continue;
  if (used === undefined) {
    const { credits } = (await there.keys.getKey({ keyId })).data;
    record({ keyId, used: Math.max(0, remaining - (credits?.remaining ?? remaining)) });
  }
  const value = journal.get(keyId).used;
  const response = await fetch(`${HERE_URL}/v1/keys.updateRemaining`, {
    method: 'POST',
    headers: { authorization: `Bearer ${HERE_ROOT_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      keyId: movedTo,
      op: 'decrement',
      value,
      operationId: `moved-${sha256(keyId).slice(0, 32)}`,
    }),
  });
  if (!response.ok) throw new Error(`${keyId}: ${await response.text()}`);
  record({ keyId, isSettled: true });
}
const moved = [...journal.values()].filter(({ movedTo }) => movedTo !== undefined).length;
console.log(`${moved} moved, ${withoutHash} without a hash`);
