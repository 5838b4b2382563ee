import { type Admin, AdminError } from '../client/admin.ts';
import { hold, isHeld, release } from './finalizer.ts';
import type { KeyInventory } from './key-inventory.ts';
import type { Kube, KubeObject } from './kube.ts';
import { ON_DELETE, type Status } from './objects.ts';
import { type DeclaredRecord, orAbsent, type RecordKind } from './record-kinds.ts';
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

const WAIT_MS = 1000;
const PENDING_AGAIN_MS = 500;
/** Time after which an object that its user must mend is looked at again, if emptyFields changes before. */
const UNREADY_AGAIN_MS = 20_000;

type Declaring = KubeObject & { readonly status?: Status };

interface RecordReconcilerOptions<T extends Declaring> {
  readonly kind: RecordKind<T>;
  readonly kube: Kube;
  readonly admin: Admin;
  readonly inventory: KeyInventory;
  readonly reporter: Reporter;
  readonly takingBack: TakingBack;
  /** Tells why a namespace may not declare for these APIs; undefined = it may. */
  readonly refusal: (namespace: string, apiIds: readonly string[] | undefined) => string | undefined;
}

/**
 * Makes Keyfence agree with an object that declares one thing, such as a role. What another set declares, or nobody, is left
 * alone. Each step can be repeated, as in KeyReconciler.
 */
export class RecordReconciler<T extends Declaring> {
  readonly #options: RecordReconcilerOptions<T>;

  constructor(options: RecordReconcilerOptions<T>) {
    this.#options = options;
  }

  /** Resolves with the time after which to look again, if any. Rejects with AdminError or KubeError: then again later. */
  async reconcile(object: T): Promise<number | undefined> {
    const { reporter } = this.#options;
    const { deletionTimestamp } = object.metadata;
    if (deletionTimestamp && !isHeld(object.metadata)) return undefined;
    try {
      return await (deletionTimestamp ? this.#finalize(object) : this.#apply(object));
    } catch (error) {
      const { reason, message } = unreadyOf(error) ?? absentOf(error) ?? {};
      if (reason === undefined || message === undefined) throw error;
      await reporter.report(object, this.#resourceOf(object), {
        conditions: [{ type: 'Ready', status: 'False', reason, message }],
      });
      return UNREADY_AGAIN_MS;
    }
  }

