import { TEXT_FIELDS } from '#shared/key-record.ts';
import type { Identity } from '../core/grants.ts';
import type { Details } from '../core/key-cache.ts';
import { isEnabled, spendingFields, type Verdict } from '../core/verdict.ts';
import type { KeyVerdict } from './key-verifier.ts';

/** Details as verdicts show them. */
interface Shown {
  readonly meta: object;
  readonly texts: Readonly<Record<string, string>> | undefined;
}

/** Details that were read; a change replaces them by others. */
const read = new WeakMap<Details, Shown>();
const NO_META: object = Object.freeze({});

/** A verdict as applications see it: an object of its own, with the fields of a verifyKey response. Its meta is frozen. */
export function keyVerdict({ code, entry, spending, grants }: Verdict): KeyVerdict {
  const valid = code === 'VALID';
  if (entry === undefined) return { valid, code } as KeyVerdict;
  const { keyId, expires, details, epoch } = entry;
  const enabled = isEnabled(entry, grants);
  const { apiId } = epoch;
  // Written out, since most keys are so, and V8 makes nothing quicker.
  if (details === undefined && expires === 0 && spending === undefined)
    return { valid, code, keyId, apiId, enabled, meta: NO_META } as KeyVerdict;
  const { meta, texts } = details === undefined ? { meta: NO_META, texts: undefined } : shown(details);
  return {
    valid,
    code,
    keyId,
    apiId,
    enabled,
    meta,
    ...texts,
    ...rightsShown(grants ?? entry.rights),
    ...(grants && grants.roles.length > 0 ? { roles: grants.roles } : {}),
    ...(grants?.identity ? { identity: identityShown(grants.identity) } : {}),
    ...(expires === 0 ? {} : { expires }),
    ...(spending === undefined ? {} : spendingFields(spending)),
  } as KeyVerdict;
}

const rightsShown = (rights: { readonly slugs: readonly string[] } | undefined) =>
  rights && rights.slugs.length > 0 ? { permissions: rights.slugs } : {};

/** Identities that were read; a change replaces them by others. */
const readIdentities = new WeakMap<Identity, object>();

function identityShown(identity: Identity): object {
  const known = readIdentities.get(identity) ?? frozen(JSON.parse(identity.json));
  readIdentities.set(identity, known);
  return known;
}

function shown(details: Details): Shown {
  const known = read.get(details);
  if (known !== undefined) return known;
  const texts: Record<string, string> = {};
  for (const { name, label } of TEXT_FIELDS) if (details[name]) texts[label] = details[name];
  const made = { meta: frozen(JSON.parse(details.meta)), texts };
  read.set(details, made);
  return made;
}

/** Freezes what JSON.parse made, to its depth. */
function frozen<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  for (const part of Object.values(value)) frozen(part);
  return Object.freeze(value);
}
