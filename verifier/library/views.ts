import { ALIASES, KEY_FIELDS } from '#shared/key-record.ts';
import type { Verdict } from '../core/verdict.ts';
import type { KeyVerdict } from './key-verifier.ts';

const { enabled: _enabled, expires: _expires, meta: _meta, ...others } = KEY_FIELDS;
const TEXTS = [
  ...(Object.keys(others) as (keyof typeof others)[]).map((name) => ({ name, label: name })),
  ...Object.entries(ALIASES).map(([label, name]) => ({ name, label })),
];

/** A verdict as applications see it: a copy, with the fields of a verifyKey response. */
export function keyVerdict({ code, entry, remaining }: Verdict): KeyVerdict {
  const view: Record<string, unknown> = { valid: code === 'VALID', code };
  if (entry !== undefined) {
    const { details } = entry;
    view['keyId'] = entry.keyId;
    view['apiId'] = entry.epoch.apiId;
    view['enabled'] = entry.enabled;
    view['meta'] = details === undefined ? {} : JSON.parse(details.meta);
    if (details !== undefined) {
      for (const { name, label } of TEXTS) if (details[name]) view[label] = details[name];
    }
    if (entry.expires !== 0) view['expires'] = entry.expires;
    if (remaining !== undefined) view['remaining'] = remaining;
  }
  return view as object as KeyVerdict;
}
