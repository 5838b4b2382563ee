import { execFileSync, spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ROOT_KEY } from '../harness/fleet.ts';
import { Process } from '../harness/processes.ts';
import { lacking } from '../harness/programs.ts';
import { PATIENT, RedisPods } from './redis-pods.ts';

const KUBERNETES = join(import.meta.dirname, '..', '..', 'deploy', 'kubernetes');
const readme = readFileSync(join(KUBERNETES, 'README.md'), 'utf8');
const commands = [...readme.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, block = '']) => block);
/** What is looked at is names, not failovers: a machine that stands still for a moment is not to cause one. */
const NEVER_DOWN_MS = 600_000;
const works = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;
const MOUNT = 'mount --bind /dev/null /etc/hosts';
const skipped =
  lacking(works('kubectl', 'version', '--client') ? [] : ['kubectl']) ||
  (works('unshare', '-rm', 'sh', '-c', MOUNT) ? '' : ' (skipped: no names of hosts of one’s own here)');

describe.skipIf(skipped)(
  `TLS to Redis, set up by the commands of deploy/kubernetes/README.md${skipped}`,
  () => {
    const folder = mkdtempSync(join(tmpdir(), 'keyfence-tls-'));
    const processes: Process[] = [];
    let group: RedisPods;
    const secrets = new Map<string, Record<string, string>>();

    beforeAll(async () => {
      const text = commands.filter((block) => block.includes('create secret')).join('\n');
      // What would be sent to the cluster is printed instead.
      const stub =
        'kubectl() { case $* in *"create secret"*) command kubectl "$@" --dry-run=client -o json;; esac; }';
      const made = execFileSync('sh', ['-ec', `${stub}\n${text}`], {
        cwd: folder,
        encoding: 'utf8',
        stdio: 'pipe',
      });
      for (const json of made.split(/^(?=\{)/m)) {
        const { metadata, data } = JSON.parse(json) as {
          metadata: { name: string };
          data: Record<string, string>;
        };
        secrets.set(metadata.name, data);
      }
      group = await RedisPods.start({ named: true, certificate: fileOf, downAfterMs: NEVER_DOWN_MS });
    });
    afterAll(async () => {
      for (const each of processes) await each.stop('SIGKILL');
      await group?.stop();
      rmSync(folder, { recursive: true });
    });

    const fileOf = (name: string) => Buffer.from(secrets.get('keyfence-redis-tls')?.[name] ?? '', 'base64');

    it('the commands make every key of every Secret', () => {
      expect([...secrets.keys()]).toEqual(['keyfence-root-key', 'keyfence-redis', 'keyfence-redis-tls']);
      for (const data of secrets.values())
        for (const key of Object.keys(data)) expect(readme).toContain(key.replace(/-password$/, ''));
      expect(new X509Certificate(fileOf('tls.crt')).ca).toBe(false);
    });

    it.each([
      ['the same namespace', ''],
      ['another namespace', '.keyfence'],
    ])('both processes reach the group in %s', async (_, suffix) => {
      const controlPlane = await start('control-plane/main.ts', 'control-plane', suffix, { ROOT_KEY });
      const verifier = await start('verifier/main.ts', 'verifier', suffix);
      await expect.poll(() => ready(verifier), PATIENT).toBe(200);
      const create = () =>
        call(controlPlane, 'keys.createKey', { apiId: 'a' }, { authorization: `Bearer ${ROOT_KEY}` });
      await expect.poll(async () => (await create()).status, PATIENT).toBe(200);
      const { key } = (await create()).body;
      const verdict = async () => (await call(verifier, 'keys.verifyKey', { key })).body.code;
      await expect.poll(verdict, PATIENT).toBe('VALID');
    });

    it('logs once that a certificate lacks the name', async () => {
      const verifier = await start('verifier/main.ts', 'verifier', '.other');
      const told = () => verifier.output.split('\n').filter((line) => line.includes('altnames'));
      await expect.poll(told, PATIENT).not.toEqual([]);
      expect(JSON.parse(told()[0] ?? '')).toMatchObject({ level: 40 });
      expect(await ready(verifier)).toBe(503);
      expect(told()).toHaveLength(1);
    });

    async function start(
      main: 'control-plane/main.ts' | 'verifier/main.ts',
      user: string,
      suffix: string,
      env: Record<string, string> = {},
    ): Promise<Process> {
      const resolver = join(folder, 'resolver.mjs');
      writeFileSync(resolver, RESOLVER);
      const process = new Process(main, {
        ...group.env(user, suffix),
        ...env,
        HOSTS_FILE: group.hostsFile,
        NODE_OPTIONS: `--import=${resolver}`,
      });
      processes.push(process);
      await process.start();
      return process;
    }
  },
);

/** Names are those of the cluster: a resolver of Node that reads them from a file. */
const RESOLVER = `
import dns from 'node:dns';
import { readFileSync } from 'node:fs';
const lines = readFileSync(process.env.HOSTS_FILE, 'utf8').split('\\n').map((line) => line.split(' '));
const { lookup } = dns;
dns.lookup = (name, options, done) => {
  const found = lines.find((line) => line.includes(name, 1));
  return lookup(found ? found[0] : name, options, done);
};
`;

const ready = async ({ adminAddress }: Process) => (await fetch(`${adminAddress}/readyz`)).status;

async function call(
  { address }: Process,
  operation: string,
  body: object,
  headers: Record<string, string> = {},
) {
  const answer = await fetch(`${address}/v1/${operation}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  // biome-ignore lint/suspicious/noExplicitAny: answers of several shapes
  return { status: answer.status, body: (await answer.json()) as any };
}
