// After a restore: `npm run --silent refused-since -- 2026-11-21T08:00:00Z < control-planes.log` lists what
// narrowed access after that time, according to the audit lines in the logs of all control planes, in any order.
// It prints one call per line, to be made again: `<operation> <body>`. It leaves out disables and expiries that were
// certainly reverted since. A line that begins with # names something that a person must decide. What stands before the
// JSON of a line, such as journalctl's time and host, does not matter. On standard error it says what it read, and it
// ends with status 1 if that cannot be all: an empty list would let in what was refused.
import { createInterface } from 'node:readline';
import { scriptArguments, wrongArguments } from './dev/arguments.ts';

type Fields = Readonly<Record<string, unknown>>;

/** The fields of a log line that matter here. */
interface Audit {
  /** When the call arrived, Unix milliseconds. */
  readonly time: number;
  readonly operation: string;
  readonly outcome: string;
  readonly on: Readonly<Record<string, string | undefined>>;
  readonly before?: Fields;
  readonly after?: Fields;
  /** Sequence of the change in its API's log, which orders the writes. */
  readonly sequence?: number;
}

/** OK was done; the others may have been done, and refusing again is harmless. */
const OUTCOMES = new Set(['OK', 'SERVICE_UNAVAILABLE', 'INTERNAL_SERVER_ERROR']);
/**
 * Calls arrive before they are written, and clocks differ: calls that arrived this long before a backup may
 * be missing from it.
 */
const EARLIER_MS = 300_000;

/** A kind of thing, and the calls that narrow what it may do. */
interface Kind {
  /** The field of an event's `on` with its id. */
  readonly id: string;
  /** The call that changes it. */
  readonly change: string;
  readonly end: string;
  /** Fields that are set again to their last value, with the calls that do. */
  readonly fields: Readonly<Record<string, string>>;
}

const kind = (id: string, change: string, end: string, ...fields: readonly string[]): Kind => ({
  ...{ id, change, end },
  fields: Object.fromEntries(fields.map((field) => [field, change])),
});
/** Roles come first, because others name them, and permissions last, because their end takes them from all roles. */
const KINDS: readonly Kind[] = [
  {
    ...kind('roleId', '', 'permissions.deleteRole'),
    fields: {
      permissions: 'permissions.setRolePermissions',
      ratelimits: 'permissions.setRoleLimits',
      concurrency: 'permissions.setRoleLimits',
    },
  },
  kind(
    ...(['identityId', 'identities.updateIdentity', 'identities.deleteIdentity'] as const),
    ...['apiIds', 'ratelimits', 'concurrency', 'roles'],
  ),
  kind(
    ...(['keyId', 'keys.updateKey', 'keys.deleteKey'] as const),
    ...[
      'externalId',
      'permissions',
      'allowedIps',
      'allowedOrigins',
      'ratelimit',
      'ratelimits',
      'concurrency',
    ],
    'roles',
  ),
  kind('rootKeyId', 'rootKeys.updateRootKey', 'rootKeys.deleteRootKey'),
  kind('endpointId', 'webhooks.updateEndpoint', 'webhooks.deleteEndpoint'),
  kind('permissionId', '', 'permissions.deletePermission'),
  kind(
    ...(['apiId', 'apis.updateApi', 'apis.deleteApi'] as const),
    ...['defaultLifetimeMs', 'maxLifetimeMs', 'disableUnusedAfterMs'],
  ),
];
/** Calls after which nobody may do less, or which concern only what a restore removes anyway. */
const NARROWS_NOTHING = new Set([
  ...['keys.createKey', 'keys.importKeys', 'keys.migrateKeys', 'rootKeys.createRootKey', 'apis.createApi'],
  ...[
    'permissions.createPermission',
    'webhooks.createEndpoint',
    'webhooks.rotateSecret',
    'webhooks.redeliver',
    ...['fleet.acceptHistory', 'rules.refuseHistory', 'rules.disableEndpoint'],
  ],
]);

/** Roles that were created in this time, id → name, and the ids of those that were deleted. */
interface RoleChanges {
  readonly created: ReadonlyMap<string, unknown>;
  readonly deleted: ReadonlySet<string>;
}

