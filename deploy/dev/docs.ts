// `npm run docs`: generates the tables of settings, error codes and metrics in their pages, the reference of operations and commands, the
// verifier's OpenAPI document, and, where helm is, the manifests of deploy/kubernetes.
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { scalingTables } from '../../bench/costs/scaling.ts';
import { page as resultsPage } from '../../bench/page.ts';
import { EXITS } from '../../control-plane/clients/cli/exit.ts';
import { settings as cli } from '../../control-plane/clients/cli/settings.ts';
import { settings as operator } from '../../control-plane/clients/operator/config.ts';
import { settings as controlPlane } from '../../control-plane/config.ts';
import { PRESETS } from '../../control-plane/core/callers/root-permissions.ts';
import { EVENT_TYPES } from '../../control-plane/core/schema/event-types.ts';
import type { Operation } from '../../control-plane/core/serve/operation.ts';
import { Metrics as ControlPlaneMetrics } from '../../control-plane/metrics.ts';
import { operations } from '../../control-plane/operations.ts';
import { deposedMsOf } from '../../control-plane/parts.ts';
import { operationsV2 } from '../../control-plane/unkey-v2/index.ts';
import { creditCounts } from '../../shared/metering/pools.ts';
import { systemClock } from '../../shared/process/clock.ts';
import type { Settings } from '../../shared/process/load-config.ts';
import { KEY_FIELDS, RECORD_FACTS } from '../../shared/protocol/records/key-record.ts';
import { PROTOCOL } from '../../shared/protocol/records/protocol.ts';
import { fenceMs } from '../../shared/protocol/timing.ts';
import { apiKeys, webhookKeys } from '../../shared/redis/redis-keys.ts';
import { ERRORS } from '../../shared/rules/errors.ts';
import { RULE_NAMES, RULES, type RuleName } from '../../shared/rules/rules.ts';
import type { VerdictCode } from '../../shared/rules/verdict-codes.ts';
import { settings as verifier } from '../../verifier/config.ts';
import { PERMISSIONS } from '../../verifier/core/callers.ts';
import { VERDICT_FIELDS } from '../../verifier/core/verdict-body.ts';
import { clientSettings } from '../../verifier/library/client-settings.ts';
import { camelCase } from '../../verifier/library/options.ts';
import {
  Metrics as VerifierMetrics,
  watchServer,
  watchState,
  watchUpstreams,
} from '../../verifier/metrics/metrics.ts';
import { tokens } from '../../verifier/tokens/plug.ts';
import { callRoutes } from '../../verifier/verifier-server.ts';
import { helm, plainManifests } from '../helm/render.ts';
import { scriptArguments } from './arguments.ts';
import { clientInterface } from './client-interface.ts';
import { commandOperations } from './command-operations.ts';
import { crds } from './crds.ts';
import { declaredSchema } from './declared-schema.ts';
import { numbersTable, results } from './numbers-table.ts';
import { unusedNumbers, withNumbers } from './page-numbers.ts';
import { referencePage } from './reference.ts';
import { verifierDocument } from './verifier-openapi.ts';

const ROOT = join(import.meta.dirname, '..', '..');

