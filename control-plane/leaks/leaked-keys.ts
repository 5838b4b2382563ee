import { hashSecret, isWellFormed } from '#shared/contract/key-format.ts';
import type { KeyView } from '../keys/key-view.ts';
import type { Keys } from '../keys/keys.ts';
import type { BootstrapKeys } from '../root-keys/bootstrap-keys.ts';
import type { RootKeys } from '../root-keys/root-keys.ts';
import { cutOut, type ReportedSecret } from './report.ts';

/** A key or root key whose secret was reported. */
export type LeakedKey = { readonly at: ReportedSecret } & (
  | { readonly kind: 'key'; readonly apiId: string; readonly keyId: string; readonly enabled: boolean }
  | { readonly kind: 'root_key'; readonly rootKeyId: string; readonly enabled: boolean }
  | { readonly kind: 'bootstrap'; readonly rootKeyId: string }
);

interface LookUps {
  readonly bootstrapKeys: BootstrapKeys;
  readonly keys: Pick<Keys, 'lookUp'>;
  readonly rootKeys: Pick<RootKeys, 'lookUp'>;
  readonly view: Pick<KeyView, 'get'>;
}

/** Look-ups of one report that run at the same time. */
const AT_ONCE = 50;

/**
 * Returns the keys and root keys that the secrets of a report belong to. Made-up secrets fail their checksum
 * without a look-up, as at a verifier; any other unknown secret costs one look-up.
 */
export async function lookUpLeaked(
  reported: readonly ReportedSecret[],
  services: LookUps,
): Promise<LeakedKey[]> {
  const unique = [...new Map(reported.map((at) => [at.secret, at])).values()];
  const leaked: LeakedKey[] = [];
  for (let i = 0; i < unique.length; i += AT_ONCE) {
    const part = unique.slice(i, i + AT_ONCE).map((at) => lookUp(at, services));
    leaked.push(...(await Promise.all(part)).filter((each) => each !== undefined));
  }
  // Root keys of the configuration have no form by which a URL could be searched for them.
  const bootstrap = leaked.filter(({ kind }) => kind === 'bootstrap').map(({ at }) => at.secret);
  return leaked.map((each) => ({ ...each, at: { ...each.at, url: cutOut(each.at.url, bootstrap) } }));
}

async function lookUp(at: ReportedSecret, services: LookUps): Promise<LeakedKey | undefined> {
  const { bootstrapKeys, keys, rootKeys, view } = services;
  const secretHash = hashSecret(at.secret);
  const bootstrapId = bootstrapKeys.idOf(secretHash);
  if (bootstrapId !== undefined) return { kind: 'bootstrap', at, rootKeyId: bootstrapId };
  if (!isWellFormed(at.secret)) return undefined;
  const rootKey = await rootKeys.lookUp(at.secret);
  if (rootKey) return { kind: 'root_key', at, rootKeyId: rootKey.rootKeyId, enabled: rootKey.enabled };
  const place = await keys.lookUp(secretHash);
  // A deleted key may still be pointed to.
  const key = place && (await view.get(place.apiId, place.keyId));
  return key && { kind: 'key', at, apiId: key.apiId, keyId: key.keyId, enabled: key.enabled !== false };
}
