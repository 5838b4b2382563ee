import { readFileSync } from 'node:fs';
import { Agent, type Dispatcher, request } from 'undici';

/** The metadata of an object in Kubernetes, as far as the operator reads it. */
export interface Metadata {
  readonly name: string;
  readonly namespace?: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation?: number;
  readonly deletionTimestamp?: string;
  readonly finalizers?: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly ownerReferences?: readonly {
    readonly uid: string;
    readonly kind?: string;
    readonly name?: string;
  }[];
}

/** An object in Kubernetes. */
export interface KubeObject {
  readonly metadata: Metadata;
}

/** A kind of objects: in all namespaces, in one, or outside of namespaces. */
export interface Resource {
  /** Path of its group and version, such as `apis/keyfence.io/v1alpha1`. */
  readonly group: string;
  readonly plural: string;
  readonly namespace?: string;
  /** Only objects with these labels. */
  readonly labelSelector?: string;
}

/** A change of an object, as a watch tells of it. */
export interface WatchEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  readonly object: KubeObject & { readonly code?: number };
}

/** One page of a listing. */
export interface Page<T> {
  readonly items: readonly T[];
  readonly resourceVersion: string;
  readonly next?: string;
}

/** The refusal of a call by the API server; status 0 = it did not answer. */
export class KubeError extends Error {
  override readonly name = 'KubeError';
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Calls of Kubernetes' API. All reject with KubeError. */
export interface Kube {
  list<T extends KubeObject>(resource: Resource, next?: string): Promise<Page<T>>;
  /** Tells of changes after `resourceVersion`, until the server ends that or `signal` does. */
  watch(resource: Resource, resourceVersion: string, signal: AbortSignal): AsyncIterable<WatchEvent>;
  /** Resolves with undefined if there is no such object. */
  get<T extends KubeObject>(resource: Resource, name: string): Promise<T | undefined>;
  create<T extends KubeObject>(resource: Resource, object: object): Promise<T>;
  /**
   * Merges a patch into an object, or into its status. With `metadata.resourceVersion` in it, rejects with 409 if the object
   * was changed since. Resolves with undefined if there is no such object.
   */
  patch<T extends KubeObject>(
    resource: Resource,
    name: string,
    patch: object,
    part?: 'status',
  ): Promise<T | undefined>;
}

interface KubeClientOptions {
  readonly url: string;
  /** The file with the token, which the kubelet replaces before it expires. */
  readonly tokenFile: string;
  readonly caFile: string;
}

const PAGE_SIZE = 500;
/** Longest answer to anything but a watch. */
const TIMEOUT_MS = 30_000;
/** Time after which the server ends a watch. */
const WATCH_S = 240;
/** Time after that in which a watch that the server should have ended counts as dead. */
const OVERDUE_MS = 30_000;
/** Longest line of a watch: etcd stores objects of up to 1.5 MiB. */
const LINE_MAX = 4 * 1024 * 1024;

/** Kubernetes' API over HTTPS, as a pod reaches it. */
export class KubeClient implements Kube {
  readonly #options: KubeClientOptions;
  readonly #agent: Agent;

  constructor(options: KubeClientOptions) {
    this.#options = options;
    this.#agent = new Agent({ connect: { ca: readFileSync(options.caFile) }, bodyTimeout: 0 });
  }

  async list<T extends KubeObject>(resource: Resource, next?: string): Promise<Page<T>> {
    const { labelSelector } = resource;
    const query = { limit: PAGE_SIZE, continue: next, labelSelector };
    const { items, metadata } = (await this.#call('GET', pathOf(resource), { query })) as {
      items: T[];
      metadata: { resourceVersion: string; continue?: string };
    };
    const { resourceVersion, continue: more } = metadata;
    for (const { metadata: each } of items) forgetFields(each);
    return { items, resourceVersion, ...(more ? { next: more } : {}) };
  }