/** Returns every file that is generated, in whole or in part, with its present and its correct content. */
export async function documents(): Promise<{ file: string; present: string; content: string }[]> {
  const controlPlaneMetrics = newControlPlaneMetrics();
  const verifierMetrics = new VerifierMetrics();
  watchState(
    verifierMetrics.registry,
    {
      followers: [],
      sharedLog: undefined,
      counts: { fills: 0, nearby: 0, malformed: 0, stale: 0 },
      cache: { size: 0, evictions: 0 },
      lookupsInFlight: 0,
      wrongAddresses: 0,
      wrongOrigins: 0,
      meter: {
        counts: creditCounts(),
        rateLimits: { counts: { passed: 0, refused: 0 } },
        holds: { size: 0, counts: { expired: 0 } },
      },
    },
    [],
    { redis: { clockOffMs: 0, lastTripMs: 0 }, usage: undefined, refusals: undefined },
  );
  watchServer(verifierMetrics.registry, {
    requestsInFlight: 0,
    lane: { answered: 0, delegated: 0, handedOver: 0 },
  });
  TOKENS.watch(verifierMetrics.registry);
  watchUpstreams(verifierMetrics.registry, {}, { invalid: 0, missing: 0, short: 0 });
  const { sizing, ...scaling } = scalingTables();
  const tables: Record<string, Record<string, string>> = {
    'control-plane/clients/cli/README.md': {
      'exit statuses': exitsTable(),
      'settings of the command line': settingsTable(cli),
    },
    'shared/settings.md': { settings: settingsTable(commonSettings) },
    'control-plane/settings.md': { settings: settingsTable(ownSettings(controlPlane)) },
    'control-plane/core/keys/README.md': { ifSequence: conditionalCalls() },
    'control-plane/subjects/root-keys/README.md': { 'calls of a verifier': await rootKeyCallsTable() },
    'control-plane/subjects/webhooks/README.md': { events: eventsTable() },
    'control-plane/subjects/sign-in/README.md': { presets: presetsTable() },
    'control-plane/unkey-v2/README.md': { names: namesTable() },
    'control-plane/metrics.md': { metrics: await metricsTable(controlPlaneMetrics) },
    'verifier/settings.md': { settings: settingsTable(ownSettings(verifier)) },
    'deploy/kubernetes/objects.md': { settings: settingsTable(ownSettings(operator)) },
    'verifier/core/verdicts.md': { codes: codesTable(), fields: verdictFieldsTable() },
    'verifier/library/README.md': { 'options of the client': clientOptionsTable() },
    'verifier/proxy/README.md': { 'answered here': answeredHere() },
    'verifier/metrics.md': { metrics: await metricsTable(verifierMetrics) },
    'shared/protocol/key-record.md': { 'fields of a key': keyFieldsTable() },
    'shared/protocol/protocol-versions.md': { protocol: `Today the protocol is **${PROTOCOL}**.` },
    'shared/redis/redis-layout.md': { keys: redisKeysTable() },
    'shared/rules/errors.md': { errors: errorsTable() },
    'README.md': { numbers: numbersTable() },
    'deploy/README.md': { sizing },
    'deploy/availability.md': { fence: fenceTable() },
    'deploy/scaling.md': scaling,
    'verifier/library/middleware.md': {
      express: `\`\`\`ts\n${readFileSync(join(ROOT, 'deploy/examples/express.ts'), 'utf8')}\`\`\``,
    },
  };
  const json = (value: object) => `${JSON.stringify(value, null, 2)}\n`;
  const whole = {
    'bench/results.md': resultsPage(results()),
    'control-plane/clients/client/interface.ts': clientInterface(),
    'verifier/openapi.json': json(verifierDocument),
    'control-plane/reference.html': referencePage(),
    'control-plane/clients/cli/declared.schema.json': json(declaredSchema()),
    'deploy/helm/keyfence/files/operator/crds.yaml': crds(),
    // One operation a line, so that a change of one is a change of its line.
    'control-plane/clients/cli/operations.json': `[\n${commandOperations()
      .map((operation) => JSON.stringify(operation))
      .join(',\n')}\n]\n`,
  };
  const used = new Set<string>();
  const pages = globSync('**/*.md', { cwd: ROOT, exclude: (name) => SKIPPED.has(name) })
    .filter((file) => !Object.hasOwn(whole, file))
    .map((file) => {
      const present = readFileSync(join(ROOT, file), 'utf8');
      const content = Object.entries(tables[file] ?? {}).reduce(
        (text, [name, table]) => replaceTable(text, name, table),
        present,
      );
      return { file, present, content: withNumbers(content, used) };
    });
  const unused = unusedNumbers(used);
  if (unused.length > 0) throw new Error(`no page says ${unused.join(', ')} of page-numbers.ts`);
  const presentOf = (file: string) =>
    existsSync(join(ROOT, file)) ? readFileSync(join(ROOT, file), 'utf8') : '';
  return [
    ...pages,
    ...Object.entries(whole).map(([file, content]) => ({ file, present: presentOf(file), content })),
  ];
}

const SKIPPED = new Set(['node_modules', '.git', '.keyfence']);

