import type { Clock } from '#shared/process/clock.ts';
import { refusedHistories } from '#shared/protocol/history/history-watch.ts';
import type { VerifierStatus } from '#shared/protocol/records/verifier-status.ts';
import type { CertificateEnds } from '#shared/redis/certificate-ends.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import {
  apiKeys,
  apiList,
  BOOTSTRAP_FORGOTTEN_MS,
  bootstrapAnnouncements,
  SHARED_LOG,
  webhookEndpoints,
} from '#shared/redis/redis-keys.ts';
import type { RedisConfig } from '#shared/redis/redis-settings.ts';
import {
  CLOCK_OFF_MS_MAX,
  clockOffMs,
  crashFaults,
  diskFaults,
  evictionFaults,
  failoverFaults,
  memoryFaults,
  type RedisFacts,
  readFacts,
} from '#shared/redis/server-facts.ts';
import { unavailable } from '#shared/rules/errors.ts';
import { FleetView } from '../fleet/fleet.ts';

/** Result of one check of the doctor. */
export interface Finding {
  readonly check: string;
  readonly found: string;
  /** The change to make; undefined = none. */
  readonly change?: string;
}

/** Describes clocks that differ, and the change to make. */
export function clockFinding(check: string, offMs: number, other: string): Finding {
  if (Math.abs(offMs) <= CLOCK_OFF_MS_MAX) return { check, found: `agrees with ${other}` };
  return {
    check,
    found: `${Math.abs(Math.round(offMs / 1000))} s ${offMs > 0 ? 'ahead of' : 'behind'} ${other}`,
    change: 'keys expire too early or too late: let NTP set the clocks of both machines',
  };
}

type Config = Pick<RedisConfig, 'REDIS_MODE' | 'REDIS_REPLICAS'> & {
  readonly REDIS_MIN_REPLICAS_MAX_LAG_S: number;
};

/**
 * Examines what Redis could lose in a crash, its memory, disk and clock. Rejects with SERVICE_UNAVAILABLE.
 * @param clock that of this process, which is compared with the clocks of Redis
 * @param whose whose clock that is
 */
export async function examineServers(
  nodes: RedisNodes,
  config: Config,
  clock: Clock,
  whose: string,
): Promise<Finding[]> {
  const servers = await nodes.primaries();
  const [askedAt, askedAtMs] = [clock.wallMs(), clock.monotonicMs()];
  const primaryFacts = await Promise.all(servers.map((redis) => readFacts(nodes, redis)));
  const tripMs = clock.monotonicMs() - askedAtMs;
  const [facts] = primaryFacts;
  if (facts === undefined) throw unavailable('the Cluster has no node that owns a slot');
  const offsMs = primaryFacts.flatMap(({ timeMs }) => clockOffMs(askedAt, tripMs, timeMs) ?? []);
  const offMs = offsMs.toSorted((a, b) => Math.abs(b) - Math.abs(a))[0];
  return [
    { check: 'Redis', found: `version ${facts.version}, ${config.REDIS_MODE}${numberOf(primaryFacts)}` },
    persistenceOf(primaryFacts),
    memoryOf(primaryFacts),
    diskOf(primaryFacts),
    ...(offMs === undefined ? [] : [clockFinding("Redis' clock", -offMs, whose)]),
    replicationOf(facts, config),
    ...(config.REDIS_MODE === 'cluster' && facts.refusal === undefined ? [coverageOf(primaryFacts)] : []),
  ];
}

const numberOf = (primaries: readonly RedisFacts[]) =>
  primaries.length > 1 ? `, ${primaries.length} primaries` : '';

/** The faults of all servers without duplicates. */
function faultsOf(
  primaries: readonly RedisFacts[],
  of: (facts: RedisFacts) => readonly string[],
): { change?: string } {
  const faults = [...new Set(primaries.flatMap(of))];
  return faults.length === 0 ? {} : { change: faults.join('; ') };
}

/** The values of a setting on all servers; more than one if they differ. */
const valuesOf = (primaries: readonly RedisFacts[], of: (facts: RedisFacts) => string | undefined) =>
  [...new Set(primaries.map(of))].join(' and ');

