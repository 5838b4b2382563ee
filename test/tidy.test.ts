import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, test } from 'vitest';

/** The rules of this code base that no linter knows. */
const ROOT = join(import.meta.dirname, '..');
const tracked = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], {
  cwd: ROOT,
  encoding: 'utf8',
})
  .trim()
  .split('\n');
const sources = new Map(
  tracked
    .filter((file) => /^(control-plane|verifier|shared)\/.*\.tsx?$/.test(file))
    .map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]),
);

const importsOf = (text: string) =>
  [...text.matchAll(/(?:from|import) '([^']+)'/g)].map(([, specifier]) => specifier ?? '');
const offenders = (pattern: RegExp, allowed: RegExp) =>
  [...sources].filter(([file, text]) => pattern.test(text) && !allowed.test(file)).map(([file]) => file);

describe('imports', () => {
  test('go from a process to shared, never across and never back', () => {
    const wrong = [...sources].flatMap(([file, text]) => {
      const [home] = file.split('/');
      return importsOf(text)
        .filter((specifier) => specifier.startsWith('.'))
        .map((specifier) => relative(ROOT, join(ROOT, dirname(file), specifier)))
        .filter((target) => target.split('/')[0] !== home)
        .map((target) => `${file} → ${target}`);
    });
    expect(wrong).toEqual([]);
    expect(offenders(/'#shared\//, /^(control-plane|verifier)\//)).toEqual([]);
  });

  test('of a verifier leave out what a sidecar should not pay for', () => {
    const heavy = /from '(fastify|typebox|@fastify\/.*|@sinclair\/.*)'/;
    expect(offenders(heavy, /^control-plane\//)).toEqual([]);
  });

  test('of the dashboard are types of the server and the names of permissions, so that it is a client like any other', () => {
    expect(
      offenders(
        /^import (?!type)[^;]*from '(\.\.\/(?!permissions\.ts)|#)/m,
        /^(?!control-plane\/dashboard\/)/,
      ),
    ).toEqual([]);
  });

  test('keep each library in the files that own it', () => {
    expect(
      offenders(/import (?!type)[^;]*from 'ioredis'/, /^shared\/(redis|sentinel-connector)\.ts$/),
    ).toEqual([]);
    expect(offenders(/from 'lru-cache'/, /^verifier\/(cache|verifier)\.ts$/)).toEqual([]);
    expect(offenders(/'undici'/, /^verifier\/(relay|exchange)\.ts$/)).toEqual([]);
    expect(
      offenders(/import\('@grpc|import (?!type)[^;]*from '@grpc/, /^verifier\/ext-authz-grpc\.ts$/),
    ).toEqual([]);
    expect(offenders(/from 'pino'/, /^shared\/log\.ts$/)).toEqual([]);
  });
});

test('the environment is read in one place', () => {
  expect(offenders(/process\.env/, /^shared\/config\.ts$/)).toEqual([]);
});

test('the clock is read in one place; time-outs of sockets, and the dashboard in its browser, apart', () => {
  expect(
    offenders(
      /Date\.now\(|performance\.now\(|new Date\(\)|setTimeout\(|setInterval\(/,
      /^shared\/clock\.ts$|^verifier\/(listener|grpc-connections|answer|fast-lane|tunnel|ext-authz-grpc)\.ts$|^control-plane\/dashboard\//,
    ),
  ).toEqual([]);
});

test('no function of a verifier is written where it is assigned to a property, which would keep its garbage', () => {
  const assigned = /\.#?\w+ = (?:async )?(?:function\b|\w+ =>|\([^()]*\)(?:: [^=]+)? =>)/;
  expect('hooks.closed = () => this.#controller?.abort();').toMatch(assigned);
  expect(offenders(assigned, /^control-plane\//)).toEqual([]);
});

test('nothing is as wide as `any`, and nothing is asserted to be there', () => {
  expect(offenders(/\bas any\b|@ts-ignore|@ts-expect-error|@ts-nocheck/, /^$/)).toEqual([]);
});

test('every exported function, class and type says what it promises', () => {
  const bare = [...sources].flatMap(([file, text]) =>
    [...text.matchAll(/(\*\/\n)?export (?:async )?(?:function|class|interface|type) (\w+)/g)]
      .filter(([, comment]) => comment === undefined)
      .map(([, , name]) => `${file}: ${name}`),
  );
  expect(bare).toEqual([]);
});

test('every Lua script says its keys, its arguments and what it returns', () => {
  const scripts = tracked.filter((file) => file.endsWith('.lua') && /^(control-plane|verifier)\//.test(file));
  expect(scripts.length).toBeGreaterThan(10);
  for (const file of scripts) {
    const text = readFileSync(join(ROOT, file), 'utf8');
    expect(text, file).toMatch(/^#!lua( flags=allow-oom)?\n-- /);
    expect(text, file).toMatch(/^-- KEYS 1 /m);
    expect(text, file).toMatch(/^-- Returns /m);
  }
});

test('there are no folders for leftovers', () => {
  expect(
    tracked.filter((file) => /(^|\/)(utils?|helpers?|common|types|constants)(\/|\.ts$)/.test(file)),
  ).toEqual([]);
});
