import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parseAllDocuments, stringify } from 'yaml';
import { Client } from '../../../control-plane/clients/cli/client.ts';
import { exported } from '../../../control-plane/clients/declared/export.ts';
import { readDeclared } from '../../../control-plane/clients/declared/files.ts';
import { KIND_NAMES } from '../../../control-plane/clients/declared/kinds.ts';
import type { Call } from '../../../control-plane/clients/declared/present.ts';
import { bring, compare } from '../../../control-plane/clients/declared/run.ts';
import { systemClock } from '../../../shared/process/clock.ts';
import { Fleet, ROOT_KEY } from '../../harness/fleet.ts';
import { scratch } from '../../harness/scratch.ts';
import { share } from '../../harness/share.ts';
import { States } from './states.ts';
import { Chance } from './world.ts';

/** Random states of all kinds: what is exported makes the same on an empty server, and is then exported alike. */
const folder = scratch('declared-states');
let first: Fleet;
let empty: Fleet;
beforeAll(async () => {
  const env = { WEBHOOK_NETWORKS: '127.0.0.0/8' };
  first = await Fleet.start({ verifiers: 0, env });
  empty = await Fleet.start({ verifiers: 0, env });
});
afterAll(async () => {
  await Promise.all([first.stop(), empty.stop()]);
  rmSync(folder, { recursive: true, force: true });
});

const callOf = (fleet: Fleet): Call => {
  const client = new Client(new URL(fleet.controlPlanes[0]?.address ?? ''), 'control plane', ROOT_KEY);
  return (operation, input) => client.call(operation, input);
};

/** Brings a server to files, and returns what was refused. */
async function applied(call: Call, at: string, set: string): Promise<string[]> {
  const wish = { declared: readDeclared([at]), set, prune: true, force: true };
  const outcome = await bring(call, wish, await compare(call, wish), systemClock, undefined);
  expect(outcome.propagation.state).toBe('complete');
  return outcome.failed.map(({ change, error }) => `${change.id}: ${error.message}`);
}
async function differences(call: Call, at: string, set: string) {
  const { changes } = await compare(call, { declared: readDeclared([at]), set, prune: true, force: true });
  return changes.map(({ action, id, fields }) => ({ action, id, fields }));
}

const STATES = 2000;
const PER_TEST = 10;
const starts = share(
  Array.from({ length: STATES / PER_TEST }, (_, i) => 1 + PER_TEST * i),
  50,
);
test.each(starts)('what is exported makes the same on an empty server: %i and nine more', async (start) => {
  for (let seed = start; seed < start + PER_TEST; seed++) {
    const set = `set-${seed}`;
    const [at, there] = ['a', 'b'].map((name) => join(folder, `${seed}-${name}`));
    for (const path of [at ?? '', there ?? '']) mkdirSync(path, { recursive: true });
    const docs = new States(new Chance(seed), String(seed)).draw();
    const text = docs.map((doc) => `---\n${stringify(doc, { aliasDuplicateObjects: false })}`).join('');
    const file = join(at ?? '', 'all.yaml');
    writeFileSync(file, text);
    const here = callOf(first);
    expect([seed, await applied(here, at ?? '', set)]).toEqual([seed, []]);
    expect([seed, await differences(here, at ?? '', set)]).toEqual([seed, []]);
    const one = await exported(here, KIND_NAMES, set);
    expect(await exported(here, KIND_NAMES, set)).toBe(one);
    const withSecrets = parseAllDocuments(one).map((document) => {
      const doc = document.toJS();
      return { ...doc, ...(doc.kind === 'Key' ? { secret: { file: `secrets/${doc.name}` } } : {}) };
    });
    writeFileSync(
      join(there ?? '', 'all.yaml'),
      withSecrets.map((doc) => `---\n${stringify(doc, { aliasDuplicateObjects: false })}`).join(''),
    );
    const other = callOf(empty);
    expect([seed, await applied(other, there ?? '', set)]).toEqual([seed, []]);
    expect([seed, await differences(other, there ?? '', set)]).toEqual([seed, []]);
    expect(await exported(other, KIND_NAMES, set)).toBe(one);
    for (const [call, path] of [
      [here, at],
      [other, there],
    ] as const) {
      writeFileSync(join(path ?? '', 'all.yaml'), '# nothing\n');
      expect(await applied(call, path ?? '', set)).toEqual([]);
    }
  }
});
