import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, openSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtPath, HELM, kubernetesTool, RELEASES } from '../../../deploy/dev/go-tools.ts';
import { apiKeys } from '../../../shared/redis/redis-keys.ts';
import { Fleet } from '../../harness/fleet.ts';
import { freePort } from '../../harness/ports.ts';
import { Cluster } from './cluster.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const LEASE_MS = 3000;
const MANY = 200;

const page = readFileSync(join(ROOT, 'deploy/kubernetes/objects.md'), 'utf8');
const blocksOf = (language: string) =>
  [...page.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, 'g'))].map(
    ([, block = '']) => block,
  );
/** All commands of the page, and its objects. */
const [INSTALL = '', APPLY = '', DELETE = '', ...MORE] = blocksOf('sh');
const [OBJECTS = ''] = blocksOf('yaml');

/** What the operator is permitted in Keyfence, and no more. */
const PERMISSIONS = [
  ...[
    'create_api',
    'read_api',
    'update_api',
    'delete_api',
    'create_key',
    'read_key',
    'update_key',
    'delete_key',
  ],
]
  .map((action) => `api.shop.${action}`)
  .concat(
    ['role', 'identity'].flatMap((kind) =>
      ['create', 'read', 'update', 'delete'].map((action) => `root.*.${action}_${kind}`),
    ),
  );

const ofKeyfence = (kind: string, name: string, spec: object, namespace?: string) => ({
  ...{ apiVersion: 'keyfence.io/v1alpha1', kind, spec },
  metadata: { name, ...(namespace ? { namespace } : {}) },
});
const keyCalled = (name: string, spec: object = {}, namespace = 'shop') =>
  ofKeyfence('ApiKey', name, { api: 'shop', ...spec }, namespace);

