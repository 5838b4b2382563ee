import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { settings as controlPlaneSettings } from '../../control-plane/config.ts';
import { apiKeys } from '../../shared/redis/redis-keys.ts';
import { settings as verifierSettings } from '../../verifier/config.ts';
import { Fleet } from '../harness/fleet.ts';
import { metric } from '../harness/metrics.ts';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

/** Each threat of SECURITY.md, with the tests that prove its defence: `file: name`, or `file: describe › name`. */
const PROOFS: Readonly<Record<string, readonly string[]>> = {
  'reaches a listener that is meant for others': [
    'test/end-to-end/threats.test.ts: every listener is on a loopback address by default',
    'test/deploy/redis.test.ts: Redis listens on loopback, or where BIND says',
  ],
  'looks for names or calls on the admin listener': [
    'test/end-to-end/threats.test.ts: the admin listeners show nothing about keys and change nothing',
  ],
  'finds out what exists': [
    'test/control-plane/core/serve/contract.test.ts: every request › every request is authenticated before it is validated, so that strangers learn nothing',
  ],
  'guesses a key': [
    'test/shared/rules/key-format.test.ts: a generated key › a listing shows the prefix and four characters, too few to guess the secret',
    'test/verifier/doors/http/http.test.ts: verifyKey › every verdict is 200 with the fields of its code and no others',
  ],
  'tries many root keys': [
    'test/control-plane/core/serve/limits.test.ts: an address without a valid root key › a wrong root key gets 401, and 429 once the address is over its limit',
    'test/control-plane/core/serve/limits.test.ts: an address without a valid root key › wrong root keys do not lock out a valid one from the same address',
  ],
  'learns a root key from the time of a comparison': [
    'test/end-to-end/threats.test.ts: configured root keys are compared as digests and in constant time',
  ],
  'floods a verifier with made-up keys': [
    'test/end-to-end/verifying.test.ts: Redis is spared › keys with a wrong checksum never cost a look-up',
    'test/end-to-end/verifying.test.ts: Redis is spared › a flood of made-up keys pushes no known key out of memory',
    'test/end-to-end/verifying.test.ts: Redis is spared › look-ups over the limit get 503',
  ],
  'sends slow, large or many requests': [
    'test/verifier/doors/http/http.test.ts: connections › a slow request gets 408, head and body',
    'test/verifier/doors/http/http.test.ts: content type and length › a body that is declared too large is refused before it arrives',
    'test/verifier/doors/http/http.test.ts: connections › closes only connections over the limit',
  ],
  'takes all connections of the control plane': [
    'test/control-plane/core/serve/strangers.test.ts: silent connections keep out neither admins nor probes, and are closed for good',
    'test/control-plane/core/serve/strangers.test.ts: an admin keeps its connection while strangers take others',
  ],
  'signs in with a false or stolen answer of the identity provider': [
    'test/control-plane/subjects/sign-in/oidc/attacks.test.ts: a hostile provider › cannot sign in anybody with an ID token',
    'test/control-plane/subjects/sign-in/oidc/attacks.test.ts: with an honest provider, a callback › with the code of somebody else is refused, because its verifier is missing',
    'test/control-plane/subjects/sign-in/oidc/attacks.test.ts: with an honest provider, a callback › that is loaded again leads to the session that there is, and begins none',
  ],
  "signs in somebody else under the attacker's name, or redirects them elsewhere": [
    'test/control-plane/subjects/sign-in/oidc/attacks.test.ts: with an honest provider, a callback › of another browser is refused, so that nobody is signed in as somebody else',
    'test/control-plane/subjects/sign-in/oidc/attacks.test.ts: with an honest provider, a callback › leads nowhere but to the dashboard, whatever the host and the query are',
  ],
  'smuggles a second request past the gateway': [
    'test/verifier/doors/http/http.test.ts: what HTTP itself refuses has the same shape › a broken body is refused only after the requests before it are answered',
  ],
  'writes into logs through `X-Request-Id`': [
    'test/control-plane/core/serve/contract.test.ts: every request › a well-formed X-Request-Id is kept, and any other is replaced',
  ],
  "reports somebody's key as leaked, or repeats a report": [
    'test/control-plane/subjects/leaks/leaks.test.ts: no report › is believed whose body was edited on the way',
    'test/control-plane/subjects/leaks/leaks.test.ts: a signed report › a second time changes nothing, with whatever signature: not even a key that was enabled again',
  ],
  'poses as another key with `X-Key-*` headers': [
    "test/gateways/matrix.test.ts: a client's own identity headers never reach the API",
  ],
  'spends more credits than the key has': [
    'test/proof/chaos/chaos.test.ts: no verifier gives a stale answer while processes, connections and Redis fail',
    'test/verifier/metering/credits/conformance.test.ts: accepts exactly 1,000 of 5,000 requests',
  ],
  "exceeds a rate limit at many verifiers or at a window's end": [
    'test/verifier/metering/limits/conformance.test.ts: no number of concurrent requests gets more accepted than the limit',
    'test/shared/metering/pool.test.ts: a grant ends with its window',
  ],
  'uses a disabled key': [
    'test/end-to-end/verifying.test.ts: a verdict › is DISABLED everywhere once updateKey answers',
    'test/proof/chaos/chaos.test.ts: no verifier gives a stale answer while processes, connections and Redis fail',
  ],
  'uses a key after its customer was disabled or its role lost a permission': [
    'test/control-plane/subjects/identities/identities.test.ts: one call › one call stops a customer in all APIs, and one call brings back all keys but those disabled on their own',
    'test/control-plane/subjects/identities/races.test.ts: a stopped customer has no accepted key',
    'test/proof/chaos/chaos.test.ts: no verifier gives a stale answer while processes, connections and Redis fail',
  ],
  "creates keys with the `externalId` of another tenant's customer": [
    'test/control-plane/subjects/identities/identities.test.ts: an identity that holds in some APIs › an identity with apiIds has no effect in other APIs: no stop, no data, no shared limit',
  ],
  'uses a key at another API': [
    'test/end-to-end/verifying.test.ts: a verdict › a key of another API is FORBIDDEN, and the verdict shows nothing of the key',
  ],
  'uses a key as a root key': [
    'test/control-plane/core/serve/contract.test.ts: every request › a request with an API key in place of a root key gets 401',
  ],
  'searches for other APIs with a root key of one': [
    'test/end-to-end/threats.test.ts: a root key without any permission on an API cannot tell it from one that does not exist',
  ],
  'creates a root key with more permissions': [
    'test/control-plane/core/serve/contract.test.ts: root keys › a root key cannot grant, or manage root keys with, permissions that it lacks',
  ],
  'makes the control plane connect to a host inside, by a webhook (SSRF)': [
    'test/control-plane/subjects/webhooks/addresses.test.ts: URLs with such an address are refused in every spelling',
    'test/control-plane/subjects/webhooks/addresses.test.ts: a name › that leads to a private address among public ones is refused as well',
    'test/control-plane/subjects/webhooks/addresses.test.ts: a name › is resolved once for a connection, which goes to what was checked',
    'test/control-plane/subjects/webhooks/deliveries.test.ts: a redirect is not followed',
  ],
  'runs a webhook endpoint that never answers, or without end': [
    'test/control-plane/subjects/webhooks/addresses.test.ts: a name › whose endpoint does not answer is given 10 s',
    'test/control-plane/subjects/webhooks/addresses.test.ts: a name › whose name server is silent leaves the look-ups of the system to others, and fails',
    'test/control-plane/subjects/webhooks/addresses.test.ts: a name › that others share does not make their endpoints wait',
    'test/control-plane/subjects/webhooks/deliveries.test.ts: an endpoint that does not answer delays no other, and no change of a key',
    'test/control-plane/subjects/webhooks/deliveries.test.ts: a queue that is full loses its oldest events, and says how many',
  ],
  'denies a change, or hides it in a flood of refused calls': [
    'test/control-plane/subjects/audit/audit.test.ts: what was done › the audit event of a disable shows who did it, to what, and the values before and after',
    'test/control-plane/subjects/audit/audit.test.ts: what was refused › a flood of refused calls pushes no successful call out of the audit log',
  ],
  'uses a root key whose creator was disabled': [
    'test/control-plane/subjects/root-keys/root-keys.test.ts: disabling a root key stops all that it created, which cannot enable it, and enabling it brings them back',
  ],
  'keeps using a disabled root key': [
    'test/control-plane/core/serve/contract.test.ts: root keys › a root key is refused from the moment it is disabled',
    'test/verifier/core/verifying.test.ts: a root key that is disabled › is refused by every verifier once its call has answered, and so is whatever it made',
  ],
  'keeps a session after losing groups, or leaving': [
    'test/control-plane/subjects/sign-in/oidc/refresh.test.ts: groups that change at the provider apply after 5 minutes, without another sign-in',
    'test/control-plane/subjects/sign-in/oidc/refresh.test.ts: a person who lost the last group, or left, is signed out',
    'test/control-plane/subjects/sign-in/oidc/sign-in.test.ts: a change of OIDC_PERMISSIONS applies to open sessions at once, and so does another issuer',
  ],
  'asks a verifier about keys of other APIs': [
    'test/verifier/core/verifying.test.ts: a question › by a root key of some APIs learns nothing of the keys of others, and takes nothing of theirs',
  ],
  "forges headers behind a gateway by a key's name": [
    'test/verifier/doors/http/identity.test.ts: any name and external id is visible ASCII in its header and can be decoded',
  ],
  'reads a copy of Redis, a log or a metric': [
    'test/end-to-end/secrets.test.ts: no secret is in any log line, listing, error, metric or value in Redis',
  ],
  'reads answers kept for repetition there': [
    'test/control-plane/core/serve/once.test.ts: an Idempotency-Key › leaves no secret in Redis, and no second event',
  ],
  'reads the tokens of the identity provider there': [
    'test/control-plane/subjects/sign-in/oidc/refresh.test.ts: Redis has the tokens of the provider only encrypted, with a key that it does not have',
    'test/control-plane/subjects/sign-in/oidc/attacks.test.ts: a hostile provider › leaves no token, code or secret in a log',
  ],
  'reads or guesses a one-time link': [
    'test/control-plane/clients/dashboard/tasks.test.ts: a new secret is handed over by a link that shows it once, and which the server cannot read',
    'test/control-plane/subjects/sign-in/handover.test.ts: of many who open a link at the same time, one gets the secret',
    'test/control-plane/subjects/sign-in/handover.test.ts: whoever guesses ids is stopped',
  ],
  'reads the events of webhooks, or sends made-up ones': [
    'test/control-plane/subjects/webhooks/events.test.ts: every event is signed, and none has a secret',
  ],
  'finds a secret that somebody sent in place of an id': [
    'test/end-to-end/secrets.test.ts: no operation writes down a secret that is sent in place of an id',
  ],
  'reads the error message about a wrong configuration': [
    'test/shared/process/config.test.ts: a process with wrong settings names all faults, shows no secret, and exits with status 78',
  ],
  'repeats an old message on the Redis channel': [
    'test/end-to-end/threats.test.ts: a message that is sent again changes nothing',
  ],
  'forges a message': [
    'test/end-to-end/threats.test.ts: a forged message that does not continue the history changes nothing',
  ],
  'forges a message that continues the hash chain': [
    'test/end-to-end/threats.test.ts: a forged message that continues the history is exposed by the SYNC that it triggers',
  ],
  'drops, delays, doubles or reorders messages, or cuts verifiers off': [
    'test/proof/chaos/chaos.test.ts: no verifier gives a stale answer while processes, connections and Redis fail',
  ],
  'removes history by a failover or restart': [
    'test/shared/redis/sentinel.test.ts: with Sentinel and two replicas › killing the primary loses no acknowledged write and revives no disabled key',
    'test/end-to-end/edges.test.ts: Redis › when Redis restarts empty, verifiers forget all keys and no longer accept them',
  ],
  'restores an old backup': ['test/deploy/runbook.test.ts: a restore lets in nobody who was refused'],
  'keeps using rotated secrets': [
    'test/deploy/runbook.test.ts: on real processes › root key and Redis passwords are rotated without a failed call',
    'test/deploy/machines.test.ts: rotate each secret without a failed call',
  ],
  "sets a machine's clock": ['test/end-to-end/edges.test.ts: a clock › an hour wrong costs only some 503s'],
  'stops Redis': ['test/end-to-end/verifying.test.ts: without Redis answers known keys for a lease'],
  "changes, creates or lists keys, or publishes, with a verifier's password": [
    'test/deploy/users.test.ts: the users of deploy/redis/users.acl › a verifier may do nothing else',
  ],
  'reads root keys or the audit log with it': [
    'test/deploy/users.test.ts: the users of deploy/redis/users.acl › a verifier can only read and join its API',
  ],
  'reaches other APIs with the password of a confined verifier': [
    'test/deploy/users.test.ts: the users of deploy/redis/users.acl › a verifier of one API can hear and join that API only',
  ],
  "damages the server or other data with a control plane's password": [
    'test/deploy/users.test.ts: the users of deploy/redis/users.acl › the control plane lacks needless commands',
    "test/deploy/users.test.ts: a control plane can read the replica's password",
  ],
  'connects without a password': [
    'test/deploy/redis.test.ts: Redis refuses everybody who is not one of its users',
    'test/deploy/redis.test.ts: a user without a password may only send PING',
  ],
  'listens on the network of Redis': ['test/deploy/tls.test.ts: Redis answers nobody who does not use TLS'],
  'has taken over a container of Keyfence': [
    'test/deploy/kubernetes.test.ts: the manifests of deploy/kubernetes › is restricted, and Kubernetes accepts it',
  ],
  'makes keys of an API that is not meant for the namespace': [
    'test/control-plane/clients/operator/operator.test.ts: a KeyApi › admits namespaces by their labels, and no other',
    'test/deploy/kubernetes/operator.cluster.ts: refuses what it must',
  ],
  'names a Secret of another namespace, or one of another purpose': [
    'test/control-plane/clients/operator/operator.test.ts: a secret › without the label',
  ],
  'changes a role or customer that is not its own': [
    'test/control-plane/clients/operator/operator.test.ts: a $kind › takes no name that another has',
    'test/control-plane/clients/operator/operator.test.ts: a $kind › needs a KeyApi that admits its namespace',
  ],
  'forges the status of an object': [
    'test/control-plane/clients/operator/operator.test.ts: an ApiKey › whose status is forged keeps its own keys only',
  ],
  'takes over a key by its secret': [
    'test/control-plane/clients/operator/operator.test.ts: a secret › of another object is not taken over',
  ],
  'writes hostile names, sizes and values': [
    'test/deploy/kubernetes/operator.cluster.ts: refuses what it must',
    'test/control-plane/clients/operator/operator.test.ts: a secret › that is short',
  ],
};

