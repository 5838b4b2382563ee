import { type Clock, pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Admin } from '../client/admin.ts';
import { Informer } from './informer.ts';
import { KeyInventory } from './key-inventory.ts';
import { type Kube, KubeError, type KubeObject, type Page } from './kube.ts';
import {
  type ApiKey,
  apiIdOf,
  apiKeysIn,
  FINALIZER,
  type KeyApi,
  type KeyIdentity,
  type KeyRole,
  keyApis,
  namespaces,
  SECRET_LABEL,
  type Secret,
  secretsIn,
} from './objects.ts';
import { ApiReconciler } from './reconcile-api.ts';
import { KeyReconciler, type KeyReconcilerOptions, notAllowed } from './reconcile-key.ts';
import { RecordReconciler } from './reconcile-record.ts';
import { type DeclaredRecord, IDENTITIES, type RecordKind, ROLES } from './record-kinds.ts';
import { Reporter } from './reporter.ts';
import { WorkQueue } from './work-queue.ts';

const AT_ONCE = 8;
const START_RETRY_MS = 2000;
/** Time after which it is looked whether everything was listed. */
const LISTED_AGAIN_MS = 200;
/** Of the objects with keys, the share that may be gone at once without doubt. */
const GONE_SHARE_MAX = 0.3;
const GONE_MIN = 10;

export interface OperatorOptions {
  readonly kube: Kube;
  readonly admin: Admin;
  /** Namespaces whose objects count. */
  readonly namespaces: readonly string[];
  readonly relistMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly chance: () => number;
  readonly newSecret?: KeyReconcilerOptions['newSecret'];
}

/** Makes Keyfence agree with the objects of a cluster, until it is stopped. */
export class Operator {
  readonly #options: OperatorOptions;
  readonly #stop = new AbortController();
  readonly #queue: WorkQueue;
  readonly #apis: Informer<KeyApi>;
  readonly #namespaces: Informer<KubeObject>;
  readonly #keys = new Map<string, Informer<ApiKey>>();
  readonly #roles = new Map<string, Informer<KeyRole>>();
  readonly #identities = new Map<string, Informer<KeyIdentity>>();
  readonly #secrets = new Map<string, Informer<Secret>>();
  readonly #reporter: Reporter;
  #inventory: KeyInventory | undefined;
  #reconcilers:
    | {
        readonly keys: KeyReconciler;
        readonly apis: ApiReconciler;
        readonly roles: RecordReconciler<KeyRole>;
        readonly identities: RecordReconciler<KeyIdentity>;
      }
    | undefined;

