import { createHash } from 'node:crypto';
import { SHARED_LOG } from '../../../shared/redis/redis-keys.ts';
import { identityIdOf } from '../../../shared/rules/key-format.ts';
import { type Timeline, TRUE_WALL_MS } from './clock.ts';
import { type ChangeNode, History, type KeyVersion, versionOf } from './history.ts';
import type { RedisGroup, RedisNode } from './nodes.ts';
import type { ApiState } from './redis.ts';

/** A promise was broken: `invariant` is its name in invariants.md. */
export class Violation extends Error {
  readonly invariant: string;

  constructor(invariant: string, message: string) {
    super(`${invariant}: ${message}`);
    this.name = 'Violation';
    this.invariant = invariant;
  }
}

/** A key, as the one who created it knows it. */
export interface KnownKey {
  readonly apiId: string;
  readonly keyId: string;
  readonly secret: string;
  /** Of one that took another's place, what it had then. */
  created: KeyVersion;
  /** The pool of credits with which it was created; `''` = none. */
  readonly pool: string;
  /** When createKey returned; infinite while it has not, or when its outcome is unknown. */
  createdAtMs: number;
}

/** State of a verifier for one API, as its events and replies tell. */
export interface Following {
  member: string;
  live: boolean;
  position: number;
  hash: string;
  /** The end of the latest lease that its replies allow, on its monotonic clock. */
  leaseUntilMs: number;
}

/** State of a key, as far as answers tell it. */
type Seen = Pick<KeyVersion, 'tag' | 'enabled' | 'expires' | 'roles' | 'owner'>;

/** Answer of a verifier about a key, and its state at that moment. */
export interface Answer {
  readonly verifier: string;
  /** The protocol that it speaks. */
  readonly protocol: number;
  readonly key: KnownKey;
  readonly code: string;
  /** undefined where the answer says nothing of the key. */
  readonly seen: Seen | undefined;
  readonly begunAtMs: number;
  readonly monotonicMs: number;
  readonly following: Following | undefined;
  /** Names of the roles by which it was judged, and the verifier's state for their log. */
  readonly granted: {
    readonly tags: readonly string[];
    /** Identity of its owner, where there is one for it. */
    readonly owner: Pick<KeyVersion, 'tag' | 'enabled'> | undefined;
    readonly following: Following | undefined;
  };
  /** Roles and identities. */
  readonly roles: readonly KnownKey[];
  /** When this verifier was first asked for this key. */
  readonly firstAskedAtMs: number;
}

/** A token that a verifier issued, and its state at that moment. */
export interface IssuedToken {
  readonly verifier: string;
  readonly key: KnownKey;
  readonly endMs: number;
  /** The hashes of the two logs at the positions from which it was issued. */
  readonly hash: string;
  readonly sharedHash: string;
  /** Roles and identity of the key. */
  readonly ids: readonly string[];
}

/** The longest leeway of tokens in any plan. */
const LEEWAY_MS_MAX = 6000;

/** Holds what happened against what is promised, and throws a Violation where they differ. */
export class Checker {
  readonly history: History;
  readonly #timeline: Timeline;
  readonly #group: RedisGroup;
  readonly #limits: { readonly staleMsMax: number; readonly unknownMsMax: number };
  readonly #members = new WeakMap<ApiState, ReadonlySet<string>>();
  /** Keys whose creation a failover took, and when; one that arrives after all leaves. */
  readonly #lostAtMs = new Map<string, number>();
  readonly counts = {
    answers: 0,
    refused: 0,
    notFound: 0,
    acks: 0,
    fence: 0,
    lost: 0,
    lostKeys: 0,
    heldOff: 0,
    rerolled: 0,
    admitted: 0,
    tokens: 0,
  };
  #tokens: (IssuedToken & { leewayMs: number })[] = [];
  /** For how long others accept a new token of an API after its end, milliseconds. */
  readonly leeways = new Map<string, number>();

  /**
   * @param limits true milliseconds: how old a write may be that an answer lacks, whatever broke; how long a
   * created key may be unknown to a verifier that was asked for it before
   */
  constructor(
    timeline: Timeline,
    group: RedisGroup,
    limits: { readonly staleMsMax: number; readonly unknownMsMax: number },
  ) {
    this.history = new History(timeline, group.replicas === 0);
    this.#timeline = timeline;
    this.#group = group;
    this.#limits = limits;
  }

