import { hash } from 'node:crypto';
import type { Clock } from '#shared/process/clock.ts';
import { canBeSecret, generateKey, hashSecret, isWellFormed, startOf } from '#shared/rules/key-format.ts';
import { type Admin, AdminError } from '../client/admin.ts';
import { EXACT_TIME_RULE, exactTime } from '../client/exact-time.ts';
import type { Operations } from '../client/interface.ts';
import type { DeletionBrake } from './deletion-brake.ts';
import { hold, isHeld, release } from './finalizer.ts';
import { type KeyInventory, type OwnKey, ownKey } from './key-inventory.ts';
import { type Kube, KubeError } from './kube.ts';
import {
  type ApiKey,
  apiKeysIn,
  DIGEST,
  definitions,
  GROUP,
  KEY_SPEC,
  ON_DELETE,
  SECRET_FIELD,
  SECRET_LABEL,
  type Secret,
  secretsIn,
  VERSION,
} from './objects.ts';
import {
  driftOf,
  type Propagation,
  propagated,
  type Reporter,
  readyOf,
  refuseOvertaken,
  Unready,
  unreadyOf,
  WAITING,
} from './reporter.ts';
import type { TakingBack } from './taking-back.ts';

/** Shortest secret that is imported: a shorter one could be guessed. */
const SECRET_MIN = 24;
const BYTES = 16;
const GRACE_S = 3600;
/** Longest wait for a change within one look at an object, which others wait for. */
const WAIT_MS = 1000;
const PENDING_AGAIN_MS = 500;
/** Time after which an object is looked at again whose deletion waits for a person. */
const WAITING_AGAIN_MS = 5000;
/** Time after which an object that its user must mend is looked at again, if nothing changes before. */
const UNREADY_AGAIN_MS = 20_000;

export interface KeyReconcilerOptions {
  readonly kube: Kube;
  readonly admin: Admin;
  readonly inventory: KeyInventory;
  readonly clock: Clock;
  readonly reporter: Reporter;
  readonly takingBack: TakingBack;
  readonly brake: DeletionBrake;
  /** Tells whether objects of a namespace may declare keys of an API, by the KeyApi that declares it. */
  readonly allowed: (namespace: string, apiId: string) => 'allowed' | 'not allowed' | 'no such API';
  /** The Secret as the watch last told of it; undefined = it knows none. */
  readonly secret: (namespace: string, name: string) => Secret | undefined;
  /** Returns a new secret. Random, so an argument. */
  readonly newSecret?: (byteLength: number, prefix?: string) => string;
}

const CREATED: Propagation = { state: 'complete', sequence: 0, durable: true, verifiers: 0, waitedMs: 0 };

/** Answers about a key that need not be asked for again. */
interface Memory {
  readonly digest?: string;
  /** Its latest change, once that was complete. */
  readonly complete?: Propagation;
}

/**
 * Makes Keyfence and the Secrets agree with an ApiKey. Each step can be repeated, and a step begins only when the one before
 * is stored: a secret is in its Secret before Keyfence learns its digest. So it may end at any point, and the next look goes on.
 */
export class KeyReconciler {
  readonly #options: KeyReconcilerOptions;
  /** By the names of objects, and the ids of their keys. */
  readonly #memories = new Map<string, Map<string, Memory>>();
  /** Keys of objects whose deletion waits that no verifier accepts. */
  readonly #stopped = new Set<string>();

  constructor(options: KeyReconcilerOptions) {
    this.#options = options;
  }

  /** Resolves with the time after which to look again, if any. Rejects with AdminError or KubeError: then again later. */
  async reconcile(object: ApiKey): Promise<number | undefined> {
    const { reporter } = this.#options;
    if (object.metadata.deletionTimestamp) return this.#finalize(object);
    try {
      return await this.#apply(object);
    } catch (error) {
      const unready = unreadyOf(error);
      if (!unready) throw error;
      await reporter.report(object, apiKeysIn(namespaceOf(object)), {
        conditions: [{ type: 'Ready', status: 'False', reason: unready.reason, message: unready.message }],
      });
      return UNREADY_AGAIN_MS;
    }
  }