  constructor(options: OperatorOptions) {
    this.#options = options;
    const { kube, clock, log, chance } = options;
    this.#reporter = new Reporter(kube, clock);
    this.#queue = new WorkQueue({
      ...{ clock, chance, atOnce: AT_ONCE },
      work: (name) => this.#work(name),
      onError: (name, error) => {
        const { status } = error as { status?: number };
        log[status === 409 ? 'debug' : 'warn']({ err: error, object: name }, 'again later');
      },
    });
    const informer = <T extends KubeObject>(
      resource: ConstructorParameters<typeof Informer<T>>[0]['resource'],
      onChange: (object: T, before: T | undefined) => void,
    ) =>
      new Informer<T>({
        ...{ kube, clock, log, chance, resource },
        relistMs: options.relistMs,
        onChange,
      });
    this.#apis = informer(keyApis, (api) => {
      this.#queue.add(nameOf('api', api));
      this.#addKeys(({ spec }) => spec.api === apiIdOf(api));
      this.#addRecords(() => true);
    });
    this.#namespaces = informer(namespaces, ({ metadata: { name } }) => {
      this.#addKeys(({ metadata }) => metadata.namespace === name);
      this.#addRecords(({ metadata }) => metadata.namespace === name);
    });
    for (const namespace of options.namespaces) {
      this.#keys.set(
        namespace,
        informer(apiKeysIn(namespace), (key, before) => this.#add('key', key, before)),
      );
      this.#roles.set(
        namespace,
        informer(ROLES.in(namespace), (role, before) => {
          this.#add('role', role, before);
          if (before?.status?.observedGeneration !== undefined || !role.status?.observedGeneration) return;
          // Others that name it were refused, perhaps.
          const hasRole = ({ spec }: ApiKey | KeyIdentity) =>
            (spec['roles'] as readonly string[] | undefined)?.includes(ROLES.nameOf(role)) === true;
          this.#addKeys(hasRole);
          this.#addRecords((object) => 'apiIds' in object.spec && hasRole(object as KeyIdentity));
        }),
      );
      this.#identities.set(
        namespace,
        informer(IDENTITIES.in(namespace), (identity, before) => this.#add('identity', identity, before)),
      );
      const labelled = { ...secretsIn(namespace), labelSelector: `${SECRET_LABEL}=true` };
      this.#secrets.set(
        namespace,
        informer(labelled, (secret) =>
          this.#addKeys((key) => key.metadata.namespace === namespace && names(key, secret)),
        ),
      );
    }
  }

  /** True once all objects were listed. Secrets do not count: one namespace that is going must not hold up the others. */
  get isReady(): boolean {
    const objects = [this.#apis, this.#namespaces, ...this.#declaring];
    return this.#reconcilers !== undefined && objects.every(({ isReady }) => isReady);
  }

  /** Number of objects that wait to be looked at. */
  get waiting(): number {
    return this.#queue.length;
  }

  get #informers() {
    return [this.#apis, this.#namespaces, ...this.#declaring, ...this.#secrets.values()];
  }

  get #declaring() {
    return [...this.#keys.values(), ...this.#roles.values(), ...this.#identities.values()];
  }

  /** Runs until `stop`; never rejects. */
  async run(): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted && !this.#reconcilers) {
      try {
        await this.#begin();
      } catch (error) {
        log.warn({ err: error }, 'the operator waits for Kubernetes');
        await pause(clock, START_RETRY_MS, signal);
      }
    }
    if (signal.aborted) return;
    await Promise.all([...this.#informers.map((informer) => informer.run()), this.#relists()]);
  }

  stop(): void {
    this.#stop.abort();
    this.#queue.stop();
    for (const informer of this.#informers) informer.stop();
  }

  async #begin(): Promise<void> {
    const { kube, admin, clock, newSecret } = this.#options;
    // The one name of a cluster that no other has, and that nobody can give it.
    const system = await kube.get<KubeObject>(namespaces, 'kube-system');
    if (!system) throw new KubeError(404, 'there is no namespace kube-system');
    const inventory = new KeyInventory(admin, system.metadata.uid);
    const reporter = this.#reporter;
    this.#inventory = inventory;
    const records = <T extends KeyRole | KeyIdentity>(kind: RecordKind<T>) =>
      new RecordReconciler<T>({
        ...{ kind, kube, admin, inventory, reporter },
        refusal: (namespace, apiIds) => this.#refusal(namespace, apiIds),
      });
    this.#reconcilers = {
      ...{ roles: records(ROLES), identities: records(IDENTITIES) },
      apis: new ApiReconciler({
        ...{ kube, admin, inventory, reporter },
        isUsed: (apiId) =>
          this.#allKeys().some(
            ({ spec, metadata }) => spec.api === apiId && metadata.finalizers?.includes(FINALIZER) === true,
          ),
        first: (apiId) => this.#declares(apiId),
      }),
      keys: new KeyReconciler({
        ...{ kube, admin, inventory, reporter, clock, ...(newSecret && { newSecret }) },
        allowed: (namespace, apiId) => this.#allowed(namespace, apiId),
        secret: (namespace, name) => this.#secrets.get(namespace)?.get(namespace, name),
      }),
    };
  }

  /** Looks at an object, as it is now. */
  async #work(name: string): Promise<number | undefined> {
    const reconcilers = this.#reconcilers;
    if (!reconcilers || !this.isReady) return LISTED_AGAIN_MS;
    const [kind, namespace = '', object = ''] = name.split(' ');
    if (kind === 'api') {
      const api = this.#apis.get(undefined, object);
      return api && reconcilers.apis.reconcile(api);
    }
    const isGoing = this.#namespaces.get(undefined, namespace)?.metadata.deletionTimestamp !== undefined;
    // Nothing can be made there any more; the objects follow.
    const isOver = ({ metadata }: KubeObject) => isGoing && !metadata.deletionTimestamp;
    if (kind === 'role') {
      const role = this.#roles.get(namespace)?.get(namespace, object);
      return role && !isOver(role) ? reconcilers.roles.reconcile(role) : undefined;
    }
    if (kind === 'identity') {
      const identity = this.#identities.get(namespace)?.get(namespace, object);
      return identity && !isOver(identity) ? reconcilers.identities.reconcile(identity) : undefined;
    }
    const key = this.#keys.get(namespace)?.get(namespace, object);
    if (!key) reconcilers.keys.forget(namespace, object);
    if (!key || isOver(key)) return undefined;
    const isListed = this.#secrets.get(namespace)?.isReady === true;
    return isListed || key.metadata.deletionTimestamp ? reconcilers.keys.reconcile(key) : LISTED_AGAIN_MS;
  }

  /** Status is written by the operator itself, mostly; where a user did, that is soon corrected. */
  #add(kind: Kind, object: KubeObject, before: KubeObject | undefined): void {
    const name = nameOf(kind, object);
    if (before && essenceOf(before) === essenceOf(object)) this.#queue.addLater(name);
    else this.#queue.add(name);
  }

  #allKeys(): ApiKey[] {
    return objectsOf(this.#keys);
  }

  #addRecords(isMeant: (object: KeyRole | KeyIdentity) => boolean): void {
    for (const role of objectsOf(this.#roles)) if (isMeant(role)) this.#queue.add(nameOf('role', role));
    for (const identity of objectsOf(this.#identities))
      if (isMeant(identity)) this.#queue.add(nameOf('identity', identity));
  }

  #addKeys(isMeant: (key: ApiKey) => boolean): void {
    for (const key of this.#allKeys()) if (isMeant(key)) this.#queue.add(nameOf('key', key));
  }

  /** The oldest KeyApi of an API. */
  #declares(apiId: string): KeyApi | undefined {
    const age = ({ metadata }: KeyApi) =>
      `${(metadata as { creationTimestamp?: string }).creationTimestamp} ${metadata.uid}`;
    const all = [...this.#apis.objects.values()].filter((api) => apiIdOf(api) === apiId);
    return all.sort((a, b) => (age(a) < age(b) ? -1 : 1))[0];
  }

  #allowed(namespace: string, apiId: string): 'allowed' | 'not allowed' | 'no such API' {
    const api = this.#declares(apiId);
    if (!api) return 'no such API';
    const labels = this.#namespaces.get(undefined, namespace)?.metadata.labels ?? {};
    const required = Object.entries(api.spec.allowedNamespaces?.matchLabels ?? {});
    // Without labels, none: nobody means all namespaces by leaving something out.
    const isMatch = required.length > 0 && required.every(([label, value]) => labels[label] === value);
    return isMatch ? 'allowed' : 'not allowed';
  }

  #refusal(namespace: string, apiIds: readonly string[] | undefined): string | undefined {
    if (apiIds) {
      const refused = apiIds.find((apiId) => this.#allowed(namespace, apiId) !== 'allowed');
      return refused && notAllowed(this.#allowed(namespace, refused), namespace, refused);
    }
    const all = [...this.#apis.objects.values()].map(apiIdOf);
    if (all.some((apiId) => this.#allowed(namespace, apiId) === 'allowed')) return undefined;
    return `no KeyApi admits the namespace ${namespace}: allowedNamespaces of one must match its labels`;
  }

  async #relists(): Promise<void> {
    const { clock, relistMs } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const isListed = this.isReady;
      if (isListed) await this.#relist();
      await pause(clock, isListed ? relistMs : LISTED_AGAIN_MS, signal);
    }
  }

  /** Deletes what objects declared that are gone, as where somebody took off the finalizer. Reads all of this cluster again, and looks at all objects. */
  async #relist(): Promise<void> {
    const { log } = this.#options;
    const inventory = this.#inventory;
    if (!inventory) return;
    try {
      for (const api of this.#apis.objects.values()) {
        const apiId = apiIdOf(api);
        inventory.forget(apiId);
        const gone = await this.#gone(this.#keys, await inventory.uids(apiId), { apiId });
        for (const uid of gone) await this.#deleteKeys(inventory, apiId, uid);
      }
      const records = new Map([
        ...(await this.#deleteRecords(inventory, ROLES, this.#roles)),
        ...(await this.#deleteRecords(inventory, IDENTITIES, this.#identities)),
      ]);
      this.#addKeys(() => true);
      // Most are as they were when their status was written.
      this.#addRecords(
        ({ metadata, status }) =>
          records.get(metadata.uid)?.sequence !== status?.sequence ||
          metadata.generation !== status?.observedGeneration,
      );
    } catch (error) {
      log.warn({ err: error }, 'what objects declared that are gone is looked for again later');
    }
  }

  /** Returns those of these uids that no object of a kind has, in any namespace; none if these are too many. */
  async #gone(
    of: ReadonlyMap<string, Listed<KubeObject>>,
    uids: readonly string[],
    about: object,
  ): Promise<readonly string[]> {
    const { kube, log } = this.#options;
    const present = new Set(objectsOf(of).map(({ metadata }) => metadata.uid));
    if (uids.every((uid) => present.has(uid))) return [];
    // Objects of namespaces that are not, or no longer, this operator's stay.
    const [{ group = '', plural = '' } = {}] = [...of.values()].map(({ resource }) => resource);
    for (let next: string | undefined = ''; next !== undefined; ) {
      const page: Page<KubeObject> = await kube.list({ group, plural }, next || undefined);
      for (const { metadata } of page.items) present.add(metadata.uid);
      next = page.next;
    }
    const gone = uids.filter((uid) => !present.has(uid));
    if (gone.length < GONE_MIN || gone.length <= GONE_SHARE_MAX * uids.length) return gone;
    const text = 'too many objects are gone at once: what they declared stays; delete it by hand';
    log.error({ ...about, count: gone.length }, text);
    return [];
  }

  async #deleteKeys(inventory: KeyInventory, apiId: string, uid: string): Promise<void> {
    const { admin, log } = this.#options;
    for (const key of await inventory.of(apiId, uid)) {
      // It may have come meanwhile.
      if (this.#allKeys().some(({ metadata }) => metadata.uid === uid)) return;
      log.warn({ keyId: key.keyId, apiId }, 'the object of a key is gone: the key is deleted');
      await admin.keys.deleteKey({ keyId: key.keyId, apiId, waitMs: 0 });
      await inventory.delete(uid, key);
    }
  }

  /** Resolves with all that objects declare, by their uids. */
  async #deleteRecords<T extends KubeObject>(
    inventory: KeyInventory,
    kind: RecordKind<T>,
    informers: ReadonlyMap<string, Informer<T>>,
  ): Promise<ReadonlyMap<string, DeclaredRecord>> {
    const { admin, log } = this.#options;
    const records = new Map<string, DeclaredRecord>();
    for (const record of await kind.all(admin)) {
      const uid = inventory.uidOf(record.managedBy);
      if (uid !== undefined) records.set(uid, record);
    }
    for (const uid of await this.#gone(informers, [...records.keys()], { kind: kind.noun })) {
      const { id = '' } = records.get(uid) ?? {};
      log.warn({ id }, `the object of this ${kind.noun} is gone: the ${kind.noun} is deleted`);
      // A disabled identity stays.
      await kind.delete(admin, id).catch((error: unknown) => {
        log.warn({ err: error, id }, `the ${kind.noun} could not be deleted`);
      });
    }
    return records;
  }
}

type Listed<T extends KubeObject> = Pick<Informer<T>, 'objects' | 'resource'>;

const objectsOf = <T extends KubeObject>(informers: ReadonlyMap<string, Listed<T>>): T[] =>
  [...informers.values()].flatMap((informer) => [...informer.objects.values()]);

/** All of an object that the operator acts on. */
const essenceOf = ({
  metadata: { uid, generation, deletionTimestamp, finalizers, annotations },
}: KubeObject) => JSON.stringify([uid, generation, deletionTimestamp, finalizers, annotations]);

type Kind = 'api' | 'key' | 'role' | 'identity';

const nameOf = (kind: Kind, { metadata: { namespace = '', name } }: KubeObject): string =>
  `${kind} ${namespace} ${name}`;

/** Tells whether an ApiKey takes its secret from a Secret. */
const names = ({ spec, metadata }: ApiKey, secret: Secret): boolean =>
  spec.secretRefs
    ? spec.secretRefs.some(({ name }) => name === secret.metadata.name)
    : (spec.secretName ?? metadata.name) === secret.metadata.name;
