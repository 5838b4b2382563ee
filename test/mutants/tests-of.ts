import { readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { importsOf } from '../harness/imports.ts';

/** Tests that keep a room's promises under other names than its files'. A room within a room has those of both, its own first. */
const PROMISES: Readonly<Record<string, readonly string[]>> = {
  'control-plane': ['control-plane/http/contract', 'control-plane/http/failures', 'control-plane/http/audit'],
  'control-plane/cli': ['cli/parts', 'cli/commands', 'cli/terminal', 'cli/transfer', 'cli/doctor'],
  'control-plane/writer': ['control-plane/redis/kills', 'simulation/redis', 'simulation/simulation'],
  'control-plane/http': ['control-plane/http/limits', 'control-plane/http/openapi', 'edges/edges'],
  'control-plane/serve': ['order', 'limits', 'mistakes', 'openapi', 'unforeseen', 'sessions'].map(
    (name) => `control-plane/http/${name}`,
  ),
  'control-plane/http/leaks': ['leaks/leaks'],
  'control-plane/http/sign-in': [
    'oidc/attacks',
    'oidc/sign-in',
    'oidc/refresh',
    'control-plane/http/sessions',
  ],
  'control-plane/http/operations': ['control-plane/http/permission-matrix', 'control-plane/http/listing'],
  'control-plane/http/operations/keys': [
    'control-plane/redis/credit-changes',
    'credits/reroll',
    'credits/scripts',
  ],
  'control-plane/http/operations/permissions': ['permissions/role-calls', 'permissions/roles'],
  'control-plane/redis': ['control-plane/redis/replicas', 'simulation/redis', 'control-plane/redis/kills'],
  'control-plane/redis/callers': ['oidc/refresh', 'oidc/attacks', 'control-plane/http/sessions'],
  'control-plane/redis/keys': [
    'http/many-keys',
    'http/import',
    'http/listing',
    'redis/unconfirmed',
    'redis/left-behind',
  ].map((name) => `control-plane/${name}`),
  'control-plane/redis/lua': ['control-plane/redis/scripts', 'control-plane/redis/key-scripts'],
  'control-plane/redis/lua/callers': ['control-plane/http/root-keys', 'control-plane/redis/bootstrap-keys'],
  'control-plane/redis/lua/credits': ['credits/scripts', 'credits/conformance', 'limits/conformance'],
  'control-plane/redis/lua/keys': ['control-plane/http/ordered-keys', 'control-plane/http/listing'],
  'control-plane/redis/lua/log': ['control-plane/redis/gate', 'control-plane/writer/fence'],
  'control-plane/redis/shared-log': ['permissions/roles', 'permissions/identities', 'limits/identities'],
  'control-plane/unkey-v2': [
    'end-to-end/unkey-client-v2',
    'control-plane/http/openapi-v2',
    'control-plane/http/v1-and-v2',
  ],
  shared: ['control-plane/http/contract', 'verifier/http/http', 'metrics'],
  'shared/redis': ['redis/sentinel', 'redis/cluster'],
  verifier: ['verifier/http/http', 'verifier/http/authz', 'verifier/http/openapi'],
  'verifier/core': [
    'verifier/core/look-ups',
    'end-to-end/verifying',
    'limits/mixed-costs',
    'verifier/core/unknown-keys',
    'permissions/roles',
    ...['permissions', 'credits', 'limits'].map((room) => `${room}/conformance`),
    'simulation/redis',
    'simulation/simulation',
  ],
  'verifier/http': ['verifier/lane/differential'],
  'verifier/lane': ['delegations', 'differential', 'data-events', 'survival'].map(
    (name) => `verifier/lane/${name}`,
  ),
  'verifier/library/guards': ['verifier/library/guards/middleware'],
  'verifier/metrics': ['metrics', 'verifier/library/metrics'],
  'verifier/proxy': ['proxy-edges', 'proxy', 'rechecks', 'proxy-differential'].map(
    (name) => `verifier/proxy/${name}`,
  ),
  'verifier/redis': ['verifier/core/look-ups', 'simulation/redis'],
  'verifier/redis/lua': ['verifier/redis/sync-script', 'credits/scripts', 'limits/scripts'],
};

/** Tests that share no more than a word with a file, of which the first count. */
const RELATED_MAX = 8;

/**
 * Returns the tests that are to notice a mistake in this file, in the order in which they are run: those of its name, those
 * that import it, those of its room's promises, and those whose names share a word with its own.
 */
export function testsOf(root: string, file: string, files: readonly string[]): string[] {
  const tests = files.filter((name) => /^test\/(?!kubernetes\/|harness\/).*\.test\.ts$/.test(name));
  const texts = new Map(tests.map((name) => [name, readFileSync(join(root, name), 'utf8')]));
  const imports = importsOf(texts);
  const words = wordsOf(file);
  const shared = (test: string) => wordsOf(test).filter((word) => words.includes(word)).length;
  const named = tests.filter((test) => baseOf(test) === baseOf(file));
  const importing = tests.filter((test) => imports.get(test)?.includes(file));
  const related = tests
    .filter((test) => shared(test) > 0 && !test.startsWith('test/dashboard/'))
    .toSorted((a, b) => shared(b) - shared(a));
  // Tables of settings are written from where they are declared.
  const settings = /\.help\('/.test(readFileSync(join(root, file), 'utf8'))
    ? ['test/documentation.test.ts']
    : [];
  const promised = promisesOf(file).map((name) => `test/${name}.test.ts`);
  const slow = /^test\/(simulation|chaos|model|mutants)\//;
  const all = [
    ...new Set([...named, ...importing, ...settings, ...promised, ...related.slice(0, RELATED_MAX)]),
  ];
  return [...all.filter((test) => !slow.test(test)), ...all.filter((test) => slow.test(test))];
}

/** Names of all tests of rooms' promises. */
export const PROMISED = Object.values(PROMISES).flat();

/** Tests of the promises of the rooms that a file lies in, the innermost first. */
function promisesOf(file: string): readonly string[] {
  const room = dirname(file);
  return room === '.' ? [] : [...(PROMISES[room] ?? []), ...promisesOf(room)];
}

const baseOf = (file: string) => basename(file).replace(/(\.test)?\.\w+$/, '');

/** Words of a file's name and its folder's, in the singular; of a process's own folder none. */
function wordsOf(file: string): string[] {
  const folders = dirname(file).split('/').slice(-1);
  const words = [...folders, baseOf(file)].flatMap((name) => name.split('-'));
  const singular = words.map((word) => word.replace(/ies$/, 'y').replace(/s$/, ''));
  return [...new Set(singular.filter((word) => !COMMON.has(word)))];
}

/** Words that say where a file lies, or what it does to everything. */
const COMMON = new Set(
  [
    'control',
    'plane',
    'verifier',
    'shared',
    'test',
    'core',
    'redi',
    'http',
    'key',
    'create',
    'update',
    'delete',
  ].concat([
    'list',
    'get',
    'set',
    'add',
    'remove',
    'operation',
    'proxy',
    'lane',
    'of',
    'change',
    'lua',
    'command',
    'main',
  ]),
);
