import { hash as digest } from 'node:crypto';
import { updateApi } from '../../../control-plane/core/apis/apis.ts';
import { endDebt } from '../../../shared/metering/end-debt.ts';
import type { PoolReply, PoolTurn } from '../../../shared/metering/exchange.ts';
import { exchangeRun } from '../../../shared/metering/exchange.ts';
import { findNearby, nearbyRun } from '../../../shared/protocol/follower/nearby.ts';
import { findKeys } from '../../../shared/protocol/follower/pointers.ts';
import { registerRun, syncRun } from '../../../shared/protocol/follower/session.ts';
import type {
  NearbyReply,
  NearbyRequest,
  RegisterReply,
  SyncReply,
  SyncRequest,
} from '../../../shared/protocol/follower/source.ts';
import type { Change } from '../../../shared/protocol/log/change.ts';
import {
  checkRun,
  closeRun,
  reapRun,
  type Written,
  writeRun,
} from '../../../shared/protocol/log/change-log.ts';
import type {
  Closing,
  KilledFollower,
  LogStatus,
  Write,
} from '../../../shared/protocol/log/change-log-port.ts';
import { createKey, deletePointer, setPointer } from '../../../shared/protocol/log/new-key-record.ts';
import { createApi } from '../../../shared/protocol/log/new-log.ts';
import { TOKEN_LEEWAY } from '../../../shared/protocol/timing.ts';
import type { Head, LeaseStep, LendingStep } from '../../../shared/protocol/writer/sweep.ts';
import { forgetRun, setLease, setLending, sweepRun } from '../../../shared/protocol/writer/sweep-store.ts';
import {
  apiKeys,
  formatPointer,
  identityIndexKey,
  idPointer,
  indexOf,
  metaKey,
  poolKey,
  recordKey,
  SHARED_LOG,
  secretPointer,
} from '../../../shared/redis/redis-keys.ts';
import type { Run } from '../../../shared/redis/script.ts';
import { ApiError } from '../../../shared/rules/errors.ts';
import { Commands } from './commands.ts';

/** Limits that constants of the modules set for the real Redis. */
export interface RedisLimits {
  readonly logEntries: number;
  readonly creationsKept: number;
  readonly payloadBytesMax: number;
  readonly batchEntriesMax: number;
  readonly batchBytesMax: number;
}

/** What somebody asks of a server, as one atomic step. */
export type Step<T> = (state: RedisState) => T;

/** The data of one Redis server, on which both processes run their scripts. */
export class RedisState extends Commands {
  readonly limits: RedisLimits;
  readonly #nowMs: () => number;
  readonly #apis = new Map<string, ApiState>();

  /** @param nowMs the clock of Redis, Unix milliseconds */
  constructor(limits: RedisLimits, nowMs: () => number = () => 0) {
    super(nowMs);
    this.limits = limits;
    this.#nowMs = nowMs;
  }

