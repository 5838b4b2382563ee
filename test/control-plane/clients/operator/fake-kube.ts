import {
  type Kube,
  KubeError,
  type KubeObject,
  type Page,
  type Resource,
  type WatchEvent,
} from '../../../../control-plane/clients/operator/kube.ts';

// biome-ignore lint/suspicious/noExplicitAny: objects of every kind
type Any = any;

interface Watcher {
  readonly resource: Resource;
  readonly events: WatchEvent[];
  wake: () => void;
  isDeaf: boolean;
  isOver: boolean;
}

/** The API server of a cluster in memory, which keeps its promises about versions, finalizers, owners and watches. */
export class FakeKube implements Kube {
  readonly #objects = new Map<string, Any>();
  readonly #watchers = new Set<Watcher>();
  #version = 0;
  #uids = 0;
  /** Beginning of new uids, by which those of two clusters differ. */
  uidPrefix = '';
  /** Versions before this one are forgotten: a watch from there is answered with 410. */
  oldest = 0;
  /** The kind and namespace that the operator has no right to list. */
  forbidden = '';
  /** Calls so far, by their kinds. */
  readonly calls: string[] = [];

  constructor() {
    this.put('namespaces', { metadata: { name: 'kube-system' } });
  }

  /** Makes an object, or changes it, as a user does. */
  put(plural: string, object: Any): Any {
    const { namespace = '', name } = object.metadata;
    const path = `${plural} ${namespace} ${name}`;
    const old = this.#objects.get(path);
    const isNewSpec = JSON.stringify(old?.spec) !== JSON.stringify(object.spec);
    const generation = (old?.metadata.generation ?? 0) + (isNewSpec || !old ? 1 : 0);
    const uid =
      old?.metadata.uid ??
      `${this.uidPrefix.padStart(8, '0')}-0000-0000-0000-${String(++this.#uids).padStart(12, '0')}`;
    const metadata = {
      uid,
      creationTimestamp: '2027-01-01',
      ...old?.metadata,
      ...object.metadata,
      generation,
    };
    return this.#store(path, { ...old, ...object, metadata });
  }

  read(plural: string, namespace: string, name: string): Any {
    return this.#objects.get(`${plural} ${namespace} ${name}`);
  }

  all(plural: string): Any[] {
    return [...this.#objects].filter(([path]) => path.startsWith(`${plural} `)).map(([, object]) => object);
  }

  /** Deletes an object, as a user does: one with finalizers waits for them. */
  remove(plural: string, namespace: string, name: string): void {
    const path = `${plural} ${namespace} ${name}`;
    const object = this.#objects.get(path);
    if (!object) return;
    const metadata = { ...object.metadata, deletionTimestamp: '2027-01-02T00:00:00Z' };
    this.#store(path, { ...object, metadata });
  }

  /** Ends all watches, or lets them live on without a word. */
  disturb(how: 'end' | 'deaf'): void {
    for (const watcher of this.#watchers) {
      if (how === 'end') watcher.isOver = true;
      else watcher.isDeaf = true;
      watcher.wake();
    }
  }

  async list<T extends KubeObject>(resource: Resource): Promise<Page<T>> {
    this.calls.push('list');
    if (`${resource.plural} ${resource.namespace}` === this.forbidden)
      throw new KubeError(403, 'is forbidden');
    const items = [...this.#objects].filter(([path, object]) => isOf(resource, path, object));
    return {
      items: structuredClone(items.map(([, object]) => object)),
      resourceVersion: String(this.#version),
    };
  }

  async *watch(resource: Resource, from: string, signal: AbortSignal): AsyncIterable<WatchEvent> {
    this.calls.push('watch');
    if (Number(from) < this.oldest) {
      yield { type: 'ERROR', object: { code: 410 } as Any };
      return;
    }
    const missed = [...this.#objects]
      .filter(
        ([path, object]) =>
          isOf(resource, path, object) && Number(object.metadata.resourceVersion) > Number(from),
      )
      .map(([, object]): WatchEvent => ({ type: 'MODIFIED', object: structuredClone(object) }));
    const watcher: Watcher = {
      resource,
      events: missed,
      wake: () => undefined,
      isDeaf: false,
      isOver: false,
    };
    this.#watchers.add(watcher);
    const onAbort = () => watcher.wake();
    signal.addEventListener('abort', onAbort);
    try {
      while (!signal.aborted && !watcher.isOver) {
        for (let event = watcher.events.shift(); event; event = watcher.events.shift()) yield event;
        if (signal.aborted || watcher.isOver) return;
        await new Promise<void>((resolve) => {
          watcher.wake = resolve;
        });
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
      this.#watchers.delete(watcher);
    }
  }

  async get<T extends KubeObject>(
    { plural, namespace = '' }: Resource,
    name: string,
  ): Promise<T | undefined> {
    this.calls.push('get');
    return structuredClone(this.#objects.get(`${plural} ${namespace} ${name}`));
  }

  async create<T extends KubeObject>({ plural, namespace = '' }: Resource, object: Any): Promise<T> {
    this.calls.push(`create ${plural}`);
    const name = object.metadata.name ?? `${object.metadata.generateName}${++this.#uids}`;
    if (this.#objects.has(`${plural} ${namespace} ${name}`)) throw new KubeError(409, 'exists already');
    return structuredClone(
      this.put(plural, { ...object, metadata: { ...object.metadata, namespace, name } }),
    );
  }

  async patch<T extends KubeObject>(
    { plural, namespace = '' }: Resource,
    name: string,
    patch: Any,
    part?: 'status',
  ): Promise<T | undefined> {
    this.calls.push(`patch ${part ?? plural}`);
    const path = `${plural} ${namespace} ${name}`;
    const object = this.#objects.get(path);
    if (!object) return undefined;
    const { resourceVersion, ...metadata } = patch.metadata ?? {};
    if (resourceVersion !== undefined && resourceVersion !== object.metadata.resourceVersion)
      throw new KubeError(409, 'was changed');
    const after = part
      ? { ...object, status: { ...object.status, ...patch.status } }
      : { ...object, metadata: { ...object.metadata, ...metadata } };
    return structuredClone(this.#store(path, after));
  }

  #store(path: string, object: Any): Any {
    const { deletionTimestamp, finalizers = [], uid } = object.metadata;
    const isGone = deletionTimestamp !== undefined && finalizers.length === 0;
    const stored = { ...object, metadata: { ...object.metadata, resourceVersion: String(++this.#version) } };
    const type = isGone ? 'DELETED' : this.#objects.has(path) ? 'MODIFIED' : 'ADDED';
    if (isGone) this.#objects.delete(path);
    else this.#objects.set(path, stored);
    for (const watcher of this.#watchers) {
      if (watcher.isDeaf || !isOf(watcher.resource, path, stored)) continue;
      watcher.events.push({ type, object: structuredClone(stored) });
      watcher.wake();
    }
    // The garbage collector.
    const owned = [...this.#objects.values()].filter((each) =>
      each.metadata.ownerReferences?.some((owner: Any) => owner.uid === uid),
    );
    if (isGone) for (const { metadata } of owned) this.remove('secrets', metadata.namespace, metadata.name);
    return stored;
  }
}

const isOf = ({ plural, namespace, labelSelector }: Resource, path: string, object: Any): boolean => {
  const [label = '', value] = labelSelector?.split('=') ?? [];
  return (
    path.startsWith(namespace === undefined ? `${plural} ` : `${plural} ${namespace} `) &&
    (labelSelector === undefined || object.metadata.labels?.[label] === value)
  );
};
