import { PROTOCOL } from '../../../shared/protocol/records/protocol.ts';
import type { Timeline } from './clock.ts';
import type { ApiState } from './redis.ts';

/** The protocol of a release to come. */
export const LATER_PROTOCOL = PROTOCOL + 1;
/** A field of a record that only verifiers of that release obey. It stands for any, so nothing else comes of it. */
export const LATER_FIELD = 'later';

/** State of a key after a change. */
export interface KeyVersion {
  /** Set by each update to a text of its own, so that an answer tells which one it saw. */
  readonly tag: string;
  readonly enabled: boolean;
  /** From when on it is refused, Unix milliseconds; 0 = never. */
  readonly expires: number;
  /** It was deleted, or its API was. */
  readonly gone: boolean;
  /** The protocol that a verifier must speak to obey all that it has. */
  readonly needs: number;
  /** Ids of its roles, as in Redis. */
  readonly roles: string;
  /** Its owner; empty = it has none. */
  readonly owner: string;
  /** Of an identity: the APIs in which it holds; empty = all. */
  readonly apis: string;
  /** Its rate limits and its concurrency limits, as in Redis. */
  readonly limits: string;
}

/** One change at its place in the tree of histories, in which failovers make branches. */
export interface ChangeNode {
  readonly apiId: string;
  readonly sequence: number;
  readonly payload: string;
  readonly parent: ChangeNode | undefined;
  /** Empty where it is about no single key. */
  readonly keyId: string;
  readonly operation: 'set' | 'delete' | 'api-deleted' | 'noop';
  readonly version: KeyVersion;
  readonly committedAtMs: number;
  /** When all replicas held it; infinite until somebody knows. */
  durableAtMs: number;
  /** When somebody was told that it is complete. */
  completeAtMs: number;
}

const GONE: KeyVersion = {
  ...{ tag: '', enabled: false, expires: 0, gone: true, needs: 1 },
  ...{ roles: '', owner: '', apis: '', limits: '' },
};

/** Every change that was ever committed anywhere, lost ones among them. */
export class History {
  readonly #timeline: Timeline;
  readonly #durableAtOnce: boolean;
  readonly #byHash = new Map<string, ChangeNode>();
  readonly #byApi = new Map<string, ChangeNode[]>();
  /** By key; those of a whole API by its id. In the order of their commits. */
  readonly #byKey = new Map<string, ChangeNode[]>();

  constructor(timeline: Timeline, durableAtOnce: boolean) {
    this.#timeline = timeline;
    this.#durableAtOnce = durableAtOnce;
  }

  /** Takes up the newest entries of a log, as far as they are not known: a script may write some of several keys. */
  record(api: ApiState, apiId: string): void {
    const { log } = api;
    let at = log.length;
    while (at > 0 && !this.#isKnown(log, apiId, at - 1)) at--;
    for (const entry of log.slice(at)) this.#record(api, apiId, entry);
  }

  #isKnown(log: ApiState['log'], apiId: string, at: number): boolean {
    const entry = log[at];
    const known = entry && this.find(apiId, entry.hash);
    // At the beginning of a log that was trimmed, nothing is before it.
    if (at === 0 && entry && entry.sequence > 1) return known !== undefined;
    const parent = this.find(apiId, log[at - 1]?.hash ?? '');
    return known !== undefined && known.parent === parent && known.payload === entry?.payload;
  }

  #record(api: ApiState, apiId: string, entry: ApiState['log'][number]): void {
    const parent = this.find(apiId, api.hashAt(entry.sequence - 1));
    const record = api.records.get(entry.keyId);
    const operation =
      entry.keyId === ''
        ? entry.payload === ''
          ? 'noop'
          : 'api-deleted'
        : // A no-op about a key promises that it is gone.
          record && entry.payload !== ''
          ? 'set'
          : 'delete';
    const change: ChangeNode = {
      ...{ apiId, parent, operation, sequence: entry.sequence, keyId: entry.keyId, payload: entry.payload },
      version: versionOf(operation === 'delete' ? undefined : record),
      committedAtMs: this.#timeline.nowMs,
      durableAtMs: this.#durableAtOnce ? this.#timeline.nowMs : Number.POSITIVE_INFINITY,
      completeAtMs: Number.POSITIVE_INFINITY,
    };
    this.#byHash.set(`${apiId} ${entry.hash}`, change);
    push(this.#byApi, apiId, change);
    if (operation !== 'noop') push(this.#byKey, entry.keyId || apiId, change);
  }

  /** All replicas were seen to hold a change, and with it all before it. */
  durable(apiId: string, hash: string): void {
    let change = this.find(apiId, hash);
    while (change && !Number.isFinite(change.durableAtMs)) {
      change.durableAtMs = this.#timeline.nowMs;
      change = change.parent;
    }
  }

  /** The change at which a log's hash is this. */
  find(apiId: string, hash: string): ChangeNode | undefined {
    return this.#byHash.get(`${apiId} ${hash}`);
  }

  of(apiId: string): readonly ChangeNode[] {
    return this.#byApi.get(apiId) ?? [];
  }

  /** The latest change of a key, or of an API as a whole, with this tag, or any, and sequence. */
  latest(about: string, tag: string | undefined, sequence: number): ChangeNode | undefined {
    const changes = this.#byKey.get(about) ?? [];
    return changes.findLast(
      (change) => change.sequence === sequence && change.version.tag === (tag ?? change.version.tag),
    );
  }

  /** The latest change of a key with this tag. */
  tagged(about: string, tag: string): ChangeNode | undefined {
    return this.#byKey.get(about)?.findLast(({ version }) => version.tag === tag);
  }

  /** Tells whether several changes of a key had this sequence, in different histories. */
  isAmbiguous(keyId: string, sequence: number): boolean {
    return (this.#byKey.get(keyId) ?? []).filter((change) => change.sequence === sequence).length > 1;
  }

  /** All changes that concern a key. */
  about({ keyId, apiId }: { readonly keyId: string; readonly apiId: string }): readonly ChangeNode[] {
    const [own = [], whole] = [this.#byKey.get(keyId), this.#byKey.get(apiId)];
    return whole ? [...own, ...whole] : own;
  }

  /** Returns the state of a key after a change and all before it. */
  at(
    key: { readonly keyId: string; readonly created: KeyVersion },
    until: ChangeNode | undefined,
  ): KeyVersion {
    for (let at = until; at; at = at.parent) {
      if (at.operation === 'api-deleted') return GONE;
      if (at.keyId === key.keyId) return at.version;
    }
    return key.created;
  }
}

/** Reads the state of a key from its record. */
export function versionOf(record: Readonly<Record<string, string>> | undefined): KeyVersion {
  if (!record) return GONE;
  const needs = record[LATER_FIELD] ? LATER_PROTOCOL : 1;
  const { n: tag = '', e, x, R: roles = '', o: owner = '', A: apis = '' } = record;
  const limits = limitsText(record);
  return { tag, enabled: e === '1', expires: Number(x ?? 0), gone: false, needs, roles, owner, apis, limits };
}

/** The limits of a record, as one text. */
export const limitsText = ({ l = '', L = '', C = '' }: Readonly<Record<string, string>>): string =>
  `${l}${L}${C}`;

function push<T>(map: Map<string, T[]>, key: string, item: T): void {
  const items = map.get(key);
  if (items) items.push(item);
  else map.set(key, [item]);
}