function persistenceOf(primaries: readonly RedisFacts[]): Finding {
  const check = 'persistence';
  const value = (name: string) => `${name} ${valuesOf(primaries, ({ settings }) => settings.get(name))}`;
  const refusalText = primaries.find(({ refusal }) => refusal !== undefined)?.refusal;
  const result =
    refusalText === undefined
      ? ['appendonly', 'appendfsync', 'no-appendfsync-on-rewrite'].map(value).join(', ')
      : `not known: CONFIG GET is refused (${refusalText})`;
  return { check, found: result, ...faultsOf(primaries, crashFaults) };
}

function memoryOf(primaries: readonly RedisFacts[]): Finding {
  const result = valuesOf(primaries, ({ memoryMax, memoryPolicy, memoryUsed }) =>
    memoryMax === 0
      ? 'no limit'
      : `at most ${Math.round(memoryMax / 2 ** 20)} MiB, then ${memoryPolicy}; ${Math.round((100 * memoryUsed) / memoryMax)} % used`,
  );
  const faults = (facts: RedisFacts) => [...evictionFaults(facts), ...memoryFaults(facts)];
  return { check: 'memory', found: result, ...faultsOf(primaries, faults) };
}

const diskOf = (primaries: readonly RedisFacts[]): Finding => ({
  check: 'disk',
  found: primaries.some(({ unwritten }) => unwritten.length > 0)
    ? 'Redis failed to write to it'
    : 'the last writes succeeded; Redis does not tell how full it is',
  ...faultsOf(primaries, diskFaults),
});

/** A certificate that ends earlier needs somebody to act. */
const CERTIFICATE_MS_MIN = 14 * 86_400_000;

const endsSoon = (endsMs: number, now: number) => endsMs < now + CERTIFICATE_MS_MIN;

/** Finds certificates of Redis and the Sentinels that end soon. */
export function examineCertificates(certificates: Readonly<CertificateEnds>, now: number): Finding[] {
  const ends = [...certificates].toSorted(([, a], [, b]) => a - b);
  const [next] = ends;
  if (next === undefined) return [];
  const text = ([server, endsMs]: readonly [string, number]) =>
    `${server}: until ${new Date(endsMs).toISOString().slice(0, 16)}Z`;
  const soon = ends.filter(([, endsMs]) => endsSoon(endsMs, now));
  if (soon.length === 0) return [{ check: 'certificates', found: `the next to end: ${text(next)}` }];
  const change = 'replace them, as deploy/alerts.md#keyfencecertificateends says';
  return [{ check: 'certificates', found: someOf(soon.map(text)), change }];
}

const WHILE_AWAY =
  'while a required replica is away, verifiers answer for keys with credits from slices, then with 503; other keys are not affected';

function replicationOf(facts: RedisFacts, config: Config): Finding {
  const { settings, replicas: present } = facts;
  const replicas = config.REDIS_REPLICAS;
  const check = 'replication';
  const result = `${present} replicas; writes wait for ${replicas} (REDIS_REPLICAS)`;
  const isRefused = present < Number(settings.get('min-replicas-to-write') ?? 0);
  const consequence = isRefused
    ? 'every write is refused'
    : 'changes stay pending, and no key can be created,';
  const changes = [
    ...(present < replicas ? [`${consequence} until ${replicas} replicas are connected`] : []),
    ...(present < replicas && !isRefused ? [WHILE_AWAY] : []),
    ...failoverFaults(facts, replicas),
  ];
  if (replicas > 0 && settings.size > 0) {
    const lagS = config.REDIS_MIN_REPLICAS_MAX_LAG_S;
    if (settings.get('min-replicas-to-write') === '0') {
      changes.push('a cut-off primary would continue to accept writes: set `min-replicas-to-write 1`');
    } else if (settings.get('min-replicas-max-lag') !== String(lagS)) {
      const maxLag = settings.get('min-replicas-max-lag');
      changes.push(`set REDIS_MIN_REPLICAS_MAX_LAG_S=${maxLag}, or \`min-replicas-max-lag ${lagS}\``);
    }
  }
  return { check, found: result, ...(changes.length > 0 ? { change: changes.join('; ') } : {}) };
}

