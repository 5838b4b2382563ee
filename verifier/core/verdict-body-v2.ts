import { identityIdOf } from '#shared/contract/key-format.ts';
import { perVerdict } from '#shared/contract/verdict-codes.ts';
import { flattenString } from '#shared/lang/flatten-string.ts';
import type { LimitOutcome } from './allowance.ts';
import type { Details } from './key-cache.ts';
import type { Verdict } from './verdict.ts';
import { memoize, showsKey, VERDICT_FIELDS, type VerdictWithKey } from './verdict-fields.ts';

/** Returns the body of a verifyKey response in v2 of the interface. */
export function verdictBodyV2(verdict: Verdict, requestId: string): string {
  const start = `{"meta":{"requestId":"${requestId}"},"data":{${STARTS[verdict.code]}`;
  if (!showsKey(verdict)) return `${start}}}`;
  const { entry, spending } = verdict;
  // A fast path for most keys.
  return entry.details === undefined && entry.expires === 0 && spending === undefined
    ? `${start},"keyId":"${entry.keyId}","enabled":${entry.enabled}}}`
    : `${start}${fieldsJson(verdict)}}}`;
}

/** The beginning of `data` for each code. */
const STARTS = perVerdict(({ status }, code) => flattenString(`"valid":${status === 200},"code":"${code}"`));

const { keyId, enabled, meta, name, permissions, roles, expires, remaining } = VERDICT_FIELDS;

/** Returns the identity for a key's `externalId`, if the shared log has no identity. */
const identityJson = memoize(({ externalId }: Details) =>
  externalId === '' ? '' : JSON.stringify({ id: identityIdOf(externalId), externalId }),
);

/** The fields of `data`, in order. A field has the same form as in v1, unless this table defines another. */
const FIELDS = {
  keyId,
  name,
  meta: {
    ...meta,
    json: ({ entry }: VerdictWithKey) => (entry.details?.meta === '{}' ? '' : (entry.details?.meta ?? '')),
  },
  expires,
  credits: remaining,
  enabled,
  permissions,
  roles,
  identity: {
    schema: { ...VERDICT_FIELDS.identity.schema, required: ['id', 'externalId'] },
    json: (verdict: VerdictWithKey) =>
      VERDICT_FIELDS.identity.json(verdict) ||
      (verdict.entry.details === undefined ? '' : identityJson(verdict.entry.details)),
  },
  ratelimits: {
    ...VERDICT_FIELDS.ratelimits,
    json: (verdict: VerdictWithKey) =>
      verdict.spending?.limits === undefined ? '' : limitsJson(verdict, verdict.spending.limits),
  },
};

function limitsJson(
  { entry, effectivePermissions }: VerdictWithKey,
  limits: readonly LimitOutcome[],
): string {
  let all = '';
  for (const { limit, remaining, reset, exceeded } of limits) {
    const isShared = effectivePermissions?.identity?.limits?.includes(limit) === true;
    const ownerId = isShared ? effectivePermissions?.identity?.id : entry.keyId;
    const id = `"id":"${ownerId}.${limit.name}","autoApply":${limit.isAutoApplied}`;
    all += `${all === '' ? '' : ','}${limit.label}${remaining},"reset":${reset},"exceeded":${exceeded},${id}}`;
  }
  return `[${all}]`;
}

const WRITERS = Object.entries(FIELDS).map(([name, { json }]) => ({
  label: flattenString(`,"${name}":`),
  json,
}));

function fieldsJson(verdict: VerdictWithKey): string {
  let all = '';
  for (const { label, json } of WRITERS) {
    const value = json(verdict);
    if (value !== '') all += label + value;
  }
  return all;
}

const limitSchema = VERDICT_FIELDS.ratelimits.schema.items;
/** The JSON Schemas of the fields in `data`, besides `valid` and `code`. */
export const DATA_SCHEMAS = {
  ...Object.fromEntries(Object.entries(FIELDS).map(([name, { schema }]) => [name, schema])),
  ratelimits: {
    ...VERDICT_FIELDS.ratelimits.schema,
    items: {
      ...limitSchema,
      properties: {
        ...limitSchema.properties,
        id: {
          type: 'string',
          description: "The id of the limit's owner (the key or its identity), and the name of the limit.",
        },
        autoApply: { type: 'boolean', description: 'True if the limit applies to every verification.' },
      },
    },
  },
};
