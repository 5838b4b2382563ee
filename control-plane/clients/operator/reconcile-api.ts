import { type Admin, AdminError } from '../client/admin.ts';
import type { Operations } from '../client/interface.ts';
import type { DeletionBrake } from './deletion-brake.ts';
import { hold, isHeld, release } from './finalizer.ts';
import type { KeyInventory, OwnKey } from './key-inventory.ts';
import type { Kube } from './kube.ts';
import {
  API_SPEC,
  apiIdOf,
  DELETE_ALL,
  definitions,
  FORGET,
  GROUP,
  type KeyApi,
  keyApis,
  ON_DELETE,
} from './objects.ts';
import { orAbsent } from './record-kinds.ts';
import { propagated, type Report, type Reporter, Unready } from './reporter.ts';
import type { TakingBack } from './taking-back.ts';

const WAIT_MS = 1000;
const PENDING_AGAIN_MS = 500;
const IN_USE_AGAIN_MS = 5000;
const UNREADY_AGAIN_MS = 20_000;

interface ApiReconcilerOptions {
  readonly kube: Kube;
  readonly admin: Admin;
  readonly inventory: KeyInventory;
  readonly reporter: Reporter;
  readonly takingBack: TakingBack;
  readonly brake: DeletionBrake;
  /** Tells whether objects that Keyfence has keys of declare keys of an API. */
  readonly isUsed: (apiId: string) => Promise<boolean>;
  /** The keys of an API that objects declared which are not there; undefined = not everything was listed twice yet. */
  readonly missing: (apiId: string) => readonly OwnKey[] | undefined;
  /** The oldest KeyApi of an API, which declares it; the others only wait. */
  readonly first: (apiId: string) => KeyApi | undefined;
}

/** Makes Keyfence agree with a KeyApi. An API that was there before stays as it is, and is never deleted. */
export class ApiReconciler {
  readonly #options: ApiReconcilerOptions;

  constructor(options: ApiReconcilerOptions) {
    this.#options = options;
  }

  async reconcile(object: KeyApi): Promise<number | undefined> {
    const { reporter } = this.#options;
    if (object.metadata.deletionTimestamp) return this.#finalize(object);
    try {
      await this.#apply(object);
    } catch (error) {
      const isRefusal = error instanceof AdminError && error.code === 'BAD_REQUEST';
      if (!(error instanceof Unready) && !isRefusal) throw error;
      const reason = error instanceof Unready ? error.reason : 'Refused';
      const { message } = error;
      await reporter.report(object, keyApis, {
        conditions: [{ type: 'Ready', status: 'False', reason, message }],
      });
      return UNREADY_AGAIN_MS;
    }
    return undefined;
  }

