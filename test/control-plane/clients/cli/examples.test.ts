import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createProgram } from '../../../../control-plane/clients/cli/program.ts';
import { generateKey } from '../../../../shared/rules/key-format.ts';
import { Fleet, ROOT_KEY } from '../../../harness/fleet.ts';
import { Receiver } from '../../subjects/webhooks/receiver.ts';
import { envOf, type Run, start, useCommandLine } from './keyfence.ts';

let fleet: Fleet;
let directory: string;
let receiver: Receiver;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { WEBHOOK_NETWORKS: '127.0.0.0/8', USAGE_PERIOD_MS: '50' } });
  receiver = await Receiver.start();
  directory = mkdtempSync(join(tmpdir(), 'keyfence-examples-'));
  const lines = [1, 2].map(() => JSON.stringify({ key: generateKey(16), name: 'Grace' }));
  writeFileSync(join(directory, 'keys.ndjson'), lines.join('\n'));
  mkdirSync(join(directory, 'keyfence'));
  writeFileSync(join(directory, 'keyfence', 'roles.yaml'), 'kind: Role\nname: declared\n');
});
afterAll(async () => {
  await fleet.stop();
  await receiver.stop();
  rmSync(directory, { recursive: true, force: true });
});
const commandLine = useCommandLine();

/** The examples of a command and its subcommands, as its help shows them. */
function examplesOf(command: Command): string[] {
  let help = '';
  command.configureOutput({
    writeOut: (text) => {
      help += text;
    },
  });
  command.outputHelp();
  const [, examples = ''] = help.split(/^Examples?:$/m);
  const own = examples.split('\n').flatMap((line) => /^ {2}keyfence (.+)$/.exec(line)?.[1] ?? []);
  if (command.commands.length > 0) return command.commands.flatMap(examplesOf);
  expect(own, command.name()).not.toEqual([]);
  return own;
}

/** The words of a line, as a shell would split it. */
const wordsOf = (line: string) =>
  [...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '');

/** Things are made before they are used, and used before they are deleted; the doctor comes before rules that keys break. */
const rankOf = (example: string) =>
  /^(?:doctor|(?:apis|roles|identities|permissions|root-keys|webhooks) create)/.test(example)
    ? 0
    : /^(?:apis|roles|identities|permissions|root-keys|webhooks) delete/.test(example)
      ? 2
      : 1;

/** Runs what does not end by itself, until it has printed something. */
function stoppedAfterOutput(...order: Parameters<typeof start>): Promise<Run> {
  const { child, ended } = start(...order);
  child.stdout?.once('data', () => child.kill('SIGINT'));
  return ended;
}

test('every command shows an example that works', async () => {
  const examples = examplesOf(createProgram()).sort((a, b) => rankOf(a) - rankOf(b));
  // zsh refuses a pattern that names no file.
  expect(examples.filter((example) => example.replace(/'[^']*'/g, '').includes('*'))).toEqual([]);
  await fleet.ok('keys.createKey', { apiId: 'shop' });
  const identity = await fleet.ok('identities.createIdentity', { externalId: 'ada' });
  const permissions = ['api.*.read_key'];
  const { rootKeyId } = await fleet.ok('rootKeys.createRootKey', { name: 'old', permissions });
  const { endpointId } = await fleet.ok('webhooks.createEndpoint', { url: receiver.url });
  await fleet.post(`${fleet.controlPlanes[0]?.address}/dashboard/session`, { rootKey: ROOT_KEY });
  const [{ sessionId }] = (await fleet.ok('rootKeys.listSessions')).sessions;
  const deliveryId = async (): Promise<string> => {
    const { deliveries } = await fleet.ok('webhooks.listDeliveries', { endpointId });
    return deliveries[0]?.deliveryId ?? '';
  };
  /** The id of a request that was refused, and would pass now. */
  const refused = async (keyId: string, key: string): Promise<string> => {
    await fleet.ok('keys.updateKey', { keyId, enabled: false });
    const { requestId } = (await fleet.verify(key)).body;
    await fleet.ok('keys.updateKey', { keyId, enabled: true });
    await fleet.until(async () => (await fleet.admin('verdicts.find', { requestId })).status === 200);
    return requestId;
  };
  /** The sequence of a change that the example can ask about. */
  const sequence = async (line: string, { keyId, roleId }: { keyId: string; roleId: string }) => {
    const ofApi = () => fleet.ok('apis.updateApi', { apiId: 'shop', tokenAudiences: null });
    if (line.startsWith('apis')) return String((await ofApi()).propagation.sequence);
    const { propagation } = line.startsWith('keys')
      ? await fleet.ok('keys.updateKey', { keyId, name: 'Ada' })
      : line.startsWith('roles')
        ? await fleet.ok('permissions.setRolePermissions', { roleId, permissions: ['files.list'] })
        : await fleet.ok('identities.updateIdentity', { externalId: 'ada', meta: { plan: 'pro' } });
    return String(propagation.sequence);
  };
  for (const example of examples) {
    const { keyId, key } = await fleet.ok('keys.createKey', {
      apiId: 'shop',
      externalId: 'ada',
      remaining: 5,
      permissions: ['files.read'],
    });
    const roles = await fleet.ok('permissions.listRoles', {});
    const roleId = [roles].flat().find(({ name }: { name: string }) => name === 'editor')?.id ?? '';
    const ids = [keyId, roleId, rootKeyId, sessionId, endpointId, identity.identityId];
    if (/ d\d+-0$/.test(example)) await fleet.until(async () => (await deliveryId()) !== '');
    const [line = '', input] = example.split(' < ');
    const args = await Promise.all(
      wordsOf(line).map(async (word) => {
        if (/^d\d+-0$/.test(word)) return deliveryId();
        if (word === '1' && line.includes('propagation')) return sequence(line, { keyId, roleId });
        if (word === 'https://keys.example.com') return fleet.controlPlanes[0]?.address ?? '';
        if (word === '0mzc9k4q8r2wfXa1') return refused(keyId, key);
        if (/\.ndjson$|^keyfence$|^plan\.json$/.test(word)) return join(directory, word);
        return /_0mzc9k4q8r2wfXa1Bc2d$/.test(word)
          ? ids.find((id) => id.startsWith(word.replace(/_.*/, '_')))
          : word;
      }),
    );
    if (input !== undefined) await fleet.until(async () => (await fleet.verify(key)).body.code === 'VALID');
    const env = envOf(fleet, { XDG_CONFIG_HOME: directory });
    const ended = line.startsWith('tail')
      ? await stoppedAfterOutput(args, env)
      : await commandLine.run(args, env, input === undefined ? '' : `${key}\n`);
    expect(ended.status, `${example}: ${ended.stderr}${ended.stdout}`).toBe(
      /^(?:diff|plan) /.test(example) ? 2 : 0,
    );
  }
});

test('events up to a moment are listed', async () => {
  const list = async (...args: string[]) =>
    JSON.parse((await commandLine.run(['audit', ...args, '--json'], envOf(fleet))).stdout).events.length;
  expect(await list('--since', 'today')).toBeGreaterThan(0);
  expect(await list('--since', 'yesterday', '--until', 'yesterday')).toBe(0);
  expect(await list('--since', 'yesterday', '--until', 'today')).toBeGreaterThan(0);
});
