import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { importsOf } from './harness/imports.ts';

const ROOT = join(import.meta.dirname, '..');

/**
 * The core is what must be understood: the protocol, one question with its verdict, and the calls about keys and APIs. All else
 * is an extra, which may be left out: no import leads from the core to one. core-alone.test.ts leaves them out.
 */
const CORE = /^(shared\/protocol|verifier\/core|control-plane\/core)\//;
const EXTRA =
  /^(shared\/(metering|reports|tokens)|verifier\/(metering|tokens|doors|proxy|library|metrics)|control-plane\/(subjects|unkey-v2|clients))\//;

const edgesIn = (files: ReadonlyMap<string, string>): string[] =>
  [...importsOf(files)].flatMap(([file, imports]) =>
    CORE.test(file)
      ? imports.filter((target) => EXTRA.test(target)).map((target) => `${file} ${target}`)
      : [],
  );

test('no import leads from the core to an extra', () => {
  const names = globSync('{shared/protocol,verifier/core,control-plane/core}/**/*.ts', { cwd: ROOT });
  const files = new Map(names.map((name) => [name, readFileSync(join(ROOT, name), 'utf8')]));
  expect(edgesIn(files)).toEqual([]);
});

test('an import of an extra would be noticed', () => {
  const planted = new Map([
    [
      'verifier/core/a.ts',
      "import type { Pool } from '#shared/metering/pool.ts'; import '../tokens/tokens.ts'",
    ],
    ['control-plane/core/keys/a.ts', "await import('../../subjects/usage/usage.ts'); import '../apis/b.ts'"],
    ['shared/metering/a.ts', "import '../protocol/records/limit.ts'"],
  ]);
  expect(edgesIn(planted)).toHaveLength(3);
});

/**
 * Extras, and the number of files outside of each that import it: those that its removal changes. No number grows; each above
 * three has the reason beside it.
 */
const EXTRAS: readonly (readonly [name: string, files: RegExp, importers: number])[] = [
  // Both processes have the secret among their settings, and each has one place that serves them.
  ['tokens', /^(verifier|shared|control-plane\/subjects)\/tokens\//, 4],
  // Whoever ends a hold: doors, proxy, library and guards.
  ['holds', /\/[a-z-]*holds?\.ts$|^verifier\/metering\/on-abort\.ts$/, 11],
  ['idempotency', /^control-plane\/core\/serve\/once\.ts$/, 3],
  ['a replica nearby', /\/nearby\.ts$/, 1],
  ['the interface /v2/', /\/unkey-v2/, 2],
  ['reports of leaks', /^control-plane\/subjects\/leaks\//, 3],
  // A field of six kinds of records, as a name is.
  ['managedBy', /^control-plane\/core\/schema\/managed\.ts$/, 7],
  // Settings, metrics, parts, operations and a section of the reference.
  ['webhooks', /^control-plane\/subjects\/webhooks\//, 5],
  // Settings, parts, operations and routes.
  ['sign-in', /^control-plane\/subjects\/sign-in\//, 4],
  ['gRPC', /^verifier\/doors\/grpc\//, 2],
];

test.each(EXTRAS)('%s is as easy to remove as before', (_name, files, importers) => {
  const names = globSync('{shared,verifier,control-plane}/**/*.{ts,tsx}', { cwd: ROOT });
  const texts = new Map(names.map((name) => [name, readFileSync(join(ROOT, name), 'utf8')]));
  expect(names.some((name) => files.test(name))).toBe(true);
  const outside = [...importsOf(texts)].filter(
    ([name, targets]) => !files.test(name) && targets.some((target) => files.test(target)),
  );
  expect(outside.length).toBeLessThanOrEqual(importers);
});