/** Checks the setting that decides whether the other shards of a Cluster keep working when one is lost. */
function coverageOf(primaries: readonly RedisFacts[]): Finding {
  const value = valuesOf(primaries, ({ settings }) => settings.get('cluster-require-full-coverage'));
  const result = `cluster-require-full-coverage ${value}`;
  if (value === 'no') return { check: 'shards', found: result };
  const change =
    'the loss of one shard stops the APIs of all: `CONFIG SET cluster-require-full-coverage no` on every node';
  return { check: 'shards', found: result, change };
}

/** Maximum number of APIs and of verifiers that are examined. */
const APIS_MAX = 1000;
const VERIFIERS_MAX = 1000;
const NAMED_MAX = 5;

/** Facts about an API that the settings of verifiers must fit. */
interface ApiFacts {
  readonly apiId: string;
  readonly leaseMs: number;
  /** True if some of the API's keys have a foreign format. */
  readonly foreign: boolean;
  /** Digests besides SHA-256 by which some of these were imported. */
  readonly digests: readonly string[];
  /** The protocol that the API's verifiers must speak. */
  readonly needs: number;
  /** Number of keys that live longer than the API allows, as they were last counted. */
  readonly over: number;
  /** True if the API disables unused keys. */
  readonly disablesUnused: boolean;
}

/**
 * Checks that the verifiers of this Redis fit together, and that the verifier that answered is one of them.
 * @param verifierId id of the verifier that answered; undefined = none did
 */
export async function examineFleet(nodes: RedisNodes, clock: Clock, verifierId?: string): Promise<Finding[]> {
  const { verifiers } = await new FleetView(nodes).list('', VERIFIERS_MAX);
  const apis = await apiFacts(nodes);
  const changes = [
    ...strangerAmong(verifiers, verifierId),
    ...syncFaults(verifiers, apis),
    ...foreignFaults(verifiers, apis),
    ...protocolFaults(verifiers, apis),
    ...lifetimeFaults(apis),
    ...usageFaults(verifiers, apis),
    ...machineFaults(verifiers, clock.wallMs()),
    ...tokenFaults(verifiers, clock.wallMs()),
  ];
  const result = `verifiers that report to this Redis: ${verifiers.length}; APIs examined: ${apis.length}`;
  return [{ check: 'fleet', found: result, ...(changes.length > 0 ? { change: changes.join('; ') } : {}) }];
}

/** Finds webhook endpoints that were disabled because they answered that they are gone. */
export async function examineEndpoints(nodes: RedisNodes): Promise<Finding[]> {
  const texts = await nodes.run(webhookEndpoints, (redis) => redis.hvals(webhookEndpoints));
  const gone = texts.flatMap((text) => /"endpointId":"(\w+)".*"goneAt":\d/.exec(text)?.[1] ?? []);
  if (gone.length === 0) return [];
  return [
    {
      check: 'webhooks',
      found: `${someOf(gone)} answered 410 Gone, was disabled, and gets no events`,
      change: 'correct its URL and enable it, or delete it',
    },
  ];
}

/** Finds control planes whose bootstrap root keys differ. */
export async function examineBootstrapKeys(nodes: RedisNodes): Promise<Finding[]> {
  const announced = await nodes.run(bootstrapAnnouncements, (redis) =>
    redis.zrange(bootstrapAnnouncements, '0', '-1', 'WITHSCORES'),
  );
  const times = announced.filter((_, i) => i % 2 === 1).map(Number);
  const latestMs = Math.max(...times);
  const sets = times.flatMap((time, i) =>
    latestMs - time < BOOTSTRAP_FORGOTTEN_MS ? (announced[2 * i] ?? []) : [],
  );
  if (sets.length < 2) return [];
  return [
    {
      check: 'bootstrap root keys',
      found: `control planes have different ones: ${someOf(sets.map((ids) => ids.replaceAll(',', ' and ')))}`,
      change:
        'a withdrawn root key may still work: give all control planes the same ROOT_KEY_FILE, and restart those that had another',
    },
  ];
}

