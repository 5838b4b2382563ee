import { type Clock, pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Admin } from '../client/admin.ts';
import { DeletionBrake } from './deletion-brake.ts';
import { isHeld, release } from './finalizer.ts';
import { Informer } from './informer.ts';
import { KeyInventory, newInstallation, type OwnKey } from './key-inventory.ts';
import { type Kube, KubeError, type KubeObject, type Page, type Resource } from './kube.ts';
import {
  type ApiKey,
  apiIdOf,
  apiKeysIn,
  type ConfigMap,
  configMapsIn,
  FORGET,
  INSTALLATION,
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
import { hinderedBy, Reporter } from './reporter.ts';
import { TakingBack } from './taking-back.ts';
import { WorkQueue } from './work-queue.ts';

const AT_ONCE = 8;
const START_RETRY_MS = 2000;
/** Number of ids in a line of the log. */
const TOLD_MAX = 5;
/** Time after which it is looked whether everything was listed. */
const LISTED_AGAIN_MS = 200;
/** Time after which what no list has is looked for once more, before it is missing, or an object takes back its own. */
const LOOK_MS = 60_000;

export interface OperatorOptions {
  readonly kube: Kube;
  readonly admin: Admin;
  /** Namespaces whose objects count. */
  readonly namespaces: readonly string[];
  readonly relistMs: number;
  /** The operator's own namespace, in which it keeps the name of this installation. */
  readonly home: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly chance: () => number;
  readonly newSecret?: KeyReconcilerOptions['newSecret'];
}

interface Reconcilers {
  readonly keys: KeyReconciler;
  readonly apis: ApiReconciler;
  readonly roles: RecordReconciler<KeyRole>;
  readonly identities: RecordReconciler<KeyIdentity>;
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
  /** Objects that were last seen being deleted, by kind, name and uid. */
  readonly #going = new Map<string, KubeObject>();
  /** Uids that declare something in Keyfence and that no list has → since when. */
  #absentSince = new Map<string, number>();
  /** Keys whose objects are not there, by their APIs; and the number of such roles and identities. */
  readonly #missingKeys = new Map<string, readonly OwnKey[]>();
  readonly #missingRecords = new Map<string, number>();
  #inventory: KeyInventory | undefined;
  /** When everything was first listed. */
  #listedAtMs: number | undefined;
  #reconcilers: Reconcilers | undefined;

  constructor(options: OperatorOptions) {
    this.#options = options;
    const { kube, clock, log, chance } = options;
    this.#reporter = new Reporter(kube, clock);
    this.#queue = new WorkQueue({
      ...{ clock, chance, atOnce: AT_ONCE },
      isUrgent: (name) => this.#isUrgent(name),
      work: (name) => this.#worked(name),
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
    this.#apis = informer(keyApis, (api, before) => {
      this.#add('api', api, before);
      if (before && essenceOf(before) === essenceOf(api)) return;
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

  /** Number of keys, roles and identities that objects declared which are gone without having been deleted. */
  get missing(): number {
    const keys = [...this.#missingKeys.values()].map(({ length }) => length);
    return [...keys, ...this.#missingRecords.values()].reduce((sum, count) => sum + count, 0);
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
    const inventory = new KeyInventory(admin, await this.#installation());
    const reporter = this.#reporter;
    this.#inventory = inventory;
    const takingBack = new TakingBack({
      inventory,
      isListed: () => clock.monotonicMs() - (this.#listedAtMs ?? clock.monotonicMs()) >= LOOK_MS,
      takeFrom: (apiIds) =>
        [...this.#apis.objects.values()]
          .filter((api) => apiIds === undefined || apiIds.includes(apiIdOf(api)))
          .flatMap(({ spec }) => spec.takeFrom ?? []),
    });
    const brake = new DeletionBrake({
      ...{ kube, clock },
      onWaiting: (apiId) => {
        const api = this.#declares(apiId);
        if (api) this.#queue.addLater(nameOf('api', api));
      },
      declares: (apiId) => this.#declares(apiId),
      uids: (apiId) =>
        this.#allKeys()
          .filter(({ spec }) => spec.api === apiId)
          .map(({ metadata }) => metadata.uid),
    });
    const records = <T extends KeyRole | KeyIdentity>(kind: RecordKind<T>) =>
      new RecordReconciler<T>({
        ...{ kind, kube, admin, inventory, reporter, takingBack },
        refusal: (namespace, apiIds) => this.#refusal(namespace, apiIds),
      });
    this.#reconcilers = {
      ...{ roles: records(ROLES), identities: records(IDENTITIES) },
      apis: new ApiReconciler({
        ...{ kube, admin, inventory, reporter, takingBack, brake },
        missing: (apiId) => this.#missingKeys.get(apiId),
        isUsed: (apiId) => this.#isUsed(apiId),
        first: (apiId) => this.#declares(apiId),
      }),
      keys: new KeyReconciler({
        ...{ kube, admin, inventory, reporter, takingBack, brake, clock, ...(newSecret && { newSecret }) },
        allowed: (namespace, apiId) => this.#allowed(namespace, apiId),
        secret: (namespace, name) => this.#secrets.get(namespace)?.get(namespace, name),
      }),
    };
  }

  /** The id of this installation, which a ConfigMap has: it is made once. */
  async #installation(): Promise<string> {
    const { kube, home } = this.#options;
    const read = async () =>
      (await kube.get<ConfigMap>(configMapsIn(home), INSTALLATION))?.data?.['installation'];
    const present = await read();
    if (present) return present;
    const installation = newInstallation();
    try {
      await kube.create(configMapsIn(home), {
        ...{ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: INSTALLATION, namespace: home } },
        data: { installation },
      });
      return installation;
    } catch (error) {
      // Somebody was faster, perhaps an earlier start whose answer was lost.
      const other = error instanceof KubeError && error.status === 409 && (await read());
      if (other) return other;
      throw error;
    }
  }

  /** Tells whether something is to stop: a deletion or a disable does not wait for long. */
  #isUrgent(name: string): boolean {
    const object = this.#objectOf(name);
    return (
      object?.metadata.deletionTimestamp !== undefined ||
      (object as ApiKey | undefined)?.spec['enabled'] === false ||
      [...this.#going.keys()].some((id) => id.startsWith(`${name} `))
    );
  }

  /** Looks at an object, and tells in its condition why Keyfence does not answer, if it does not. */
  async #worked(name: string): Promise<number | undefined> {
    try {
      return await this.#work(name);
    } catch (error) {
      const condition = hinderedBy(error);
      const object = condition && this.#objectOf(name);
      const resource = object && resourceOf(name, object);
      if (condition && object && resource)
        await this.#reporter.report(object, resource, { conditions: [condition] }).catch(() => undefined);
      throw error;
    }
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
    const againMs = await this.#finishGone(name, reconcilers);
    if (againMs !== undefined) return againMs;
    const isGoing = this.#namespaces.get(undefined, namespace)?.metadata.deletionTimestamp !== undefined;
    // Nothing can be made there any more; the objects follow.
    const isOver = ({ metadata }: KubeObject) => isGoing && !metadata.deletionTimestamp;
    if (await this.#isForgotten(name)) return undefined;
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

  /** The object of a name in the queue, as it is now. */
  #objectOf(name: string): KubeObject | undefined {
    const [kind, namespace = '', object = ''] = name.split(' ');
    if (kind === 'api') return this.#apis.get(undefined, object);
    const informers = { key: this.#keys, role: this.#roles, identity: this.#identities }[String(kind)];
    return informers?.get(namespace)?.get(namespace, object);
  }

  /** Takes away what objects of a name declared that were being deleted and are gone: somebody took off the finalizer. */
  async #finishGone(name: string, { keys, roles, identities }: Reconcilers): Promise<number | undefined> {
    const present = this.#objectOf(name)?.metadata.uid;
    for (const [id, object] of this.#going) {
      if (!id.startsWith(`${name} `) || object.metadata.uid === present) continue;
      const againMs = await (name.startsWith('key ')
        ? keys.finish(object as ApiKey)
        : name.startsWith('role ')
          ? roles.finish(object as KeyRole)
          : identities.finish(object as KeyIdentity));
      if (againMs !== undefined) return againMs;
      this.#going.delete(id);
    }
    return undefined;
  }

  /** Lets an object go without a call, if the KeyApi of its API says that Keyfence is gone for good. */
  async #isForgotten(name: string): Promise<boolean> {
    const object = this.#objectOf(name);
    if (!object?.metadata.deletionTimestamp || !isHeld(object.metadata)) return false;
    const { spec } = object as ApiKey | KeyIdentity | KeyRole;
    const apiIds = 'api' in spec ? [spec['api']] : (spec as Partial<KeyIdentity['spec']>).apiIds;
    const apis = [...this.#apis.objects.values()].filter(
      (each) => apiIds === undefined || apiIds.includes(apiIdOf(each)),
    );
    if (apis.length === 0 || !apis.every(({ metadata }) => metadata.annotations?.[FORGET] === 'true'))
      return false;
    const resource = resourceOf(name, object);
    await this.#reporter.tell(object, resource, {
      ...{ type: 'Ready', status: 'False', reason: 'Forgotten' },
      message: `${FORGET} of its KeyApi: nobody asked Keyfence, where what it declared may be accepted still`,
    });
    await release(this.#options.kube, resource, object.metadata);
    return true;
  }

  /** Status is written by the operator itself, mostly; where a user did, that is soon corrected. */
  #add(kind: Kind, object: KubeObject, before: KubeObject | undefined): void {
    const name = nameOf(kind, object);
    if (kind !== 'api' && object.metadata.deletionTimestamp && isHeld(object.metadata))
      this.#going.set(`${name} ${object.metadata.uid}`, object);
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

  /** Tells whether any namespace has objects with keys of an API, also one that is not this operator's. */
  async #isUsed(apiId: string): Promise<boolean> {
    const [{ group = '', plural = '' } = {}] = [...this.#keys.values()].map(({ resource }) => resource);
    for (let next: string | undefined = ''; next !== undefined; ) {
      const page: Page<ApiKey> = await this.#options.kube.list({ group, plural }, next || undefined);
      if (page.items.some(({ spec, metadata }) => spec.api === apiId && isHeld(metadata))) return true;
      next = page.next;
    }
    return false;
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
      const isRecent = (ms: number) => clock.monotonicMs() - ms < LOOK_MS;
      const isNew = [this.#listedAtMs ?? 0, ...this.#absentSince.values()].some(isRecent);
      const againMs = isNew ? Math.min(relistMs, LOOK_MS) : relistMs;
      await pause(clock, isListed ? againMs : LISTED_AGAIN_MS, signal);
    }
  }

  /**
   * Looks at all objects again, and for what Keyfence has of objects that are not there. That stays: an object may be gone for
   * many reasons that nobody wished, such as a cluster or a namespace that was restored.
   */
  async #relist(): Promise<void> {
    const inventory = this.#inventory;
    if (!inventory) return;
    this.#listedAtMs ??= this.#options.clock.monotonicMs();
    const apiIds = new Set([...this.#apis.objects.values()].map(apiIdOf));
    for (const apiId of this.#missingKeys.keys()) if (!apiIds.has(apiId)) this.#missingKeys.delete(apiId);
    const absent = new Map<string, number>();
    for (const api of this.#apis.objects.values())
      await this.#tried({ apiId: apiIdOf(api) }, async () => {
        const apiId = apiIdOf(api);
        inventory.forget(apiId);
        const { missing, isSure } = await this.#missingOf(this.#keys, await inventory.uids(apiId), absent);
        const keys = await Promise.all(missing.map((uid) => inventory.of(apiId, uid)));
        if (isSure) this.#missingKeys.set(apiId, keys.flat());
        this.#queue.add(nameOf('api', api));
      });
    const records = new Map<string, DeclaredRecord>();
    const add = async <T extends KubeObject>(
      kind: RecordKind<T>,
      informers: ReadonlyMap<string, Informer<T>>,
    ) => {
      const uids: string[] = [];
      for (const record of await kind.all(this.#options.admin, inventory.prefix)) {
        const uid = inventory.uidOf(record.managedBy);
        if (uid === undefined) continue;
        uids.push(uid);
        records.set(uid, record);
      }
      const { missing, isSure } = await this.#missingOf(informers, uids, absent);
      if (isSure) this.#missingRecords.set(kind.noun, missing.length);
      if (missing.length > 0)
        this.#options.log.warn(
          { ids: missing.slice(0, TOLD_MAX).map((uid) => records.get(uid)?.id), count: missing.length },
          `objects are gone that declared a ${kind.noun}: it stays`,
        );
    };
    await this.#tried({ kind: ROLES.noun }, () => add(ROLES, this.#roles));
    await this.#tried({ kind: IDENTITIES.noun }, () => add(IDENTITIES, this.#identities));
    this.#absentSince = absent;
    this.#addKeys(() => true);
    // Most are as they were when their status was written.
    this.#addRecords(
      ({ metadata, status }) =>
        records.get(metadata.uid)?.sequence !== status?.sequence ||
        metadata.generation !== status?.observedGeneration,
    );
  }

  /** One API or kind that cannot be read holds up no other. */
  async #tried(about: object, look: () => Promise<void>): Promise<void> {
    try {
      await look();
    } catch (error) {
      this.#options.log.warn({ err: error, ...about }, 'it is looked later whether all keys have objects');
    }
  }

  /**
   * Returns those of these uids that no object of a kind has, in any namespace, and had none a minute ago.
   * @param absent gets all that no object has
   */
  async #missingOf(
    informers: ReadonlyMap<string, Listed<KubeObject>>,
    uids: readonly string[],
    absent: Map<string, number>,
  ): Promise<{ readonly missing: readonly string[]; readonly isSure: boolean }> {
    const { kube, clock } = this.#options;
    const present = new Set(objectsOf(informers).map(({ metadata }) => metadata.uid));
    if (uids.every((uid) => present.has(uid))) return { missing: [], isSure: true };
    // Objects of namespaces that are not, or no longer, this operator's.
    const [{ group = '', plural = '' } = {}] = [...informers.values()].map(({ resource }) => resource);
    for (let next: string | undefined = ''; next !== undefined; ) {
      const page: Page<KubeObject> = await kube.list({ group, plural }, next || undefined);
      for (const { metadata } of page.items) present.add(metadata.uid);
      next = page.next;
    }
    const nowMs = clock.monotonicMs();
    const gone = [...new Set(uids)].filter((uid) => !present.has(uid));
    for (const uid of gone) absent.set(uid, this.#absentSince.get(uid) ?? nowMs);
    const missing = gone.filter((uid) => nowMs - (absent.get(uid) ?? nowMs) >= LOOK_MS);
    return { missing, isSure: missing.length === gone.length };
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

function resourceOf(name: string, { metadata: { namespace = '' } }: KubeObject): Resource {
  if (name.startsWith('api ')) return keyApis;
  if (name.startsWith('key ')) return apiKeysIn(namespace);
  return (name.startsWith('role ') ? ROLES : IDENTITIES).in(namespace);
}

const nameOf = (kind: Kind, { metadata: { namespace = '', name } }: KubeObject): string =>
  `${kind} ${namespace} ${name}`;

/** Tells whether an ApiKey takes its secret from a Secret. */
const names = ({ spec, metadata }: ApiKey, secret: Secret): boolean =>
  spec.secretRefs
    ? spec.secretRefs.some(({ name }) => name === secret.metadata.name)
    : (spec.secretName ?? metadata.name) === secret.metadata.name;
