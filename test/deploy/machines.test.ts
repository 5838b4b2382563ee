import { execFileSync } from 'node:child_process';
import { chownSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Balancer, noBalancer } from '../harness/balancer.ts';
import { Load } from '../harness/load.ts';
import { freePort } from '../harness/ports.ts';
import { skippedWithout } from '../harness/programs.ts';
import { share, turn } from '../harness/share.ts';
import { HOLDS_MS_MAX } from '../harness/waiting.ts';
import { Machines } from './machines.ts';

const page = (name: string) => readFileSync(join(import.meta.dirname, `../../deploy/${name}.md`), 'utf8');
/** The commands of a section of a page, block by block. */
const blocksOf = (name: string, heading: string): string[] => {
  const section =
    page(name)
      .split(/^#+ /m)
      .find((text) => text.startsWith(`${heading}\n`)) ?? '';
  return [...section.matchAll(/^ *```sh\n([\s\S]*?)^ *```/gm)].map(([, block = '']) => block);
};
const SECRETS = (blocksOf('machines', '1. Make the secrets')[0] ?? '').replace('~/', '"$MACHINES"/');
/** As the page begins. */
const SETTINGS = 'set -a; . /etc/keyfence/redis.env; set +a\n';
const PATIENT = { timeout: HOLDS_MS_MAX, interval: 200 };

// macOS has one loopback address.
const reason =
  process.platform === 'linux' ? skippedWithout('curl') : ' (skipped: needs Linux, for loopback addresses)';

describe.skipIf(reason)(`three machines as deploy/machines.md installs them${reason}`, () => {
  let machines: Machines;
  let ports: Record<'api' | 'admin' | 'verify' | 'verifierAdmin', string>;
  let key: string;
  const stops: (() => Promise<unknown>)[] = [];
  const all = [0, 1, 2];

  beforeAll(async () => {
    machines = await Machines.start(['127.0.1.1', '127.0.1.2', '127.0.1.3', '127.0.1.4']);
    const port = async () => String(await freePort());
    ports = { api: await port(), admin: await port(), verify: await port(), verifierAdmin: await port() };
    await machines.run(SECRETS);
    for (const index of all) await install(index);
    // As root, another group, as install.sh gives it.
    if (process.getuid?.() === 0) chownSync(join(machines.at(0).root, 'etc/keyfence/tls'), 0, 4242);
    await copyToApi();
    await install(3);
  });
  afterAll(async () => {
    for (const stop of stops.reverse()) await stop();
    await machines?.stop();
  });

  /** Copies its secrets to the machine with an API only. */
  const copyToApi = () => {
    const folder = join(machines.folder, 'keyfence-secrets/verifier');
    return machines.run(
      `ssh root@$MACHINE mkdir -p /etc/keyfence\nscp -r ${folder}/. root@$MACHINE:/etc/keyfence`,
      3,
    );
  };

  /** Runs the commands for a machine, with ports and times of this test, and starts its services as they would. */
  const install = async (index: number) => {
    await onPage('2. Install each machine', 0, index);
    const { address } = machines.at(index);
    machines.adapt(index, {
      verifier: { PORT: ports.verify, HOST: address, ADMIN_PORT: ports.verifierAdmin },
      'control-plane': { PORT: ports.api, LEASE_MS: '30000', ADMIN_PORT: ports.admin },
      redis: { DOWN_AFTER_MS: '2000', FAILOVER_MS: '3000' },
    });
    const parts = index === 3 ? ['verifier'] : ['redis', 'sentinel', 'control-plane', 'verifier'];
    await machines.at(index).systemctl(
      'start',
      parts.map((part) => `keyfence-${part}`),
    );
  };
  const verdict = async (key: string, index: number) => {
    const url = `http://${machines.at(index).address}:${ports.verify}/v1/keys.verifyKey`;
    const answer = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ key }),
    });
    return ((await answer.json()) as { code?: string }).code ?? answer.status;
  };
  /** Once it can answer. */
  const decided = async (asked: string, index: number) => {
    let code: string | number = 503;
    await vi.waitFor(async () => {
      code = await verdict(asked, index);
      expect(code).not.toBe(503);
    }, PATIENT);
    return code;
  };
  /** Runs a block of a section on a machine. */
  const onPage = (heading: string, block: number, index: number, more = '', env = {}) => {
    const commands = (blocksOf('machines', heading)[block] ?? '')
      .replace(':3000', `:${ports.api}`)
      .replace(':9300', `:${ports.admin}`)
      .replace('127.0.0.1:3001', `$MACHINE:${ports.verify}`);
    return onMachine(commands + more, index, env);
  };
  const onMachine = (commands: string, index: number, more: Record<string, string> = {}) =>
    machines.run(commands, index, {
      KEYFENCE_URL: `http://${machines.at(1).address}:${ports.api}`,
      KEYFENCE_ROOT_KEY_FILE: join(machines.at(1).root, 'etc/keyfence/root-key'),
      ...more,
    });
  const admin = async (operation: string, body: object) => {
    const answer = await fetch(`http://127.0.1.2:${ports.api}/v1/${operation}`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${readFileSync(join(machines.at(0).root, 'etc/keyfence/root-key'), 'utf8').trim()}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify(body),
    });
    if (answer.status !== 200) throw new Error(`${operation}: ${answer.status} ${await answer.text()}`);
    // biome-ignore lint/suspicious/noExplicitAny: answers of several shapes
    return (await answer.json()) as any;
  };
  /** Creates a key that is refused by all verifiers when this resolves. */
  const disabledKey = async (): Promise<string> => {
    const made = await vi.waitFor(() => admin('keys.createKey', { apiId: 'shop' }), PATIENT);
    await vi.waitFor(async () => {
      const { propagation } = await admin('keys.updateKey', { keyId: made.keyId, enabled: false });
      expect(propagation).toMatchObject({ state: 'complete', durable: true });
    }, PATIENT);
    return made.key;
  };
  const roles = () =>
    Promise.all(
      all.map(async (index) => {
        const told = await machines.run(`${SETTINGS}. deploy/redis/ask.sh\nrole`, index).catch(() => 'away');
        return told.split('\n')[0];
      }),
    );
  const primary = async () => (await roles()).indexOf('master');

  it('work by the commands of the page', async () => {
    const told = await onPage('4. See that it works', 0, 0, '\necho "$KEY"');
    expect(told).toContain('"code":"VALID"');
    key = told.trim().split('\n').at(-1) ?? '';
    for (const index of [...all, 3]) expect(await verdict(key, index)).toBe('VALID');
    const found = await onPage('4. See that it works', 1, 0);
    expect(found).toMatch(/✓ verifier: http/);
    expect(found).not.toMatch(/✗|no limit/);
  });

  it('listen at their own addresses only', async () => {
    const { SENTINEL_PORT = '', REDIS_PORT = '' } = machines.env;
    for (const port of [SENTINEL_PORT, REDIS_PORT, ports.api, ports.verify]) {
      await expect(fetch(`http://127.0.0.1:${port}`)).rejects.toMatchObject({
        cause: expect.objectContaining({ code: 'ECONNREFUSED' }),
      });
    }
  });

  it('restart one by one without a failed question', async () => {
    const ask = () => ({ path: '/v1/keys.verifyKey', body: { key } });
    const asking = new Load(`http://127.0.1.4:${ports.verify}`, ask, { callers: 2 });
    const before = await primary();
    for (const index of [before, ...all.filter((each) => each !== before)]) {
      await onPage('Restart, or replace a machine', 0, index);
      expect((await roles())[index]).toBe('slave');
      await asking.more(5);
    }
    await asking.stop();
    expect(asking.outcomes).toEqual({ VALID: expect.any(Number) });
  });

  // Takes two minutes, and so comes at every second commit.
  const rotation = share([`rotate each secret without a failed call${noBalancer}`], 2);
  it.skipIf(noBalancer).each(rotation)('%s', async () => {
    const servers = (port: string, adminPort: string) =>
      all.map((index) => {
        const host = `http://${machines.at(index).address}`;
        return { address: `${host}:${port}`, adminAddress: `${host}:${adminPort}` };
      });
    const balancers = {
      'keyfence-control-plane': await Balancer.start(machines.folder, servers(ports.api, ports.admin)),
      'keyfence-verifier': await Balancer.start(machines.folder, servers(ports.verify, ports.verifierAdmin)),
    };
    const made = await admin('keys.createKey', { apiId: 'shop' });
    const secret = (name: string) =>
      readFileSync(join(machines.folder, 'keyfence-secrets/secrets', name), 'utf8')
        .trim()
        .split('\n');
    let [rootKey] = secret('root-key');
    const manage = () => ({
      path: '/v1/keys.updateKey',
      body: { keyId: made.keyId, name: String(Math.random()) },
      headers: { authorization: `Bearer ${rootKey}` },
    });
    const ask = () => ({ path: '/v1/keys.verifyKey', body: { key: made.key } });
    stops.push(...Object.values(balancers).map((balancer) => () => balancer.stop()));
    const managing = new Load(balancers['keyfence-control-plane'].address, manage, { callers: 2 });
    const verifying = new Load(balancers['keyfence-verifier'].address, ask, { callers: 2 });
    stops.push(() => Promise.all([managing.stop(), verifying.stop()]));

    // Each row with its names and what it says: apply.sh, and services.
    const rows = [...page('rotation').matchAll(/^\| (`.*?) \| (.*) \|$/gm)]
      .map(([, names = '', text = '']) => ({
        names: [...names.matchAll(/`([\w-]+)`/g)].map(([, name = '']) => name),
        applies: text.includes('`apply.sh`'),
        services: [...text.matchAll(/`(keyfence-[\w-]+)`/g)].map(([, service = '']) => service),
      }))
      .filter(({ applies, services }) => applies || services.length > 0);
    expect(rows.flatMap(({ names }) => names)).toHaveLength(9);
    const [change = '', apply = ''] = blocksOf('rotation', 'Rotating secrets');
    const [restart = ''] = blocksOf('rotation', 'Rotating secrets').slice(2);
    const isOfProcess = (service: string) => service in balancers;
    // Rows that restart the same things share their restarts; the others come at the next commit.
    const groups = share([false, true], 2, Math.floor(turn / 2)).map((isOfOne) =>
      rows.filter(({ services }) => services.some(isOfProcess) === isOfOne),
    );
    const files = groups.flat().flatMap(({ names }) => names);
    const old = files.flatMap((name) => (/password|key$/.test(name) ? secret(name) : []));
    const certificate = () => readFileSync(join(machines.at(0).root, 'etc/keyfence/tls/tls.crt'), 'utf8');
    const [before, authority] = [
      certificate(),
      readFileSync(join(machines.folder, 'keyfence-secrets/ca.crt'), 'utf8'),
    ];
    for (const together of groups) {
      for (const ROUND of ['add', 'use', 'drop']) {
        const names = together.flatMap((row) => row.names);
        for (const NAME of names.filter((name) => name !== 'certificates' || ROUND === 'use'))
          await machines.run(change, 0, { ROUND, NAME, FOLDER: join(machines.folder, 'keyfence-secrets') });
        await copyToApi();
        if (together.some(({ applies }) => applies))
          for (const index of all) await machines.run(apply, index);
        if (ROUND === 'use') [rootKey] = secret('root-key');
        for (const service of ['keyfence-sentinel', ...Object.keys(balancers)]) {
          if (!together.some(({ services }) => services.includes(service))) continue;
          for (const index of service === 'keyfence-verifier' ? [...all, 3] : all) {
            await machines.run(restart.replace('keyfence-sentinel', service), index);
            await balancers[service as keyof typeof balancers]?.untilUp(all.length);
          }
        }
        await Promise.all([managing.more(5), verifying.more(5)]);
      }
    }
    await Promise.all([managing.stop(), verifying.stop()]);
    expect(managing.outcomes).toEqual({ 200: expect.any(Number) });
    expect(verifying.outcomes).toEqual({ VALID: expect.any(Number) });

    const now = files.flatMap((name) => (/password|key$/.test(name) ? secret(name) : []));
    expect(now).toHaveLength(old.length);
    expect(now.filter((word) => old.includes(word))).toEqual([]);
    expect(certificate() !== before).toBe(files.includes('certificates'));
    // Of whoever may read certificates, also those that came later.
    const tls = join(machines.at(0).root, 'etc/keyfence/tls');
    const group = statSync(tls);
    expect(group.mode & 0o7777).toBe(0o2750);
    for (const file of readdirSync(tls)) {
      const { mode, gid } = statSync(join(tls, file));
      expect([mode & 0o777, gid], file).toEqual([0o640, group.gid]);
    }
    const trusted = readFileSync(join(machines.at(0).root, 'etc/keyfence/tls/ca.crt'), 'utf8');
    expect(trusted.includes(authority)).toBe(!files.includes('authority'));
    for (const index of all) {
      const told = await machines.run(
        `${SETTINGS}. deploy/redis/ask.sh\nfor user in operator replica sentinel verifier control-plane; do
          REDISCLI_AUTH=$(password $user) here $user ping
        done
        for word in $OLD; do for user in operator replica sentinel verifier control-plane; do
          REDISCLI_AUTH=$word here $user ping 2>&1 | grep -v WRONGPASS
        done; done; true`,
        index,
        { OLD: old.join(' ') },
      );
      expect(told.match(/PONG|NOPERM/g)).toHaveLength(5);
      expect(
        told
          .trim()
          .split('\n')
          .filter((line) => !/PONG|NOPERM|Warning|NOAUTH|^$/.test(line)),
      ).toEqual([]);
    }
  });

  it('keep one more user of Redis over restarts and rotations', async () => {
    const FOLDER = join(machines.folder, 'keyfence-secrets');
    const example = /`secrets\.sh (new \S+)`/.exec(page('redis/README'))?.[1] ?? '';
    const step = (round: string) =>
      machines.run(
        `sh deploy/systemd/secrets.sh ${example.replace(/^new verifier-billing/, `${round} reader`)}`,
        0,
        { FOLDER },
      );
    const password = () =>
      readFileSync(join(FOLDER, 'secrets/reader-password'), 'utf8').trim().split('\n')[0] ?? '';
    const [spread = '', apply = ''] = blocksOf('rotation', 'Rotating secrets');
    const give = async () => {
      await machines.run(spread.replace(/^sh .*$/m, ''), 0, { FOLDER });
      for (const index of all) await machines.run(apply, index);
    };
    const isLetIn = async (index: number, word = password()) => {
      const ask = `${SETTINGS}. deploy/redis/ask.sh\nREDISCLI_AUTH=${word} here reader info server 2>&1 || :`;
      return (await machines.run(ask, index)).includes('redis_version');
    };
    await step('new');
    await expect(step('new')).rejects.toThrow(/is there already/);
    await give();
    for (const index of all) expect(await isLetIn(index)).toBe(true);
    for (const index of all) {
      await onPage('Restart, or replace a machine', 0, index);
      expect(await isLetIn(index)).toBe(true);
    }
    const old = password();
    for (const round of ['add', 'use', 'drop']) {
      await step(round);
      await give();
      for (const index of all) expect(await isLetIn(index)).toBe(true);
    }
    for (const index of all) expect(await isLetIn(index, old)).toBe(false);

    // Who withdraws a password does not wait for a restart.
    rmSync(join(FOLDER, 'secrets/reader-password'));
    for (const index of all) rmSync(join(machines.at(index).root, 'etc/keyfence/reader-password'));
    const last = readFileSync(join(FOLDER, machines.at(0).address, 'reader-password'), 'utf8').trim();
    for (const index of all) rmSync(join(FOLDER, machines.at(index).address, 'reader-password'));
    for (const index of all) await machines.run(apply, index);
    for (const index of all) expect(await isLetIn(index, last)).toBe(false);
    for (const index of all) await machines.run(`${SETTINGS}sh deploy/redis/ready.sh`, index);
    expect(await verdict(key, 0)).toBe('VALID');
  });

  it('get new certificates by the page after theirs have ended', async () => {
    const [change = '', apply = ''] = blocksOf('rotation', 'Rotating secrets');
    const renewed = (more: Record<string, string>) =>
      machines.run(change, 0, {
        ...{ ROUND: 'use', NAME: 'certificates', FOLDER: join(machines.folder, 'keyfence-secrets') },
        ...more,
      });
    const ready = (index: number) => machines.run(`${SETTINGS}sh deploy/redis/ready.sh`, index);
    await renewed({ DAYS: '0' });
    for (const index of all) await machines.run(apply, index);
    for (const index of all) await vi.waitFor(() => expect(ready(index)).rejects.toThrow(), PATIENT);
    await renewed({});
    for (const index of all) await machines.run(apply, index);
    for (const index of all) await vi.waitFor(() => ready(index), PATIENT);
    expect(await decided(key, 0)).toBe('VALID');
    const refused = await disabledKey();
    expect(await decided(refused, 3)).toBe('DISABLED');
  });

  it('answer the commands of the page about alerts', async () => {
    const text = page('alerts');
    const [functions = ''] = blocksOf('redis/README', 'Commands');
    const quoted = [...text.matchAll(/`((?:[A-Z]{3,} )?[A-Z]{3,}(?: [a-z][\w-]+)*)`/g)].map(
      ([, line = '']) => line,
    );
    const isOfRedis = (line: string) =>
      /^(ACL LOG|CLIENT LIST|CONFIG|INFO|LATENCY|SLOWLOG)\b/.test(line) && line !== 'CONFIG GET';
    const commands = [...new Set(quoted.filter((line) => isOfRedis(line) && line !== 'CONFIG SET'))];
    expect(commands).toEqual(
      expect.arrayContaining(['ACL LOG', 'INFO replication', 'LATENCY LATEST', 'SLOWLOG GET']),
    );
    for (const index of all) {
      const at = (line: string) => machines.run(`${functions}\n${line}`, index);
      for (const command of commands) await at(`redis ${command}`);
      expect(await at('redis INFO replication')).toContain('role:');
      expect(await at('redis CONFIG GET latency-monitor-threshold')).toMatch(/\n[1-9]/);
      expect(await at('sentinels CKQUORUM mymaster')).toMatch(/^OK 3 usable/);
    }
  });

  it('survive that the primary dies for good', async () => {
    const refused = await disabledKey();
    // It registers with the first question, for which all replicas must be there.
    expect(await decided(refused, 3)).toBe('DISABLED');
    const lost = await primary();
    const machine = machines.at(lost);
    await machine.kill();
    await vi.waitFor(async () => expect(await roles()).toContain('master'), PATIENT);
    expect(await decided(refused, 3)).toBe('DISABLED');
    // Another machine at its address.
    rmSync(machine.root, { recursive: true });
    await machines.run(`${SECRETS}\n`, 0, {
      FIRST: machine.address,
      SECOND: machine.address,
      THIRD: machine.address,
    });
    await install(lost);
    await vi.waitFor(async () => expect(await roles()).toContain('slave'), PATIENT);
    await machines.run(`${SETTINGS}until sh deploy/redis/ready.sh; do sleep 0.2; done`, lost);
    expect((await roles()).sort()).toEqual(['master', 'slave', 'slave']);
    const other = await disabledKey();
    for (const each of [refused, other]) expect(await decided(each, 3)).toBe('DISABLED');
  });

  it('restore a backup by the pages', async () => {
    const refused = await disabledKey();
    const narrowed = await vi.waitFor(() => admin('keys.createKey', { apiId: 'shop' }), PATIENT);
    const BACKUP = join(machines.folder, 'backup');
    mkdirSync(BACKUP);
    const [backup = ''] = blocksOf('operations', 'Backup');
    const told = await machines.run(SETTINGS + backup, 1, { BACKUP });
    const COPY = /^\S+\.rdb/.exec(told)?.[0] ?? '';
    const later = await disabledKey();
    await vi.waitFor(() => admin('keys.updateKey', { keyId: narrowed.keyId, enabled: false }), PATIENT);
    for (const index of all) await onPage('Back up and restore', 0, index);
    const [restore = ''] = blocksOf('operations', 'Restore');
    await machines.run(SETTINGS + restore, 0, { COPY });
    for (const index of [1, 2]) await machines.run(`${SETTINGS}sh deploy/redis/restore.sh join`, index);
    for (const index of all) await onPage('Back up and restore', 1, index);
    for (const index of all)
      await machines.run(`${SETTINGS}until sh deploy/redis/ready.sh; do sleep 0.2; done`, index);
    expect(await roles()).toEqual(['master', 'slave', 'slave']);
    const [, list = '', admit = ''] = blocksOf('operations', 'Restore');
    const LOGS = join(machines.folder, 'logs');
    mkdirSync(LOGS);
    await onPage('Back up and restore', 2, 0, '', { LOGS });
    const listed = await machines.run(list, 0, { LOGS, COPY });
    expect(listed).toContain(`keys.updateKey {"keyId":"${narrowed.keyId}","enabled":false}\n`);
    for (const index of all) await vi.waitFor(() => onMachine(SETTINGS + admit, index), PATIENT);
    expect(await decided(refused, 0)).toBe('DISABLED');
    expect(await decided(later, 0)).toBe('NOT_FOUND');
  });
});

const noFirewall = skippedWithout('nft', 'unshare');
it.skipIf(noFirewall)(`the firewall of the page can be loaded${noFirewall}`, () => {
  const [rules = ''] = blocksOf('machines', '3. Close the ports');
  const hosts = { FIRST: '10.0.0.1', SECOND: '10.0.0.2', THIRD: '10.0.0.3', VERIFIERS: '10.0.0.4, 10.0.0.5' };
  const env = { ...process.env, ...hosts, BALANCERS: '10.0.0.6', WATCHERS: '10.0.0.7' };
  const commands = `${rules}nft list ruleset`;
  const loaded = execFileSync('unshare', ['-rn', 'sh', '-ec', commands], { env, encoding: 'utf8' });
  expect(loaded).toContain('tcp dport { 3000, 6379, 9300, 9301, 26379 } drop');
  expect(loaded).toContain('10.0.0.3, 10.0.0.4, 10.0.0.5 } tcp dport { 6379, 26379 } accept');
});