/** Creates the metrics of a control plane that does nothing. */
function newControlPlaneMetrics(): ControlPlaneMetrics {
  const metrics = new ControlPlaneMetrics();
  metrics.watch({
    fence: { pending: 0, oldestMs: 0 },
    historyWatch: { refused: 0 },
    durability: { answering: false, durable: false, servers: [], clockOffMs: 0 },
    certificateWatch: { ends: new Map() },
    audit: { waiting: 0 },
    bootstrapWatch: { differing: 0 },
    connections: { strangers: 0, admitted: 0 },
    webhookSender: { isSender: false, open: 0, failing: 0, gone: 0 },
  });
  return metrics;
}

function replaceTable(text: string, name: string, table: string): string {
  const pattern = new RegExp(`(<!-- generated: ${name} -->\n)[\\s\\S]*?(<!-- end -->)`);
  if (!pattern.test(text)) throw new Error(`there is no place for the table of ${name}`);
  return text.replace(pattern, (_, start: string, end: string) => `${start}${table}\n${end}`);
}

/** The settings that are the same in both processes. */
const commonSettings: Settings = Object.fromEntries(
  Object.entries(controlPlane as Settings).filter(([name, { default: byDefault, rule, help }]) => {
    const other = (verifier as Settings)[name];
    return other?.default === byDefault && other?.rule === rule && other?.help === help;
  }),
);

const ownSettings = (settings: Settings): Settings =>
  Object.fromEntries(Object.entries(settings).filter(([name]) => !(name in commonSettings)));

function settingsTable(settings: Settings): string {
  const rows = Object.entries(settings).map(([name, { default: byDefault, rule, help, secret }]) => {
    const value = byDefault === undefined ? '**required**' : byDefault === '' ? '' : `\`${byDefault}\``;
    return `| \`${name}\`${secret ? ` or \`${name}_FILE\`` : ''} | ${cell(rule)} | ${value} | ${cell(help)} |`;
  });
  return ['| variable | allowed | default | meaning |', '|---|---|---|---|', ...rows].join('\n');
}

async function metricsTable({ registry }: { registry: ControlPlaneMetrics['registry'] }): Promise<string> {
  const metrics = await registry.getMetricsAsJSON();
  const rows = metrics
    .filter(({ name }) => name.startsWith('keyfence_'))
    .map(({ name, type, help }) => `| \`${name}\` | ${String(type)} | ${cell(help)} |`);
  return ['| metric | type | how to read it |', '|---|---|---|', ...rows].join('\n');
}

function keyFieldsTable(): string {
  const forms = {
    flag: '`1` or `0`',
    time: 'Unix milliseconds',
    text: 'text',
    object: 'JSON',
    limit: 'JSON',
    limits: 'JSON',
    concurrency: 'JSON',
    slugs: 'sorted, separated by spaces',
    ranges: 'sorted, separated by spaces',
    origins: 'sorted, separated by spaces',
    apis: 'ids, sorted, separated by spaces',
  };
  const settable = Object.entries(KEY_FIELDS).map(
    ([name, { letter, kind, description }]) =>
      `| \`${letter}\` | \`${name}\` | ${forms[kind]} | ${cell(description)} |`,
  );
  const others = Object.entries(RECORD_FACTS).map(
    ([letter, text]) => `| \`${letter}\` | | | ${cell(text)} |`,
  );
  return ['| in Redis | field | stored as | meaning |', '|---|---|---|---|', ...settable, ...others].join(
    '\n',
  );
}