  async *watch(resource: Resource, resourceVersion: string, signal: AbortSignal): AsyncIterable<WatchEvent> {
    const { labelSelector } = resource;
    const query = { watch: 1, allowWatchBookmarks: 'true', timeoutSeconds: WATCH_S, labelSelector };
    const limit = AbortSignal.any([signal, AbortSignal.timeout(WATCH_S * 1000 + OVERDUE_MS)]);
    const { statusCode, body } = await this.#send('GET', pathOf(resource), {
      ...{ query: { ...query, resourceVersion }, signal: limit },
    });
    if (statusCode !== 200) throw await refusal(statusCode, body);
    let rest = '';
    body.setEncoding('utf8');
    for await (const chunk of body) {
      const lines = (rest + String(chunk)).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > LINE_MAX) throw new KubeError(0, 'an event of a watch is too long');
      for (const line of lines) {
        if (line === '') continue;
        const event = JSON.parse(line) as WatchEvent;
        // An error has none.
        if (event.object.metadata) forgetFields(event.object.metadata);
        yield event;
      }
    }
  }

  async get<T extends KubeObject>(resource: Resource, name: string): Promise<T | undefined> {
    return this.#orAbsent(this.#call('GET', `${pathOf(resource)}/${encodeURIComponent(name)}`));
  }

  async create<T extends KubeObject>(resource: Resource, object: object): Promise<T> {
    return (await this.#call('POST', pathOf(resource), { body: object })) as T;
  }

  async patch<T extends KubeObject>(
    resource: Resource,
    name: string,
    patch: object,
    part?: 'status',
  ): Promise<T | undefined> {
    const path = [pathOf(resource), encodeURIComponent(name), ...(part ? [part] : [])].join('/');
    return this.#orAbsent(this.#call('PATCH', path, { body: patch }));
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  async #orAbsent<T>(call: Promise<unknown>): Promise<T | undefined> {
    try {
      return (await call) as T;
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return undefined;
      throw error;
    }
  }

  async #call(
    method: Dispatcher.HttpMethod,
    path: string,
    input: { query?: Record<string, unknown>; body?: object } = {},
  ): Promise<unknown> {
    const { statusCode, body } = await this.#send(method, path, {
      ...{ ...input, signal: AbortSignal.timeout(TIMEOUT_MS) },
    });
    if (statusCode >= 300) throw await refusal(statusCode, body);
    return body.json();
  }

  async #send(
    method: Dispatcher.HttpMethod,
    path: string,
    {
      query,
      body,
      signal,
    }: { query?: Record<string, unknown> | undefined; body?: object; signal: AbortSignal },
  ): Promise<Dispatcher.ResponseData> {
    const { url, tokenFile } = this.#options;
    const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
    const fields = Object.entries(query ?? {}).filter(([, value]) => value !== undefined);
    try {
      return await request(`${url}/${path}`, {
        ...{ method, signal, dispatcher: this.#agent, query: Object.fromEntries(fields) },
        headers: {
          authorization: `Bearer ${readFileSync(tokenFile, 'utf8').trim()}`,
          ...(body ? { 'content-type': type } : {}),
        },
        body: body ? JSON.stringify(body) : null,
      });
    } catch (error) {
      throw new KubeError(0, `Kubernetes is out of reach: ${(error as Error).message}`);
    }
  }
}

/** Drops who set which field: most of an object's size, and of no use here. */
function forgetFields(metadata: Metadata & { managedFields?: unknown }): void {
  delete metadata.managedFields;
}

const pathOf = ({ group, plural, namespace }: Resource): string =>
  [group, ...(namespace === undefined ? [] : ['namespaces', namespace]), plural].join('/');

async function refusal(status: number, body: Dispatcher.ResponseData['body']): Promise<KubeError> {
  const text = await body.text();
  try {
    return new KubeError(status, String((JSON.parse(text) as { message?: string }).message));
  } catch {
    return new KubeError(status, `Kubernetes answered ${status}`);
  }
}