describe('SECURITY.md', () => {
  const section = read('SECURITY.md')
    .split('\n## ')
    .find((text) => text.startsWith('Threats'));
  const threats = [...(section ?? '').matchAll(/^\| (?!threat \||-)(.+?) \| .+ \|$/gm)].map(
    ([, threat]) => threat,
  );

  test('lists the threats that are proved here', () => {
    expect(threats.length).toBeGreaterThan(50);
    expect(threats).toEqual(Object.keys(PROOFS));
  });

  test.each(Object.entries(PROOFS))('has tests against one who %s', (_, proofs) => {
    expect(proofs).not.toHaveLength(0);
    for (const proof of proofs) {
      const [, file = '', names = ''] = /^(\S+): (.*)$/.exec(proof) ?? [];
      for (const name of names.split(' › ')) expect(read(file), file).toContain(name);
    }
  });
});

test('every listener is on a loopback address by default', () => {
  for (const settings of [controlPlaneSettings, verifierSettings]) {
    expect([settings.HOST.default, settings.ADMIN_HOST.default]).toEqual(['127.0.0.1', '127.0.0.1']);
  }
});

test('configured root keys are compared as digests and in constant time', () => {
  const uses = read('control-plane/core/callers/bootstrap-keys.ts')
    .split('\n')
    .filter((line) => line.includes('this.all') && !line.includes('this.all ='));
  expect(uses).toEqual([
    expect.stringContaining('.map(({ id }) => id)'),
    expect.stringMatching(/\.filter\(.*timingSafeEqual\(Buffer\.from\(key\.secretHash\), digest\)/),
  ]);
});

describe('on a running fleet', () => {
  let fleet: Fleet;
  let redis: Redis;
  const { channel, head } = apiKeys('shop');
  const messages: string[] = [];

  beforeAll(async () => {
    fleet = await Fleet.start({ env: { API_IDS: 'shop' } });
    redis = new Redis({ path: fleet.redisUrl.replace('unix://', '') });
    const listener = redis.duplicate();
    await listener.subscribe(channel);
    listener.on('message', (_channel, message) => void messages.push(message));
    stops.push(
      () => fleet.stop(),
      async () => listener.disconnect(),
      async () => redis.disconnect(),
    );
  });
  const stops: (() => Promise<void>)[] = [];
  afterAll(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  /** A key that was enabled, then disabled, and the messages that said so. */
  const disabledKey = async () => {
    messages.length = 0;
    const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', enabled: false });
    expect(await fleet.verdict(key)).toBe('DISABLED');
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    await fleet.until(() => messages.length === 2);
    return { key, keyId, enabling: messages[0] ?? '' };
  };
  const drops = () => metric(fleet.verifiers[0]?.adminAddress, 'keyfence_drops_total{reason="diverged"}');

  test('a message that is sent again changes nothing', async () => {
    const { key, keyId, enabling } = await disabledKey();
    for (let i = 0; i < 50; i++) {
      await redis.publish(channel, enabling);
      expect(await fleet.verdict(key)).toBe('DISABLED');
    }
    expect((await fleet.ok('keys.updateKey', { keyId, name: 'x' })).propagation.by).toBe('acks');
    expect(await fleet.verdict(key)).toBe('DISABLED');
  });

  test('a forged message that does not continue the history changes nothing', async () => {
    const { key, enabling } = await disabledKey();
    const [, , hash, ...rest] = enabling.split('|');
    const next = Number(await redis.hget(head, 's')) + 1;
    const before = await drops();
    for (const sequence of [next, next + 1, 999_999]) {
      for (const previous of [hash, '0'.repeat(40), '']) {
        await redis.publish(channel, [sequence, previous, hash, ...rest].join('|'));
        expect(await fleet.verdict(key)).toBe('DISABLED');
      }
    }
    for (const nonsense of ['', '|||', 'x'.repeat(100_000), `${next}|${hash}|${hash}|k|{`]) {
      await redis.publish(channel, nonsense);
      expect(await fleet.verdict(key)).toBe('DISABLED');
    }
    expect(await drops()).toBe(before);
  });

  test('a forged message that continues the history is exposed by the SYNC that it triggers', async () => {
    const { key, keyId, enabling } = await disabledKey();
    const [, , hash, ...rest] = enabling.split('|');
    const [sequence, present] = await redis.hmget(head, 's', 'h');
    const before = await drops();
    await redis.publish(channel, [Number(sequence) + 1, present, hash, ...rest].join('|'));
    await fleet.until(async () => (await drops()) > before);
    expect(await fleet.verdict(key)).toBe('DISABLED');
    expect((await fleet.ok('keys.updateKey', { keyId, name: 'x' })).propagation.state).toBe('complete');
  });

  test('the admin listeners show nothing about keys and change nothing', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', name: 'a name to be kept' });
    for (const { adminAddress } of [...fleet.controlPlanes, ...fleet.verifiers]) {
      for (const path of ['/livez', '/readyz', '/metrics']) {
        const { status, body } = await fleet.get(`${adminAddress}${path}`);
        expect(status).toBe(200);
        expect(String(body)).not.toContain(keyId);
        expect(String(body)).not.toContain('a name to be kept');
        expect((await fleet.post(`${adminAddress}${path}`, {})).status).toBe(405);
      }
      for (const path of [
        '/',
        '/v1/keys.verifyKey',
        '/v1/apis.listApis',
        '/debug/pprof',
        '/metrics/../v1/apis.listApis',
      ]) {
        expect((await fleet.get(`${adminAddress}${path}`)).status).toBe(404);
      }
    }
  });

  test('a root key without any permission on an API cannot tell it from one that does not exist', async () => {
    const { keyId } = await fleet.ok('keys.createKey', { apiId: 'shop' });
    const { key: rootKey } = await fleet.ok('rootKeys.createRootKey', {
      name: 'of another API',
      permissions: ['api.other.read_key', 'api.other.update_key', 'api.other.read_api'],
    });
    const told = async (operation: string, input: Record<string, string>) => {
      const { status, body } = await fleet.admin(operation, input, { rootKey });
      const text = Object.values(input).reduce(
        (all, id) => all.replaceAll(id, 'ID'),
        body.error.message as string,
      );
      return { status, text };
    };
    for (const [operation, field, there, missing] of [
      ['keys.getKey', 'keyId', keyId, 'key_0000000000000000'],
      ['keys.updateKey', 'keyId', keyId, 'key_0000000000000000'],
      ['apis.getApi', 'apiId', 'shop', 'nothing-here'],
      ['apis.listKeys', 'apiId', 'shop', 'nothing-here'],
    ] as const) {
      const present = await told(operation, { [field]: there });
      expect(present.status).toBe(404);
      expect(present, operation).toEqual(await told(operation, { [field]: missing }));
    }
  });
});
