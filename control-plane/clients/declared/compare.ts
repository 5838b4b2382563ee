import { refillText } from '#shared/protocol/records/credits.ts';
import { KEY_FIELDS, storedFields } from '#shared/protocol/records/key-record.ts';
import { CliError } from '../cli/exit.ts';
import { count } from '../cli/terminal/output.ts';
import type { Declared } from './files.ts';
import { type Kind, rulesOf } from './kinds.ts';
import { type Call, type Present, READERS } from './present.ts';
import { SigningFile } from './secret-files.ts';

/** A difference in one field. */
export interface FieldChange {
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

/** A change that brings a thing to what files declare. */
export interface Change {
  readonly action: 'create' | 'change' | 'delete';
  readonly kind: Kind;
  readonly id: string;
  /** The API of a key. */
  readonly apiId?: string;
  /** The fields to set. */
  readonly input: Readonly<Record<string, unknown>>;
  readonly fields: readonly FieldChange[];
  /** The fields that stop something, and so go before all else. */
  readonly stop?: Readonly<Record<string, unknown>>;
  readonly secret?: Declared['secret'];
  /** True: the answer with the signing secret of a webhook was lost, so that it gets another. */
  readonly isSecretLost?: true;
  /** Absent: it does not exist. */
  readonly ref?: Present['ref'];
  readonly version?: number;
  readonly driftedAt?: number;
}

/** A prune of so many things, and of more than this part of a kind, needs `--force`. */
const PRUNED_MIN = 10;
const PRUNED_PART_MAX = 0.3;

interface Options {
  /** The set of files, which is the `managedBy` of what they declare. */
  readonly set: string;
  readonly prune: boolean;
  readonly force: boolean;
}

/** Returns the changes that bring what is present to what is declared. Throws NO or USAGE; then nothing may be done. */
export function planOf(
  declared: readonly Declared[],
  present: ReadonlyMap<string, Present>,
  options: Options,
): Change[] {
  const faults: string[] = [];
  const changes = declared.flatMap((each) => changeOf(each, present.get(each.id), options.set, faults));
  if (faults.length > 0) throw new CliError('USAGE', faults.join('\n'));
  return options.prune ? [...changes, ...pruned(declared, present, options)] : changes;
}

function changeOf(declared: Declared, present: Present | undefined, set: string, faults: string[]): Change[] {
  const { kind, id, fields, secret, place } = declared;
  const { ids, onlyNew = [] } = rulesOf(kind);
  if (!present) {
    if (kind === 'Key' && !secret)
      faults.push(`${place}: ${id}: secret: required to create the key; give a file, or a sha256`);
    const values = Object.entries(fields).filter(([, value]) => value !== null);
    const rows = values.map(([field, after]) => ({ field, before: undefined, after }));
    const input = { ...Object.fromEntries(values), managedBy: set };
    return [
      {
        action: 'create',
        kind,
        id,
        ...apiOf(kind, fields),
        input,
        fields: rows,
        ...(secret ? { secret } : {}),
      },
    ];
  }
  if (present.managedBy !== undefined && present.managedBy !== set) {
    faults.push(`${place}: ${id} is managed by ${present.managedBy}; remove it there, or here`);
    return [];
  }
  const differing = Object.entries(fields).filter(
    ([field, value]) =>
      (!ids.includes(field) || field === 'name') &&
      !isKept(field, value, present, onlyNew) &&
      differs(kind, field, value, present.fields[field]),
  );
  const adopted = present.managedBy === set ? [] : [{ field: 'managedBy', before: undefined, after: set }];
  const isLost = kind === 'Webhook' && secret?.file !== undefined && new SigningFile(secret.file).isLost;
  const rows = [
    ...differing.map(([field, after]) => ({ field, before: present.fields[field], after })),
    ...adopted,
    ...(isLost ? [{ field: 'secret', before: 'lost', after: 'a new one' }] : []),
  ];
  if (rows.length === 0) return [];
  const { ref, version, driftedAt } = present;
  const input = {
    ...Object.fromEntries(differing.map(([field, value]) => [field, inputOf(field, value, present)])),
    managedBy: set,
  };
  const drift = driftedAt === undefined ? {} : { driftedAt };
  const stop = stopIn(differing, present);
  return [
    {
      ...{ action: 'change', kind, id, ...apiOf(kind, fields), input, fields: rows, ref, version, ...drift },
      ...(Object.keys(stop).length > 0 ? { stop } : {}),
      ...(isLost && secret ? { secret, isSecretLost: true } : {}),
    },
  ];
}

/** Returns the part of a change after which verifiers accept less, and nothing more. */
function stopIn(
  differing: readonly (readonly [string, unknown])[],
  { fields }: Present,
): Record<string, unknown> {
  const textsIn = (value: unknown): readonly string[] => (Array.isArray(value) ? value : []);
  return Object.fromEntries(
    differing.flatMap(([field, value]) => {
      const before = fields[field];
      if (field === 'enabled' && value === false) return [[field, value]];
      if (field === 'expires' && typeof value === 'number' && !(Number(before) <= value))
        return [[field, value]];
      if (field === 'permissions') {
        const kept = textsIn(before).filter((one) => textsIn(value).includes(one));
        return kept.length < textsIn(before).length ? [[field, kept]] : [];
      }
      // A role that takes the place of another comes with it: without either, callers would be refused meanwhile.
      const isFewer = textsIn(value).every((one) => textsIn(before).includes(one));
      return field === 'roles' && isFewer ? [[field, value ?? []]] : [];
    }),
  );
}

const apiOf = (kind: Kind, { apiId }: Readonly<Record<string, unknown>>) =>
  kind === 'Key' || kind === 'Api' ? { apiId: String(apiId) } : {};

/** Credits are spent, so that files only say with how many something begins. */
const isKept = (field: string, value: unknown, present: Present, onlyNew: readonly string[]) =>
  onlyNew.includes(field) &&
  !(field === 'remaining' && (value === null || present.fields['remaining'] === undefined));

/** The same of an identity's credits, which are one field. */
function inputOf(field: string, value: unknown, { fields }: Present): unknown {
  if (field !== 'credits' || value === null || fields['credits'] === undefined) return value;
  const { remaining: _, ...others } = value as Record<string, unknown>;
  return others;
}

/** Tells whether a field would change. Of credits, only what a file mentions counts, and never how many are left. */
function differs(kind: Kind, field: string, value: unknown, before: unknown): boolean {
  const isNone = (one: unknown) => one === '' || one === false;
  if (rulesOf(kind).sameAsNone?.includes(field) && isNone(value))
    return before !== undefined && !isNone(before);
  if (field !== 'credits' || value === null || before === undefined)
    return textOf(field, value) !== textOf(field, before);
  const { remaining: _, ...others } = value as Record<string, unknown>;
  return Object.entries(others).some(([name, of]) => textOf(name, of) !== textOf(name, Object(before)[name]));
}

/** Fields in which the order of a list counts. */
const ORDERED: readonly string[] = ['meta', 'tokenAudiences'];

/** Returns a text that is the same for all ways to write a field's value. `''` = none. */
function textOf(field: string, value: unknown): string {
  if (value === undefined || value === null) return '';
  if (field === 'refill') return refillText(value as Parameters<typeof refillText>[0]);
  const isRecordField = field in KEY_FIELDS && !['roles', 'meta', 'apiIds', 'name'].includes(field);
  if (!isRecordField) return json(value, ORDERED.includes(field));
  try {
    const [text = ''] = Object.values(storedFields({ [field]: value }));
    return /^\[/.test(text) ? json(JSON.parse(text)) : text;
  } catch {
    return json(value); // the server will say what is wrong
  }
}

/** JSON in which the order of fields does not count, nor that of items with a name; in meta, which is of others, all order counts. */
function json(value: unknown, isOfOthers = false): string {
  const text = JSON.stringify(ordered(value, isOfOthers));
  return text === '[]' || text === '{}' || text === undefined ? '' : text;
}

function ordered(value: unknown, isOfOthers: boolean): unknown {
  if (Array.isArray(value)) {
    const items = value.map((item) => ordered(item, isOfOthers));
    const isSet =
      !isOfOthers && items.every((item) => typeof item === 'string' || Object(item).name !== undefined);
    return isSet ? items.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)) : items;
  }
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, of]) => [name, ordered(of, isOfOthers)]),
  );
}

