import type { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { necessaryCommands as verifierCommands } from '../../shared/protocol/follower/verifier-commands.ts';
import { necessaryCommands as controlPlaneCommands } from '../../shared/protocol/writer/control-plane-commands.ts';
import {
  apiKeys,
  apiList,
  auditRetryKey,
  auditStream,
  callCounter,
  identityIndexKey,
  idPointer,
  metaKey,
  poolKey,
  recordKey,
  rootKeyIndex,
  rootKeyRecord,
  SHARED_LOG,
  secretPointer,
  usageKey,
} from '../../shared/redis/redis-keys.ts';
import { Receiver } from '../control-plane/subjects/webhooks/receiver.ts';
import { Fleet } from '../harness/fleet.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';

const LEASE_MS = '500';

/** Commands that everybody may run, by Redis' own rule. */
const EVERYBODY = ['auth', 'hello', 'quit', 'reset'];
/** For replicas, for a Cluster, and what MONITOR does not show. */
const UNSEEN: Record<string, string[]> = {
  'control-plane': ['wait', 'cluster|slots', 'cluster|nodes', 'config|get'],
  verifier: ['wait', 'cluster|slots', 'cluster|nodes'],
};

const GROUP = { REDIS_MODE: 'cluster', REDIS_REPLICAS: 1, USAGE_PERIOD_MS: 1 } as const;
/** What each process checks at the start, and what it does without. */
const CHECKED: Record<string, [checked: string[], optional: string[]]> = {
  'control-plane': [controlPlaneCommands(GROUP), ['config|get', 'cluster|nodes']],
  verifier: [verifierCommands([], GROUP), ['info', 'unsubscribe', 'cluster|nodes']],
};

/** Every key that there can be, by who it is of. */
const keysOf = (apiId: string) => {
  const { channel: _, recalls: __, ...keys } = apiKeys(apiId);
  const [record, meta, owner] = [
    recordKey(apiId, 'key_1'),
    metaKey(apiId, 'key_1'),
    identityIndexKey(apiId, 'o'),
  ];
  return { ...keys, record, meta, owner, usage: usageKey(apiId, 'key_1'), pool: poolKey(apiId, 'pool_1') };
};
const POINTER = secretPointer('hash');
/** No verifier has any business there. */
const OTHERS = [
  idPointer('key_1'),
  apiList,
  rootKeyIndex,
  rootKeyRecord('hash'),
  auditStream('done'),
  auditRetryKey,
  callCounter('bootstrap:POST'),
  'kf:{!}:k:x',
  'kf:',
  'kf:{',
  'x',
];

describe('the users of deploy/redis/users.acl', () => {
  const files = new OwnFiles((acl) => acl.replaceAll(/^# (user verifier-billing| {2})/gm, '$1'));
  let redis: OwnRedis;
  let admin: Redis;
  beforeAll(async () => {
    redis = await OwnRedis.start(files);
    admin = redis.as('operator');
  });
  afterAll(async () => {
    await redis?.stop();
    files.remove();
  });

  it('let both do all they do, and nothing more', async () => {
    const seen = await Seen.start(redis, admin);
    const refused = await everythingUnder(redis, admin);
    const used = await seen.end();
    expect(refused).toEqual([]);
    expect(await admin.acl('LOG')).toEqual([]);
    for (const [user, unseen] of Object.entries(UNSEEN)) {
      const permitted = (await permittedTo(admin, user)).sort();
      const needed = new Set([...(used.get(user) ?? []), ...unseen, ...EVERYBODY]);
      expect(permitted, user).toEqual([...needed].sort());
      // What is checked at the start is all of it, apart from what a process does without.
      const [checked, optional] = CHECKED[user] ?? [[], []];
      const names = checked.map((command) =>
        /^(cluster|xgroup|xinfo) \w+|^\w+/.exec(command)?.[0].replace(' ', '|'),
      );
      expect([...new Set([...names, ...optional, ...EVERYBODY])].sort(), user).toEqual(permitted);
    }
  });

  it('let both find their way in a Cluster', async () => {
    const node = await OwnRedis.start(files, { args: ['--cluster-enabled', 'yes'] });
    await node.as('operator').cluster('ADDSLOTSRANGE', 0, 16_383);
    await expect.poll(() => node.as('operator').cluster('INFO')).toContain('cluster_state:ok');
    const as = (user: string) => ({ REDIS_MODE: 'cluster', REDIS_USERNAME: user, REDIS_PASSWORD: user });
    const fleet = await Fleet.start({
      redisUrl: `redis://127.0.0.1:${node.port}`,
      verifiers: 0,
      env: as('control-plane'),
    });
    try {
      await fleet.addVerifier(as('verifier'));
      const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'a' });
      expect(await fleet.verdict(key)).toBe('VALID');
      await fleet.ok('keys.updateKey', { keyId, enabled: false });
      expect(await fleet.verdict(key)).toBe('DISABLED');
      expect(await node.as('operator').acl('LOG')).toEqual([]);
    } finally {
      await fleet.stop();
      await node.stop();
    }
  });

  const reads = (key: string) => [
    ['GET', key],
    ['HMGET', key, 'f'],
    ['XRANGE', key, '-', '+'],
    ['ZSCORE', key, 'm'],
  ];
  const joins = (key: string) => [
    ['ZADD', key, '1', 'm'],
    ['ZREM', key, 'm'],
  ];
  const counts = (key: string) => [
    ['EXPIRE', key, '1'],
    ['HSET', key, 'f', 'v'],
    ['HDEL', key, 'f'],
    ['HKEYS', key],
    ['HINCRBY', key, 'f', '1'],
  ];
  const runs = (key: string) => [
    ['EVAL', 'return 1', '1', key],
    ['EVALSHA', '0'.repeat(40), '1', key],
  ];
  /** Commands that would change a key, give it away, or tell more of it than a verifier needs. */
  const others = (key: string) => [
    ['SET', key, 'v'],
    ['DEL', key],
    ['UNLINK', key],
    ['RENAME', key, key],
    ['COPY', key, key],
    ['RESTORE', key, '0', 'v'],
    ['DUMP', key],
    ['HGET', key, 'f'],
    ['HGETALL', key],
    ['HSCAN', key, '0'],
    ['XADD', key, '*', 'f', 'v'],
    ['XTRIM', key, 'MAXLEN', '0'],
    ['XDEL', key, '1-0'],
    ['XREAD', 'STREAMS', key, '0'],
    ['ZRANGE', key, '0', '-1'],
    ['ZPOPMIN', key],
    ['ZUNIONSTORE', key, '1', key],
    ['SORT', key],
    ['TOUCH', key],
  ];

  it.each<[string, string, string]>([
    ['verifier', 'any-api', ''],
    ['verifier-billing', 'billing', 'another'],
  ])('a verifier can only read and join its API: %s', async (user, own, foreign) => {
    const may = async (commands: string[][]) => {
      const permitted: string[] = [];
      for (const command of commands) {
        const verdict = await admin.call('ACL', 'DRYRUN', user, ...command);
        if (verdict === 'OK') permitted.push(command.join(' '));
      }
      return permitted;
    };
    const flat = (commands: string[][]) => commands.map((command) => command.join(' '));
    for (const key of [...Object.values(keysOf(own)), POINTER]) {
      const { members, usage, held, pool } = keysOf(own);
      const writes = key === members || key === held ? joins(key) : key === usage ? counts(key) : [];
      const settles = [
        ['HSET', key, 'f', 'v'],
        ['HDEL', key, 'f'],
        ['HGETALL', key],
      ];
      const all = [...reads(key), ...runs(key), ...joins(key), ...counts(key), ...others(key)];
      const expected = [...reads(key), ...runs(key), ...writes, ...(key === pool ? settles : [])];
      expect(await may(all)).toEqual(flat(expected));
    }
    const sharedLog = apiKeys(SHARED_LOG);
    for (const key of [
      sharedLog.head,
      sharedLog.log,
      sharedLog.members,
      sharedLog.creations,
      recordKey(SHARED_LOG, 'role_1'),
    ]) {
      const all = [...reads(key), ...runs(key), ...joins(key), ...counts(key), ...others(key)];
      const writes = key === sharedLog.members ? joins(key) : [];
      expect(await may(all)).toEqual(flat([...reads(key), ...runs(key), ...writes]));
    }
    for (const key of [...OTHERS, ...(foreign ? Object.values(keysOf(foreign)) : [])]) {
      const all = [...reads(key), ...runs(key), ...joins(key), ...counts(key), ...others(key)];
      expect(await may(all)).toEqual([]);
    }
  });

  it.each<[string, string[]]>([
    ['publish a change of its own', ['PUBLISH', 'kf:{billing}:chg', 'x']],
    ['publish a change of a role', ['PUBLISH', 'kf:{!ws}:chg', 'x']],
    ['give a role more', ['HSET', 'kf:{!ws}:k:role_1', 'P', 'x']],
    ['publish to a shard', ['SPUBLISH', 'kf:{billing}:chg', 'x']],
    ['listen to what is no API', ['SUBSCRIBE', 'kf:{!root}:chg']],
    ['listen to other channels', ['SUBSCRIBE', '__sentinel__:hello']],
    ['listen to all channels', ['PSUBSCRIBE', '*']],
    ['enable a key', ['HSET', 'kf:{billing}:k:key_1', 'e', '1']],
    [
      'enable a key by script',
      ['EVAL', "return redis.call('HSET', KEYS[1], 'e', '1')", '1', 'kf:{billing}:k:key_1'],
    ],
    ['publish by script', ['EVAL', "return redis.call('PUBLISH', 'kf:{billing}:chg', 'x')", '0']],
    ['read a root key by script', ['EVAL', "return redis.call('HGET', 'kf:{!root}:k:hash', 'id')", '0']],
    ['list keys', ['KEYS', '*']],
    ['walk keys', ['SCAN', '0']],
    ['walk keys by script', ['EVAL', "return redis.call('SCAN', '0')", '0']],
    ['draw a key', ['RANDOMKEY']],
    ['empty the database', ['FLUSHALL']],
    ['empty this database', ['FLUSHDB']],
    ['change settings', ['CONFIG', 'SET', 'appendonly', 'no']],
    ['read settings', ['CONFIG', 'GET', '*']],
    ['change users', ['ACL', 'SETUSER', 'verifier', '+@all']],
    ['read users', ['ACL', 'LIST']],
    ['watch the others', ['MONITOR']],
    ['list connections', ['CLIENT', 'LIST']],
    ['cut connections', ['CLIENT', 'KILL', 'TYPE', 'normal']],
    ['hold everybody up', ['CLIENT', 'PAUSE', '1']],
    ['stop the server', ['SHUTDOWN', 'NOSAVE']],
    ['make it a replica', ['REPLICAOF', '127.0.0.1', '1']],
    ['copy everything as a replica', ['PSYNC', '?', '-1']],
    ['load code', ['FUNCTION', 'LOAD', '#!lua name=x']],
    ['forget scripts', ['SCRIPT', 'FLUSH']],
    ['save', ['BGSAVE']],
    ['swap databases', ['SWAPDB', '0', '1']],
    ['take keys elsewhere', ['MIGRATE', '127.0.0.1', '1', 'kf:p:hash', '0', '1']],
  ])('a verifier may do nothing else: to %s', async (_, [name = '', ...args]) => {
    for (const user of ['verifier', 'verifier-billing']) {
      await expect(redis.as(user).call(name, ...args)).rejects.toThrow(
        /NOPERM|can't (run this command|access|publish)/,
      );
    }
  });

  it('a verifier of one API can hear and join that API only', async () => {
    const confined = redis.as('verifier-billing');
    expect(await confined.subscribe('kf:{billing}:chg')).toBe(1);
    expect(await confined.subscribe('kf:{!ws}:chg')).toBe(2);
    await expect(confined.subscribe('kf:{another}:chg')).rejects.toThrow(/NOPERM/);
    const join = "return redis.call('ZADD', KEYS[1], 0, 'me')";
    expect(await confined.eval(join, 1, 'kf:{billing}:members')).toBe(1);
    await expect(confined.eval(join, 1, 'kf:{another}:members')).rejects.toThrow(/NOPERM/);
    await expect(confined.eval(join.replace('KEYS[1]', "'kf:{another}:members'"), 0)).rejects.toThrow(
      /can't access/,
    );
  });

  it("a control plane can read the replica's password", async () => {
    await redis.as('operator').config('SET', 'masterauth', 'told');
    expect(await redis.as('control-plane').config('GET', 'masterauth')).toEqual(['masterauth', 'told']);
  });

  it.each([
    ['FLUSHALL'],
    ['KEYS', '*'],
    ['SCAN', '0'],
    ['CONFIG', 'SET', 'appendonly', 'no'],
    ['ACL', 'LIST'],
    ['SHUTDOWN'],
    ['MONITOR'],
    ['SUBSCRIBE', 'other'],
    ['PUBLISH', '__sentinel__:hello', 'x'],
    ['SET', 'another:application', 'x'],
    ['GET', 'another:application'],
  ])('the control plane lacks needless commands: %s', async (name, ...args) => {
    await expect(redis.as('control-plane').call(name, ...args)).rejects.toThrow(/NOPERM/);
  });
});

/** Every command, with those of scripts, by the user whose connection it came from, as MONITOR tells. */
class Seen {
  readonly #admin: Redis;
  readonly #users = new Map<string, string>();
  readonly #lines: { source: string; command: string }[] = [];
  readonly #timer: NodeJS.Timeout;
  #close: () => void = () => undefined;

  private constructor(admin: Redis) {
    this.#admin = admin;
    this.#timer = setInterval(() => void this.#look(), 20);
  }

  static async start(redis: OwnRedis, admin: Redis): Promise<Seen> {
    const seen = new Seen(admin);
    const feed = await redis.as('operator').monitor();
    feed.on('monitor', (_time: string, [name = '', second = '']: string[], source: string) => {
      const command = name.toLowerCase();
      const isContainer = ['config', 'cluster', 'client', 'xgroup', 'xinfo'].includes(command);
      seen.#lines.push({ source, command: isContainer ? `${command}|${second.toLowerCase()}` : command });
    });
    seen.#close = () => feed.disconnect();
    return seen;
  }

  async end(): Promise<Map<string, Set<string>>> {
    clearInterval(this.#timer);
    await this.#admin.echo('the end');
    await expect.poll(() => this.#lines.some(({ command }) => command === 'echo')).toBe(true);
    this.#close();
    const used = new Map<string, Set<string>>();
    let user = '';
    for (const { source, command } of this.#lines) {
      // What a script does follows the line of the script.
      if (source !== 'lua') user = this.#users.get(source) ?? `unknown at ${source}`;
      used.set(user, (used.get(user) ?? new Set()).add(command));
    }
    return used;
  }

  async #look(): Promise<void> {
    const list = String(await this.#admin.client('LIST'));
    for (const [, address = '', user = ''] of list.matchAll(/ addr=(\S+) .* user=(\S+)/g)) {
      this.#users.set(address, user);
    }
  }
}

/** Whatever a control plane and verifiers can do, under their users. @returns log lines about refusals */
async function everythingUnder(redis: OwnRedis, admin: Redis): Promise<string[]> {
  const often = { LEASE_MS, STATUS_PERIOD_MS: '100', USAGE_PERIOD_MS: '100' };
  const as = (user: string) => ({ REDIS_USERNAME: user, REDIS_PASSWORD: user, ...often });
  const fleet = await Fleet.start({
    redisUrl: `redis://127.0.0.1:${redis.port}`,
    env: { ...as('control-plane'), WEBHOOK_NETWORKS: '127.0.0.0/8', WEBHOOK_QUEUE_MAX: '100' },
    verifiers: 0,
  });
  const receiver = await Receiver.start();
  try {
    await fleet.addVerifier(as('verifier'));
    await fleet.ok('apis.createApi', { apiId: 'a', name: 'A' });
    const { key, keyId } = await fleet.ok('keys.createKey', {
      apiId: 'a',
      externalId: 'owner',
      meta: { long: 'm'.repeat(100) },
    });
    // Of an hour long ago, so that it is thrown away.
    await admin.hset(usageKey('a', keyId), 'h1V', 1);
    expect(await fleet.verdict(key)).toBe('VALID');
    expect(await fleet.verdict(`${key}x`)).toBe('NOT_FOUND');
    await fleet.ok('keys.updateKey', {
      keyId,
      enabled: false,
      name: 'n',
      meta: { m: 1 },
      externalId: 'another',
    });
    expect(await fleet.verdict(key)).toBe('DISABLED');
    await fleet.ok('keys.updateKey', { keyId, enabled: true, meta: null, externalId: null, name: null });
    expect(await fleet.verdict(key)).toBe('VALID');
    await fleet.ok('keys.getKey', { keyId });
    // With a name that is quite forgotten, one that left long ago, and one that holds what is needed.
    const { held, members } = apiKeys('a');
    const paid = await fleet.ok('keys.createKey', {
      ...{ apiId: 'a', remaining: 0, refill: { interval: 'monthly', amount: 5 }, thresholds: [50] },
      ratelimit: { limit: 1000, duration: 1000 },
    });
    const pool = poolKey('a', (await admin.hget(recordKey('a', paid.keyId), 'q')) ?? '');
    await admin.zadd(held, 1, '2.left');
    await admin.zadd(members, 99, '2.holder');
    await admin.hset(pool, { '@2.gone': '3 1 1 0', '@2.holder': '1 0 1 0', h: 3 });
    expect(await fleet.verdict(paid.key)).toBe('USAGE_EXCEEDED');
    await admin.zrem(members, '2.holder');
    await fleet.ok('keys.updateRemaining', { keyId: paid.keyId, op: 'increment', value: 1 });
    expect(await fleet.verdict(paid.key)).toBe('VALID');
    // Of a limit that a request brings, and one that an owner's keys share.
    const limit = { name: 'shared', limit: 9, duration: 3_600_000 };
    const quota = { name: 'shared', limit: 9, interval: 'hour', thresholds: [1] };
    await fleet.ok('identities.createIdentity', {
      externalId: 'owner',
      ratelimits: [quota],
      credits: { remaining: 9, thresholds: [1] },
    });
    await fleet.ok('permissions.createRole', { name: 'editor', permissions: ['edit'] });
    const owned = await fleet.ok('keys.createKey', { apiId: 'a', externalId: 'owner', roles: ['editor'] });
    for (const ratelimits of [[{ name: 'shared' }], [{ ...limit, name: 'brought' }]])
      expect(await fleet.verdict(owned.key, { ratelimits })).toBe('VALID');
    // Places of a key, and those that an owner's keys share: a question looks, and a hold takes.
    const concurrency = [{ name: 'running', limit: 2 }];
    await fleet.ok('identities.createIdentity', { externalId: 'busy', concurrency });
    for (const fields of [{ concurrency }, { externalId: 'busy' }]) {
      const { key: placed } = await fleet.ok('keys.createKey', { apiId: 'a', ...fields });
      expect(await fleet.verdict(placed)).toBe('VALID');
      expect(await fleet.verdict(placed, { hold: {} })).toBe('VALID');
    }
    const call = { keyId: paid.keyId, expiration: 0, operationId: 'operation-of-this-test' };
    await fleet.ok('keys.rerollKey', call);
    await fleet.ok('keys.rerollKey', call);
    await fleet.ok('keys.getKey', { keyId: paid.keyId });
    await fleet.ok('keys.getPropagation', { keyId, sequence: 1 });
    await fleet.until(async () => {
      const { verifications } = await fleet.ok('keys.getVerifications', { keyId });
      return verifications.at(-1).success > 0;
    });
    await fleet.ok('apis.getVerifications', { apiId: 'a', groupBy: 'tag' });
    await fleet.until(async () => (await fleet.ok('keys.listRefusals', { keyId })).refusals.length > 0);
    expect((await fleet.ok('apis.listRefusals', { apiId: 'a' })).refusals).not.toEqual([]);
    await fleet.until(async () => (await fleet.ok('fleet.listVerifiers')).verifiers.length === 1);
    await fleet.ok('keys.importKeys', { apiId: 'a', keys: [{ sha256: 'ab'.repeat(32) }] });
    await fleet.ok('audit.listEvents', { keyId });
    await fleet.ok('audit.listEvents');
    // More events than a queue has room for, of which some come in the end.
    await receiver.stop();
    const { endpointId } = await fleet.ok('webhooks.createEndpoint', { url: receiver.url });
    const hashes = Array.from({ length: 110 }, (_, i) => ({ sha256: String(1000 + i).repeat(16) }));
    await fleet.ok('keys.importKeys', { apiId: 'a', keys: hashes });
    const endpoint = () => fleet.ok('webhooks.getEndpoint', { endpointId });
    await fleet.until(async () => (await endpoint()).dropped >= 10);
    await receiver.listen();
    await fleet.ok('webhooks.updateEndpoint', { endpointId, url: `${receiver.url}?again` });
    await fleet.until(async () => (await endpoint()).waiting === 0);
    await fleet.ok('webhooks.listDeliveries', { endpointId });
    await fleet.ok('webhooks.deleteEndpoint', { endpointId });
    for (const query of [{}, { sort: '-createdAt' }, { externalId: 'owner' }, { enabled: 'true' }])
      await fleet.ok('apis.listKeys', { apiId: 'a', ...query });
    await fleet.ok('keys.createKey', { apiId: 'a', managedBy: 'of a set' });
    for (const page of [{}, { limit: '1' }])
      await fleet.ok('apis.listKeys', { apiId: 'a', managedByPrefix: 'of', ...page });
    await fleet.ok('identities.listIdentities', { managedByPrefix: 'of' });
    await fleet.ok('apis.getApi', { apiId: 'a' });
    await fleet.ok('apis.getVerifications', { apiId: 'a', groupBy: 'tag' });
    await fleet.ok('apis.listApis');
    const rootKey = await fleet.ok('rootKeys.createRootKey', { name: 'r', permissions: ['*'] });
    await fleet.ok('apis.listApis', {}, { rootKey: rootKey.key });
    await fleet.ok('rootKeys.listRootKeys');
    const session = `${fleet.controlPlanes[0]?.address}/dashboard/session`;
    const signedIn = await fleet.post(session, { rootKey: rootKey.key });
    const [cookie = ''] = String(signedIn.headers['set-cookie']).split(';');
    const own = { cookie, 'x-keyfence-csrf': signedIn.body.csrfToken };
    expect((await fleet.send(session, { method: 'DELETE', headers: own })).status).toBe(200);
    await fleet.ok('rootKeys.updateRootKey', { rootKeyId: rootKey.rootKeyId, enabled: false });

    // A change that is written while the verifier's connection is cut is fetched from the log.
    await fleet.until(async () => {
      await admin.client('KILL', 'USER', 'verifier');
      await fleet.ok('keys.updateKey', { keyId, name: 'cut' });
      const metrics = await fleet.get(`${fleet.verifiers[0]?.adminAddress}/metrics`);
      return /keyfence_changes_applied_total\{source="sync"\} [1-9]/.test(metrics.body);
    });
    expect(await fleet.verdict(key)).toBe('VALID');

    // A verifier that is gone without leaving: found by the fence, killed, removed.
    await admin.zadd(apiKeys('a').members, 0, 'gone');
    const { propagation } = await fleet.ok('keys.updateKey', { keyId, name: 'x' });
    expect(propagation).toMatchObject({ state: 'complete', by: 'fence' });
    await fleet.until(async () => (await admin.zcard(apiKeys('a').members)) === 1);

    // A longer lease, then a shorter one, by the next control plane.
    for (const lease of ['700', '500']) {
      await fleet.addControlPlane({ ...as('control-plane'), LEASE_MS: lease });
      await fleet.until(async () => (await admin.hget(apiKeys('a').head, 'Lf')) === lease);
      await fleet.controlPlanes.pop()?.stop();
    }

    await fleet.addVerifier({ ...as('verifier-billing'), API_IDS: 'billing' }, false);
    const billing = await fleet.ok('keys.createKey', { apiId: 'billing', externalId: 'owner' });
    const placed = await fleet.ok('keys.createKey', { apiId: 'billing', externalId: 'busy', concurrency });
    expect(await fleet.verdict(placed.key, { at: 1 })).toBe('VALID');
    expect(await fleet.verdict(billing.key, { at: 1 })).toBe('VALID');
    for (const ratelimits of [[{ name: 'shared' }], [{ ...limit, name: 'brought' }]])
      expect(await fleet.verdict(billing.key, { at: 1, ratelimits })).toBe('VALID');
    expect(await fleet.verdict(key, { at: 1 })).toBe('FORBIDDEN');
    await fleet.until(async () => (await fleet.ok('keys.getKey', { keyId: billing.keyId })).lastUsedAt > 0);
    await fleet.until(async () => (await fleet.ok('fleet.listVerifiers')).verifiers.length === 2);
    await fleet.ok('keys.deleteKey', { keyId });
    expect(await fleet.verdict(key)).toBe('NOT_FOUND');
    await fleet.ok('apis.deleteApi', { apiId: 'a' });
    await fleet.until(async () => (await admin.exists(apiKeys('a').head)) === 0);
    await fleet.verifiers[0]?.stop();
    await fleet.verifiers.pop();
  } finally {
    await receiver.stop();
    await fleet.stop();
  }
  return fleet.logged.filter((line) => /NOPERM|not permitted|WRONGPASS|NOAUTH/.test(line));
}

/** Every command that the server has and this user may call with some arguments. */
async function permittedTo(admin: Redis, user: string): Promise<string[]> {
  type Command = [name: string, arity: number, ...rest: unknown[]];
  const all = ((await admin.call('COMMAND')) as Command[]).flatMap((command) => {
    const inner = (command[9] ?? []) as Command[];
    return inner.length > 0 ? inner : [command];
  });
  const permitted: string[] = [];
  for (const [name, arity] of all) {
    const words = name.split('|');
    const args = Array.from({ length: Math.abs(arity) - words.length }, () => 'kf:{a}:members');
    const verdict = await admin.call('ACL', 'DRYRUN', user, ...words, ...args);
    if (!/permissions to run/.test(String(verdict))) permitted.push(name);
  }
  return permitted;
}