  /** Forgets an object that is gone. */
  forget(namespace: string, name: string): void {
    this.#memories.delete(nameOf({ namespace, name }));
  }

  async #apply(object: ApiKey): Promise<number | undefined> {
    const { kube, inventory, reporter, clock, allowed } = this.#options;
    const { uid, generation = 0 } = object.metadata;
    const { api: apiId } = object.spec;
    const namespace = namespaceOf(object);
    const permission = allowed(namespace, apiId);
    if (permission !== 'allowed')
      throw new Unready('ApiNotAllowed', notAllowed(permission, namespace, apiId));
    if (!(await hold(kube, apiKeysIn(namespace), object.metadata))) return undefined;
    if (!object.status?.conditions)
      await reporter.report(object, apiKeysIn(namespace), { conditions: [WAITING] });
    const secrets = await this.#secretsOf(object);
    const isNew = object.status?.observedGeneration !== generation;
    const wasRetired = object.status?.retired ?? [];
    const current: OwnKey[] = [];
    for (const secret of secrets) {
      const { key, isCreated } = await this.#import(object, secret);
      const isLate = !isCreated && (isNew || wasRetired.includes(key.keyId));
      // What somebody changed by hand, such as a stop, gives way to a change of spec alone: to no restore, and no Secret.
      const isKept = key.driftedAt !== undefined && !(isNew && object.status?.observedGeneration);
      const isBack = isKept && wasRetired.includes(key.keyId);
      if (isLate && !isKept) current.push(await this.#update(object, key));
      else current.push(isBack ? await this.#unend(object, key) : key);
    }
    const retired = await this.#retire(object, current);
    const propagation = await this.#propagationOf(object, current);
    const own = await inventory.of(apiId, uid);
    const memory = this.#memoryOf(object);
    for (const keyId of memory.keys()) if (!own.some((key) => key.keyId === keyId)) memory.delete(keyId);
    const drifted = own.filter(({ driftedAt }) => driftedAt !== undefined);
    await reporter.report(object, apiKeysIn(namespace), {
      ...{ observedGeneration: generation, keyId: current[0]?.keyId, retired: retired.keyIds },
      ...{ sequence: propagation.sequence, verifiers: propagation.verifiers },
      conditions: [
        readyOf(propagation, 'Imported', 'every verifier knows the key'),
        propagated(propagation),
        driftOf(drifted.map(({ keyId, driftedAt = 0 }) => ({ id: keyId, driftedAt }))),
      ],
    });
    if (propagation.state === 'pending') return PENDING_AGAIN_MS;
    return retired.endsMs === undefined ? undefined : Math.max(0, retired.endsMs - clock.wallMs());
  }

  #memoryOf({ metadata }: ApiKey): Map<string, Memory> {
    const name = nameOf(metadata);
    const memory = this.#memories.get(name) ?? new Map<string, Memory>();
    this.#memories.set(name, memory);
    return memory;
  }

