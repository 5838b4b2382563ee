import { memoize, NO_META, showsKey, VERDICT_FIELDS, type VerdictWithKey } from '../core/verdict-body.ts';
import type { AuthzOutcome } from '../http/gateway-answer.ts';

/** `google.protobuf.Struct`, in the form of ext-authz.proto. */
export interface Struct {
  readonly fields: Readonly<Record<string, Value>>;
}
type Value =
  | { readonly string_value: string }
  | { readonly number_value: number }
  | { readonly bool_value: boolean }
  | { readonly struct_value: Struct }
  | { readonly list_value: { readonly values: readonly Value[] } };

/** Maximum length of a text of `meta`. */
const TEXT_MAX = 256;

const textValue = (text: string): Value => ({ string_value: text });
const listValue = memoize(
  (list: readonly string[]): Value => ({ list_value: { values: list.map(textValue) } }),
);

/** The fields with one text or a list of texts, under their names in a verdict. */
const FIELDS = ['keyId', 'apiId', 'externalId', 'environment', 'roles', 'permissions'] as const;

/**
 * Returns what Envoy's other filters and its access log can read about an outcome: its code and, if the
 * verdict shows a key, that key, under the same names as in a verdict. A field without a value is left out.
 * @param metaFields names of the fields of `meta` to include
 */
export function dynamicMetadata(
  outcome: AuthzOutcome | { readonly code: string },
  metaFields: readonly string[],
): Struct {
  const code = textValue(outcome.code);
  if (!('entry' in outcome && showsKey(outcome))) return { fields: { code } };
  const fields: Record<string, Value> = { code };
  for (const name of FIELDS) {
    const value = VERDICT_FIELDS[name].value(outcome);
    if (value !== undefined) fields[name] = typeof value === 'string' ? textValue(value) : listValue(value);
  }
  const identityId = outcome.effectivePermissions?.identity?.id;
  if (identityId !== undefined)
    fields['identity'] = { struct_value: { fields: { id: textValue(identityId) } } };
  const meta = metaOf(outcome, metaFields);
  if (Object.keys(meta).length > 0) fields['meta'] = { struct_value: { fields: meta } };
  return { fields };
}

function metaOf(outcome: VerdictWithKey, metaFields: readonly string[]): Record<string, Value> {
  const fields: Record<string, Value> = {};
  const meta = metaFields.length > 0 ? VERDICT_FIELDS.meta.value(outcome) : NO_META;
  for (const name of metaFields) {
    const value = Object.hasOwn(meta, name) ? scalarValue(meta[name]) : undefined;
    if (value !== undefined) fields[name] = value;
  }
  return fields;
}

/** Returns undefined for a value of another kind, and for a text that is too long. */
function scalarValue(value: unknown): Value | undefined {
  if (typeof value === 'string') return value.length > TEXT_MAX ? undefined : textValue(value);
  if (typeof value === 'boolean') return { bool_value: value };
  // JSON can contain 1e999, which is infinite.
  return typeof value === 'number' && Number.isFinite(value) ? { number_value: value } : undefined;
}