/** Finds APIs whose history is older than it was, and refused therefore. */
export async function examineHistories(nodes: RedisNodes): Promise<Finding[]> {
  const refused = await refusedHistories(nodes);
  const [first] = refused;
  if (first === undefined) return [];
  const missing = refused.map(({ apiId, sequence, lostSequence }) => {
    const of = apiId === SHARED_LOG ? 'roles and identities' : `the API ${apiId}`;
    const range = lostSequence > sequence ? `${sequence + 1} to ${lostSequence}` : `up to ${lostSequence}`;
    return `changes ${range} of ${of}`;
  });
  return [
    {
      check: 'history',
      found: `Redis is older than it was; it lacks ${someOf(missing)}`,
      change:
        'disabled keys may be enabled again, so verifiers answer 503 for these APIs: make the changes since then again, as `npm run refused-since` lists them, and run `keyfence fleet accept-history`',
    },
  ];
}

async function apiFacts(nodes: RedisNodes): Promise<ApiFacts[]> {
  const apiIds = await nodes.run(apiList, (redis) => redis.zrange(apiList, '0', String(APIS_MAX - 1)));
  const facts = await Promise.all(
    apiIds.map(async (apiId) => {
      const { head } = apiKeys(apiId);
      const [leaseMs, foreign, deleted, needs, longest, over, unused] = await nodes.run(head, (redis) =>
        redis.hmget(head, 'L', 'foreign', 'deleted', 'P', 'longest', 'over', 'unused'),
      );
      if (deleted) return [];
      return [
        {
          ...{ apiId, leaseMs: Number(leaseMs ?? 0), foreign: Boolean(foreign), needs: Number(needs ?? 1) },
          digests: (foreign ?? '').match(/[a-z]\w+/g) ?? [],
          ...{ over: longest ? Number(over ?? 0) : 0, disablesUnused: Boolean(unused) },
        },
      ];
    }),
  );
  return facts.flat();
}

function strangerAmong(verifiers: readonly VerifierStatus[], verifierId: string | undefined): string[] {
  if (verifierId === undefined || verifiers.some(({ id }) => id === verifierId)) return [];
  return [
    `the verifier that was asked (${verifierId}) belongs to another fleet: give it the REDIS_URL of this control plane, or set KEYFENCE_VERIFIER_URL to a verifier of this fleet`,
  ];
}

/**
 * Finds verifiers that SYNC too rarely: each SYNC renews the lease, so with a longer period it expires in
 * between.
 */
function syncFaults(verifiers: readonly VerifierStatus[], apis: readonly ApiFacts[]): string[] {
  const leaseMs = Math.min(...apis.map(({ leaseMs }) => leaseMs).filter((ms) => ms > 0));
  const slow = verifiers.filter(({ settings }) => (settings?.syncPeriodMs ?? 0) >= leaseMs);
  if (slow.length === 0) return [];
  const periods = [...new Set(slow.map(({ settings }) => settings?.syncPeriodMs))].join(', ');
  return [
    `${namesOf(slow)} asks Redis every ${periods} ms but may answer for only ${leaseMs} ms, so callers get 503 in between: set SYNC_PERIOD_MS well below LEASE_MS`,
  ];
}

function foreignFaults(verifiers: readonly VerifierStatus[], apis: readonly ApiFacts[]): string[] {
  return apis
    .filter(({ foreign }) => foreign)
    .flatMap(({ apiId, digests }) => {
      const reporters = verifiers.filter(({ settings }) => settings !== undefined);
      const finds = ({ settings }: VerifierStatus) =>
        settings?.foreignKeys && digests.every((digest) => settings.foreignDigests?.includes(digest));
      const refusing = reporters.filter(
        (each) => !finds(each) && each.apis.some((api) => api.apiId === apiId),
      );
      const keys = `the API ${apiId} has keys of a foreign format`;
      const fix = `set FOREIGN_KEYS=true${digests.length > 0 ? ` and FOREIGN_DIGESTS=${digests}` : ''} there`;
      if (reporters.length > 0 && !reporters.some(finds))
        return [`${keys}, which no verifier accepts: ${fix}`];
      if (refusing.length > 0) return [`${keys}, which ${namesOf(refusing)} does not accept: ${fix}`];
      return [];
    });
}

function protocolFaults(verifiers: readonly VerifierStatus[], apis: readonly ApiFacts[]): string[] {
  const lowest = Math.min(...verifiers.map(({ protocol }) => protocol));
  const closed = apis.filter(({ needs }) => needs > lowest).map(({ apiId }) => apiId);
  if (closed.length === 0) return [];
  const old = verifiers.filter(({ protocol }) => protocol === lowest);
  return [
    `${namesOf(old)} speaks protocol ${lowest}, and finds no keys of ${someOf(closed)}, which need a later one: upgrade it`,
  ];
}