/** How far a log reaches. */
export interface LogReach {
  lines: number;
  audits: number;
  /** Unix milliseconds of the first and the last audited call. */
  first: number;
  last: number;
}
export const nothingRead = (): LogReach => ({ lines: 0, audits: 0, first: Infinity, last: -Infinity });

/**
 * Returns the calls that narrow access again as it was at the end of the log.
 * @param since Unix milliseconds; the backup has what was written well before
 * @param reach is told of each line
 */
export async function refusedSince(
  lines: AsyncIterable<string>,
  since: number,
  reach = nothingRead(),
): Promise<string[]> {
  /** The calls about each thing, by its kind and id. */
  const things = new Map(KINDS.map(({ id }) => [id, new Map<string, Audit[]>()]));
  const overrides = new Map<string, Audit[]>();
  const others: string[] = [];
  for await (const text of lines) {
    reach.lines += 1;
    const audit = parse(text);
    if (audit === 'cut') others.push(`# this line is cut: see what it changed: ${text.slice(0, 1000)}`);
    if (!audit || audit === 'cut') continue;
    reach.audits += 1;
    reach.first = Math.min(reach.first, audit.time);
    reach.last = Math.max(reach.last, audit.time);
    if (audit.time < since - EARLIER_MS || !OUTCOMES.has(audit.outcome)) continue;
    const { operation, on, after } = audit;
    const isSumOfKeys = /\.(update|delete)Keys$/.test(operation) && on['keyId'] === undefined;
    if (NARROWS_NOTHING.has(operation) || isSumOfKeys) continue;
    const { id } = KINDS.find((each) => on[each.id] !== undefined) ?? {};
    const group = things.get(id ?? '');
    if (operation === 'rootKeys.endSession')
      others.push(lineOf(operation, { sessionId: after?.['sessionId'] }));
    else if (operation.startsWith('ratelimit.')) gather(overrides, overrideOf(audit), audit);
    else if (group && id) gather(group, on[id] ?? '', audit);
    else others.push(`# ${operation} at ${timeOf(audit)}: see what it changed`);
  }
  const roles = roleChanges([...(things.get('roleId')?.values() ?? [])].flat());
  const again = KINDS.flatMap((each) =>
    [...(things.get(each.id)?.values() ?? [])].flatMap((calls) => callsAgain(each, calls, roles)),
  );
  const last = [...overrides.values()].flatMap((calls) => lastOf(calls, (call) => call));
  return [
    ...again,
    ...last.map(({ operation, before, after }) => lineOf(operation, after ?? before ?? {})),
    ...new Set(others),
  ];
}

function gather(groups: Map<string, Audit[]>, id: string, call: Audit): void {
  const calls = groups.get(id);
  if (calls) calls.push(call);
  else groups.set(id, [call]);
}

const lineOf = (operation: string, body: Fields) => `${operation} ${JSON.stringify(body)}`;
const timeOf = ({ time }: Audit) => new Date(time).toISOString();
const overrideOf = ({ before, after }: Audit) =>
  JSON.stringify([(after ?? before)?.['namespace'], (after ?? before)?.['identifier']]);

function roleChanges(calls: readonly Audit[]): RoleChanges {
  const ofKind = (test: (call: Audit) => boolean) =>
    calls.filter(test).map((call) => [idOf(call), call] as const);
  const idOf = ({ on }: Audit) => on['roleId'] ?? '';
  return {
    created: new Map(ofKind(isCreation).map(([id, { after }]) => [id, after?.['name']])),
    deleted: new Set(ofKind(isDelete).map(([id]) => id)),
  };
}

const isDelete = ({ operation }: Audit) => /\.delete[A-Z]/.test(operation);
const isCreation = ({ operation }: Audit) => /\.create[A-Z]/.test(operation);

