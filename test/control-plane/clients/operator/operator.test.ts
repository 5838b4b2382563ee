import { hash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { Admin } from '../../../../control-plane/clients/client/admin.ts';
import type { Kube } from '../../../../control-plane/clients/operator/kube.ts';
import { Operator } from '../../../../control-plane/clients/operator/operator.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { FakeKeyfence } from './fake-keyfence.ts';
import { FakeKube } from './fake-kube.ts';
import { IdleClock } from './idle-clock.ts';

const RELIST_MS = 300_000;
const LONG_MS = 600_000;

/** A cluster, a Keyfence and an operator between them, which may end at any call and start again. */
class World {
  readonly clock = new IdleClock();
  readonly kube = new FakeKube();
  readonly keyfence = new FakeKeyfence();
  readonly operators: Operator[] = [];
  #secrets = 0;
  /** Calls until the operator is killed: before the call is made, or before its answer comes. */
  killAt = Number.POSITIVE_INFINITY;
  calls = 0;

  constructor() {
    this.keyfence.nowMs = () => this.clock.wallMs();
    this.kube.put('namespaces', { metadata: { name: 'shop', labels: { team: 'shop' } } });
    this.kube.put('keyapis', {
      ...{ metadata: { name: 'shop' }, spec: { allowedNamespaces: { matchLabels: { team: 'shop' } } } },
    });
  }

  start(): Operator {
    let isDead = false;
    const mortal = <T extends object>(of: T): T =>
      new Proxy(of, {
        get: (target, name) => {
          const value = Reflect.get(target, name);
          if (typeof value === 'object' && value !== null) return mortal(value);
          if (typeof value !== 'function' || name === 'watch')
            return typeof value === 'function' ? value.bind(target) : value;
          return async (...args: unknown[]) => {
            const at = this.calls++;
            const die = () => {
              isDead = true;
              operator.stop();
              return new Promise(() => undefined);
            };
            if (isDead) return die();
            if (at === this.killAt) return die();
            const answer = await value.apply(target, args);
            return isDead || at + 0.5 === this.killAt ? die() : answer;
          };
        },
      });
    const operator: Operator = new Operator({
      ...{ kube: mortal<Kube>(this.kube), admin: mortal<Admin>(this.keyfence.admin), clock: this.clock },
      ...{
        home: 'keyfence',
        namespaces: ['shop', 'other'],
        relistMs: RELIST_MS,
        log: createLogger('control-plane', (process.env['OPLOG'] ?? 'silent') as 'silent'),
      },
      chance: () => 0.5,
      newSecret: () => `secret-of-the-operator-${String(++this.#secrets).padStart(4, '0')}`,
    });
    this.operators.push(operator);
    void operator.run();
    return operator;
  }

  get isKilled(): boolean {
    return this.calls > this.killAt;
  }

  key(name: string, spec: object = {}, namespace = 'shop') {
    return this.kube.put('apikeys', { metadata: { name, namespace }, spec: { api: 'shop', ...spec } });
  }

  read = (name: string, namespace = 'shop') => this.kube.read('apikeys', namespace, name);

  condition(name: string, type: string, namespace = 'shop') {
    const { conditions = [] } = this.read(name, namespace)?.status ?? {};
    return conditions.find((condition: { type: string }) => condition.type === type) ?? {};
  }

  /** Makes a KeyRole or a KeyIdentity. */
  declare(plural: string, name: string, spec: object, namespace = 'shop') {
    return this.kube.put(plural, { metadata: { name, namespace }, spec });
  }

  conditionOf(plural: string, name: string, type: string, namespace = 'shop') {
    const { conditions = [] } = this.kube.read(plural, namespace, name)?.status ?? {};
    return conditions.find((condition: { type: string }) => condition.type === type) ?? {};
  }

  isReady = (name: string) => this.condition(name, 'Ready').status === 'True';

  secret(name: string): string | undefined {
    const data = this.kube.read('secrets', 'shop', name)?.data?.key;
    return data && Buffer.from(data, 'base64').toString();
  }

  putSecret(name: string, key: string, labels: object = { 'keyfence.io/secret': 'true' }): void {
    const data = { key: Buffer.from(key).toString('base64') };
    this.kube.put('secrets', { metadata: { name, namespace: 'shop', labels }, data });
  }

  /** The keys of an object in Keyfence. */
  keysOf(name: string) {
    const { uid } = this.read(name)?.metadata ?? {};
    return [...this.keyfence.keys.values()].filter(({ managedBy }) => uid && managedBy?.endsWith(`/${uid}`));
  }
}

const digestOf = (secret = '') => hash('sha256', secret, 'base64url');

async function started(): Promise<World> {
  const world = new World();
  world.start();
  await world.clock.until(() => world.keyfence.apis.has('shop'));
  return world;
}

describe('an ApiKey', () => {
  test('becomes a key whose secret is in its Secret', async () => {
    const world = await started();
    world.key('ci', { name: 'CI', roles: ['pro'], expires: '2028-01-01T00:00:00Z' });
    await world.clock.until(() => world.isReady('ci'));
    const [key] = world.keysOf('ci');
    expect(key).toMatchObject({
      name: 'CI',
      roles: ['pro'],
      expires: Date.parse('2028-01-01'),
      enabled: true,
    });
    expect(key.sha256).toBe(digestOf(world.secret('ci')));
    const { metadata } = world.kube.read('secrets', 'shop', 'ci');
    expect(metadata.annotations['keyfence.io/sha256']).toBe(hash('sha256', world.secret('ci') ?? ''));
    expect(metadata.ownerReferences).toMatchObject([
      { uid: world.read('ci').metadata.uid, controller: true },
    ]);
    expect(world.condition('ci', 'Propagated')).toMatchObject({ status: 'True', reason: 'Complete' });
    expect(world.read('ci').status).toMatchObject({ keyId: key.keyId, observedGeneration: 1 });
  });

  test('is changed with its spec, and what is left out is removed', async () => {
    const world = await started();
    world.key('ci', { name: 'CI', meta: { a: 1 } });
    await world.clock.until(() => world.isReady('ci'));
    world.keyfence.isStuck = true;
    world.key('ci', { enabled: false });
    await world.clock.until(() => world.condition('ci', 'Propagated').reason === 'Pending');
    expect(world.keysOf('ci')).toMatchObject([{ enabled: false }]);
    // Ready is what others wait for: not before every verifier answers by it.
    expect(world.condition('ci', 'Ready')).toMatchObject({ status: 'Unknown', reason: 'Pending' });
    expect(world.keysOf('ci')[0]).not.toHaveProperty('meta');
    world.keyfence.isStuck = false;
    await world.clock.until(() => world.condition('ci', 'Propagated').status === 'True');
  });

  test('whose last change no log has is ready', async () => {
    const world = await started();
    world.keyfence.isTrimmed = true;
    world.key('ci');
    await world.clock.until(() => world.condition('ci', 'Propagated').status === 'True');
  });

  test('is gone once no verifier accepts its key', async () => {
    const world = await started();
    world.key('ci');
    await world.clock.until(() => world.isReady('ci'));
    world.keyfence.isStuck = true;
    world.kube.remove('apikeys', 'shop', 'ci');
    await world.clock.pass(60_000);
    expect(world.keyfence.keys.size).toBe(0);
    expect(world.condition('ci', 'Propagated')).toMatchObject({ status: 'False', reason: 'Pending' });
    world.keyfence.isStuck = false;
    await world.clock.until(() => world.read('ci') === undefined);
    expect(world.secret('ci')).toBeUndefined();
  });

  test('whose KeyApi was taken away by force lets no key live on', async () => {
    const world = new World();
    world.keyfence.apis.set('shop', { apiId: 'shop', name: 'Mine', sequence: 0 });
    world.start();
    world.key('ci');
    await world.clock.until(() => world.isReady('ci'));
    const api = world.kube.read('keyapis', '', 'shop');
    world.kube.put('keyapis', { ...api, metadata: { ...api.metadata, finalizers: [] } });
    world.kube.remove('keyapis', '', 'shop');
    world.kube.remove('apikeys', 'shop', 'ci');
    await world.clock.until(() => world.read('ci') === undefined);
    expect(world.keyfence.keys.size).toBe(0);
  });

  test('with on-delete=orphan leaves key and Secret', async () => {
    const world = await started();
    world.key('ci');
    await world.clock.until(() => world.isReady('ci'));
    const annotations = { 'keyfence.io/on-delete': 'orphan' };
    world.kube.put('apikeys', {
      ...world.read('ci'),
      metadata: { ...world.read('ci').metadata, annotations },
    });
    world.kube.remove('apikeys', 'shop', 'ci');
    await world.clock.until(() => world.read('ci') === undefined);
    await world.clock.pass(2 * RELIST_MS);
    expect([...world.keyfence.keys.values()]).toMatchObject([{ sha256: digestOf(world.secret('ci')) }]);
  });

  test('whose status is forged keeps its own keys only', async () => {
    const world = await started();
    world.key('victim');
    world.key('forged');
    await world.clock.until(() => world.isReady('victim') && world.isReady('forged'));
    const [victim] = world.keysOf('victim');
    const status = { keyId: victim.keyId, sequence: 1, retired: [victim.keyId] };
    await world.kube.patch(
      { group: '', plural: 'apikeys', namespace: 'shop' },
      'forged',
      { status },
      'status',
    );
    await world.clock.until(() => world.read('forged').status.keyId !== victim.keyId);
    world.kube.remove('apikeys', 'shop', 'forged');
    await world.clock.until(() => world.read('forged') === undefined);
    expect(world.keysOf('victim')).toEqual([victim]);
  });

  test('of a finalizer that its user wrote changes no log', async () => {
    const world = await started();
    world.kube.put('apikeys', {
      metadata: { name: 'fake', namespace: 'other', finalizers: ['keyfence.io/fence'] },
      spec: { api: 'shop' },
    });
    world.kube.remove('apikeys', 'other', 'fake');
    await world.clock.until(() => world.read('fake', 'other') === undefined);
    expect(world.keyfence.calls).not.toContain('keys.deleteKey');
  });

  test('changed by hand says so, and stays so', async () => {
    const world = await started();
    world.key('ci', { name: 'CI' });
    await world.clock.until(() => world.isReady('ci'));
    const [{ keyId }] = world.keysOf('ci');
    world.keyfence.change(keyId, { enabled: false });
    await world.clock.until(() => world.condition('ci', 'InSync').reason === 'ChangedByHand', 2 * RELIST_MS);
    expect(world.keysOf('ci')).toMatchObject([{ enabled: false }]);
    world.key('ci', { name: 'CI again' });
    await world.clock.until(() => world.condition('ci', 'InSync').status === 'True');
    expect(world.keysOf('ci')).toMatchObject([{ enabled: true, name: 'CI again' }]);
  });
});

describe('a secret', () => {
  test('of the user is imported, and its change rotates', async () => {
    const world = await started();
    world.putSecret('own', 'the-secret-of-the-user-number-1');
    world.key('ci', { secretRefs: [{ name: 'own' }], graceSeconds: 60 });
    await world.clock.until(() => world.isReady('ci'));
    expect(world.keysOf('ci')).toMatchObject([{ sha256: digestOf('the-secret-of-the-user-number-1') }]);
    world.putSecret('own', 'the-secret-of-the-user-number-2');
    await world.clock.until(() => world.keysOf('ci').length === 2);
    const endMs = world.clock.wallMs() + 60_000;
    await world.clock.until(() => world.keysOf('ci').some(({ expires }) => expires <= endMs + 1000));
    await world.clock.until(() => world.keysOf('ci').length === 1, 70_000);
    expect(world.keysOf('ci')).toMatchObject([{ sha256: digestOf('the-secret-of-the-user-number-2') }]);
  });

  test('beside another rotates without an outage', async () => {
    const world = await started();
    world.putSecret('a', 'the-secret-of-the-user-number-a');
    world.putSecret('b', 'the-secret-of-the-user-number-b');
    world.key('ci', { secretRefs: [{ name: 'a' }] });
    await world.clock.until(() => world.isReady('ci'));
    world.key('ci', { secretRefs: [{ name: 'a' }, { name: 'b' }] });
    await world.clock.until(() => world.keysOf('ci').length === 2);
    expect(world.keysOf('ci').map(({ expires }) => expires)).toEqual([undefined, undefined]);
    world.key('ci', { secretRefs: [{ name: 'b' }], graceSeconds: 0 });
    await world.clock.until(() => world.keysOf('ci').length === 1);
    // The first one once more, after its end had begun.
    world.key('ci', { secretRefs: [{ name: 'a' }] });
    await world.clock.until(() => world.keysOf('ci').some(({ expires }) => expires !== undefined));
    world.key('ci', { secretRefs: [{ name: 'b' }], graceSeconds: 0 });
    await world.clock.until(() => world.keysOf('ci').length === 1);
    expect(world.keysOf('ci')[0]).toMatchObject({ sha256: digestOf('the-secret-of-the-user-number-b') });
    expect(world.keysOf('ci')[0]).not.toHaveProperty('expires');
  });

  test('that is deleted is made anew', async () => {
    const world = await started();
    world.key('ci', { graceSeconds: 0 });
    await world.clock.until(() => world.isReady('ci'));
    const before = world.secret('ci');
    world.kube.remove('secrets', 'shop', 'ci');
    await world.clock.until(
      () => (world.secret('ci') ?? before) !== before && world.keysOf('ci').length === 1,
    );
    expect(world.keysOf('ci')).toMatchObject([{ sha256: digestOf(world.secret('ci')) }]);
  });

  test.each([
    ['without the label', {}, 'the-secret-of-the-user-number-1', 'SecretMissing'],
    ['that is short', { 'keyfence.io/secret': 'true' }, 'short', 'SecretInvalid'],
    [
      'with blanks',
      { 'keyfence.io/secret': 'true' },
      'a secret with blanks in it, and long',
      'SecretInvalid',
    ],
  ])('%s is refused', async (_, labels, secret, reason) => {
    const world = await started();
    world.putSecret('own', secret, labels);
    world.key('ci', { secretRefs: [{ name: 'own' }] });
    await world.clock.until(() => world.condition('ci', 'Ready').reason === reason);
    expect(world.keyfence.keys.size).toBe(0);
  });

  test('of another object is not taken over', async () => {
    const world = await started();
    world.key('first');
    await world.clock.until(() => world.isReady('first'));
    world.key('second', { secretName: 'first' });
    await world.clock.until(() => world.condition('second', 'Ready').reason === 'SecretTaken');
    world.key('second', { secretRefs: [{ name: 'first' }] });
    await world.clock.until(() => world.condition('second', 'Ready').reason === 'SecretInUse');
    expect(world.keyfence.keys.size).toBe(1);
  });
});

describe('a KeyApi', () => {
  test('admits namespaces by their labels, and no other', async () => {
    const world = await started();
    world.kube.put('namespaces', { metadata: { name: 'other', labels: {} } });
    world.key('ci', {}, 'other');
    world.key('none', { api: 'none' });
    const reasonOf = (name: string, namespace: string) => world.condition(name, 'Ready', namespace).reason;
    await world.clock.until(() => reasonOf('ci', 'other') === 'ApiNotAllowed');
    await world.clock.until(() => reasonOf('none', 'shop') === 'ApiNotAllowed');
    expect(world.keyfence.keys.size).toBe(0);
    expect(world.read('ci', 'other').metadata.finalizers).toBeUndefined();
    world.kube.put('namespaces', { metadata: { name: 'other', labels: { team: 'shop' } } });
    await world.clock.until(() => world.condition('ci', 'Ready', 'other').status === 'True');
  });

  test('goes after its ApiKeys, with the API', async () => {
    const world = await started();
    world.key('ci');
    await world.clock.until(() => world.isReady('ci'));
    world.kube.remove('keyapis', '', 'shop');
    await world.clock.pass(20_000);
    expect(world.conditionOf('keyapis', 'shop', 'Ready', '').reason).toBe('InUse');
    world.kube.remove('apikeys', 'shop', 'ci');
    await world.clock.until(() => world.kube.all('keyapis').length === 0);
    expect(world.keyfence.apis.size).toBe(0);
  });

  test('of an API that was there leaves it alone', async () => {
    const world = new World();
    world.keyfence.apis.set('shop', { apiId: 'shop', name: 'Mine', sequence: 0 });
    world.start();
    world.key('ci');
    await world.clock.until(() => world.isReady('ci'));
    world.kube.remove('apikeys', 'shop', 'ci');
    world.kube.remove('keyapis', '', 'shop');
    await world.clock.until(() => world.kube.all('keyapis').length === 0);
    expect(world.keyfence.apis.get('shop')).toEqual({ apiId: 'shop', name: 'Mine', sequence: 0 });
  });
});

describe.each([
  {
    kind: 'KeyRole',
    plural: 'keyroles',
    records: 'roles',
    spec: { permissions: ['a'] },
    later: { permissions: ['b'] },
    empty: { permissions: [] },
  },
  {
    kind: 'KeyIdentity',
    plural: 'keyidentities',
    records: 'identities',
    spec: { apiIds: ['shop'], meta: { plan: 'pro' } },
    later: { apiIds: ['shop'], meta: { plan: 'free' } },
    empty: { meta: {} },
  },
] as const)('a $kind', ({ plural, records, spec, later, empty }) => {
  const recordsOf = (world: World) => [...world.keyfence[records].values()];
  const reasonOf = (world: World, name: string, type = 'Ready', namespace = 'shop') =>
    world.conditionOf(plural, name, type, namespace).reason;
  const isReady = (world: World, name: string) => world.conditionOf(plural, name, 'Ready').status === 'True';

  test('is declared, changed, and gone once no verifier answers by it', async () => {
    const world = await started();
    world.declare(plural, 'x', spec);
    await world.clock.until(() => isReady(world, 'x'));
    expect(recordsOf(world)).toMatchObject([{ name: 'x', ...spec }]);
    world.keyfence.isStuck = true;
    world.declare(plural, 'x', later);
    await world.clock.until(() => reasonOf(world, 'x', 'Propagated') === 'Pending');
    world.keyfence.isStuck = false;
    await world.clock.until(() => reasonOf(world, 'x', 'Propagated') === 'Complete');
    expect(recordsOf(world)).toMatchObject([later]);
    world.keyfence.isStuck = true;
    world.kube.remove(plural, 'shop', 'x');
    await world.clock.pass(60_000);
    expect(reasonOf(world, 'x', 'Propagated')).toBe('Pending');
    expect(recordsOf(world)).toMatchObject([empty]);
    world.keyfence.isStuck = false;
    await world.clock.until(() => world.kube.all(plural).length === 0);
    expect(recordsOf(world)).toEqual([]);
  });

  test('takes no name that another has', async () => {
    const world = await started();
    world.kube.put('namespaces', { metadata: { name: 'other', labels: { team: 'shop' } } });
    world.declare(plural, 'x', spec);
    await world.clock.until(() => isReady(world, 'x'));
    const before = recordsOf(world);
    world.declare(plural, 'x', later, 'other');
    await world.clock.until(() => reasonOf(world, 'x', 'Ready', 'other') === 'NameTaken');
    const id = before[0].id;
    // Neither what its status says, nor its deletion, touches what is not its own.
    await world.kube.patch({ group: '', plural, namespace: 'other' }, 'x', { status: { id } }, 'status');
    world.kube.remove(plural, 'other', 'x');
    await world.clock.until(() => world.kube.all(plural).length === 1);
    await world.clock.pass(2 * RELIST_MS);
    expect(recordsOf(world)).toEqual(before);
  });

  test('needs a KeyApi that admits its namespace', async () => {
    const world = await started();
    world.kube.put('namespaces', { metadata: { name: 'other', labels: {} } });
    world.declare(plural, 'x', spec, 'other');
    await world.clock.until(() => reasonOf(world, 'x', 'Ready', 'other') === 'ApiNotAllowed');
    expect(recordsOf(world)).toEqual([]);
    world.kube.put('namespaces', { metadata: { name: 'other', labels: { team: 'shop' } } });
    await world.clock.until(() => reasonOf(world, 'x', 'Ready', 'other') === 'Declared');
  });

  test('changed by hand says so, and stays so', async () => {
    const world = await started();
    world.declare(plural, 'x', spec);
    await world.clock.until(() => isReady(world, 'x'));
    world.keyfence.changeRecord(world.keyfence[records], recordsOf(world)[0].id, empty);
    await world.clock.until(() => reasonOf(world, 'x', 'InSync') === 'ChangedByHand', 2 * RELIST_MS);
    expect(recordsOf(world)).toMatchObject([empty]);
    world.declare(plural, 'x', later);
    await world.clock.until(() => reasonOf(world, 'x', 'InSync') === 'AsDeclared');
    expect(recordsOf(world)).toMatchObject([later]);
  });

  test('that is as it was costs no call at a relist', async () => {
    const world = await started();
    world.declare(plural, 'x', spec);
    await world.clock.until(() => isReady(world, 'x'));
    await world.clock.pass(RELIST_MS);
    const before = world.keyfence.calls.length;
    await world.clock.pass(2 * RELIST_MS);
    const calls = world.keyfence.calls.slice(before);
    expect(calls.filter((name) => name.endsWith('Propagation'))).toEqual([]);
  });

  test('with on-delete=orphan leaves it as nobody’s', async () => {
    const world = await started();
    const object = world.declare(plural, 'x', spec);
    await world.clock.until(() => isReady(world, 'x'));
    const annotations = { 'keyfence.io/on-delete': 'orphan' };
    world.kube.put(plural, { ...object, metadata: { name: 'x', namespace: 'shop', annotations } });
    world.kube.remove(plural, 'shop', 'x');
    await world.clock.until(() => world.kube.all(plural).length === 0);
    await world.clock.pass(2 * RELIST_MS);
    expect(recordsOf(world)).toMatchObject([spec]);
  });

  test('killed at any call, it agrees in the end', async () => {
    const story = async (world: World) => {
      world.start();
      world.declare(plural, 'kept', spec);
      world.declare(plural, 'gone', spec);
      await world.clock.pass(5000);
      world.declare(plural, 'kept', later);
      world.kube.remove(plural, 'shop', 'gone');
      await world.clock.pass(5000);
      if (world.isKilled) world.start();
      await world.clock.pass(3 * RELIST_MS);
    };
    const whole = new World();
    await story(whole);
    expect(whole.calls).toBeGreaterThan(20);
    for (let at = 0; at < Math.min(whole.calls, 60); at += 0.5) {
      const world = new World();
      world.killAt = at;
      await story(world);
      expect(recordsOf(world), `killed at ${at}`).toMatchObject([{ name: 'kept', ...later }]);
      expect(world.kube.all(plural).length, `killed at ${at}`).toBe(1);
      expect(isReady(world, 'kept'), `killed at ${at}`).toBe(true);
    }
  });
});

test('what names a role is ready soon after that role', async () => {
  const world = await started();
  world.declare('keyidentities', 'acme', { apiIds: ['shop'], roles: ['pro'] });
  await world.clock.until(() => world.conditionOf('keyidentities', 'acme', 'Ready').reason === 'Refused');
  world.declare('keyroles', 'pro', {});
  await world.clock.until(() => world.conditionOf('keyidentities', 'acme', 'Ready').status === 'True', 5000);
});

test('a disabled identity outlives its KeyIdentity', async () => {
  const world = await started();
  world.declare('keyidentities', 'acme', { apiIds: ['shop'], enabled: false });
  const reasonOf = () => world.conditionOf('keyidentities', 'acme', 'Ready').reason;
  await world.clock.until(() => reasonOf() === 'Declared');
  world.kube.remove('keyidentities', 'shop', 'acme');
  await world.clock.until(() => reasonOf() === 'Disabled');
  world.keyfence.changeRecord(world.keyfence.identities, 'identity_acme', { enabled: true });
  await world.clock.until(() => world.keyfence.identities.size === 0, 30_000);
});

describe('in trouble', () => {
  test.each(['end', 'deaf', 'too old'] as const)('a watch that is %s loses nothing', async (how) => {
    const world = await started();
    world.key('a');
    await world.clock.until(() => world.isReady('a'));
    if (how === 'too old') world.kube.oldest = Number.MAX_SAFE_INTEGER;
    world.kube.disturb(how === 'too old' ? 'end' : how);
    world.key('b');
    await world.clock.pass(1);
    world.kube.oldest = 0;
    await world.clock.until(() => world.isReady('b'), RELIST_MS + 10_000);
  });

  test('a watch that ends at once is not asked in a storm', async () => {
    const world = await started();
    const before = world.kube.calls.length;
    for (let i = 0; i < 60; i++) {
      world.kube.disturb('end');
      await world.clock.pass(100);
    }
    // Six seconds, and ten watches.
    expect(world.kube.calls.length - before).toBeLessThan(10 * 10);
  });

  test('after an hour without Keyfence, all is made', async () => {
    const world = await started();
    const { apis } = world.keyfence;
    const kept = new Map(apis);
    apis.clear();
    apis.get = () => {
      throw new Error('out of reach');
    };
    for (let i = 0; i < 20; i++) world.key(`k${i}`);
    await world.clock.pass(3_600_000);
    Reflect.deleteProperty(apis, 'get');
    for (const [id, api] of kept) apis.set(id, api);
    await world.clock.until(
      () => Array.from({ length: 20 }, (_, i) => world.isReady(`k${i}`)).every(Boolean),
      LONG_MS,
    );
    expect(world.keyfence.keys.size).toBe(20);
  });

  test('a namespace without rights holds up no other, and can go', async () => {
    const world = await started();
    world.key('ci');
    await world.clock.until(() => world.isReady('ci'));
    world.operators[0]?.stop();
    world.kube.forbidden = 'secrets shop';
    world.start();
    world.kube.put('namespaces', { metadata: { name: 'other', labels: { team: 'shop' } } });
    world.key('there', {}, 'other');
    await world.clock.until(() => world.condition('there', 'Ready', 'other').status === 'True');
    world.kube.remove('apikeys', 'shop', 'ci');
    await world.clock.until(() => world.read('ci') === undefined);
  });

  test('keys that Redis lost are made again', async () => {
    const world = await started();
    world.key('ci');
    await world.clock.until(() => world.isReady('ci'));
    const [{ sha256, keyId }] = world.keysOf('ci');
    await world.keyfence.admin.keys.deleteKey({ keyId, apiId: 'shop' });
    await world.clock.until(() => world.keysOf('ci').length === 1, 2 * RELIST_MS);
    expect(world.keysOf('ci')).toMatchObject([{ sha256 }]);
  });

  test('two operators at once do no harm', async () => {
    const world = await started();
    world.start();
    for (let i = 0; i < 20; i++) world.key(`k${i}`);
    const names = Array.from({ length: 20 }, (_, i) => `k${i}`);
    await world.clock.until(() => names.every(world.isReady));
    for (const name of names) world.key(name, { name });
    await world.clock.until(() => names.every((name) => world.keysOf(name)[0]?.name === name), 60_000);
    for (const name of names)
      expect(world.keysOf(name).map(({ sha256 }) => sha256)).toEqual([digestOf(world.secret(name))]);
    for (const name of names) world.kube.remove('apikeys', 'shop', name);
    await world.clock.until(() => world.kube.all('apikeys').length === 0, 600_000);
    await world.clock.pass(2 * RELIST_MS);
    expect(world.keyfence.keys.size).toBe(0);
  });
});

test('killed at any call, before it or before its answer, all agree in the end', async () => {
  const story = async (world: World) => {
    world.start();
    world.putSecret('own', 'the-secret-of-the-user-number-1');
    world.key('made', { name: 'a' });
    world.key('own', { secretRefs: [{ name: 'own' }], graceSeconds: 0 });
    world.key('gone');
    await world.clock.pass(5000);
    world.putSecret('own', 'the-secret-of-the-user-number-2');
    world.key('made', { name: 'b' });
    world.kube.remove('apikeys', 'shop', 'gone');
    await world.clock.pass(5000);
    if (world.isKilled) world.start();
    await world.clock.pass(3 * RELIST_MS);
  };
  const whole = new World();
  await story(whole);
  const { calls } = whole;
  expect(calls).toBeGreaterThan(30);
  for (let at = 0; at < Math.min(calls, 120); at += 0.5) {
    const world = new World();
    world.killAt = at;
    await story(world);
    const found = [...world.keyfence.keys.values()].map(({ sha256 }) => sha256).sort();
    const secrets = [world.secret('made'), world.secret('own')].map(digestOf).sort();
    expect(found, `killed at ${at}`).toEqual(secrets);
    expect(world.keysOf('made'), `killed at ${at}`).toMatchObject([{ name: 'b' }]);
    expect(world.kube.all('apikeys').length, `killed at ${at}`).toBe(2);
    expect(world.kube.all('secrets').length, `killed at ${at}`).toBe(2);
    expect([world.isReady('made'), world.isReady('own')], `killed at ${at}`).toEqual([true, true]);
  }
});

test('killed twice while a key goes, its object waits for the fence', async () => {
  for (let first = 3; first < 12; first += 1.5)
    for (let second = 0.5; second < 10; second += 0.5) {
      const world = await started();
      world.keyfence.isStuck = true;
      world.killAt = world.calls + first;
      world.key('ci');
      await world.clock.pass(3000);
      world.kube.remove('apikeys', 'shop', 'ci');
      for (let life = 0; life < 2; life++) {
        world.killAt = world.calls + second;
        world.start();
        await world.clock.pass(5000);
      }
      world.killAt = Number.POSITIVE_INFINITY;
      world.start();
      await world.clock.pass(5000);
      const wasMade = world.keyfence.calls.includes('keys.importKeys');
      expect(world.read('ci') !== undefined, `killed at ${first} and ${second}`).toBe(wasMade);
    }
});