/** Returns the deletions of what the set has and its files no longer declare. Keys of an API that goes, go with it. */
function pruned(
  declared: readonly Declared[],
  present: ReadonlyMap<string, Present>,
  { set, force }: Options,
): Change[] {
  const ids = new Set(declared.map(({ id }) => id));
  const ofSet = [...present.values()].filter(({ managedBy }) => managedBy === set);
  const gone = ofSet.filter(({ id }) => !ids.has(id));
  for (const kind of new Set(gone.map((each) => each.kind))) {
    const many = gone.filter((each) => each.kind === kind).length;
    const of = ofSet.filter((each) => each.kind === kind).length;
    if (!force && many >= PRUNED_MIN && many > of * PRUNED_PART_MAX)
      throw new CliError(
        'NO',
        `prune: would delete ${many} of ${of} of the kind ${kind}; nothing was done; to do it all the same, add --force`,
        { code: 'CONFLICT' },
      );
  }
  const keysIn = (apiId: unknown) => (each: { readonly kind: Kind; readonly fields: Present['fields'] }) =>
    each.kind === 'Key' && each.fields['apiId'] === apiId;
  const apis = gone.filter(({ kind }) => kind === 'Api');
  for (const { id, fields } of apis) {
    const declaredKey = declared.find(keysIn(fields['apiId']));
    if (declaredKey)
      throw new CliError(
        'USAGE',
        `${declaredKey.place}: ${declaredKey.id}: --prune would delete its API; declare ${id}, or take the key out here`,
      );
    const others = Number(fields['keys'] ?? Number.NaN) - gone.filter(keysIn(fields['apiId'])).length;
    if (force || others <= 0) continue;
    const number = Number.isNaN(others)
      ? 'keys that you may not read'
      : `${count(others)} ${others === 1 ? 'key' : 'keys'}`;
    throw new CliError(
      'NO',
      `prune: would delete ${id} with ${number} that ${set} does not declare; nothing was done; to do it all the same, add --force`,
      { code: 'CONFLICT' },
    );
  }
  for (const { fields, id } of gone.filter(({ kind }) => kind === 'Permission')) {
    const role = declared.find(
      (each) =>
        each.kind === 'Role' &&
        ((each.fields['permissions'] ?? []) as readonly unknown[]).includes(fields['slug']),
    );
    if (role)
      throw new CliError(
        'USAGE',
        `${role.place}: ${role.id}: permissions: --prune would delete ${id}, from all roles too; declare it, or take it out here`,
      );
  }
  const goWithIt = new Set(apis.map(({ fields }) => fields['apiId']));
  return gone
    .filter(({ kind, fields }) => kind !== 'Key' || !goWithIt.has(fields['apiId']))
    .map(({ kind, id, fields, ref, version, driftedAt }) => ({
      ...apiOf(kind, fields),
      ...{ action: 'delete', kind, id, ref, version, input: {}, fields: [] },
      ...(driftedAt === undefined ? {} : { driftedAt }),
    }));
}