  clone(): RedisState {
    const copy = new RedisState(this.limits, this.#nowMs);
    copy.copy(this);
    return copy;
  }

  /** One API, also where there is none. */
  api(apiId: string): ApiState {
    const present = this.#apis.get(apiId);
    if (present) return present;
    const api = new ApiState(this, apiId);
    this.#apis.set(apiId, api);
    return api;
  }

  /** All APIs of which there is anything. */
  get apis(): ApiState[] {
    const ids = new Set(this.keys('kf:{').map((key) => key.slice(4, key.indexOf('}'))));
    return [...ids].map((apiId) => this.api(apiId));
  }

  run<T>({ script: { lua }, keys, args, read }: Run<T>): T {
    return read(this.eval(lua, keys, args.map(String)));
  }

  find(name: string): [name: string, value: string | undefined] {
    const { names, places } = this.run(findKeys({ pointers: [name] }));
    return [names, places[0] || undefined];
  }

  /** Nothing for a follower that is too old. */
  register(apiId: string, member: string, nonce: string): RegisterReply | undefined {
    try {
      return this.run(registerRun(apiId, member, nonce));
    } catch (error) {
      if (error instanceof ApiError) return undefined;
      throw error;
    }
  }

  leave(apiId: string, member: string): void {
    this.command('ZREM', apiKeys(apiId).members, member);
  }

  sync(apiId: string, request: SyncRequest): SyncReply {
    return this.run(syncRun(apiId, request, this.limits));
  }

  findNearby(pointer: string): { name: string; place: string } {
    return this.run(findNearby({ pointer }));
  }

  readNearby(apiId: string, request: NearbyRequest): NearbyReply {
    return this.run(nearbyRun(apiId, request));
  }

  /** `nowMs` becomes `updatedAt`, and `poolId` names what the control plane does to credits. */
  write(write: Write, nowMs: number, poolId = ''): Written {
    return this.run(writeRun(write, nowMs, () => poolId, this.limits));
  }

  exchange(apiId: string, member: string, turns: readonly PoolTurn[]): readonly PoolReply[] {
    return this.run(exchangeRun(apiId, member, turns));
  }

  /** Whether nobody holds anything that the pool lacks. */
  endDebt(apiId: string, keyId: string): boolean {
    return this.run(endDebt(apiId, keyId)).isEnded !== '0';
  }

  check(change: Parameters<typeof checkRun>[0]): LogStatus {
    return this.run(checkRun(change));
  }

  close(apiId: string, change: { sequence: number; hash: string; server: string }, kill: number): Closing {
    return this.run(closeRun(apiId, change, kill));
  }

  reap(apiId: string, killed: readonly KilledFollower[]): number {
    return this.run(reapRun(apiId, killed));
  }

  setLease(apiId: string, step: LeaseStep, leaseMs: number, name: string): boolean {
    return this.run(setLease({ head: apiKeys(apiId).head, step, lease: leaseMs, name })).status === 'OK';
  }

  setLending(apiId: string, step: LendingStep, name: string, outlives = 0): boolean {
    return this.run(setLending({ head: apiKeys(apiId).head, step, name, outlives }));
  }

  /** As apis.ts does. @param fence token of `fence-first`; `''` = the API had no tokens */
  updateApi(apiId: string, fence: string, fields: Readonly<Record<string, string | number>>): boolean {
    const { head } = apiKeys(apiId);
    const run = updateApi({ head, condition: '', now: 0, fence, fields: Object.entries(fields).flat() });
    return this.run(run).status === 'OK';
  }

  /** Reads what change-log.ts reads before it writes part of a batch. */
  lag(apiId: string): number {
    const { members, sequence } = this.api(apiId);
    const live = [...members.values()].filter((score) => score >= 0);
    return sequence - Math.floor(Math.min(sequence, ...live));
  }

  /** Reads what sweep-store.ts reads. */
  head(apiId: string): Head {
    const { sequence, grantedMs, fencedMs, leaseName, created, deleted, members } = this.api(apiId);
    const { isLending, lendingName, outlivesMs, outlivesFenceMs } = this.api(apiId);
    const killed = (
      this.command('ZRANGEBYSCORE', apiKeys(apiId).members, '-inf', '(0') as readonly string[]
    ).map((name) => ({ name, kill: members.get(name) ?? 0 }));
    return {
      ...{ sequence, grantedMs, fencedMs, leaseName, created, deleted, members: members.size, killed },
      ...{ isLending, lendingName, outlivesMs, outlivesFenceMs },
    };
  }

  /** What sweep-store.ts does to the keys of a deleted API; whether there was any. */
  removeKeys(apiId: string): boolean {
    const { deleted, records } = this.api(apiId);
    const keyIds = records.keys();
    if (!deleted || keyIds.length === 0) return false;
    for (const keyId of keyIds) {
      const pointer = secretPointer(records.get(keyId)?.['p'] ?? '');
      this.run(deletePointer({ pointer, value: formatPointer(apiId, keyId) }));
      this.run(deletePointer({ pointer: idPointer(keyId), value: apiId }));
    }
    this.run(sweepRun(apiId, keyIds));
    return true;
  }

  forget(apiId: string): boolean {
    return this.run(forgetRun(apiId, []));
  }

  /** Sets a pointer; whether it has this value now. */
  point(name: string, value: string): boolean {
    return this.run(setPointer({ pointer: name, value })) === value;
  }

  createApi(apiId: string, leaseMs: number): boolean {
    const { head, members } = apiKeys(apiId);
    const shared = apiId === SHARED_LOG ? [members] : [];
    return this.run(createApi({ head, members: shared, now: 0, lease: leaseMs, fields: [] }));
  }

  /** Creates a record, with a pool of credits where it names one, as new-key-record.ts does. */
  createKey(
    apiId: string,
    keyId: string,
    record: Readonly<Record<string, string>>,
    needs = 1,
    credits?: number,
    refill = '',
  ): boolean {
    const { head, creations, members, base } = apiKeys(apiId);
    const { o: owner = '', q: id, ...fields } = record;
    const own = recordKey(apiId, keyId);
    const owners = owner ? identityIndexKey(apiId, owner) : own;
    const pool = id ? JSON.stringify({ id, op: 'set', value: credits, refill, thresholds: '50 80' }) : '';
    const content = digest('sha1', JSON.stringify([keyId, record]));
    const run = createKey({
      ...{ head, index: indexOf(apiId, keyId), record: own, long: metaKey(apiId, keyId), owners, creations },
      ...{ members, base, keyId, now: 0, auto: '0', lease: 0, meta: '', owner, foreign: '0' },
      ...{ kept: this.limits.creationsKept, content, needs, defaults: '*', credits: pool },
      fields: Object.entries(fields).flat(),
    });
    return this.run(run).status === 'OK';
  }
}

/** One API in Redis, to look at. */
export class ApiState {
  readonly apiId: string;
  readonly #redis: RedisState;
  readonly #keys: ReturnType<typeof apiKeys>;