  /** Tells how far the latest changes of keys have come: what is pending before what is complete. */
  async #propagationOf(object: ApiKey, keys: readonly OwnKey[]): Promise<Propagation> {
    const memory = this.#memoryOf(object);
    let latest: Propagation | undefined;
    for (const { keyId, sequence } of keys) {
      const earlier = memory.get(keyId)?.complete;
      const propagation = earlier?.sequence === sequence ? earlier : await this.#ask(keyId, sequence);
      if (propagation.state === 'complete')
        memory.set(keyId, { ...memory.get(keyId), complete: propagation });
      if (latest?.state !== 'pending') latest = propagation;
    }
    if (!latest) throw new Error('a key has no secret');
    return latest;
  }

  async #ask(keyId: string, sequence: number): Promise<Propagation> {
    const { admin } = this.#options;
    // No verifier can have anything else of a key that was never changed.
    if (sequence === 0) return CREATED;
    try {
      return (await admin.keys.getPropagation({ keyId, sequence })).propagation;
    } catch (error) {
      if (!(error instanceof AdminError && error.code === 'CONFLICT')) throw error;
      // The log does not reach back to it. A change of nothing tells of the latest one, however long ago that was.
      return (await admin.keys.updateKey({ keyId })).propagation;
    }
  }

  /** The secrets that the key is to have, the first of which is its name in the status. */
  async #secretsOf(object: ApiKey): Promise<string[]> {
    const { secretRefs, secretName = object.metadata.name } = object.spec;
    const namespace = namespaceOf(object);
    if (!secretRefs) {
      const secret = (await this.#read(namespace, secretName)) ?? (await this.#make(object, secretName));
      const isOwn = secret.metadata.ownerReferences?.some(({ uid }) => uid === object.metadata.uid);
      if (!isOwn && !(await this.#adopt(object, secret)))
        throw new Unready(
          'SecretTaken',
          `the Secret ${secretName} exists already and is not of this ApiKey; name another in secretName, or this one in secretRefs`,
        );
      return [secretIn(secret, SECRET_FIELD)];
    }
    const secrets: string[] = [];
    for (const { name, key = SECRET_FIELD } of secretRefs) {
      const secret = await this.#read(namespace, name);
      if (secret?.metadata.labels?.[SECRET_LABEL] !== 'true')
        throw new Unready(
          'SecretMissing',
          `there is no Secret ${name} with the label ${SECRET_LABEL}=true; create or label it`,
        );
      secrets.push(secretIn(secret, key));
    }
    return [...new Set(secrets)];
  }

  /** Makes a Secret this object's that an operator made for one of its name: Kubernetes would delete it after that one. */
  async #adopt({ metadata: { uid, name } }: ApiKey, { metadata }: Secret): Promise<boolean> {
    const { resourceVersion, annotations = {}, ownerReferences = [], namespace = '' } = metadata;
    const isMade = annotations[DIGEST] !== undefined;
    const isOfName = ownerReferences.every((each) => each.kind === 'ApiKey' && each.name === name);
    if (!isMade || !isOfName) return false;
    const owners = [ownerOf(name, uid)];
    await this.#options.kube.patch(secretsIn(namespace), metadata.name, {
      metadata: { resourceVersion, ownerReferences: owners },
    });
    return true;
  }

  async #read(namespace: string, name: string): Promise<Secret | undefined> {
    const { kube, secret } = this.#options;
    return secret(namespace, name) ?? kube.get<Secret>(secretsIn(namespace), name);
  }

  async #make(object: ApiKey, name: string): Promise<Secret> {
    const { kube, newSecret = generateKey } = this.#options;
    const { prefix, byteLength = BYTES } = object.spec;
    const namespace = namespaceOf(object);
    const secret = newSecret(byteLength, prefix);
    const { uid, name: objectName } = object.metadata;
    const manifest = {
      ...{ apiVersion: 'v1', kind: 'Secret', type: 'Opaque' },
      metadata: {
        ...{ name, namespace, labels: { [SECRET_LABEL]: 'true' } },
        annotations: { [DIGEST]: hash('sha256', secret) },
        ownerReferences: [ownerOf(objectName, uid)],
      },
      data: { [SECRET_FIELD]: Buffer.from(secret).toString('base64') },
    };
    try {
      return await kube.create<Secret>(secretsIn(namespace), manifest);
    } catch (error) {
      // Somebody was faster, perhaps an earlier look whose answer was lost.
      const present =
        error instanceof KubeError &&
        error.status === 409 &&
        (await kube.get<Secret>(secretsIn(namespace), name));
      if (present) return present;
      throw error;
    }
  }

  /** Imports a secret, or finds the key that has it, if it is this object's. */
  async #import(object: ApiKey, secret: string): Promise<{ key: OwnKey; isCreated: boolean }> {
    const { admin, inventory } = this.#options;
    const { uid } = object.metadata;
    const { api: apiId } = object.spec;
    const digest = digestOf(secret);
    const { sha256 } = digest;
    const keys = [
      withoutNulls({ ...fieldsOf(object), ...digest, managedBy: inventory.managedBy(object.metadata) }),
    ];
    const own = await inventory.of(apiId, uid);
    const memory = this.#memoryOf(object);
    const imported = own.find((key) => memory.get(key.keyId)?.digest === sha256);
    if (imported) return { key: imported, isCreated: false };
    const { results } = await admin.keys.importKeys({ apiId, keys }).catch((error: unknown) => {
      inventory.forget(apiId);
      throw error;
    });
    const [result] = results;
    if (!result || result.result === 'refused')
      throw new Unready('Refused', result?.message ?? 'Keyfence gave no result');
    const { keyId } = result;
    const same = own.find((key) => key.keyId === keyId);
    if (same) memory.set(keyId, { ...memory.get(keyId), digest: sha256 });
    if (same) return { key: same, isCreated: false };
    const record = await admin.keys.getKey({ keyId });
    const isOwn = record.managedBy === inventory.managedBy(object.metadata);
    if (!isOwn && !this.#options.takingBack.may(object, record.managedBy, [apiId]))
      throw new Unready('SecretInUse', 'another key has this secret; replace it in the Secret');
    const key = isOwn ? ownKey(record) : await this.#takeBack(object, record);
    await inventory.put(uid, key);
    memory.set(keyId, { digest: sha256 });
    return { key, isCreated: result.result === 'created' };
  }

  /** Makes a key this object's that was one's of its name. Its fields stay, also what was changed by hand. */
  async #takeBack(object: ApiKey, record: OwnKey & { readonly managedBy?: string }): Promise<OwnKey> {
    const { admin, inventory, reporter } = this.#options;
    const { keyId, sequence, driftedAt } = record;
    const managedBy = inventory.managedBy(object.metadata);
    const resource = apiKeysIn(namespaceOf(object));
    if (driftedAt !== undefined) {
      // Before the change, which hides that somebody else changed the key: so no later look puts its spec in place of that.
      const { generation } = object.metadata;
      await reporter.report(object, resource, {
        observedGeneration: generation,
        conditions: [driftOf([{ id: keyId, driftedAt }])],
      });
    }
    await admin.keys.updateKey({ keyId, managedBy, ifSequence: sequence, waitMs: 0 });
    let after = await admin.keys.getKey({ keyId });
    if (driftedAt !== undefined) {
      await admin.keys.updateKey({ keyId, enabled: after.enabled, ifSequence: after.sequence, waitMs: 0 });
      after = await admin.keys.getKey({ keyId });
    }
    const uid = inventory.uidOf(record.managedBy);
    if (uid !== undefined) await inventory.delete(uid, record);
    await reporter.tell(object, resource, {
      ...{ type: 'Ready', status: 'True', reason: 'TakenBack' },
      message: `the key ${keyId} was of an earlier object of this name, and is this one's now`,
    });
    return ownKey(after);
  }

  async #update(object: ApiKey, { keyId, apiId, sequence }: OwnKey): Promise<OwnKey> {
    const { admin, inventory } = this.#options;
    const { uid } = object.metadata;
    const fields = { ...fieldsOf(object), managedBy: inventory.managedBy(object.metadata) };
    const change = { ...fields, keyId, ifSequence: sequence, waitMs: WAIT_MS };
    try {
      const { propagation } = await admin.keys.updateKey(change as Operations['keys.updateKey']['input']);
      refuseOvertaken(propagation);
      const expires = expiresOf(object);
      const key = { keyId, apiId, sequence: propagation.sequence, ...(expires && { expires }) };
      await inventory.put(uid, key);
      return key;
    } catch (error) {
      // Somebody changed it meanwhile: the next look reads it again.
      inventory.forget(apiId);
      throw error;
    }
  }

  /** Gives a key whose secret came back the end of its object, and leaves all else as somebody changed it. */
  async #unend(object: ApiKey, key: OwnKey): Promise<OwnKey> {
    const { admin, inventory } = this.#options;
    const expires = expiresOf(object);
    if (key.expires === expires) return key;
    const { keyId } = key;
    await admin.keys.updateKey({ keyId, expires: expires ?? null, ifSequence: key.sequence, waitMs: 0 });
    const after = ownKey(await admin.keys.getKey({ keyId }));
    await inventory.put(object.metadata.uid, after);
    return after;
  }

  /**
   * Gives keys whose secrets the object has no more an end, and deletes them then. Resolves with those that are left, and the
   * Unix milliseconds of the next end.
   */
  async #retire(
    object: ApiKey,
    current: readonly OwnKey[],
  ): Promise<{ readonly keyIds: readonly string[]; readonly endsMs: number | undefined }> {
    const { admin, inventory, clock } = this.#options;
    const { uid } = object.metadata;
    const { api: apiId, graceSeconds = GRACE_S } = object.spec;
    const managedBy = inventory.managedBy(object.metadata);
    const ids = new Set(current.map(({ keyId }) => keyId));
    const endMs = clock.wallMs() + graceSeconds * 1000;
    const ends = new Map<string, number>();
    for (const old of await inventory.of(apiId, uid)) {
      const { keyId, expires = Number.POSITIVE_INFINITY } = old;
      if (ids.has(keyId)) continue;
      if (graceSeconds === 0 || expires <= clock.wallMs()) {
        const propagation = await this.#delete(object, keyId);
        if (propagation.state === 'complete') await inventory.delete(uid, old);
        else ends.set(keyId, clock.wallMs() + PENDING_AGAIN_MS);
      } else if (expires > endMs) {
        const { propagation } = await admin.keys.updateKey({
          keyId,
          expires: endMs,
          managedBy,
          waitMs: WAIT_MS,
        });
        await inventory.put(uid, { keyId, apiId, expires: endMs, sequence: propagation.sequence });
        ends.set(keyId, endMs);
      } else ends.set(keyId, expires);
    }
    return { keyIds: [...ends.keys()], endsMs: ends.size === 0 ? undefined : Math.min(...ends.values()) };
  }

  /** Lets an object go once no verifier accepts any key of it. */
  async #finalize(object: ApiKey): Promise<number | undefined> {
    if (!isHeld(object.metadata)) return undefined;
    const namespace = namespaceOf(object);
    const pending = await this.#letGo(object).catch((error: unknown) => {
      if (error instanceof Unready) return error;
      // The API is gone with its KeyApi, and all its keys with it.
      const isDeclared = this.#options.allowed(namespace, object.spec.api) !== 'no such API';
      if (isDeclared || !(error instanceof AdminError && error.code === 'NOT_FOUND')) throw error;
      return undefined;
    });
    if (!pending) return void (await release(this.#options.kube, apiKeysIn(namespace), object.metadata));
    if (pending instanceof Unready) {
      const { reason, message } = pending;
      await this.#options.reporter.report(object, apiKeysIn(namespace), {
        conditions: [{ type: 'Ready', status: 'False', reason, message }],
      });
      return WAITING_AGAIN_MS;
    }
    await this.#options.reporter.report(object, apiKeysIn(namespace), { conditions: [propagated(pending)] });
    return PENDING_AGAIN_MS;
  }

  /** Takes away the keys of an object that was being deleted and is gone, as where somebody took off the finalizer. */
  async finish(object: ApiKey): Promise<number | undefined> {
    const keys = await this.#options.inventory.of(object.spec.api, object.metadata.uid);
    if (keys.length === 0) return undefined;
    if (object.metadata.annotations?.[ON_DELETE] === 'orphan') return void (await this.#orphan(object, keys));
    try {
      return (await this.#deleteKeys(object, keys)) && PENDING_AGAIN_MS;
    } catch (error) {
      if (!(error instanceof Unready)) throw error;
      return WAITING_AGAIN_MS;
    }
  }

  /** Deletes or orphans all keys of an object; resolves as `#deleteAll` does. */
  async #letGo(object: ApiKey): Promise<Propagation | undefined> {
    const keys = await this.#options.inventory.of(object.spec.api, object.metadata.uid);
    if (object.metadata.annotations?.[ON_DELETE] !== 'orphan') return this.#deleteAll(object, keys);
    return void (await this.#orphan(object, keys));
  }

  /** Deletes all keys of an object; resolves with how far the latest has come, unless all are deleted everywhere. */
  async #deleteAll(object: ApiKey, keys: readonly OwnKey[]): Promise<Propagation | undefined> {
    const { admin, reporter } = this.#options;
    const { uid } = object.metadata;
    const { api: apiId } = object.spec;
    const own = keys.length > 0 ? keys : await this.#keysOfSecrets(object);
    const [first] = own;
    // So that a later look knows of what it would no longer find. A user may have written the finalizer of an object without.
    if (!object.status?.keyId) {
      if (!first) return undefined;
      await reporter.report(object, apiKeysIn(namespaceOf(object)), { keyId: first.keyId, conditions: [] });
    }
    if (own.length > 0) return this.#deleteKeys(object, own);
    // Perhaps an earlier look deleted them and ended before it knew more. Behind this, all that it did is complete.
    const keyId = `key_gone${uid.replaceAll('-', '')}`;
    const { propagation } = await admin.keys.deleteKey({ keyId, apiId, waitMs: WAIT_MS });
    return propagation.state === 'pending' ? propagation : undefined;
  }

  async #deleteKeys(object: ApiKey, keys: readonly OwnKey[]): Promise<Propagation | undefined> {
    const { inventory, brake } = this.#options;
    const { uid } = object.metadata;
    if (await this.#isKindGoing()) return undefined;
    const refusal = await brake.hold(object);
    if (refusal !== undefined) {
      if (object.spec.enabled === false) await this.#stop(object, keys);
      throw new Unready('TooManyDeleted', refusal);
    }
    let pending: Propagation | undefined;
    for (const key of keys) {
      const propagation = await this.#delete(object, key.keyId);
      this.#stopped.delete(key.keyId);
      if (propagation.state === 'pending') pending = propagation;
      else await inventory.delete(uid, key);
    }
    return pending;
  }

  /** Deletes a key if it still is this object's: the inventory may be minutes old. */
  async #delete(object: ApiKey, keyId: string): Promise<Propagation> {
    const { admin, inventory } = this.#options;
    const { api: apiId } = object.spec;
    const ifManagedBy = inventory.managedBy(object.metadata);
    try {
      return (await admin.keys.deleteKey({ keyId, apiId, ifManagedBy, waitMs: WAIT_MS })).propagation;
    } catch (error) {
      inventory.forget(apiId);
      throw error;
    }
  }

  /** Disables the keys of an object whose deletion waits. */
  async #stop(object: ApiKey, keys: readonly OwnKey[]): Promise<void> {
    const { admin, inventory } = this.#options;
    const managedBy = inventory.managedBy(object.metadata);
    for (const { keyId } of keys) {
      if (this.#stopped.has(keyId)) continue;
      const change = { keyId, enabled: false, managedBy, waitMs: WAIT_MS };
      const { propagation } = await admin.keys.updateKey(change);
      if (propagation.state === 'complete') this.#stopped.add(keyId);
    }
  }

  /** Tells whether all objects go because their kind does: their keys stay, with the names of their objects. */
  async #isKindGoing(): Promise<boolean> {
    const kind = await this.#options.kube.get(definitions, `apikeys.${GROUP}`);
    return kind?.metadata.deletionTimestamp !== undefined;
  }

  /**
   * Finds keys of an object of which Keyfence knows none by its name, by the secrets in its Secrets: its own, imported disabled
   * where there were none. Tells of those that are another's and stay.
   */
  async #keysOfSecrets(object: ApiKey): Promise<OwnKey[]> {
    const { admin, inventory, kube, reporter } = this.#options;
    const { name } = object.metadata;
    const { api: apiId, secretRefs, secretName = name } = object.spec;
    const namespace = namespaceOf(object);
    const own: OwnKey[] = [];
    for (const ref of secretRefs ?? [{ name: secretName }]) {
      const secret = await kube.get<Secret>(secretsIn(namespace), ref.name).catch((error: unknown) => {
        // In a namespace that goes, the right to read is gone first.
        if (error instanceof KubeError && error.status === 403) return undefined;
        throw error;
      });
      const text = Buffer.from(secret?.data?.[ref.key ?? SECRET_FIELD] ?? '', 'base64').toString();
      if (!isUsable(text)) continue;
      const keys = [{ ...digestOf(text), enabled: false, managedBy: inventory.managedBy(object.metadata) }];
      const [result] = (await admin.keys.importKeys({ apiId, keys })).results;
      const record =
        result && 'keyId' in result ? await admin.keys.getKey({ keyId: result.keyId }) : undefined;
      if (record?.managedBy === inventory.managedBy(object.metadata)) own.push(ownKey(record));
      else if (record && this.#isEarlier(object, record.managedBy))
        own.push(await this.#takeBack(object, record));
      else
        await reporter.tell(object, apiKeysIn(namespace), {
          ...{ type: 'Ready', status: 'False', reason: 'KeyStays' },
          message: `the key ${record?.keyId ?? 'of another API'} has the secret of the Secret ${ref.name}, and is not this object's: it stays`,
        });
    }
    return own;
  }

  /** Tells whether what `managedBy` declares is this object's of before. Another installation's is not, without a word. */
  #isEarlier(object: ApiKey, managedBy: string | undefined): boolean {
    try {
      return this.#options.takingBack.may(object, managedBy, [object.spec.api]);
    } catch (error) {
      if (error instanceof Unready && error.reason === 'OtherInstallation') return false;
      throw error;
    }
  }

  /** Leaves the keys as nobody's, and their Secret too. */
  async #orphan(object: ApiKey, keys: readonly OwnKey[]): Promise<void> {
    const { admin, inventory, kube } = this.#options;
    const { uid, name } = object.metadata;
    const { secretRefs, secretName = name } = object.spec;
    const namespace = namespaceOf(object);
    const secret = secretRefs ? undefined : await kube.get<Secret>(secretsIn(namespace), secretName);
    if (secret?.metadata.ownerReferences?.some((each) => each.uid === uid)) {
      const { resourceVersion, ownerReferences } = secret.metadata;
      const others = ownerReferences.filter((each) => each.uid !== uid);
      await kube.patch(secretsIn(namespace), secretName, {
        metadata: { resourceVersion, ownerReferences: others },
      });
    }
    for (const key of keys) {
      await admin.keys.updateKey({ keyId: key.keyId, managedBy: null, waitMs: 0 });
      await inventory.delete(uid, key);
    }
  }
}