describe.each(RELEASES)('the operator on Kubernetes %s', (release) => {
  let cluster: Cluster;
  let fleet: Fleet;
  let operator: ChildProcess;
  let rootKey: string;
  beforeAll(async () => {
    [cluster, fleet] = await Promise.all([
      Cluster.start(release),
      Fleet.start({ env: { LEASE_MS: `${LEASE_MS}`, API_AUTO_CREATE: 'false' } }),
    ]);
    for (const name of ['keyfence', 'shop', 'other']) cluster.makeNamespace(name, 'restricted');
    ({ key: rootKey } = await fleet.ok('rootKeys.createRootKey', {
      name: 'operator',
      permissions: PERMISSIONS,
    }));
    const programs = join(cluster.directory, 'bin');
    mkdirSync(programs);
    symlinkSync(builtPath(HELM), join(programs, 'helm'));
    symlinkSync(builtPath(kubernetesTool('kubectl', release)), join(programs, 'kubectl'));
    writeFileSync(join(cluster.directory, 'root-key'), rootKey);
    writeFileSync(join(cluster.directory, 'shop.yaml'), OBJECTS);
    symlinkSync(join(ROOT, 'deploy'), join(cluster.directory, 'deploy'));
    // Another namespace, so that it is refused by its labels alone.
    await sh(INSTALL.replace('{shop}', '{shop,other}'));
    const account = join(cluster.directory, 'account');
    mkdirSync(account);
    copyFileSync(join(cluster.directory, 'certificates/apiserver.crt'), join(account, 'ca.crt'));
    const token = cluster.kubectl('create', 'token', 'keyfence-operator', '-n', 'keyfence', '--duration=2h');
    writeFileSync(join(account, 'token'), token);
    writeFileSync(join(account, 'namespace'), 'keyfence');
    start();
  });
  afterAll(async () => {
    operator?.kill('SIGKILL');
    await fleet?.stop();
    await cluster?.stop();
  });

  function start(): void {
    const log = openSync(join(cluster.directory, 'operator.log'), 'a');
    const { clusters } = JSON.parse(readFileSync(cluster.kubeconfig, 'utf8'));
    const env = {
      ...{ PATH: process.env['PATH'], KEYFENCE_URL: fleet.controlPlanes[0]?.address, ROOT_KEY: rootKey },
      ...{ NAMESPACES: 'shop,other', KUBERNETES_URL: clusters[0].cluster.server, ADMIN_PORT: '0' },
      SERVICE_ACCOUNT: join(cluster.directory, 'account'),
    };
    const bound = ['--pdeathsig', 'KILL', '--', process.execPath, 'control-plane/clients/operator/main.ts'];
    operator = spawn('setpriv', bound, { cwd: ROOT, env, stdio: ['ignore', log, log] });
  }

  const get = (...args: string[]) => JSON.parse(cluster.kubectl('get', ...args, '-n', 'shop', '-o', 'json'));
  const secretOf = (name: string, field = 'key') =>
    Buffer.from(get('secret', name).data[field], 'base64').toString();
  /** Runs commands of the page. */
  const sh = async (commands: string) => {
    const env = {
      ...{ PATH: `${join(cluster.directory, 'bin')}:${process.env['PATH']}`, HOME: cluster.directory },
      KUBECONFIG: cluster.kubeconfig,
    };
    return promisify(execFile)('sh', ['-ec', commands], { env, cwd: cluster.directory });
  };
  /** Waits with kubectl, while the control plane, which is in this process, answers. */
  const kubectl = async (...args: string[]) => {
    const env = { PATH: process.env['PATH'], HOME: cluster.directory, KUBECONFIG: cluster.kubeconfig };
    return promisify(execFile)(builtPath(kubernetesTool('kubectl', release)), args, { env });
  };
  const waitFor = (condition: string, name: string) =>
    kubectl('wait', `--for=condition=${condition}`, `apikey/${name}`, '-n', 'shop', '--timeout=60s');
  const code = async (key: string) => (await fleet.verify(key)).body.code;

  it('each command of the page does what the page says', async () => {
    expect(MORE).toEqual([]);
    const { stdout } = await sh(APPLY);
    const secret = secretOf('acme-ci');
    expect(stdout.endsWith(secret)).toBe(true);
    expect((await fleet.verify(secret)).body).toMatchObject({
      ...{ code: 'VALID', externalId: 'acme', permissions: ['reports.read'] },
    });
    await sh(DELETE);
    expect(await code(secret)).toBe('NOT_FOUND');
  });

  it('kubectl apply makes a key, and kubectl wait for every verifier', async () => {
    cluster.apply([keyCalled('ci', { name: 'CI', meta: { plan: 'pro' } })]);
    await waitFor('Propagated', 'ci');
    const { body } = await fleet.verify(secretOf('ci'));
    expect(body).toMatchObject({ code: 'VALID', name: 'CI', meta: { plan: 'pro' } });
    cluster.apply([keyCalled('ci', { enabled: false })]);
    await cluster.until(() => get('apikey', 'ci').status.observedGeneration === 2, 'the change is seen');
    await waitFor('Propagated', 'ci');
    expect(await code(secretOf('ci'))).toBe('DISABLED');
  });

  it('kubectl delete returns once the lease of a silent verifier is over', async () => {
    cluster.apply([keyCalled('fenced')]);
    await waitFor('Propagated', 'fenced');
    const secret = secretOf('fenced');
    expect(await code(secret)).toBe('VALID');
    const port = await freePort();
    const env = {
      ...{ PATH: process.env['PATH'], REDIS_URL: fleet.redisUrl, PORT: String(port), ADMIN_PORT: '0' },
      ...{ API_IDS: 'shop', LOG_LEVEL: 'warn' },
    };
    const verifier = spawn(process.execPath, ['verifier/main.ts'], { cwd: ROOT, env, stdio: 'ignore' });
    try {
      const url = `http://127.0.0.1:${port}/v1/keys.verifyKey`;
      const ask = async () => (await fleet.post(url, { key: secret }).catch(() => undefined))?.body?.code;
      await fleet.until(async () => (await ask()) === 'VALID');
      expect(await fleet.client.zcard(apiKeys('shop').members)).toBe(2);
      verifier.kill('SIGSTOP');
      const beganMs = performance.now();
      await kubectl('delete', 'apikey', 'fenced', '-n', 'shop', '--wait', '--timeout=60s');
      // Its lease began up to a SYNC period before the change.
      expect(performance.now() - beganMs).toBeGreaterThan(0.6 * LEASE_MS);
      verifier.kill('SIGCONT');
      const codes = [await ask(), await ask()];
      expect(codes).not.toContain('VALID');
      expect(await code(secret)).toBe('NOT_FOUND');
    } finally {
      verifier.kill('SIGKILL');
    }
  });

  it('a Secret of the user is imported, and its change rotates', async () => {
    const put = (key: string) =>
      cluster.apply([
        {
          ...{ apiVersion: 'v1', kind: 'Secret', stringData: { token: key } },
          metadata: { name: 'own', namespace: 'shop', labels: { 'keyfence.io/secret': 'true' } },
        },
      ]);
    const first = (await fleet.ok('keys.createKey', { apiId: 'shop' })).key;
    put(first);
    cluster.apply([keyCalled('own', { secretRefs: [{ name: 'own', key: 'token' }], graceSeconds: 0 })]);
    const reasonOf = () =>
      get('apikey', 'own').status?.conditions?.find(({ type }: { type: string }) => type === 'Ready')?.reason;
    // The key of somebody else stays his.
    await cluster.until(() => reasonOf() === 'SecretInUse', 'the secret is refused');
    const { keyId } = (await fleet.ok('apis.listKeys', { apiId: 'shop' })).keys.find(
      ({ managedBy }: { managedBy?: string }) => managedBy === undefined,
    );
    await fleet.ok('keys.deleteKey', { keyId });
    put(first);
    cluster.kubectl('annotate', 'apikey', 'own', '-n', 'shop', 'again=1');
    await waitFor('Ready', 'own');
    expect(await code(first)).toBe('VALID');
  });

  it('refuses what it must', async () => {
    cluster.apply([keyCalled('foreign', {}, 'other'), keyCalled('unknown', { api: 'none' })]);
    for (const [name, namespace] of [
      ['foreign', 'other'],
      ['unknown', 'shop'],
    ] as const) {
      const wait = ['wait', '--for=jsonpath={.status.conditions[0].reason}=ApiNotAllowed'];
      await kubectl(...wait, `apikey/${name}`, '-n', namespace, '--timeout=60s');
    }
    const refused = (spec: object) =>
      expect(() => cluster.apply([keyCalled('wrong', spec)]), JSON.stringify(spec)).toThrow('wrong');
    refused({ api: '../x' });
    refused({ expires: 'tomorrow' });
    refused({ secretName: '../x' });
    refused({ secretRefs: Array.from({ length: 5 }, (_, i) => ({ name: `s${i}` })) });
    refused({ secretName: 'a', secretRefs: [{ name: 'b' }] });
    refused({ ratelimit: { limit: -1, duration: 1000 } });
    cluster.apply([keyCalled('fixed')]);
    expect(() => cluster.apply([keyCalled('fixed', { api: 'other' })])).toThrow('cannot be changed');
    await kubectl('delete', 'apikey', 'foreign', '-n', 'other', '--timeout=20s');
  });

  it('a role and a customer are declared, fenced, and not taken over', async () => {
    cluster.apply([
      ofKeyfence('KeyRole', 'basic', { permissions: ['a'] }, 'shop'),
      ofKeyfence('KeyIdentity', 'ada', { apiIds: ['shop'], roles: ['basic'] }, 'shop'),
      keyCalled('of-ada', { externalId: 'ada' }),
    ]);
    const done = (kind: string, name: string) =>
      kubectl('wait', '--for=condition=Propagated', `${kind}/${name}`, '-n', 'shop', '--timeout=60s');
    await Promise.all([done('keyrole', 'basic'), done('keyidentity', 'ada'), done('apikey', 'of-ada')]);
    const verdict = async () => (await fleet.verify(secretOf('of-ada'))).body;
    expect(await verdict()).toMatchObject({ code: 'VALID', permissions: ['a'] });
    cluster.apply([ofKeyfence('KeyIdentity', 'ada', { apiIds: ['shop'], enabled: false }, 'shop')]);
    await cluster.until(
      () => get('keyidentity', 'ada').status.observedGeneration === 2,
      'the customer is disabled',
    );
    await done('keyidentity', 'ada');
    expect(await verdict()).toMatchObject({ code: 'DISABLED' });
    cluster.apply([ofKeyfence('KeyIdentity', 'ada', { apiIds: ['shop'], roles: ['basic'] }, 'shop')]);
    await cluster.until(() => get('keyidentity', 'ada').status.observedGeneration === 3, 'and enabled');
    await done('keyidentity', 'ada');
    await kubectl('delete', 'keyrole', 'basic', '-n', 'shop', '--wait', '--timeout=60s');
    expect((await verdict()).permissions ?? []).toEqual([]);
    await fleet.ok('permissions.createRole', { name: 'admin', permissions: ['all'] });
    cluster.apply([ofKeyfence('KeyRole', 'admin', { permissions: [] }, 'shop')]);
    await kubectl(
      ...['wait', '--for=jsonpath={.status.conditions[0].reason}=NameTaken', 'keyrole/admin'],
      ...['-n', 'shop', '--timeout=60s'],
    );
    await kubectl('delete', 'keyrole', 'admin', '-n', 'shop', '--timeout=20s');
    const roles = await fleet.ok('permissions.listRoles', {});
    expect(roles.map(({ name }: { name: string }) => name).sort()).toEqual(['admin', 'pro']);
    const refused = (kind: string, spec: object) =>
      expect(() => cluster.apply([ofKeyfence(kind, 'wrong', spec, 'shop')]), kind).toThrow(/wrong|missing/);
    refused('KeyIdentity', {});
    refused('KeyIdentity', { apiIds: ['../x'] });
    refused('KeyRole', { name: 'a\u0000b' });
    refused('KeyRole', { permissions: Array.from({ length: 101 }, (_, i) => `p${i}`) });
    refused('KeyRole', { ratelimits: [{ name: 'r', limit: -1, duration: 1000 }] });
  });

  it('a restore gives keys back, and the deletion of a kind takes none', async () => {
    const names = ['back-1', 'back-2', 'back-3'];
    cluster.apply(names.map((name) => keyCalled(name)));
    for (const name of names) await waitFor('Ready', name);
    const secrets = names.map((name) => secretOf(name));
    const ids = names.map((name) => get('apikey', name).status.keyId);
    /** As Velero's pages describe it: Secrets first; without uid, version and status, and with owners that are no more. */
    const saved = ['secret', 'apikey'].flatMap((kind) =>
      names.map((name) => {
        const { metadata, status: _status, ...rest } = get(kind, name);
        const {
          uid: _uid,
          resourceVersion: _version,
          creationTimestamp: _time,
          generation: _n,
          ...kept
        } = metadata;
        return { ...rest, metadata: kept };
      }),
    );
    const lose = () => {
      for (const name of names)
        cluster.kubectl(
          'patch',
          'apikey',
          name,
          '-n',
          'shop',
          '--type=merge',
          '-p',
          '{"metadata":{"finalizers":[]}}',
        );
    };
    const isBack = (name: string) => {
      const { status = {} } = get('apikey', name);
      return status.keyId === ids[names.indexOf(name)];
    };
    operator.kill('SIGKILL');
    lose();
    await kubectl('delete', 'apikey', ...names, '-n', 'shop', '--wait', '--timeout=30s');
    cluster.try('delete', 'secret', ...names, '-n', 'shop');
    cluster.apply(saved);
    start();
    // All is listed for a minute first.
    await cluster.until(() => names.every(isBack), 'keys are taken back', 120_000);
    expect(names.map((name) => secretOf(name))).toEqual(secrets);
    for (const secret of secrets) expect(await code(secret)).toBe('VALID');
    const definition = JSON.parse(cluster.kubectl('get', 'crd', 'apikeys.keyfence.io', '-o', 'json'));
    await kubectl('delete', 'crd', 'apikeys.keyfence.io', '--wait', '--timeout=60s');
    for (const secret of secrets) expect(await code(secret)).toBe('VALID');
    const { metadata, status: _status, ...rest } = definition;
    const { uid: _uid, resourceVersion: _version, generation: _n, ...kept } = metadata;
    cluster.apply([{ ...rest, metadata: { ...kept, finalizers: [] } }]);
    cluster.kubectl('wait', '--for=condition=Established', 'crd/apikeys.keyfence.io', '--timeout=60s');
    // Kubernetes deletes a Secret whose owner is gone, and the operator looks for the kind again after up to 30 s.
    const ownerReferences: object[] = [];
    cluster.apply(saved.map((each) => ({ ...each, metadata: { ...each.metadata, ownerReferences } })));
    await cluster.until(() => names.every(isBack), 'keys are taken back again', 150_000);
    for (const secret of secrets) expect(await code(secret)).toBe('VALID');
    await kubectl('delete', 'apikey', ...names, '-n', 'shop', '--wait', '--timeout=60s');
    for (const secret of secrets) expect(await code(secret)).toBe('NOT_FOUND');
  });

  it(`${MANY} objects agree in the end, though the operator is killed again and again`, async () => {
    const names = Array.from({ length: MANY }, (_, i) => `many-${i}`);
    const labels = { many: '1' };
    cluster.apply(
      names.map((name) => keyCalled(name)).map((key) => ({ ...key, metadata: { ...key.metadata, labels } })),
    );
    let seen = 0;
    for (let kill = 0; kill < 6; kill++) {
      await cluster.until(() => get('secret').items.length > seen, 'it goes on');
      operator.kill('SIGKILL');
      seen = get('secret').items.length;
      start();
      if (seen >= MANY) break;
    }
    await kubectl(
      'wait',
      '--for=condition=Propagated',
      'apikey',
      '-l',
      'many=1',
      '-n',
      'shop',
      '--timeout=120s',
    );
    const managed = async () => {
      const keys: { managedBy?: string; start: string }[] = [];
      for (let cursor: string | undefined; ; ) {
        const page = await fleet.ok('apis.listKeys', {
          apiId: 'shop',
          limit: 100,
          ...(cursor && { cursor }),
        });
        keys.push(...page.keys);
        cursor = page.cursor;
        if (!cursor) return keys.filter(({ managedBy }) => managedBy);
      }
    };
    const objects = get('apikey').items.filter(({ metadata }: { metadata: { name: string } }) =>
      names.includes(metadata.name),
    );
    const uids = (await managed()).map(({ managedBy }) => managedBy?.split('/')[2]);
    for (const { metadata } of objects) expect(uids.filter((uid) => uid === metadata.uid)).toHaveLength(1);
    for (const name of names.slice(0, 20)) expect(await code(secretOf(name))).toBe('VALID');
    // With the namespace its roles go first, and then the objects.
    await kubectl('delete', 'namespace', 'shop', '--wait=false');
    const passes = () =>
      JSON.parse(cluster.kubectl('get', 'keyapi', 'shop', '-o', 'json')).status.conditions.find(
        ({ type }: { type: string }) => type === 'DeletionsPass',
      );
    // Many at once: a person says so.
    await cluster.until(() => passes().reason === 'TooManyDeleted', 'the others wait', 60_000);
    await fleet.until(async () => {
      const [, token] = /(keyfence.io\/confirm=\w+)$/.exec(passes().message) ?? [];
      if (token) cluster.kubectl('annotate', '--overwrite', 'keyapi', 'shop', token);
      return cluster.try('get', 'namespace', 'shop').status !== 0;
    });
    // Those of objects whose kind was deleted above stay.
    const stayed = (await managed()).map(({ managedBy }) => managedBy?.split('/')[2]);
    for (const { metadata } of objects) expect(stayed).not.toContain(metadata.uid);
    expect((await fleet.ok('identities.listIdentities', {})).identities).toEqual([]);
  });
});