/**
 * Rejects with USAGE if a thing has a role that would not exist after these changes. A caller who may not read roles learns that
 * from the server.
 */
export async function expectRoles(call: Call, declared: readonly Declared[], changes: readonly Change[]) {
  const ids = new Set(declared.map(({ id }) => id));
  const missing = new Map<string, Declared>();
  for (const each of declared)
    for (const role of (each.fields['roles'] ?? []) as string[])
      if (!ids.has(`Role ${role}`) && !missing.has(role)) missing.set(role, each);
  if (missing.size === 0) return;
  const pruned = new Set(changes.filter(({ action }) => action === 'delete').map(({ id }) => id));
  const roles = await READERS.Role(call, [], undefined, false).catch((error: unknown) => {
    if (error instanceof CliError && error.exit === 'NOT_PERMITTED') return undefined;
    throw error;
  });
  if (!roles) return;
  for (const { name, id } of roles)
    if (!pruned.has(`Role ${name}`)) for (const role of [name, id]) missing.delete(String(role));
  if (missing.size === 0) return;
  const faults = [...missing].map(([role, { id, place }]) => {
    const reason = pruned.has(`Role ${role}`)
      ? `--prune would delete the role ${role}`
      : `there is no role ${role}`;
    return `${place}: ${id}: roles: ${reason}; declare it, or take it out here`;
  });
  throw new CliError('USAGE', faults.join('\n'));
}
