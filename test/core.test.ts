import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { importsOf } from './harness/imports.ts';

/**
 * The core is what must be understood: the protocol, one question with its verdict, and the calls about keys and APIs. All else
 * is an extra, which may be left out. The core stands alone once no import leads from it to an extra.
 */
const CORE = /^(shared\/protocol|verifier\/core|control-plane\/core)\//;
const EXTRA =
  /^(shared\/(metering|reports|tokens)|verifier\/(metering|tokens|doors|proxy|library|metrics)|control-plane\/(subjects|unkey-v2|clients))\//;

/** Imports that still do. Turn one round and take it out; add none. */
const LEFT: readonly string[] = [
  'shared/protocol/follower/follower.ts shared/metering/pool.ts',
  'shared/protocol/follower/follower.ts shared/metering/pools.ts',
  'shared/protocol/follower/followers.ts shared/metering/pools.ts',
  'shared/protocol/follower/key-cache.ts shared/metering/limits.ts',
  'shared/protocol/follower/key-cache.ts shared/metering/pools.ts',
  'shared/protocol/follower/permissions.ts shared/metering/limits.ts',
  'shared/protocol/follower/permissions.ts shared/metering/pools.ts',
  'shared/protocol/follower/session.ts shared/metering/exchange.ts',
  'shared/protocol/follower/shared-log.ts shared/metering/limits.ts',
  'shared/protocol/follower/shared-log.ts shared/metering/pools.ts',
  'shared/protocol/follower/source.ts shared/metering/exchange.ts',
  'verifier/core/question.ts shared/metering/limits.ts',
  'verifier/core/verdict-body.ts shared/metering/allowance.ts',
  'verifier/core/verdict-body.ts verifier/metering/holds.ts',
  'verifier/core/verdict.ts shared/metering/allowance.ts',
  'verifier/core/verdict.ts shared/metering/exchange.ts',
  'verifier/core/verdict.ts shared/metering/pool.ts',
  'verifier/core/verdict.ts shared/reports/port.ts',
  'verifier/core/verdict.ts verifier/metering/holds.ts',
  'verifier/core/verdict.ts verifier/metering/needs.ts',
  'verifier/core/verdict.ts verifier/metering/until-served.ts',
  'verifier/core/verifier.ts shared/metering/pools.ts',
  'verifier/core/verifier.ts shared/reports/port.ts',
  'verifier/core/verifier.ts verifier/metering/holds.ts',
  'verifier/core/verifier.ts verifier/metering/needs.ts',
  'verifier/core/verifier.ts verifier/metering/rate-limits.ts',
];

const edgesIn = (files: ReadonlyMap<string, string>): string[] =>
  [...importsOf(files)].flatMap(([file, imports]) =>
    CORE.test(file)
      ? imports.filter((target) => EXTRA.test(target)).map((target) => `${file} ${target}`)
      : [],
  );

test('no further import leads from the core to an extra', () => {
  const root = join(import.meta.dirname, '..');
  const names = globSync('{shared/protocol,verifier/core,control-plane/core}/**/*.ts', { cwd: root });
  const files = new Map(names.map((name) => [name, readFileSync(join(root, name), 'utf8')]));
  expect(edgesIn(files).sort()).toEqual(LEFT);
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
