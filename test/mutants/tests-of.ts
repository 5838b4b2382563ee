import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

/** Left out of a path before it is looked up, since a file's own name says what it is for. */
const ROOM =
  /(?<=^(?:control-plane|verifier|shared))\/(?:core(?:\/(?:allowances|question))?|redis|http(?:\/guards)?|endpoints|fast-lane|proxy|engine|metrics|process)\/|(?<=\/lua)\/[^/]+\//g;

/** The same of a test's path. */
const TEST_ROOM = /(?<=^test\/(?:control-plane|verifier))\/(?:core|redis|http|endpoints|fast-lane|proxy)\//;

/**
 * Tests that are to notice a mistake in certain files, before those of its folder that import it: the first row that fits counts.
 * Cheap ones come first, because the first that fails ends it.
 */
const ROWS: readonly (readonly [files: RegExp, tests: readonly string[]])[] = [
  [
    /^(?:control-plane\/(?:credits|(?:credit|limit)-schemas|reroll-call|successors|operations\/keys\/(?:update-remaining|reroll-key)|lua\/(?:(?:change-|settle-)?credits|reroll-key|sharing|operations|creation))|verifier\/(?:allowance|question|requirements|pools?|waiters|limits|spending(?:-rate)?|lua\/(?:credits|windows|exchange))|shared\/credits)\./,
    [
      'verifier/pools',
      'credits/scripts',
      'control-plane/credits',
      'limits/scripts',
      'limits/mixed-costs',
      'simulation/redis',
      'credits/conformance',
      'limits/conformance',
      'credits/reroll',
      'control-plane/contract',
      'simulation/simulation',
    ],
  ],
  [/^shared\/script\.ts$/, ['control-plane/scripts', 'control-plane/import']],
  [
    /^(?:verifier\/(?:following\/)?shared-log|control-plane\/(?:shared-log\/[\w-]+|operations\/(?:identities|permissions)\/[\w-]+|operations\/keys\/lists\/(?:[\w-]*role[\w-]*|list-change)|(?:role|slug)-schemas))\.ts$/,
    [
      'control-plane/settled-links',
      'permissions/identities',
      'permissions/role-calls',
      'permissions/roles',
      'permissions/catalogue',
      'limits/identities',
      'control-plane/contract',
      'simulation/mutants',
    ],
  ],
  [
    /^(?:verifier\/permissions|control-plane\/operations\/keys\/lists\/[\w-]*permission[\w-]*|shared\/slugs)\.ts$/,
    [
      'permissions/query',
      'permissions/conformance',
      'control-plane/contract',
      'verifier/authz',
      'verifier/rechecks',
    ],
  ],
  [/^(?:shared\/trace-id|verifier\/tracer)\.ts$/, ['shared/trace-id', 'end-to-end/tracing', 'verifier/http']],
  [/^control-plane\/permissions\.ts$/, ['control-plane/permissions', 'control-plane/permission-matrix']],
  [
    /^control-plane\/(?:root-keys|bootstrap-keys|operations\/root-keys\/|lua\/(?:.*root-key|announce))/,
    [
      'control-plane/root-keys',
      'control-plane/bootstrap-keys',
      'control-plane/contract',
      'control-plane/permission-matrix',
      'control-plane/audit',
      'control-plane/replicas',
    ],
  ],
  [
    /^control-plane\/(?:audit|audit-event|operations\/call|lua\/record-events)\b/,
    [
      'control-plane/failures',
      'control-plane/audit',
      'control-plane/listing',
      'control-plane/audit-faults',
      'control-plane/limits',
    ],
  ],
  [/^control-plane\/(?:operations\/keys\/many\/|lua\/list-ids)/, ['control-plane/many-keys']],
  [/^control-plane\/load-shedding\.ts$/, ['control-plane/protection', 'control-plane/limits']],
  [/^control-plane\/turns\.ts$/, ['control-plane/turns']],
  [/^control-plane\/(?:rate-limits|lua\/count-call)\b/, ['control-plane/limits']],
  [
    /^control-plane\/(?:key-import|operations\/keys\/import-keys)\.ts$/,
    [
      'control-plane/unconfirmed',
      'control-plane/import',
      'control-plane/left-behind',
      'control-plane/contract',
      'control-plane/audit',
      'control-plane/replicas',
      'cli/transfer',
    ],
  ],
  [
    /^control-plane\/(?:keys|new-record|key-view|operations\/(?:keys\/|apis\/list-keys|meta|aliases|cursor)|apis|lua\/(?:change|(?:create|set|delete|write)-.*))\b/,
    [
      'control-plane/contract',
      'control-plane/failures',
      'control-plane/listing',
      'control-plane/left-behind',
      'control-plane/unconfirmed',
      'control-plane/many-keys',
      'control-plane/audit',
      'control-plane/import',
      'control-plane/usage',
      'control-plane/api-defaults',
      'credits/reroll',
      'simulation/redis',
      'control-plane/replicas',
    ],
  ],
  [
    /^control-plane\/(?:register|authentication|parts|operations\/.*)\.ts$/,
    [
      'control-plane/contract',
      'control-plane/permission-matrix',
      'control-plane/openapi',
      'control-plane/list-apis',
      'control-plane/audit',
      'control-plane/fleet',
    ],
  ],
  [
    /^control-plane\/(?:sweep|sweep-store|lua\/(?:sweep|forget|set-lease|reap|fence|server)-?.*)\b/,
    [
      'control-plane/kills',
      'control-plane/sweep',
      'control-plane/sweep-steps',
      'simulation/redis',
      'control-plane/left-behind',
    ],
  ],
  [
    /^control-plane\/(?:fence|propagation|journey|batches|change-log)\.ts$/,
    [
      'control-plane/fence',
      'control-plane/kills',
      'control-plane/batches',
      'simulation/redis',
      'control-plane/contract',
      'control-plane/replicas',
      'simulation/simulation',
    ],
  ],
  [/^control-plane\/(?:not-written\.ts|lua\/gate\.lua)$/, ['control-plane/gate']],
  [/^shared\/protocol\.ts$/, ['shared/protocol', 'shared/change', 'control-plane/gate']],
  [/^control-plane\/lua\/check-rights\.lua$/, ['cli/doctor', 'deploy/users']],
  [/^control-plane\/durability\.ts$/, ['control-plane/durability', 'control-plane/contract', 'cli/doctor']],
  [
    /^control-plane\/durable-writer\.ts$/,
    ['control-plane/unconfirmed', 'control-plane/replicas', 'control-plane/failures'],
  ],
  [/^control-plane\/pending-changes\.ts$/, ['control-plane/pending-changes', 'control-plane/limits']],
  [/^control-plane\/usage\.ts$/, ['control-plane/usage']],
  [/^control-plane\/fleet\.ts$/, ['control-plane/fleet']],
  [
    /^control-plane\/(?:server|error-answers|faults|strings|json-body)\.ts$/,
    [
      'control-plane/failures',
      'control-plane/contract',
      'control-plane/audit-faults',
      'control-plane/limits',
      'control-plane/openapi',
      'edges/edges',
      'security/threats',
    ],
  ],
  [
    /^control-plane\/cli\/(?:commands\/keys\/)?(?:import|import-line|read-lines|checkpoint|export|progress|retry)\.ts$/,
    ['cli/import-parts', 'cli/parts', 'cli/transfer', 'cli/commands', 'cli/terminal'],
  ],
  [/^control-plane\/cli\/commands\/keys\/many-keys\.ts$/, ['cli/many-keys']],
  [/^control-plane\/cli\/(?:commands\/)?doctor/, ['cli/doctor']],
  [/^control-plane\/cli\/(?:exit|client)\.ts$/, ['cli/client', 'cli/commands']],
  [/^control-plane\/cli\//, ['cli/parts', 'cli/commands', 'cli/terminal', 'cli/transfer', 'cli/doctor']],
  [/^control-plane\/config\.ts$/, ['shared/config', 'control-plane/contract']],
  [
    /^control-plane\/(?:app|main|metrics)\.ts$/,
    ['metrics', 'documentation', 'control-plane/contract', 'control-plane/limits'],
  ],
  [
    /^control-plane\/(?:dashboard|openapi|security-headers)\.ts$/,
    ['dashboard/serving', 'control-plane/openapi'],
  ],
  [
    /^verifier\/(?:authz|identity-headers|router)\.ts$/,
    [
      'verifier/identity',
      'verifier/authz',
      'verifier/proxy',
      'verifier/ext-authz-grpc',
      'verifier/differential',
    ],
  ],
  [
    /^verifier\/credentials\.ts$/,
    ['verifier/credentials', 'verifier/authz', 'verifier/proxy', 'verifier/differential'],
  ],
  [/^verifier\/(?:envoy|grpc)/, ['verifier/ext-authz-grpc']],
  [
    /^verifier\/(?:proxy|options|handler|upstream|upstream-handler|recheck|end-to-end-headers|tunnel|upstream-metrics)\.ts$/,
    [
      'verifier/proxy-edges',
      'verifier/proxy-tls',
      'verifier/proxy',
      'verifier/bodies',
      'verifier/upstream',
      'verifier/websockets',
      'verifier/rechecks',
      'verifier/connections',
      'verifier/forward',
      'verifier/one-address',
      'verifier/proxy-without-lane',
      'verifier/survival',
      'verifier/proxy-differential',
    ],
  ],
  [/^verifier\/control-plane-proxy\.ts$/, ['verifier/forward', 'verifier/one-address']],
  [
    /^verifier\/(?:tls|unix-socket|server|open-requests|listeners)\.ts$/,
    [
      'verifier/tls',
      'verifier/unix-socket',
      'verifier/http',
      'verifier/limits',
      'verifier/proxy',
      'gateways/settings',
    ],
  ],
  [
    /^verifier\/(?:usage-report\.ts|tags\.ts|tag-counts\.ts|lua\/add-usage\.lua)$/,
    ['verifier/usage', 'control-plane/usage'],
  ],
  [/^verifier\/status-report\.ts$|^verifier\/lua\/report/, ['verifier/status', 'control-plane/fleet']],
  [/^verifier\/config\.ts$/, ['shared/config', 'verifier/http']],
  [/^verifier\/key-cache\.ts$/, ['verifier/key-cache', 'verifier/look-ups', 'simulation/simulation']],
  [
    /^verifier\/(?:follower|applied-log|former-names|log-prefix|semaphore|lease|redis-port|api-session|lua\/(?:sync|register|find-keys)|verifier|verdict|pointer-batcher|single-flight|negative-cache)\b/,
    [
      'verifier/look-ups',
      'verifier/find-keys',
      'verifier/unknown-keys',
      'simulation/redis',
      'end-to-end/verifying',
      'simulation/simulation',
    ],
  ],
  [/^verifier\/engine-settings\.ts$/, ['verifier/library/client', 'verifier/library/create-verifier']],
  [
    /^verifier\/(?:library\/|(?:engine|metrics|state-metrics|follower-log)\.ts$)/,
    ['verifier/library/client', 'verifier/library/metrics', 'verifier/library/create-verifier'],
  ],
  [
    /^verifier\/middleware\//,
    ['header-lines', 'http2', 'middleware', 'mounted', 'cluster'].map(
      (name) => `verifier/middleware/${name}`,
    ),
  ],
  [
    /^verifier\/(?:call|connection|connection-state|delegated-request|delegations|fast-lane|gateway-target|intake|judge|lane|lane-request|parse-call|partial-request|question-reader|raw-response|reply|scan-head)\.ts$/,
    [
      'verifier/delegations',
      'verifier/differential',
      'verifier/data-events',
      'verifier/survival',
      'verifier/http',
    ],
  ],
  [
    /^verifier\/(?:verify-key|dialects|gateway-answer|form|question|requirements)\.ts$/,
    [
      'verifier/http',
      'verifier/authz',
      'verifier/differential',
      'verifier/openapi',
      'permissions/conformance',
      'credits/conformance',
      'limits/conformance',
    ],
  ],
  [/^verifier\/plain-request\.ts$/, ['verifier/delegations', 'verifier/proxy-differential']],
  [
    /^verifier\//,
    ['verifier/http', 'verifier/differential', 'verifier/authz', 'verifier/limits', 'verifier/openapi'],
  ],
  [/^control-plane\//, ['control-plane/contract', 'control-plane/failures', 'control-plane/audit']],
  [/^shared\/key-format\.ts$/, ['shared/key-format', 'end-to-end/verifying', 'cli/transfer']],
  [/^shared\/config\.ts$/, ['shared/settings', 'shared/config', 'documentation']],
  [/^shared\/log(?:-output)?\.ts$/, ['shared/log', 'end-to-end/secrets']],
  [/^shared\/change\.ts$/, ['shared/change', 'simulation/redis']],
  [/^shared\/redis\.ts$/, ['shared/redis', 'shared/deadlines', 'redis/sentinel', 'redis/cluster']],
  [/^shared\//, ['control-plane/contract', 'verifier/http', 'metrics']],
];

/** The tests that are to notice a mistake in this file, in the order in which they are run. */
export function testsOf(root: string, file: string, files: readonly string[]): string[] {
  const tests = files.filter((name) => name.endsWith('.test.ts'));
  const scripts = file.endsWith('.lua')
    ? ['control-plane/scripts', 'control-plane/key-scripts', 'verifier/sync-script', 'control-plane/gate']
    : [];
  // Tables of settings are written from where they are declared.
  const settings = /\.help\('/.test(readFileSync(join(root, file), 'utf8')) ? ['documentation'] : [];
  const row = [
    ...scripts,
    ...(ROWS.find(([pattern]) => pattern.test(file.replace(ROOM, '/')))?.[1] ?? []),
    ...settings,
  ];
  const named = row.flatMap(
    (name) => tests.find((test) => test.replace(TEST_ROOM, '/') === `test/${name}.test.ts`) ?? [],
  );
  const folder = `test/${file.split('/')[0]}/`;
  const own = tests.filter((test) => test.startsWith(folder) && importsOf(root, test).includes(file));
  return [...new Set([...named, ...own])];
}

/** The files that a file imports by themselves, without those that these import. */
function importsOf(root: string, file: string): string[] {
  const text = readFileSync(join(root, file), 'utf8');
  return [...text.matchAll(/(?:from|import) '(\.[^']+)'/g)].map(([, specifier]) =>
    normalize(join(dirname(file), specifier ?? '')),
  );
}