/** Returns the names of all keys in Redis, each with its comment in redis-keys.ts. */
function redisKeysTable(): string {
  const source = readFileSync(join(ROOT, 'shared/redis/redis-keys.ts'), 'utf8');
  const ofMembers: Record<string, string> = {
    ...apiKeys('<apiId>'),
    ...webhookKeys('<endpointId>'),
    base: '',
  };
  const rows = source.split(/^ *\/\*\*/m).flatMap((part) => {
    const [comment = '', rest = ''] = part.split('*/\n');
    const [declaration = ''] = rest.split('\n\n');
    const [, member = ''] = /^ *readonly (\w+)/.exec(declaration) ?? [];
    const names = member ? [ofMembers[member]] : (declaration.match(/(?<=[`'])kf:[^`']+/g) ?? []);
    const content = comment
      .replace(/\n *\* @param.*/s, '')
      .replace(/\s+(\* )?/g, ' ')
      .trim();
    const row = names.map((name) => `\`${name?.replace(/\$\{(\w+)\}/g, '<$1>')}\``).join(' ');
    return names.some(Boolean) && !content.startsWith('Returns') ? [`| ${row} | ${cell(content)} |`] : [];
  });
  return ['| key | type, and what it has |', '|---|---|', ...rows].join('\n');
}

/** Returns how long a change waits for a verifier that does not answer, for some settings. */
function fenceTable(): string {
  const seconds = (ms: number) => `${ms / 1000} s`;
  const lag = Number(controlPlane.REDIS_MIN_REPLICAS_MAX_LAG_S.default);
  const deposedMs = deposedMsOf({ REDIS_REPLICAS: 1, REDIS_MIN_REPLICAS_MAX_LAG_S: lag });
  const rows = [2000, 5000, Number(controlPlane.LEASE_MS.default), 30_000, 60_000].map(
    (leaseMs) =>
      `| ${leaseMs} | ${seconds(leaseMs)} | ${seconds(fenceMs(leaseMs, 0))} | ${seconds(fenceMs(leaseMs, deposedMs))} |`,
  );
  return [
    '| `LEASE_MS` | verifiers answer without Redis for | a disable waits at most, one Redis | with replicas |',
    '|---|---|---|---|',
    ...rows,
  ].join('\n');
}

/** Returns the calls besides those of one key that take `ifSequence`. */
function conditionalCalls(): string {
  const has = ({ request }: Operation, field: string) =>
    Object.hasOwn((request as { properties?: object }).properties ?? {}, field);
  const names = (operations as readonly Operation[])
    .filter((each) => has(each, 'ifSequence'))
    .map(({ name }) => name);
  return `These calls take it: ${named(names)}.`;
}

type Called = Parameters<typeof callRoutes>[0];

const TOKENS = tokens(
  { TOKEN_KEY: ['of documents, which sign nothing'], TOKEN_ISSUER: '', AUTHZ_TOKEN: false },
  systemClock,
);

/** Returns the calls that a verifier answers itself, though CONTROL_PLANE_URL is set. */
function answeredHere(): string {
  const paths = Object.keys(callRoutes({ holds: {}, rateLimits: {} } as unknown as Called, 0));
  return `The verifier answers ${named(paths)} itself.`;
}

/** Returns the calls of a verifier with VERIFY_ROOT_KEYS=required, by what their root key needs. */
async function rootKeyCallsTable(): Promise<string> {
  const callsByPermission = new Map<string, string[]>();
  const callers = {
    admit: (_authorization: unknown, kind: keyof typeof PERMISSIONS) => Promise.reject(new Asked(kind)),
  };
  const called = { verifier: {}, holds: {}, rateLimits: {}, extras: [TOKENS], callers } as unknown as Called;
  for (const [path, { POST }] of Object.entries(callRoutes(called, 0))) {
    const asked = await Promise.resolve(
      POST({ headers: {}, url: path } as never, {} as never, '', {} as never),
    ).catch((error: unknown) => error);
    // The key itself authorises it.
    if (path === '/v1/keys.getSelf') continue;
    if (!(asked instanceof Asked)) throw new Error(`${path} asks for no root key`);
    const permission = PERMISSIONS[asked.kind];
    callsByPermission.set(permission, [...(callsByPermission.get(permission) ?? []), path]);
  }
  const rows = [...callsByPermission].map(([permission, paths]) => `| ${named(paths)} | \`${permission}\` |`);
  return ['| call | permission |', '|---|---|', ...rows].join('\n');
}

class Asked extends Error {
  readonly kind: keyof typeof PERMISSIONS;

  constructor(kind: keyof typeof PERMISSIONS) {
    super(kind);
    this.kind = kind;
  }
}

/** Returns the codes of verdicts in the order of their rules, of which the first that applies decides. */
function codesTable(): string {
  const rules: Readonly<Record<RuleName, string>> = {
    api: 'The key belongs to another API than the `apiId` in the question, or to an API for which this verifier does not answer (`API_IDS`).',
    enabled: 'The key is disabled.',
    identity: 'Its identity is disabled.',
    expires: 'The key has expired.',
    address:
      "The key may not be used [from the client's address](#allowed-addresses), or the address is unknown.",
    origin: 'The key may not be used [from this web page](#allowed-origins), or the page is unknown.',
    permissions: 'The key lacks a [permission](#permissions) that the question requires.',
  };
  const others = {
    RATE_LIMITED: 'A [rate limit](../metering/rate-limits.md) has less left than the question takes.',
    CONCURRENCY_EXCEEDED:
      'No place of a [concurrency limit](../metering/rate-limits.md#concurrency-limits) is free.',
    USAGE_EXCEEDED: 'The key has fewer [credits](../metering/credits.md) than the question costs.',
    VALID: 'No other row applies.',
  } satisfies Partial<Record<VerdictCode, string>>;
  const rows = [
    ['NOT_FOUND', 'No key has this secret.'],
    ...RULE_NAMES.map((name) => [RULES[name].code, rules[name]]),
    ...Object.entries(others),
  ].map(([code, when]) => `| ${code} | ${when} |`);
  return ['| code | when |', '|---|---|', ...rows].join('\n');
}

function verdictFieldsTable(): string {
  const rows = Object.entries(VERDICT_FIELDS).map(
    ([name, { schema, isRequired }]: [string, { schema: object; isRequired?: boolean }]) =>
      `| \`${name}\` | ${isRequired ? 'yes' : ''} | ${cell((schema as { description: string }).description)} |`,
  );
  return ['| field | always | meaning |', '|---|---|---|', ...rows].join('\n');
}

function clientOptionsTable(): string {
  const rows = Object.entries<Settings[string]>(clientSettings).map(
    ([name, { default: byDefault, help }]) => {
      const value = byDefault ? Number(byDefault).toLocaleString('en') : '';
      return `| \`${camelCase(name)}\` | ${value} | ${cell(help)} |`;
    },
  );
  return ['| option | default | meaning |', '|---|---|---|', ...rows].join('\n');
}

const named = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(', ');

function presetsTable(): string {
  const rows = Object.entries(PRESETS).map(([name, { text }]) => `| \`${name}\` | ${text} |`);
  return ['| preset | may |', '|---|---|', ...rows].join('\n');
}

/** Returns the types of events that webhooks send. */
function eventsTable(): string {
  const rows = Object.entries(EVENT_TYPES).map(([type, sentence]) => `| \`${type}\` | ${sentence} |`);
  return ['| type | when |', '|---|---|', ...rows].join('\n');
}

/** Returns the operations of version 2 of the interface that version 1 lacks, or has by another name. */
function namesTable(): string {
  const inV1: readonly Operation[] = operations;
  const rows = operationsV2.flatMap(({ name, path = '' }) => {
    const nameInV2 = path.slice('/v2/'.length);
    if (!inV1.some((operation) => operation.name === name)) return [`| – | \`${nameInV2}\` |`];
    return name === nameInV2 ? [] : [`| \`${name}\` | \`${nameInV2}\` |`];
  });
  return ['| v1 | v2 |', '|---|---|', ...rows].join('\n');
}

function errorsTable(): string {
  const rows = Object.entries(ERRORS).map(
    ([code, [status, meaning]]) => `| \`${code}\` | ${status} | ${cell(meaning)} |`,
  );
  return ['| code | status | meaning, and what to do |', '|---|---|---|', ...rows].join('\n');
}

function exitsTable(): string {
  const rows = Object.values(EXITS).map(([status, meaning]) => `| ${status} | ${cell(meaning)} |`);
  return ['| status | meaning |', '|---|---|', ...rows].join('\n');
}

const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

if (import.meta.main) {
  scriptArguments('npm run docs: writes all that is generated in documentation, OpenAPI and manifests', {});
  for (const { file, present, content } of await documents()) {
    if (present !== content) writeFileSync(join(ROOT, file), content);
  }
  for (const [file, content] of Object.entries(helm ? plainManifests() : {}))
    writeFileSync(join(ROOT, file), content);
  if (!helm)
    console.error('deploy/kubernetes is as it was: that needs helm, which npm run build:helm builds');
}