  /** A server that leads, or thinks so, wrote something about an API. */
  wrote(
    node: RedisNode,
    apiId: string,
    kind: string,
    following: (member: string) => Following | undefined,
  ): void {
    const api = node.state.api(apiId);
    this.history.record(api, apiId);
    if (node === this.#group.primary) {
      for (const keyId of this.#lostAtMs.keys()) if (api.records.has(keyId)) this.#lostAtMs.delete(keyId);
    }
    const before = this.#members.get(api);
    for (const [member, score] of api.members) {
      if (before && !before.has(member) && kind !== 'register') {
        throw new Violation('I7', `${kind} made ${member} a member, which had not registered`);
      }
      const follower = following(member);
      if (!follower?.live || follower.member !== member || score < 1) continue;
      const acknowledged = this.history.find(apiId, api.hashAt(Math.floor(score)));
      const applied = this.history.find(apiId, follower.hash);
      if (follower.position < Math.floor(score) || (acknowledged && !contains(applied, acknowledged))) {
        throw new Violation(
          'I7',
          `${member} is taken to have applied ${score} and is at ${follower.position}`,
        );
      }
    }
    this.#members.set(api, new Set(api.members.keys()));
  }

  /** Somebody was told that a change is complete. */
  complete(about: string, tag: string | undefined, sequence: number, by: 'acks' | 'fence'): void {
    this.counts[by]++;
    const change = this.history.latest(about, tag, sequence);
    if (!change) throw new Violation('I5', `complete, and there is no change ${sequence} of ${about}`);
    change.completeAtMs = Math.min(change.completeAtMs, this.#timeline.nowMs);
    this.#noTokenOf(about, change);
  }

  issued(token: IssuedToken): void {
    this.counts.tokens++;
    this.#tokens.push({ ...token, leewayMs: this.leeways.get(token.key.apiId) ?? 0 });
  }

  /** From now on, others accept tokens of the API for so long after their end. */
  leewayIs(apiId: string, leewayMs: number): void {
    this.leeways.set(apiId, leewayMs);
    for (const token of this.#tokens)
      if (token.key.apiId === apiId) token.leewayMs = Math.max(leewayMs, token.leewayMs);
  }

  /**
   * Once a change is complete, nobody accepts a token from before it whose clock differs by at most a second from that of
   * Redis.
   */
  #noTokenOf(about: string, change: ChangeNode): void {
    const lateMs = TRUE_WALL_MS + this.#timeline.nowMs - 1000;
    this.#tokens = this.#tokens.filter(({ endMs }) => endMs + LEEWAY_MS_MAX > lateMs);
    for (const { key, ids, hash, sharedHash, verifier, endMs, leewayMs } of this.#tokens) {
      if (endMs + leewayMs <= lateMs) continue;
      const isShared = ids.includes(about);
      if (!isShared && key.keyId !== about && key.apiId !== about) continue;
      const from = this.history.find(isShared ? SHARED_LOG : key.apiId, isShared ? sharedHash : hash);
      if (contains(from, change)) continue;
      const who = `a token of ${key.keyId} by ${verifier} is accepted for ${endMs + leewayMs - lateMs} ms`;
      throw new Violation('I26', `${who}, after ${describe(change)} was complete`);
    }
  }

  /** A replica became the primary. */
  promoted(former: RedisNode, node: RedisNode): void {
    for (const { apiId, records } of former.state.apis) {
      for (const keyId of records.keys()) {
        if (node.state.api(apiId).records.has(keyId) || this.#lostAtMs.has(keyId)) continue;
        this.#lostAtMs.set(keyId, this.#timeline.nowMs);
        this.counts.lostKeys++;
      }
    }
    for (const api of node.state.apis) {
      const { apiId } = api;
      if (!api.created) continue; // it was deleted, and is forgotten
      const head = this.history.find(apiId, api.hash);
      for (const change of this.history.of(apiId)) {
        if (contains(head, change)) continue;
        this.counts.lost++;
        const [durable, complete] = [
          Number.isFinite(change.durableAtMs),
          Number.isFinite(change.completeAtMs),
        ];
        if (!durable && !complete) continue;
        throw new Violation('I6', `a failover lost ${describe(change)}, ${durable ? 'durable' : 'complete'}`);
      }
    }
  }

  /** What a key may be for a question that began then: all that no complete change had replaced. */
  versionsInForce(key: KnownKey, begunAtMs: number): readonly KeyVersion[] {
    const changes = this.history.about(key);
    const told = changes.filter(({ completeAtMs }) => completeAtMs < begunAtMs);
    const isReplaced = (change: ChangeNode) =>
      told.some((later) => later !== change && contains(later, change));
    const left = changes.filter((change) => !isReplaced(change)).map(({ version }) => version);
    return told.length === 0 ? [key.created, ...left] : left;
  }

  answered(answer: Answer): void {
    this.counts.answers++;
    if (answer.seen) {
      this.#known(answer, answer.seen);
      this.#granted(answer, answer.seen);
      this.#stopped(answer, answer.seen);
    } else this.#unknown(answer);
  }

  #known(answer: Answer, seen: Seen): void {
    const { key, following, verifier } = answer;
    const who = `${verifier} said ${answer.code} (${seen.tag}) of ${key.keyId}`;
    const changes = this.history.about(key);
    const same = changes.filter(({ version }) => isSeen(version, seen));
    for (const change of changes) {
      const told = change.completeAtMs < answer.begunAtMs;
      // Counted from when all replicas held it: written again after a failover, it is older than its place.
      const old = change.durableAtMs < this.#timeline.nowMs - this.#limits.staleMsMax;
      if ((!told && !old) || same.some((version) => contains(version, change))) continue;
      if (told) throw new Violation('I1', `${who}, asked after ${describe(change)} was complete`);
      throw new Violation(
        'I4',
        `${who}, ${this.#timeline.nowMs - change.committedAtMs} ms after ${describe(change)}`,
      );
    }
    if (!following || answer.monotonicMs >= following.leaseUntilMs) {
      throw new Violation(
        'I8',
        `${who}, ${answer.monotonicMs - (following?.leaseUntilMs ?? 0)} ms after its lease`,
      );
    }
    const lostAtMs = this.#lostAtMs.get(key.keyId) ?? Number.POSITIVE_INFINITY;
    if (this.#timeline.nowMs > lostAtMs + this.#limits.staleMsMax) {
      const sinceMs = this.#timeline.nowMs - lostAtMs;
      throw new Violation('I11', `${who}, ${sinceMs} ms after a failover took its creation`);
    }
    const prefix = this.history.find(key.apiId, following.hash);
    const expected = this.history.at(key, prefix);
    if (expected.gone || !isSeen(expected, seen)) {
      throw new Violation('I9', `${who}, which at ${following.position} is ${JSON.stringify(expected)}`);
    }
    const needs = Math.max(expected.needs, this.#group.primary.state.api(key.apiId).needs);
    if (answer.protocol < needs) {
      throw new Violation('I20', `${who}, which speaks ${answer.protocol}, in an API that needs ${needs}`);
    }
  }

  /** What its roles let a key do, and what its owner is, is of one prefix of their log, with all that was complete before the question. */
  #granted(answer: Answer, seen: Seen): void {
    const { verifier, key, code, granted, roles, begunAtMs, monotonicMs } = answer;
    const identityId = seen.owner && identityIdOf(seen.owner);
    const ids = `${seen.roles} ${identityId}`.trim();
    if (ids === '') return;
    const who = `${verifier} answered for ${key.keyId} with ${ids}`;
    const { tags, owner, following } = granted;
    if (!following || monotonicMs >= following.leaseUntilMs)
      throw new Violation(
        'I16',
        `${who}, ${monotonicMs - (following?.leaseUntilMs ?? 0)} ms after the lease of roles`,
      );
    const prefix = this.history.find(SHARED_LOG, following.hash);
    const find = (id: string) => roles.find(({ keyId }) => keyId === id) ?? [];
    const meant = ids.split(' ').flatMap(find);
    for (const change of meant.flatMap((role) => this.history.about(role))) {
      if (change.completeAtMs < begunAtMs && !contains(prefix, change))
        throw new Violation('I16', `${who}, asked after ${describe(change)} was complete`);
    }
    const at = (of: string) =>
      of
        .split(' ')
        .flatMap(find)
        .map((role) => this.history.at(role, prefix))
        .filter(({ gone }) => !gone);
    const versions = at(seen.roles);
    const expected = versions.map(({ tag }) => tag).sort();
    if (JSON.stringify(expected) !== JSON.stringify(tags))
      throw new Violation('I16', `${who} by ${tags}, which at ${following.position} are ${expected}`);
    const [identity] = at(identityId).filter((version) => holds(version, key));
    if (identity?.tag !== owner?.tag || identity?.enabled !== owner?.enabled)
      throw new Violation(
        'I16',
        `${who} by ${owner?.tag}, which at ${following.position} is ${identity?.tag}`,
      );
    if (identity?.enabled === false && code !== 'DISABLED')
      throw new Violation('I16', `${who} ${code}, though its owner is disabled`);
  }

  /** Whether a root key is accepted is of one prefix of the shared log, with all that was complete before the question. */
  admitted(
    answer: Pick<Answer, 'verifier' | 'begunAtMs' | 'monotonicMs' | 'following'> & {
      readonly accepted: boolean;
      readonly record: KnownKey;
    },
  ): void {
    const { verifier, accepted, record, begunAtMs, monotonicMs, following } = answer;
    this.counts.admitted++;
    const who = `${verifier} ${accepted ? 'accepted' : 'refused'} a root key`;
    if (!following || monotonicMs >= following.leaseUntilMs)
      throw new Violation(
        'I22',
        `${who}, ${monotonicMs - (following?.leaseUntilMs ?? 0)} ms after its lease`,
      );
    const prefix = this.history.find(SHARED_LOG, following.hash);
    for (const change of this.history.about(record))
      if (change.completeAtMs < begunAtMs && !contains(prefix, change))
        throw new Violation('I22', `${who}, asked after ${describe(change)} was complete`);
    const expected = this.history.at(record, prefix);
    if (expected.gone || expected.enabled !== accepted)
      throw new Violation('I22', `${who}, which at ${following.position} is ${JSON.stringify(expected)}`);
  }

  /** Who was stopped is accepted nowhere, with any key, until somebody brings it back, deletes it or changes where it holds. */
  #stopped({ verifier, key, code, begunAtMs, roles }: Answer, { owner }: Seen): void {
    if (code !== 'VALID' || owner === '') return;
    const changes = roles
      .filter(({ keyId }) => keyId === identityIdOf(owner))
      .flatMap((identity) => this.history.about(identity));
    const stops = ({ version }: ChangeNode) => !version.gone && !version.enabled && holds(version, key);
    for (const stop of changes.filter((each) => stops(each) && each.completeAtMs < begunAtMs)) {
      if (changes.some((other) => !stops(other) && contains(other, stop))) continue;
      const who = `${verifier} accepted ${key.keyId}, asked ${begunAtMs - stop.completeAtMs} ms after`;
      throw new Violation('I21', `${who} somebody was told that ${owner} is stopped`);
    }
  }

  #unknown({ key, code, verifier, firstAskedAtMs }: Answer): void {
    this.counts.notFound++;
    if (this.history.about(key).some(({ version }) => version.gone)) return;
    const askedBefore = firstAskedAtMs < key.createdAtMs || this.#group.replicas > 0;
    const allowedMs = askedBefore ? this.#limits.unknownMsMax : 0;
    if (this.#timeline.nowMs <= key.createdAtMs + allowedMs) return;
    const sinceMs = this.#timeline.nowMs - key.createdAtMs;
    throw new Violation('I10', `${verifier} said ${code} of ${key.keyId} ${sinceMs} ms after it was created`);
  }

  /** Record, head and log agree on every server, and the chain verifies. */
  agree(keys: readonly KnownKey[]): void {
    for (const node of this.#group.nodes) {
      if (node !== this.#group.primary && !this.#group.follows(node)) continue;
      for (const api of node.state.apis) {
        const { apiId, log } = api;
        const last = log.at(-1);
        if ((last?.sequence ?? 0) !== api.sequence || (last?.hash ?? '') !== api.hash) {
          throw new Violation('I5', `head and log of ${apiId} differ at ${node.name}`);
        }
        for (const [i, entry] of log.entries()) {
          const previous = log[i - 1];
          if (!previous) continue;
          const text = `${previous.hash}|${entry.sequence}|${entry.keyId}|${entry.payload}`;
          if (entry.sequence === previous.sequence + 1 && entry.hash === sha1(text)) continue;
          throw new Violation('I5', `the chain of ${apiId} breaks at ${entry.sequence} at ${node.name}`);
        }
        const head = this.history.find(apiId, api.hash);
        for (const key of keys) {
          const record = api.records.get(key.keyId);
          if (key.apiId !== apiId || (!record && !Number.isFinite(key.createdAtMs))) continue;
          const [expected, actual] = [this.history.at(key, head), versionOf(record)];
          if (api.deleted || !api.created || (expected.gone && actual.gone)) continue;
          if (isSeen(expected, actual)) continue;
          throw new Violation(
            'I5',
            `the record of ${key.keyId} is ${actual.tag}, its log says ${expected.tag}`,
          );
        }
      }
    }
  }
}

/** Tells whether an answer is by this state of a key. */
const isSeen = ({ tag, enabled, expires, roles, owner }: Seen, seen: Seen): boolean =>
  tag === seen.tag &&
  enabled === seen.enabled &&
  expires === seen.expires &&
  roles === seen.roles &&
  owner === seen.owner;
/** Tells whether an identity holds in the API of a key. */
const holds = ({ apis }: KeyVersion, { apiId }: KnownKey): boolean =>
  apis === '' || apis.split(' ').includes(apiId);
const sha1 = (text: string): string => createHash('sha1').update(text).digest('hex');
const describe = (change: ChangeNode): string =>
  `change ${change.sequence} of ${change.keyId || change.apiId} (${change.operation} ${change.version.tag})`;

/** Tells whether `change` is `until` or one of those before it. */
function contains(until: ChangeNode | undefined, change: ChangeNode): boolean {
  let at = until;
  while (at && at.sequence > change.sequence) at = at.parent;
  return at === change;
}
