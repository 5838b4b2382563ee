import { type Benchmark, inDirectory, median, percentile, pin, type Row } from '../harness.ts';
import { interleave, type LoadRequest, SERVER_CORE, verifyRequest } from '../load/load.ts';
import { type Backend, complete, inParallel, startBackend, startVerifier, warm } from '../servers.ts';

/** Number of keys of each kind. */
const KEYS = 100;
const ROLES = 3;
const PERMISSIONS = 50;
const QUERY = 'p0.7 AND (p1.3 OR p2.9 OR other)';
const PLAIN = 'plain keys';
const WITH_ROLES = `keys with ${ROLES} roles of ${PERMISSIONS} permissions each, asked with a query of 4`;
const CHANGES = 500;

/** Measures the cost of roles: verifying a key that has roles, and changing a role that many keys have. */
const roles: Benchmark = ({ quick }) =>
  inDirectory(async (directory) => {
    const [rounds, seconds, holders] = quick ? [3, 1, 10_000] : [7, 2, 1_000_000];
    const backend = await startBackend(directory, KEYS, []);
    const stops: (() => Promise<void>)[] = [() => backend.stop()];
    try {
      pin(backend.redisPid, SERVER_CORE);
      const verifier = await startVerifier(backend);
      stops.push(() => verifier.stop());
      const ids = await rolesOf(backend);
      const keys = await made(
        backend,
        ids.map(({ name }) => name),
      );
      for (const each of [backend.keys, keys]) await warm(verifier, each);
      const loads = await interleave(
        [
          { name: PLAIN, port: verifier.port, requests: backend.keys.map(verifyRequest) },
          { name: WITH_ROLES, port: verifier.port, requests: keys.map(asking) },
        ].map((each) => ({ ...each, pid: verifier.pid })),
        rounds,
        seconds,
      );
      const cpu = (name: string) => loads.get(name)?.cpuUs ?? Number.NaN;
      const byCpu = cpu(PLAIN) / cpu(WITH_ROLES);
      const [disables, changes] = await changesOf(backend, ids[0]?.roleId ?? '', holders);
      return {
        title: 'Roles',
        about: `verifyKey with ${KEYS} keys of each kind over 32 connections. The verifier shares core ${SERVER_CORE} with Redis, and the load generator runs on the other core. Medians of ${rounds} rounds of ${seconds} s, in turns. The last two rows, with fsync always, compare a change of a role that ${holders.toLocaleString('en')} keys have with a disable of one key, in turns.`,
        rows: [
          ...[...loads].map(([name, { requestsPerSecond, p50, p99, cpuUs = 0 }]) => ({
            name,
            value: `${Math.round(requestsPerSecond).toLocaleString('en')} requests/s, p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms, ${cpuUs.toFixed(1)} µs of processor time`,
          })),
          {
            name: 'with roles and a query ÷ plain, by processor time',
            value: `${byCpu.toFixed(2)} ×`,
            target: '≥ 0.85',
            met: byCpu >= 0.85,
          },
          changeRow('a disable of one key', disables),
          changeRow(`a change of a role that ${holders.toLocaleString('en')} keys have`, changes),
        ],
      };
    } finally {
      for (const stop of stops.reverse()) await stop();
    }
  });

const asking = (key: string): LoadRequest => ({
  ...verifyRequest(key),
  body: JSON.stringify({ key, authorization: { permissions: QUERY } }),
});

async function rolesOf({ call }: Backend): Promise<{ readonly roleId: string; readonly name: string }[]> {
  return inParallel(ROLES, async (i) => {
    const name = `role-${i}`;
    const permissions = Array.from({ length: PERMISSIONS }, (_, n) => `p${i}.${n}`);
    const { roleId = '' } = await call('permissions.createRole', { name, permissions });
    return { roleId, name };
  });
}

async function made({ call }: Backend, roles: readonly string[]): Promise<string[]> {
  return inParallel(KEYS, async () => {
    const { key } = await call('keys.createKey', { apiId: 'bench', roles });
    if (key === undefined) throw new Error('not created');
    return key;
  });
}

const PART = 500;

/**
 * Gives a role to many keys, then changes it, alternating with a disable; returns how long each took,
 * milliseconds.
 */
async function changesOf(backend: Backend, roleId: string, holders: number): Promise<[number[], number[]]> {
  const { call, keyIds } = backend;
  await inParallel(Math.ceil(holders / PART), async (part) => {
    const keys = Array.from({ length: Math.min(PART, holders - part * PART) }, (_, i) => ({
      sha256: (part * PART + i).toString(16).padStart(64, '0'),
      foreign: false,
      roles: ['role-0'],
    }));
    const { results } = await call('keys.importKeys', { apiId: 'bench', keys });
    if (results?.length !== keys.length) throw new Error('not imported');
  });
  const [disables, changes]: [number[], number[]] = [[], []];
  const timed = async (into: number[], operation: string, body: object) => {
    const startedAt = performance.now();
    complete(await call(operation, body), 1);
    into.push(performance.now() - startedAt);
  };
  const [keyId] = keyIds;
  for (let i = 0; i < CHANGES; i++) {
    await timed(disables, 'keys.updateKey', { keyId, enabled: i % 2 === 0 });
    const permissions = Array.from({ length: PERMISSIONS }, (_, n) => `p0.${n + (i % 2)}`);
    await timed(changes, 'permissions.setRolePermissions', { roleId, permissions });
  }
  return [disables, changes];
}

const changeRow = (name: string, taken: readonly number[]): Row => ({
  name,
  value: `p50 ${median(taken).toFixed(1)} ms, p99 ${percentile(taken, 0.99).toFixed(1)} ms`,
});

export default roles;
