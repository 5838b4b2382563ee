import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { asRiddles, noNames } from './harness/house-rules.ts';
import { importsOf, reachedFrom } from './harness/imports.ts';

/** The rules of this code base that no linter knows. */
const ROOT = join(import.meta.dirname, '..');
const textOf = (file: string) => readFileSync(join(ROOT, file), 'utf8');
const tracked = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], {
  cwd: ROOT,
  encoding: 'utf8',
})
  .trim()
  .split('\n');
const sources = new Map(
  tracked
    .filter((file) => /^(control-plane|verifier|shared)\/.*\.tsx?$/.test(file))
    .map((file) => [file, textOf(file)]),
);

const inControlPlane = (rooms: readonly string[]) => rooms.map((room) => `control-plane/${room}`);
/** A file of the control plane by its room. What the command line declares counts to it. */
const inside = (file: string) =>
  file
    .replace(/^control-plane\/(?:(?:core|subjects|clients)\/)?/, '')
    .replace(/^declared\//, 'cli/declared/');
/** The operations of a subject, which only the subject, those who list them and the second interface import. */
const OPERATIONS = /^([a-z-]+)\/(?:operations(?:\/|\.ts$)|explain-key\.ts$)/;
/** An operation knows neither path nor HTTP. */
const FOR_OPERATIONS =
  /^control-plane\/core\/serve\/(authorization|call|faults|operation|schema-compilers|nearest|search|strings|turns)\.ts$/;
const LISTS_OPERATIONS = /^control-plane\/(unkey-v2\/|operations\.ts$)/;

/** What is below the rooms of the protocol. */
const GROUND = [
  ...['shared/process', 'shared/rules', 'shared/redis', 'shared/assets.ts', 'shared/protocol/timing.ts'],
];

/** Rooms in which a verdict is found. */
const DECISIONS = ['verifier/core', 'verifier/metering'];

/** Rooms of the same process that a room may import, besides itself. A file in no room, the process's root, sees all of them. */
const ARROWS: Readonly<Record<string, readonly string[]>> = {
  'shared/process': ['shared/rules'],
  'shared/rules': [],
  'shared/redis': ['shared/process', 'shared/rules'],
  'shared/protocol/records': GROUND,
  'shared/protocol/log': [...GROUND, 'shared/protocol/records'],
  'shared/metering': [...GROUND, ...['shared/protocol/records', 'shared/protocol/follower/companion.ts']],
  'shared/protocol/follower': [...GROUND, 'shared/protocol/records', 'shared/protocol/log'],
  'shared/protocol/writer': [...GROUND, 'shared/protocol/records', 'shared/protocol/log'],
  'shared/protocol/history': [...GROUND, 'shared/protocol/log', 'shared/protocol/writer'],
  'shared/tokens': ['shared/process', 'shared/rules'],
  'shared/reports': [
    ...GROUND,
    ...['shared/version.ts', 'shared/protocol/records', 'shared/metering'],
    'shared/protocol/follower',
  ],
  'verifier/core': [],
  'verifier/metering': ['verifier/core'],
  'verifier/tokens': ['verifier/core', 'verifier/doors/http', 'verifier/extra.ts'],
  'verifier/doors/node-internals': [],
  'verifier/doors/http': [...DECISIONS, 'verifier/doors/node-internals'],
  'verifier/doors/grpc': [...DECISIONS, 'verifier/doors/http'],
  'verifier/doors/lane': [...DECISIONS, 'verifier/doors/http', 'verifier/doors/node-internals'],
  'verifier/proxy': [...DECISIONS, 'verifier/doors/lane', 'verifier/doors/http'],
  'verifier/metrics': [...DECISIONS, 'verifier/doors/lane', 'verifier/proxy'],
  'verifier/library': [...DECISIONS, 'verifier/metrics', 'verifier/engine.ts'],
  'verifier/library/guards': ['verifier/library', 'verifier/doors/http', 'verifier/doors/node-internals'],
  'control-plane/clients/client': [],
  // A client like any other.
  'control-plane/clients/operator': inControlPlane(['clients/client']),
  // Its doctor examines Redis by itself.
  'control-plane/clients/cli': inControlPlane([
    ...['clients/client', 'clients/declared', 'core/callers/root-permissions.ts', 'config.ts'],
    ...['subjects/audit/sentences.ts', 'subjects/examine/examination.ts'],
  ]),
  'control-plane/clients/declared': inControlPlane(['clients/client', 'clients/cli']),
  // Only its build.
  'control-plane/clients/dashboard': inControlPlane([
    ...['operations.ts', 'core/schema', 'unkey-v2', 'subjects/audit/sentences.ts'],
  ]),
  'control-plane/clients/dashboard/api': ['control-plane/clients/client'],
  ...Object.fromEntries(
    Object.entries({
      parts: ['api'],
      handover: ['api', 'parts'],
      forms: ['api', 'parts'],
      changes: ['api', 'parts'],
      audit: ['api', 'parts'],
      usage: ['api', 'parts', 'forms'],
      overview: ['api', 'parts', 'forms', 'changes', 'usage'],
      roles: ['api', 'parts', 'forms'],
      webhooks: ['api', 'parts', 'forms'],
      keys: ['api', 'parts', 'forms', 'changes', 'audit', 'usage'],
      customers: ['api', 'parts', 'usage'],
    }).map(([room, others]) => [
      `control-plane/clients/dashboard/${room}`,
      [
        ...others.map((other) => `control-plane/clients/dashboard/${other}`),
        ...(room === 'customers' ? ['control-plane/subjects/rate-limits/applied-limits.ts'] : []),
        ...(room === 'audit' ? ['control-plane/subjects/audit/sentences.ts'] : []),
      ],
    ]),
  ),
  'control-plane/clients/dashboard/pages': [
    ...['api', 'parts', 'forms', 'changes', 'audit', 'usage', 'overview', 'keys', 'customers'].map(
      (room) => `control-plane/clients/dashboard/${room}`,
    ),
    ...['roles', 'webhooks'].map((room) => `control-plane/clients/dashboard/${room}`),
    ...['core/callers/root-permissions.ts', 'subjects/audit/sentences.ts'].map(
      (file) => `control-plane/${file}`,
    ),
  ],
};
/** The innermost room that a file lies in; undefined = it is at the process's root, or in no room. */
const roomOf = (file: string): string | undefined => {
  const folder = dirname(file);
  if (folder === '.' || !folder.includes('/')) return undefined;
  return folder in ARROWS ? folder : (roomOf(folder) ?? folder.split('/').slice(0, 2).join('/'));
};
/** The rooms of the protocol that belong to the other process. */
const ENDS: Readonly<Record<string, RegExp>> = {
  'control-plane': /^shared\/(protocol\/follower|metering\/(?!end-debt\.ts$)|reports)\//,
  verifier: /^shared\/(protocol\/(writer|log|history)\/|metering\/end-debt\.ts$)/,
};
/** Scripts that read records of the protocol from above. */
const READERS =
  /^control-plane\/(core\/records\/(read-key|list-keys|list-declared)|subjects\/duties\/survey-keys)\.lua$/;
/** All of metering that they and scripts of the log include. */
const PLUG = 'shared/metering/plug.lua';

/** Each script that includes one of another room. */
const strangers = (scripts: ReadonlyMap<string, string>): string[] =>
  [...scripts].flatMap(([file, text]) =>
    includedIn(file, text)
      .filter((each) => roomOfScript(each) !== roomOfScript(file))
      .filter((each) => !(READERS.test(file) && (each === PLUG || each.startsWith('shared/protocol/log/'))))
      .filter((each) => !(file.startsWith('shared/protocol/log/') && each === PLUG))
      .map((each) => `${file} → ${each}`),
  );
const includedIn = (file: string, text: string): string[] =>
  [...text.matchAll(/^-- include (\S+)$/gm)].map(([, name = '']) => join(file, '..', name));
const roomOfScript = (file: string) => file.split('/').slice(0, 2).join('/');

/** The floors of the control plane, from below: each imports only itself and lower ones. What is not here is above all. */
const FLOORS = [
  /^core\/(schema|records)\//,
  /^core\/ports\.ts$/,
  /^core\/(keys|apis)\/(?!operations(\/|\.ts$))/,
  /^core\/callers\//,
  /^core\/serve\//,
  /^core\//,
  /^subjects\//,
  /^unkey-v2\//,
];
const floorOf = (file: string) => {
  const floor = FLOORS.findIndex((each) => each.test(file.replace('control-plane/', '')));
  return floor < 0 ? FLOORS.length : floor;
};

/** Each import of the control plane from a lower floor to a higher one, and each room that imports itself by way of others. */
function upAndAround(files: ReadonlyMap<string, string>): { up: string[]; around: string[] } {
  const imports = [...importsOf(files)].flatMap(([file, targets]) =>
    targets.filter((target) => target.startsWith('control-plane/')).map((target) => [file, target] as const),
  );
  const rooms = new Map<string, string[]>();
  for (const [file, target] of imports) {
    const [from = '', to = ''] = [file, target].map((each) => inside(each).replace(/\/.*/, ''));
    if (from !== to && !from.endsWith('.ts') && !to.endsWith('.ts'))
      rooms.set(from, [...(rooms.get(from) ?? []), to]);
  }
  return {
    up: imports
      .filter(([file, target]) => floorOf(target) > floorOf(file))
      .map(([file, target]) => `${inside(file)} → ${inside(target)}`),
    around: [...rooms.keys()].filter((room) => reachedFrom(rooms, room).has(room)),
  };
}

/** What the simulation runs as it is, */
const SIMULATED =
  /^verifier\/(core|metering)\/|^verifier\/tokens\/tokens\.ts$|^shared\/metering\/(?!end-debt|redis-exchanges).*\.ts$|^shared\/protocol\/(timing|records\/.*|log\/(change-log-port|write-error)|writer\/(fence|sweep|writer)|follower\/(?!session|pointers|nearby|verifier-commands).*)\.ts$/;
/** and so never imports these. */
const NEVER_SIMULATED = /^(node:(http|https|net|tls)|ioredis|prom-client|fastify|undici)/;

/** Each import that goes against the arrows, and each file that imports itself by way of others. */
function breaches(files: ReadonlyMap<string, string>): string[] {
  const imports = importsOf(files);
  const wrong: string[] = [];
  for (const [file, targets] of imports) {
    const [home = ''] = file.split('/');
    const [folder] = inside(file).split('/');
    const room = roomOf(file);
    const arrows = room === undefined ? undefined : ARROWS[room];
    for (const target of targets) {
      const inProject = /^(control-plane|verifier|shared)\//.test(target);
      const across = inProject && !target.startsWith(`${home}/`) && !target.startsWith('shared/');
      const against =
        arrows !== undefined &&
        target.startsWith(`${home}/`) &&
        ![room, ...arrows].some((allowed) => target === allowed || target.startsWith(`${allowed}/`));
      const [, subject] = OPERATIONS.exec(inside(target)) ?? [];
      const stranger = subject !== undefined && subject !== folder && !LISTS_OPERATIONS.test(file);
      const ofHttp =
        OPERATIONS.test(inside(file)) &&
        /^control-plane\/core\/serve\//.test(target) &&
        !FOR_OPERATIONS.test(target);
      const otherEnd = ENDS[home]?.test(target) === true;
      const unseen = SIMULATED.test(file) && NEVER_SIMULATED.test(target);
      if (across || against || stranger || ofHttp || otherEnd || unseen) wrong.push(`${file} → ${target}`);
    }
    if (reaches(imports, file)) wrong.push(`${file} → itself`);
  }
  return wrong;
}

const reaches = (imports: ReadonlyMap<string, readonly string[]>, file: string) =>
  reachedFrom(imports, file).has(file);

const offenders = (pattern: RegExp, allowed: RegExp) =>
  [...sources].filter(([file, text]) => pattern.test(text) && !allowed.test(file)).map(([file]) => file);

describe('imports', () => {
  test('follow the arrows between rooms, in no circle', () => {
    expect(breaches(sources)).toEqual([]);
    const everywhere = tracked.filter((file) => /\.tsx?$/.test(file));
    const texts = everywhere.map((file): [string, string] => [file, textOf(file)]);
    const imports = importsOf(new Map(texts));
    expect(everywhere.filter((file) => reaches(imports, file))).toEqual([]);
  });

  test.each([
    ['from one process to the other', { 'verifier/core/a.ts': "import '../../control-plane/core/b.ts'" }],
    ['from shared to a process', { 'shared/a.ts': "import type { B } from '../verifier/core/b.ts'" }],
    ['against an arrow', { 'verifier/doors/http/a.ts': "import { b } from '../../proxy/b.ts'" }],
    [
      'against an arrow of a room within a room',
      { 'control-plane/clients/dashboard/api/a.ts': "import { b } from '../pages/b.ts'" },
    ],
    [
      'of HTTP in an operation',
      { 'control-plane/core/keys/operations/a.ts': "import '../../serve/server.ts'" },
    ],
    ['of the network in core', { 'verifier/core/a.ts': "import { request } from 'node:http'" }],
    [
      'of operations in another subject',
      { 'control-plane/core/keys/a.ts': "import '../apis/operations.ts'" },
    ],
    [
      'of Redis in the writer',
      { 'shared/protocol/writer/writer.ts': "import type { Redis } from 'ioredis'" },
    ],
    ['of the writer in a verifier', { 'verifier/core/a.ts': "import '#shared/protocol/writer/fence.ts'" }],
    [
      'of a lease in the control plane',
      { 'control-plane/core/serve/a.ts': "import '#shared/protocol/follower/lease.ts'" },
    ],
    ['from the log up to the writer', { 'shared/protocol/log/a.ts': "import '../writer/fence.ts'" }],
    [
      'from metering up to the follower',
      { 'shared/metering/a.ts': "import '../protocol/follower/lease.ts'" },
    ],
    ['from Redis up to the protocol', { 'shared/redis/a.ts': "import '../protocol/records/key-record.ts'" }],
    ['of metrics in core', { 'verifier/core/a.ts': "import { Counter } from 'prom-client'" }],
    [
      'in a circle of types',
      {
        'shared/a.ts': "import type { B } from './b.ts'",
        'shared/b.ts': "import type { A } from '#shared/a.ts'",
      },
    ],
  ])('%s would be noticed', (_rule, planted) => {
    const files = new Map(
      Object.entries(planted).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
    );
    expect(breaches(files).length).toBe(files.size);
  });

  test('lead down the floors of the control plane', () => {
    const { up, around } = upAndAround(
      new Map([...sources].filter(([file]) => file.startsWith('control-plane/'))),
    );
    expect({ up, around }).toEqual({ up: [], around: [] });
    const planted = {
      'control-plane/core/keys/a.ts': "import type { B } from '../serve/b.ts'",
      'control-plane/core/serve/b.ts': "import type { C } from '../callers/c.ts'",
      'control-plane/core/callers/c.ts': "import type { A } from '../keys/a.ts'",
      'control-plane/core/serve/d.ts': "import '../keys/operations/e.ts'; import '../../app.ts'",
    };
    expect(upAndAround(new Map(Object.entries(planted)))).toEqual({
      up: ['keys/a.ts → serve/b.ts', 'serve/d.ts → keys/operations/e.ts', 'serve/d.ts → app.ts'],
      around: ['keys', 'serve', 'callers'],
    });
  });

  test('of a verifier leave out costly modules', () => {
    const heavy = /from '(fastify|typebox|@fastify\/.*|@sinclair\/.*)'/;
    expect(
      offenders(
        heavy,
        /^control-plane\/|^shared\/protocol\/(writer|history)\/|^verifier\/(library\/guards\/fastify|doors\/node-internals\/fastify-instances)\.ts$/,
      ),
    ).toEqual([]);
    const loaded = [...sources.keys()].filter((file) => file.startsWith('verifier/'));
    const imports = importsOf(sources);
    const reached = loaded.flatMap((file) => [...reachedFrom(imports, file)]);
    expect(reached.filter((file) => /^shared\/protocol\/(writer|history)\//.test(file))).toEqual([]);
  });

  test('of the dashboard are types, names and texts', () => {
    expect(
      offenders(
        /^import (?!type)[^;]*from '(?!\.\.\/(api|parts|forms|changes|audit|usage|overview|handover|keys|customers|roles|webhooks|pages)\/)((\.\.\/)+(?!\.\.|client\/|core\/callers\/root-permissions\.ts'|subjects\/(?:audit\/sentences|rate-limits\/applied-limits)\.ts')|#(?!shared\/(rules\/json|protocol\/records\/limit)\.ts'))/m,
        // The build takes the names of the operations from the server.
        /^(?!control-plane\/clients\/dashboard\/(?!vite\.config\.ts))/,
      ),
    ).toEqual([]);
  });

  test('keep each library in the files that own it', () => {
    expect(
      offenders(/'@?fastify/, /^(?!shared\/|control-plane\/[a-z]+\/[a-z-]+\/(?:operations|explain-key))/),
    ).toEqual([]);
    // It alone decides the order in which a call passes its steps.
    expect(offenders(/\.addHook\(/, /^control-plane\/core\/serve\/pipeline\.ts$|^verifier\//)).toEqual([]);
    expect(
      offenders(/import (?!type)[^;]*from 'ioredis'/, /^shared\/redis\/(redis|sentinel-connector)\.ts$/),
    ).toEqual([]);
    expect(
      offenders(
        /from 'lru-cache'/,
        /^shared\/protocol\/(follower\/(key-cache|shared-log|permissions)|records\/limits-in-memory)\.ts$|^verifier\/(core\/question|tokens\/tokens|doors\/http\/anonymous-limit|doors\/lane\/questions)\.ts$|^control-plane\/subjects\/(webhooks\/event-poster|sign-in\/oidc(-provider)?)\.ts$/,
      ),
    ).toEqual([]);
    expect(
      offenders(
        /'undici'/,
        /^verifier\/(proxy\/(connections|upstream)|library\/client)\.ts$|^control-plane\/(clients\/operator\/kube|subjects\/webhooks\/event-poster|subjects\/sign-in\/oidc(-provider)?)\.ts$/,
      ),
    ).toEqual([]);
    expect(
      offenders(/import\('@grpc|import (?!type)[^;]*from '@grpc/, /^verifier\/doors\/grpc\/server\.ts$/),
    ).toEqual([]);
    // Nobody pays for a library of a sign-in that is not configured.
    expect(offenders(/import (?!type)[^;]*from 'openid-client'/, /^$/)).toEqual([]);
    expect(offenders(/'openid-client'/, /^control-plane\/subjects\/sign-in\/oidc(-provider)?\.ts$/)).toEqual(
      [],
    );
    expect(offenders(/from 'pino'/, /^shared\/process\/log\.ts$/)).toEqual([]);
  });
});

test('the environment is read in one place', () => {
  expect(offenders(/process\.env/, /^shared\/process\/load-config\.ts$/)).toEqual([]);
});

test('the clock is read in one place', () => {
  expect(
    offenders(
      /Date\.now\(|performance\.now\(|new Date\(\)|setTimeout\(|setInterval\(/,
      /^shared\/process\/clock\.ts$|^verifier\/(doors\/(http\/(server|respond)|grpc\/server|lane\/lane)|proxy\/upstream)\.ts$|^control-plane\/(core\/serve\/(errors|load-shedding)\.ts$|clients\/dashboard\/)/,
    ),
  ).toEqual([]);
});

test('no verifier function is made for a property', () => {
  const assigned = /\.#?\w+ = (?:async )?(?:function\b|\w+ =>|\([^()]*\)(?:: [^=]+)? =>)/;
  expect('hooks.closed = () => this.#controller?.abort();').toMatch(assigned);
  expect(offenders(assigned, /^control-plane\//)).toEqual([]);
});

test('nothing is `any` and nothing asserted', () => {
  expect(offenders(/\bas any\b|@ts-ignore|@ts-expect-error|@ts-nocheck/, /^$/)).toEqual([]);
});

test('doc comments begin with a noun or a verb', () => {
  const riddles = [...sources].flatMap(([file, text]) => asRiddles(text).map((said) => `${file}: ${said}`));
  expect(riddles).toEqual([]);
  expect(asRiddles('/** What a key is. */\nexport type Key = 1;\n/**\n * Whether it is.\n */')).toHaveLength(
    2,
  );
  expect(asRiddles('/** A key. */')).toEqual([]);
});

test('every Lua script has names and a result', () => {
  const scripts = tracked.filter(
    (file) => file.endsWith('.lua') && /^(control-plane|verifier|shared)\//.test(file),
  );
  expect(scripts.length).toBeGreaterThan(10);
  const texts = new Map(scripts.map((file) => [file, textOf(file)]));
  // What others include is no script by itself.
  const included = [...texts].flatMap(([file, text]) => includedIn(file, text));
  for (const [file, text] of texts) {
    if (included.includes(file)) continue;
    expect(text, file).toMatch(/^#!lua( flags=(allow-oom|no-writes))?\n-- /);
    // shared/redis/command.ts names what a script is given.
    expect(text, file).not.toMatch(/\b(ARGV|KEYS)\b/);
    expect(text, file).toMatch(/^-- Returns /m);
  }
  expect(strangers(texts)).toEqual([]);
  const planted = '-- include ../../../shared/protocol/log/gate.lua';
  expect(strangers(new Map([['control-plane/subjects/roles/a.lua', planted]]))).toHaveLength(1);
  const metering = '-- include ../../metering/credits.lua';
  expect(strangers(new Map([['shared/protocol/log/a.lua', metering]]))).toHaveLength(1);
});

/** Names that clients know: an option of the command line, and fields of JSON. */
const OUT = [
  'control-plane/clients/cli/commands/many-keys.ts: owner',
  'control-plane/subjects/examine/examination.ts: found',
  // A field of verdicts.
  'verifier/core/verdict.ts: needed',
  'verifier/doors/http/gateway-answer.ts: needed',
  'verifier/library/guards/guard.ts: needed',
  'verifier/library/key-verifier.ts: needed',
  'verifier/metering/allowance.ts: needed',
];

test('names are nouns and verbs of the glossary', () => {
  expect(noNames(sources)).toEqual(OUT);
  const planted = [
    'const { found = 1, deep: [given], ...everything } = {};',
    'function told(asked: string, { who }: { who: string }) {}',
    'class Rights { #known = 1; what(): void {} constructor(readonly wanted = 1) {} }',
    'interface A { left: number; shown(): void }',
    'type Ties = 1; const NOTHING = 0; try {} catch (said) {}',
    'for (const made of []) ((meant) => meant)(1);',
    // Not declared here, or something else.
    'call(one.taken, { begun: 1 }); const foundation = 1; import { nobody as anyKey } from "a";',
  ];
  const list =
    'NOTHING Rights Ties asked everything found given known left made meant said shown told wanted what who';
  expect(noNames(new Map([['a.ts', planted.join('\n')]]))).toEqual(
    list.split(' ').map((name) => `a.ts: ${name}`),
  );
});

test('there are no folders for leftovers', () => {
  expect(
    tracked.filter((file) => /(^|\/)(utils?|helpers?|common|types|constants)(\/|\.ts$)/.test(file)),
  ).toEqual([]);
});

test('no test has a time-out of its own', () => {
  const own = /^\s*\}, \d[\d_]{2,}\);$|\n\s+\d[\d_]{2,},\n\s*\);|\btimeout: \d[\d_]{2,}/m;
  for (const planted of ['  }, 60_000);', 'test(\n    },\n    60_000,\n  );', '{ timeout: 120_000 }'])
    expect(planted).toMatch(own);
  const impatient = tracked
    .filter((file) => /^test\/.*\.ts$/.test(file) && file !== 'test/tidy.test.ts')
    .filter((file) => own.test(textOf(file)));
  expect(impatient).toEqual([]);
});

/** Tests that wait for time to pass, each with the reason why there is nothing else to wait for. */
const WAITING: Readonly<Record<string, string>> = {
  'metering/limits/conformance.test.ts': 'demand comes at a rate, in windows of a clock',
  'proxy/charges.test.ts': 'the API must be about to close its idle connections',
  'metering/limits/mixed-costs.test.ts': 'a refusal is remembered for a second, which must have run out',
  'verifier/doors/http/limits.test.ts': 'a time-out of idle connections must have run out',
  'verifier/doors/grpc/ext-authz-grpc.test.ts': 'the time for a request must have run out',
  'dashboard/hostile.test.ts': 'what an attacker would say in the browser',
};

test('no test sleeps to see what happens', () => {
  const sleeps = /(?<!socket\.)\b(setTimeout|elapsed|sleep|scheduler\.wait)\(|timers\/promises/;
  for (const line of ['await elapsed(50);', "import { setTimeout } from 'node:timers/promises';"])
    expect(line).toMatch(sleeps);
  const sleeping = tracked
    .filter((file) => /^test\/.*\.test\.ts$/.test(file) && file !== 'test/tidy.test.ts')
    .filter((file) => sleeps.test(textOf(file)));
  const named = Object.keys(WAITING);
  expect(sleeping.filter((file) => !named.some((name) => file.endsWith(name)))).toEqual([]);
  expect(named.filter((name) => !sleeping.some((file) => file.endsWith(name)))).toEqual([]);
});