/** Time for which a change by an older control plane is told of. */
const TOKEN_FAULT_MS = 3_600_000;

/** Finds APIs with tokens that a control plane changed which does not wait for tokens. */
function tokenFaults(verifiers: readonly VerifierStatus[], nowMs: number): string[] {
  const isLate = ({ tokensWithheldAt = 0 }: { readonly tokensWithheldAt?: number }) =>
    nowMs - tokensWithheldAt < TOKEN_FAULT_MS;
  const apiIds = verifiers.flatMap(({ apis, sharedLog }) => [
    ...apis.filter(isLate).map(({ apiId }) => apiId),
    ...(sharedLog && isLate(sharedLog) ? ['roles and identities'] : []),
  ]);
  if (apiIds.length === 0) return [];
  return [
    `a control plane of an older release changed ${someOf([...new Set(apiIds)])} within the last hour: it says complete while tokens live, so verifiers issue none for 10 s after each; upgrade all control planes`,
  ];
}

const lifetimeFaults = (apis: readonly ApiFacts[]): string[] =>
  apis
    .filter(({ over }) => over > 0)
    .map(
      ({ apiId, over }) =>
        `${over} keys of the API ${apiId} live longer than its maxLifetimeMs allows, as counted within the last hours: give them an earlier \`expires\``,
    );

/** Time after which a verifier should have reported its usage: twice the greatest USAGE_PERIOD_MS. */
const USAGE_LATE_MS = 7_200_000;

/** Finds verifiers without whose usage no key can be called unused. */
function usageFaults(verifiers: readonly VerifierStatus[], apis: readonly ApiFacts[]): string[] {
  const waiting = apis.filter(({ disablesUnused }) => disablesUnused).map(({ apiId }) => apiId);
  if (waiting.length === 0) return [];
  const rule = `so disableUnusedAfterMs disables no keys of ${someOf(waiting)}`;
  const silent = verifiers.filter(({ usage }) => usage === undefined);
  const late = verifiers.filter(
    ({ usage, reportedAt }) => usage && reportedAt - usage.untilMs > USAGE_LATE_MS,
  );
  const since = Math.min(...late.flatMap(({ usage }) => usage?.untilMs ?? []));
  return [
    ...(silent.length > 0
      ? [`${namesOf(silent)} counts no usage, ${rule}: set USAGE_PERIOD_MS above 0, or upgrade it`]
      : []),
    ...(late.length > 0
      ? [
          `${namesOf(late)} has not reported its usage since ${new Date(since).toISOString()}, ${rule}: see why in its log, or restart it`,
        ]
      : []),
  ];
}

/** Finds verifiers whose clocks are wrong, or whose certificates end soon. */
function machineFaults(verifiers: readonly VerifierStatus[], now: number): string[] {
  const wrong = verifiers.filter(({ clockOffMs = 0 }) => Math.abs(clockOffMs) > CLOCK_OFF_MS_MAX);
  const ending = verifiers.filter(({ certificateEnds }) => certificateEnds && endsSoon(certificateEnds, now));
  const offsS = wrong.map(({ clockOffMs = 0 }) => Math.round(clockOffMs / 1000)).join(', ');
  return [
    ...(wrong.length > 0
      ? [
          `the clock of ${namesOf(wrong)} is ${offsS} s ahead of that of Redis, so keys expire at a wrong time there: let NTP set both`,
        ]
      : []),
    ...(ending.length > 0
      ? [
          `a certificate of ${namesOf(ending)} ends within 14 days: replace its TLS_CERT_FILE or TLS_CLIENT_CA_FILE`,
        ]
      : []),
  ];
}

function namesOf(verifiers: readonly VerifierStatus[]): string {
  return someOf(verifiers.map(({ id, host }) => `${id} on ${host}`));
}

function someOf(names: readonly string[]): string {
  const more = names.length > NAMED_MAX ? ` and ${names.length - NAMED_MAX} more` : '';
  return `${names.slice(0, NAMED_MAX).join(', ')}${more}`;
}
