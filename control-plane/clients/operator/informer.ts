import { backoffMs, type Clock, pause } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { type Kube, KubeError, type KubeObject, type Page, type Resource } from './kube.ts';

const RETRY_FIRST_MS = 500;
const RETRY_MAX_MS = 30_000;
/** A watch that ends sooner does so too often: the next one waits. */
const WATCH_MIN_MS = 1000;

interface InformerOptions<T> {
  readonly kube: Kube;
  readonly resource: Resource;
  readonly clock: Clock;
  readonly log: Logger;
  /** Time after which all objects are listed again, whatever the watch says: it may have ended without a word. */
  readonly relistMs: number;
  readonly chance: () => number;
  /** Called for each object that is new, changed or gone, with what it was before. */
  readonly onChange: (object: T, before: T | undefined) => void;
}

/** Knows all objects of a kind: lists them, then follows their changes. */
export class Informer<T extends KubeObject> {
  readonly #options: InformerOptions<T>;
  readonly #stop = new AbortController();
  #objects = new Map<string, T>();
  /** True once all objects were listed. */
  isReady = false;

  constructor(options: InformerOptions<T>) {
    this.#options = options;
  }

  get resource(): Resource {
    return this.#options.resource;
  }

  get objects(): ReadonlyMap<string, T> {
    return this.#objects;
  }

  get(namespace: string | undefined, name: string): T | undefined {
    return this.#objects.get(nameOf(namespace, name));
  }

  /** Lists and watches until `stop`; never rejects. */
  async run(): Promise<void> {
    const { clock, log, resource, chance } = this.#options;
    const { signal } = this.#stop;
    for (let attempt = 0; !signal.aborted; ) {
      try {
        await this.#follow(await this.#list());
        attempt = 0;
      } catch (error) {
        if (signal.aborted) return;
        const isGone = error instanceof KubeError && error.status === 410;
        log[isGone ? 'debug' : 'warn']({ err: error, kind: resource.plural }, 'listing again');
        await pause(clock, backoffMs(attempt++, RETRY_FIRST_MS, RETRY_MAX_MS, chance), signal);
      }
    }
  }

  stop(): void {
    this.#stop.abort();
  }

  async #list(): Promise<string> {
    const { kube, resource, onChange } = this.#options;
    const objects = new Map<string, T>();
    let resourceVersion = '';
    for (let next: string | undefined = ''; next !== undefined; ) {
      const page: Page<T> = await kube.list<T>(resource, next || undefined);
      for (const object of page.items)
        objects.set(nameOf(object.metadata.namespace, object.metadata.name), object);
      // Changes since the first page are told again.
      resourceVersion ||= page.resourceVersion;
      next = page.next;
    }
    const before = this.#objects;
    this.#objects = objects;
    this.isReady = true;
    for (const [name, object] of objects) {
      const old = before.get(name);
      if (old?.metadata.resourceVersion !== object.metadata.resourceVersion) onChange(object, old);
    }
    for (const [name, object] of before) if (!objects.has(name)) onChange(object, undefined);
    return resourceVersion;
  }

  /** Follows changes until it is time to list again. Rejects if they cannot be followed. */
  async #follow(from: string): Promise<void> {
    const { kube, resource, clock, relistMs, onChange } = this.#options;
    const relist = new AbortController();
    const timer = clock.after(relistMs, () => relist.abort());
    const signal = AbortSignal.any([this.#stop.signal, relist.signal]);
    let at = from;
    try {
      while (!signal.aborted) {
        const beganMs = clock.monotonicMs();
        for await (const { type, object } of kube.watch(resource, at, signal)) {
          if (type === 'ERROR') throw new KubeError(object.code ?? 0, 'the watch was ended with an error');
          at = object.metadata.resourceVersion;
          if (type === 'BOOKMARK') continue;
          const name = nameOf(object.metadata.namespace, object.metadata.name);
          const before = this.#objects.get(name);
          if (type === 'DELETED') this.#objects.delete(name);
          else this.#objects.set(name, object as unknown as T);
          onChange(object as unknown as T, before);
        }
        const restMs = WATCH_MIN_MS - (clock.monotonicMs() - beganMs);
        if (restMs > 0) await pause(clock, restMs, signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      timer.cancel();
    }
  }
}

const nameOf = (namespace: string | undefined, name: string): string => `${namespace ?? ''}/${name}`;