/** Returns the calls about one thing; none if every refusal was reverted. */
function callsAgain({ id, change, end, fields }: Kind, all: readonly Audit[], roles: RoleChanges): string[] {
  const subject = { [id]: all[0]?.on[id] };
  const isOver = all.some((call) => isDelete(call) && !isTakenBack(call, all, isCreation));
  if (isOver) return [lineOf(end, subject)];
  // An identity may be made again under its id.
  const calls = all.filter((call) => !isDelete(call) && !isTakenBack(call, all, isDelete));
  const deletion = all.some(isDelete) ? [lineOf(end, subject)] : [];
  const bodies = new Map<string, Fields>([[change, refusalsOf(calls)]]);
  const unclear: string[] = [];
  for (const [field, operation] of Object.entries(fields)) {
    const values = lastOf(calls, (call) => valueIn(call, field));
    if (values.length === 0) continue;
    const isSure = values.length === 1;
    // The call is refused if one of the roles is gone: the other fields must not be refused with it.
    const name = field === 'roles' ? `${operation} roles` : operation;
    if (isSure || GRANTS.has(field))
      bodies.set(name, {
        ...bodies.get(name),
        [field]: shown(field, isSure ? values[0] : common(values), roles),
      });
    else
      for (const value of values)
        unclear.push(`# one of these was last: ${lineOf(operation, { ...subject, [field]: value })}`);
  }
  const lines = [
    ...[...bodies].flatMap(([name, body]) =>
      Object.keys(body).length > 0 ? [lineOf(name.split(' ')[0] ?? '', { ...subject, ...body })] : [],
    ),
    ...creditsAgain(id, subject, calls),
    ...unclear,
    ...calls
      .filter(({ outcome, after }) => outcome !== 'OK' && after === undefined)
      .map(
        (call) =>
          `# ${lineOf(call.operation, subject)} at ${timeOf(call)}: it may have been done; see what it was to change`,
      ),
  ];
  const creation = calls.find(isCreation);
  if (!creation || lines.length === 0) return [...deletion, ...lines];
  // It is refused with CONFLICT if the backup has the thing. A role that is created again has another id.
  const { name, enabled } = creation.after ?? {};
  const isRole = id === 'roleId';
  const made = isRole
    ? { name, ...Object.assign({}, ...bodies.values()) }
    : { externalId: creation.on['externalId'], ...(enabled === false ? { enabled } : {}) };
  return [...deletion, lineOf(creation.operation, made), ...lines];
}

/** Lists of what is granted: of several values that may be the last, what all have is granted for sure. */
const GRANTS = new Set(['permissions', 'roles']);
const common = (values: readonly unknown[]): unknown =>
  (values as (readonly string[] | null)[]).reduce((all, each) =>
    (all ?? []).filter((one) => each?.includes(one)),
  );
/** Lists that calls clear with `[]`, not with null. */
const LISTS = new Set([...GRANTS, 'ratelimits', 'concurrency']);

/** Returns the value that a call gave to a field. A new thing has no field that is null. */
function valueIn(call: Audit, field: string): unknown {
  const value = call.after?.[field];
  return value === null && isCreation(call) ? undefined : value;
}

/** Returns a value as requests have it. */
function shown(field: string, value: unknown, { created, deleted }: RoleChanges): unknown {
  if (field !== 'roles') return value ?? (LISTS.has(field) ? [] : null);
  return ((value ?? []) as readonly string[])
    .filter((id) => !deleted.has(id))
    .map((id) => (created.has(id) ? { name: created.get(id) } : { id }));
}

/** Returns what calls read of a thing last: more than one value if it is not certain which was. */
function lastOf<T>(calls: readonly Audit[], read: (call: Audit) => T | undefined): T[] {
  const found = calls.filter((call) => read(call) !== undefined);
  const last = found.filter((call) => !isTakenBack(call, found, () => true));
  // A call that wrote something and then failed is recorded twice.
  return [...new Map(last.map((call) => [JSON.stringify(read(call)), read(call) as T])).values()];
}