  async #apply(object: T): Promise<number | undefined> {
    const { kind, kube, admin, inventory, reporter, refusal } = this.#options;
    const { namespace = '', generation = 0 } = object.metadata;
    const refused = refusal(namespace, kind.apisOf(object));
    if (refused !== undefined) throw new Unready('ApiNotAllowed', refused);
    const resource = this.#resourceOf(object);
    if (!(await hold(kube, resource, object.metadata))) return undefined;
    if (!object.status?.conditions) await reporter.report(object, resource, { conditions: [WAITING] });
    const managedBy = inventory.managedBy(object.metadata);
    let record = await this.#find(object);
    if (!record) record = await this.#create(object);
    else if (object.status?.observedGeneration !== generation) {
      const change = { ...kind.fieldsOf(object), managedBy, ifSequence: record.sequence, waitMs: WAIT_MS };
      const { propagation } = await kind.update(admin, record.id, change);
      refuseOvertaken(propagation);
      record = { id: record.id, sequence: propagation.sequence };
    }
    const { propagation } = await kind.propagation(admin, record.id, record.sequence);
    await reporter.report(object, resource, {
      ...{ observedGeneration: generation, id: record.id },
      ...{ sequence: propagation.sequence, verifiers: propagation.verifiers },
      conditions: [
        readyOf(propagation, 'Declared', `the ${kind.noun} is there`),
        propagated(propagation),
        driftOf(record.driftedAt === undefined ? [] : [record]),
      ],
    });
    return propagation.state === 'pending' ? PENDING_AGAIN_MS : undefined;
  }

  #find(object: T): Promise<DeclaredRecord | undefined> {
    const { kind, admin, inventory } = this.#options;
    return kind.find(admin, kind.nameOf(object), inventory.managedBy(object.metadata));
  }

  async #create(object: T): Promise<DeclaredRecord> {
    const { kind, admin, inventory } = this.#options;
    const name = kind.nameOf(object);
    const managedBy = inventory.managedBy(object.metadata);
    let conflict = '';
    await kind.create(admin, name, { ...kind.fieldsOf(object), managedBy }).catch((error: unknown) => {
      if (!(error instanceof AdminError && error.code === 'CONFLICT')) throw error;
      conflict = error.message;
    });
    // In a conflict, an earlier look may have made it whose answer was lost.
    const record = (await this.#find(object)) ?? (await this.#takeBack(object));
    if (record) return record;
    throw new Unready('NameTaken', `${conflict}; this object did not make it, so give another name`);
  }

  /** Makes what an earlier object of this name declared this one's. */
  async #takeBack(object: T): Promise<DeclaredRecord | undefined> {
    const { kind, admin, inventory, reporter, takingBack } = this.#options;
    const record = await kind.named(admin, kind.nameOf(object));
    if (!record || !takingBack.may(object, record.managedBy, kind.apisOf(object))) return undefined;
    const managedBy = inventory.managedBy(object.metadata);
    const drifted = record.driftedAt === undefined ? {} : { driftedAt: record.driftedAt };
    const { propagation } = await kind.update(admin, record.id, {
      ...{ managedBy, ifSequence: record.sequence, waitMs: WAIT_MS },
      ...(record.driftedAt === undefined ? kind.fieldsOf(object) : {}),
    });
    await reporter.tell(object, this.#resourceOf(object), {
      ...{ type: 'Ready', status: 'True', reason: 'TakenBack' },
      message: `the ${kind.noun} was of an earlier object of this name, and is this one's now`,
    });
    return { id: record.id, sequence: propagation.sequence, ...drifted };
  }

  /** Lets an object go once no verifier answers by what it declared. */
  async #finalize(object: T): Promise<number | undefined> {
    const { kube, reporter } = this.#options;
    const resource = this.#resourceOf(object);
    const propagation = await this.#letGo(object);
    if (!propagation) return void (await release(kube, resource, object.metadata));
    await reporter.report(object, resource, { conditions: [propagated(propagation)] });
    return PENDING_AGAIN_MS;
  }

  /** Takes away what an object declared that was being deleted and is gone, as where somebody took off the finalizer. */
  async finish(object: T): Promise<number | undefined> {
    return (await this.#letGo(object)) && PENDING_AGAIN_MS;
  }

  /** Deletes or orphans what an object declares; resolves with how far that has come, unless it is everywhere. */
  async #letGo(object: T): Promise<Propagation | undefined> {
    const { kind, admin, inventory } = this.#options;
    const record = await this.#find(object);
    if (record && object.metadata.annotations?.[ON_DELETE] === 'orphan') {
      await kind.update(admin, record.id, { managedBy: null, waitMs: 0 });
    } else if (record) {
      if (record.enabled === false)
        throw new Unready(
          'Disabled',
          `the ${kind.noun} is disabled, and its keys would be accepted again: enable it by a call, or leave it with ${ON_DELETE}: orphan`,
        );
      // First it is emptied, everywhere: a deletion that an earlier look began could not be waited for.
      const managedBy = inventory.managedBy(object.metadata);
      const change = { ...kind.emptyFields, managedBy, waitMs: WAIT_MS };
      const { propagation } = await kind.update(admin, record.id, change);
      if (propagation.state === 'pending') return propagation;
      await orAbsent(kind.delete(admin, record.id));
    }
    return undefined;
  }

  #resourceOf({ metadata: { namespace = '' } }: T) {
    return this.#options.kind.in(namespace);
  }
}

/** Returns what is wrong with an object that names what is not there, such as a role; undefined = it is something else. */
const absentOf = (error: unknown) =>
  error instanceof AdminError && error.code === 'NOT_FOUND'
    ? { reason: 'Refused', message: error.message }
    : undefined;