const nameOf = ({ namespace, name }: { readonly namespace?: string; readonly name: string }) =>
  `${namespace}/${name}`;

const namespaceOf = ({ metadata }: Pick<ApiKey, 'metadata'>): string => metadata.namespace ?? '';

export const notAllowed = (permission: string, namespace: string, apiId: string): string =>
  permission === 'no such API'
    ? `no KeyApi declares the API ${apiId}; ask whoever administers the cluster for one`
    : `the namespace ${namespace} may not declare for the API ${apiId}: allowedNamespaces of its KeyApi does not match the labels of the namespace`;

const isUsable = (secret: string) => canBeSecret(secret) && secret.length >= SECRET_MIN;

/** Returns how a secret is imported. */
const digestOf = (secret: string) => ({
  ...(isWellFormed(secret) ? { foreign: false, start: startOf(secret) } : { foreign: true }),
  sha256: hashSecret(secret),
});

function secretIn({ data = {}, metadata }: Secret, field: string): string {
  const secret = Buffer.from(data[field] ?? '', 'base64').toString();
  if (isUsable(secret)) return secret;
  throw new Unready(
    'SecretInvalid',
    `${field} of the Secret ${metadata.name}: must have ${SECRET_MIN} to 512 printable ASCII characters without blanks`,
  );
}

function expiresOf({ spec }: ApiKey): number | undefined {
  if (spec.expires === undefined) return undefined;
  const expires = exactTime(spec.expires);
  if (expires === undefined) throw new Unready('Refused', `expires: ${EXACT_TIME_RULE}`);
  return expires;
}

/** All fields of the key; those that the object leaves out are null. */
function fieldsOf(object: ApiKey): Readonly<Record<string, unknown>> {
  const { spec } = object;
  return {
    ...Object.fromEntries(KEY_SPEC.map((name) => [name, spec[name] ?? null])),
    ...{ expires: expiresOf(object) ?? null, enabled: spec.enabled ?? true },
  };
}

const ownerOf = (name: string, uid: string) => ({
  ...{ apiVersion: `${GROUP}/${VERSION}`, kind: 'ApiKey', name, uid, controller: true },
});

const withoutNulls = (fields: object) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