  async #apply(object: KeyApi): Promise<void> {
    const { kube, admin, reporter, inventory, first, missing, takingBack } = this.#options;
    const { metadata, spec } = object;
    const apiId = apiIdOf(object);
    const { name, uid, generation = 0 } = metadata;
    const other = first(apiId);
    if (other && other.metadata.uid !== uid)
      throw new Unready('ApiTaken', `the KeyApi ${other.metadata.name} declares the API ${apiId} already`);
    if (!(await hold(kube, keyApis, metadata))) return;
    const managedBy = inventory.managedBy(object.metadata);
    let present = await orAbsent(admin.apis.getApi({ apiId }));
    if (present && present.managedBy !== managedBy && takingBack.may(object, present.managedBy, [apiId])) {
      await admin.apis.updateApi({ apiId, managedBy, ifSequence: present.sequence });
      present = await admin.apis.getApi({ apiId });
    }
    const fields = Object.fromEntries(API_SPEC.map((field) => [field, spec[field] ?? null]));
    if (!present) {
      const initial = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
      await admin.apis.createApi({ ...initial, apiId, name: spec.name ?? name, managedBy });
    } else if (present.managedBy === managedBy && object.status?.observedGeneration !== generation) {
      const change = { ...fields, apiId, name: spec.name ?? name, managedBy, ifSequence: present.sequence };
      await admin.apis.updateApi(change as Operations['apis.updateApi']['input']);
    }
    const isOurs = !present || present.managedBy === managedBy;
    await reporter.report(object, keyApis, {
      observedGeneration: generation,
      conditions: [
        isOurs
          ? { type: 'Ready', status: 'True', reason: 'Created', message: `the API ${apiId} is as declared` }
          : {
              ...{ type: 'Ready', status: 'True', reason: 'NotManaged' },
              message: `the API ${apiId} was there before: its settings stay, and it outlives this object`,
            },
        missed(missing(apiId)),
        this.#options.brake.condition(apiId),
      ],
    });
  }

  /** Lets a KeyApi go once no ApiKey is left, and no verifier accepts a key of the API that it made. */
  async #finalize(object: KeyApi): Promise<number | undefined> {
    const { kube, admin, inventory, reporter, isUsed } = this.#options;
    const { uid, annotations } = object.metadata;
    if (!isHeld(object.metadata)) return undefined;
    const apiId = apiIdOf(object);
    if (await isUsed(apiId)) {
      const message = `there are ApiKeys of the API ${apiId}; delete them first`;
      await reporter.report(object, keyApis, {
        conditions: [{ type: 'Ready', status: 'False', reason: 'InUse', message }],
      });
      return IN_USE_AGAIN_MS;
    }
    if (annotations?.[FORGET] === 'true') {
      await reporter.tell(object, keyApis, {
        ...{ type: 'Ready', status: 'False', reason: 'Forgotten' },
        message: `${FORGET}: nobody asked Keyfence, where the API ${apiId} may be still`,
      });
      return void (await release(kube, keyApis, object.metadata));
    }
    const present = await orAbsent(admin.apis.getApi({ apiId }));
    const isOurs = present?.managedBy === inventory.managedBy(object.metadata);
    if (annotations?.[ON_DELETE] === 'orphan') {
      if (isOurs) await admin.apis.updateApi({ apiId, managedBy: null });
    } else if (isOurs || !present) {
      const kind = await kube.get(definitions, `keyapis.${GROUP}`);
      if (kind?.metadata.deletionTimestamp) return void (await release(kube, keyApis, object.metadata));
      const { total = 0 } = present ? await admin.apis.listKeys({ apiId, limit: 1 }) : {};
      if (total > 0 && annotations?.[DELETE_ALL] !== String(total)) {
        const message = `the API ${apiId} has ${total} keys that no object declares. To leave them, annotate this with ${ON_DELETE}=orphan; to delete them all, with ${DELETE_ALL}=${total}`;
        await reporter.report(object, keyApis, {
          conditions: [{ type: 'Ready', status: 'False', reason: 'InUse', message }],
        });
        return IN_USE_AGAIN_MS;
      }
      // Of an API that is going, the answer about any key tells how far that has come.
      const { propagation } = present
        ? await admin.apis.deleteApi({ apiId, waitMs: WAIT_MS })
        : await admin.keys.deleteKey({ apiId, keyId: `key_gone${uid.replaceAll('-', '')}`, waitMs: WAIT_MS });
      if (propagation.state === 'pending') {
        await reporter.report(object, keyApis, { conditions: [propagated(propagation)] });
        return PENDING_AGAIN_MS;
      }
    }
    inventory.forget(apiId);
    await release(kube, keyApis, object.metadata);
    return undefined;
  }
}

const TOLD_MAX = 5;

/** Returns whether every key that an object declared has its object still, as a condition. */
function missed(keys: readonly OwnKey[] | undefined): Report['conditions'][number] {
  const type = 'AllKeysHaveObjects';
  if (!keys)
    return { type, status: 'Unknown', reason: 'Waiting', message: 'not everything was listed twice yet' };
  if (keys.length === 0)
    return {
      type,
      status: 'True',
      reason: 'AsDeclared',
      message: 'each key that an object declared has its object',
    };
  const day = (ms: number) => new Date(ms).toISOString().slice(0, 10);
  const texts = keys.slice(0, TOLD_MAX).map(({ keyId, name, createdAt, lastUsedAt }) => {
    const about = [
      ...(name === undefined ? [] : [name]),
      ...(createdAt === undefined ? [] : [`created ${day(createdAt)}`]),
      lastUsedAt === undefined ? 'never used' : `last used ${day(lastUsedAt)}`,
    ];
    return `${keyId} (${about.join(', ')})`;
  });
  const more = keys.length > TOLD_MAX ? `, and ${keys.length - TOLD_MAX} more` : '';
  const message = `${keys.length} keys are accepted whose objects are gone without having been deleted: ${texts.join('; ')}${more}`;
  return { type, status: 'False', reason: 'Missing', message };
}