/** Returns the fields that refuse a thing again. */
function refusalsOf(calls: readonly Audit[]): Fields {
  const isOff = calls.some(
    (call) =>
      call.after?.['enabled'] === false &&
      !isTakenBack(call, calls, ({ after }) => after?.['enabled'] === true),
  );
  const expiries = calls.flatMap((call) => {
    const expires = call.after?.['expires'];
    if (typeof expires !== 'number') return [];
    const isLater = ({ after }: Audit) => after?.['expires'] === null || Number(after?.['expires']) > expires;
    return isTakenBack(call, calls, isLater) ? [] : [expires];
  });
  return {
    ...(isOff ? { enabled: false } : {}),
    ...(expiries.length > 0 ? { expires: Math.min(...expiries) } : {}),
  };
}

/** Returns the calls that change credits again, from the last that set them on; what was spent is in no log. */
function creditsAgain(id: string, subject: Fields, calls: readonly Audit[]): string[] {
  const [update, change] =
    id === 'keyId'
      ? ['keys.updateRemaining', 'keys.updateKey']
      : ['identities.updateCredits', 'identities.updateIdentity'];
  const found = calls
    .filter(({ after }) => after?.['credits'] !== undefined)
    .toSorted((a, b) => (a.sequence ?? 0) - (b.sequence ?? 0) || a.time - b.time);
  const changes = found
    .filter(({ sequence }, i) => sequence === undefined || sequence !== found[i - 1]?.sequence)
    .map(({ after }) => after?.['credits'] as { readonly op: string; readonly value?: number });
  const from = changes.findLastIndex(({ op }) => op === 'set' || op === 'none');
  return changes.slice(Math.max(0, from)).map(({ op, value, ...plan }) => {
    if (op === 'refill') return `# ${lineOf(change, { ...subject, ...plan })}: set these again`;
    return lineOf(update, { ...subject, op: op === 'none' ? 'set' : op, value: value ?? null });
  });
}

/**
 * Tells whether another call that `allows` accepts was certainly done, and certainly later. Two concurrent
 * calls are ordered only by their sequences; if sequence and time disagree, as after a failover, the refusal
 * stands.
 */
function isTakenBack(refusal: Audit, calls: readonly Audit[], allows: (call: Audit) => boolean): boolean {
  return calls.some((call) => {
    if (call.outcome !== 'OK' || !allows(call) || call.time < refusal.time) return false;
    if (call.sequence === undefined || refusal.sequence === undefined) return call.time > refusal.time;
    return call.sequence > refusal.sequence;
  });
}

/** Returns the call that a line audits, wherever its JSON begins: journalctl and kubectl write times and hosts before it. */
function parse(text: string): Audit | 'cut' | undefined {
  const start = text.indexOf('{');
  if (start < 0) return undefined;
  try {
    const { audit } = JSON.parse(text.slice(start)) as { audit?: Audit };
    return typeof audit?.time === 'number' ? audit : undefined;
  } catch {
    return text.includes('"audit":{') ? 'cut' : undefined;
  }
}

/** Returns why a log cannot have all that was refused since; undefined if it may. */
export function lacks({ audits, first }: LogReach, since: number): string | undefined {
  if (audits === 0)
    return 'No line audits a call: give the logs of all control planes, as JSON lines (journalctl -o cat).';
  if (first >= since)
    return 'No audited call is older than the backup: give logs from further back, or disable what may have been disabled before these begin.';
  return undefined;
}

if (import.meta.main) {
  const usage = 'usage: npm run --silent refused-since -- 2026-11-21T08:00:00Z < control-planes.log';
  const [text = ''] = scriptArguments(usage, { allowPositionals: true }).positionals;
  const since = Date.parse(text);
  if (Number.isNaN(since)) wrongArguments('Say since when, in ISO 8601.', usage);
  const reach = nothingRead();
  for (const call of await refusedSince(createInterface({ input: process.stdin }), since, reach))
    console.log(call);
  const { lines, audits, first, last } = reach;
  const times =
    audits > 0 ? `, from ${new Date(first).toISOString()} to ${new Date(last).toISOString()}` : '';
  console.error(`read ${lines} lines, of which ${audits} audit calls${times}`);
  const reason = lacks(reach, since);
  if (reason) {
    console.error(`This list is not complete. ${reason}`);
    process.exitCode = 1;
  }
}