  constructor(redis: RedisState, apiId: string) {
    this.#redis = redis;
    this.apiId = apiId;
    this.#keys = apiKeys(apiId);
  }

  #head(field: string): string {
    return this.#redis.hash(this.#keys.head)?.get(field) ?? '';
  }

  get created(): boolean {
    return this.#head('c') !== '';
  }

  get deleted(): boolean {
    return this.#head('deleted') !== '';
  }

  get sequence(): number {
    return Number(this.#head('s'));
  }

  get hash(): string {
    return this.#head('h');
  }

  /** Protocol that followers must speak. */
  get needs(): number {
    return Number(this.#head('P') || 1);
  }

  get grantedMs(): number {
    return Number(this.#head('L'));
  }

  get fencedMs(): number {
    return Number(this.#head('Lf'));
  }

  get leaseName(): string {
    return this.#head('t');
  }

  get isLending(): boolean {
    return this.#head('T') !== '';
  }

  get lendingName(): string {
    return this.#head('Tf');
  }

  get outlivesMs(): number {
    return Number(this.#head('leeway') || TOKEN_LEEWAY.usualMs);
  }

  get outlivesFenceMs(): number {
    return Number(this.#head('Wf') || TOKEN_LEEWAY.usualMs);
  }

  /** Mark of the last creation. */
  get lastMark(): string {
    return this.#head('g') || '0-';
  }

  get creations(): readonly { readonly number: number; readonly hash: string }[] {
    const marks = this.#redis.stream(this.#keys.creations);
    return marks.map(({ number, fields: [, hash = ''] }) => ({ number, hash }));
  }

  get members(): ReadonlyMap<string, number> {
    return this.#redis.sortedSet(this.#keys.members);
  }

  /** Names whose fields in pools count, by their latest exchange. */
  get held(): ReadonlyMap<string, number> {
    return this.#redis.sortedSet(this.#keys.held);
  }

  /** Oldest first. */
  get log(): readonly Change[] {
    return this.#redis
      .stream(this.#keys.log)
      .map(({ number, fields: [, hash = '', , keyId = '', , payload = ''] }) => {
        return { sequence: number, hash, keyId, payload };
      });
  }

  /** The hash of an entry of the log; `''` = it is not there. */
  hashAt(sequence: number): string {
    const entries = this.#redis.stream(this.#keys.log);
    return entries[sequence - (entries[0]?.number ?? 1)]?.fields[1] ?? '';
  }

  /** Fields by their names in Redis; `m` also where it is kept apart. */
  readonly records = {
    keys: () => namesAfter(this.#redis, recordKey(this.apiId, '')),
    has: (keyId: string) => this.#redis.hash(recordKey(this.apiId, keyId)) !== undefined,
    get: (keyId: string): Readonly<Record<string, string>> | undefined => {
      const record = this.#redis.hash(recordKey(this.apiId, keyId));
      if (!record?.has('M')) return record && Object.fromEntries(record);
      return {
        ...Object.fromEntries(record),
        m: String(this.#redis.command('GET', metaKey(this.apiId, keyId))),
      };
    },
  };

  /** Pools of credits by their names. */
  get pools(): ReadonlyMap<string, Pool> {
    const names = namesAfter(this.#redis, poolKey(this.apiId, ''));
    return new Map(names.map((name) => [name, poolOf(this.#redis.hash(poolKey(this.apiId, name)))]));
  }
}

const namesAfter = (redis: RedisState, prefix: string): string[] =>
  redis.keys(prefix).map((key) => key.slice(prefix.length));

/** Credits, as exchange.lua describes them. */
export interface Pool {
  readonly free: number;
  /** As in Redis; `''` = none. */
  readonly refill: string;
  /** When the next refill is due, and when the last one was, by the clock of Redis; 0 = never. */
  readonly dueAtMs: number;
  readonly refilledAtMs: number;
  /** Credits of holders that were forgotten, which may have been spent. */
  readonly lost: number;
  /** Granted to holders for questions that wait: taken for spent, but one that is refused gives it back. */
  readonly spoken: number;
  readonly holders: ReadonlyMap<string, { readonly granted: number; readonly spent: number }>;
}

function poolOf(hash: ReadonlyMap<string, string> | undefined): Pool {
  const fields = [...(hash ?? [])];
  const holders = fields.flatMap(([name, value]) => {
    const [granted = 0, spent = 0] = value.split(' ').map(Number);
    return name.startsWith('@') ? [[name.slice(1), { granted, spent }] as const] : [];
  });
  return {
    free: Number(hash?.get('b')),
    refill: hash?.get('r') ?? '',
    dueAtMs: 1000 * Number(hash?.get('t') ?? 0),
    refilledAtMs: Number(hash?.get('f') ?? 0),
    lost: Number(hash?.get('l') ?? 0),
    spoken: fields.reduce(
      (sum, [name, value]) => (name.startsWith('@') ? sum + Number(value.split(' ')[3]) : sum),
      0,
    ),
    holders: new Map(holders),
  };
}
