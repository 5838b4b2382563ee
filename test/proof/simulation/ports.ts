import type { Exchanges, PoolReply, PoolTurn } from '../../../shared/metering/exchange.ts';
import type {
  Directory,
  Nearby,
  NearbyReply,
  NearbyRequest,
  Pointer,
  RegisterReply,
  Session,
  SyncReply,
  SyncRequest,
} from '../../../shared/protocol/follower/source.ts';
import type { Written } from '../../../shared/protocol/log/change-log.ts';
import type {
  BatchedChangeLog,
  Closing,
  KilledFollower,
  LogEntry,
  LogStatus,
  Write,
  WriteRefusal,
} from '../../../shared/protocol/log/change-log-port.ts';
import type { Head, LeaseStep, LendingStep, SweepStore } from '../../../shared/protocol/writer/sweep.ts';
import { apiKeys, parsePointer, SHARED_LOG, secretPointer } from '../../../shared/redis/redis-keys.ts';
import { unavailable } from '../../../shared/rules/errors.ts';
import type { Machine } from './clock.ts';
import type { Connection, Network } from './network.ts';
import type { RedisNode } from './nodes.ts';
import type { RedisState, Step } from './redis.ts';

/** One process's connections, by what they are for. */
export class Lanes {
  readonly network: Network;
  readonly machine: Machine;
  readonly #mayDesynchronise: boolean;
  readonly #open = new Map<string, Promise<Connection>>();

  /** @param mayDesynchronise whether its main connection may come to pair replies with the wrong requests */
  constructor(network: Network, machine: Machine, mayDesynchronise: boolean) {
    this.network = network;
    this.machine = machine;
    this.#mayDesynchronise = mayDesynchronise;
  }

  /** @param node a server; undefined = the primary */
  get(lane: string, node?: RedisNode): Promise<Connection> {
    const present = this.#open.get(lane);
    if (present) return present;
    const opening = this.network.connect(this.machine, node);
    const forget = () => {
      if (this.#open.get(lane) === opening) this.#open.delete(lane);
    };
    opening.then((connection) => {
      connection.ended.add(forget);
      const { random, manners } = this.network;
      if ((lane === 'main' || node) && this.#mayDesynchronise && random.chance(manners.desynchronisation)) {
        this.machine.after(random.between(100, 5000), () => {
          if (this.network.manners === manners) connection.desynchronise();
        });
      }
    }, forget);
    this.#open.set(lane, opening);
    return opening;
  }
}

/** Leases and events of a verifier, for the checker. */
export interface SessionEvents {
  registering(apiId: string, member: string): void;
  registered(apiId: string, reply: RegisterReply): void;
  /** A reply arrived that allows to answer until `leaseMs` after `sentAtMs` on the verifier's monotonic clock. */
  granted(apiId: string, sentAtMs: number, leaseMs: number): void;
}

/** The verifier's ports to the simulated Redis; does as session.ts and redis-exchanges.ts. */
export class SimulatedDirectory implements Directory, Exchanges {
  readonly silentMs = 0;
  readonly #lanes: Lanes;
  readonly #events: SessionEvents;
  readonly #findsKeys: boolean;
  readonly #protocol: number;
  readonly #hearsRecalls: boolean;
  readonly nearby: Nearby | undefined;

  /**
   * @param findsKeys whether its sessions do, as those to anything but a Cluster
   * @param protocol what this verifier speaks, whatever its code says
   * @param hearsRecalls whether there are credits
   * @param replica the server that is nearer than the primary
   */
  constructor(
    lanes: Lanes,
    events: SessionEvents,
    findsKeys: boolean,
    protocol: number,
    hearsRecalls: boolean,
    replica?: RedisNode,
  ) {
    this.nearby = replica && new SimulatedNearby(lanes, findsKeys, replica);
    this.#lanes = lanes;
    this.#events = events;
    this.#findsKeys = findsKeys;
    this.#protocol = protocol;
    this.#hearsRecalls = hearsRecalls;
  }

  get awaitsReplicas(): boolean {
    return this.#lanes.network.group.replicas > 0;
  }

  async exchange(apiId: string, member: string, turns: readonly PoolTurn[]): Promise<readonly PoolReply[]> {
    const { network } = this.#lanes;
    const replicas = turns.every(({ window }) => window) ? 0 : network.group.replicas;
    const connection = await this.#lanes.get(replicas === 0 ? 'main' : 'exchange');
    const step: Step<readonly PoolReply[]> = (state) => state.exchange(apiId, this.#nameOf(member), turns);
    const { reply, confirmed } = await connection.call('exchange', apiId, step, replicas);
    if (confirmed < replicas) throw unavailable('not all required replicas confirmed the exchange');
    return reply;
  }

  async open(apiId: string): Promise<Session> {
    return new SimulatedSession(
      apiId,
      await this.#lanes.get('main'),
      this.#lanes,
      this.#events,
      this.#findsKeys,
      (member) => this.#nameOf(member),
      this.#hearsRecalls,
    );
  }

  #nameOf(member: string): string {
    return `${this.#protocol}${member.slice(member.indexOf('.'))}`;
  }

  async lookUp(secretHash: string): Promise<Pointer | undefined> {
    const connection = await this.#lanes.get('main');
    const key = secretPointer(secretHash);
    const [name, value] = (await connection.call('find', '', (state) => state.find(key))).reply;
    if (name !== key) {
      connection.end();
      throw unavailable('a reply from Redis was meant for another request');
    }
    return value === undefined ? undefined : parsePointer(value);
  }
}

/** A verifier's port to a replica; does as nearby.ts. */
class SimulatedNearby implements Nearby {
  readonly findsKeys: boolean;
  readonly #lanes: Lanes;
  readonly #replica: RedisNode;

  constructor(lanes: Lanes, findsKeys: boolean, replica: RedisNode) {
    this.findsKeys = findsKeys;
    this.#lanes = lanes;
    this.#replica = replica;
  }

  read(apiId: string, request: NearbyRequest): Promise<NearbyReply | undefined> {
    return this.#run(apiId, (state) => state.readNearby(apiId, request));
  }

  async lookUp(secretHash: string): Promise<Pointer | undefined> {
    const pointer = secretPointer(secretHash);
    const found = await this.#run('', (state) => state.findNearby(pointer));
    return found?.name === pointer && found.place ? parsePointer(found.place) : undefined;
  }

  async #run<T>(apiId: string, step: Step<T>): Promise<T | undefined> {
    const { machine } = this.#lanes;
    const connection = await this.#lanes.get('nearby', this.#replica).catch(() => undefined);
    const timer = machine.after(100, () => connection?.end());
    const done = await connection?.call(apiId ? 'nearby' : 'find nearby', apiId, step).catch(() => undefined);
    timer.cancel();
    return done?.reply;
  }
}

class SimulatedSession implements Session {
  readonly findsKeys: boolean;
  readonly #apiId: string;
  readonly #line: Connection;
  readonly #lanes: Lanes;
  readonly #events: SessionEvents;
  /** The name under which a member registers, which begins with the protocol that it speaks. */
  readonly #nameOf: (member: string) => string;
  readonly #hearsRecalls: boolean;
  #listener: ((message: string) => void) | undefined;
  #ended: (() => void) | undefined;

  constructor(
    apiId: string,
    line: Connection,
    lanes: Lanes,
    events: SessionEvents,
    findsKeys: boolean,
    nameOf: (member: string) => string,
    hearsRecalls: boolean,
  ) {
    this.#nameOf = nameOf;
    this.#hearsRecalls = hearsRecalls;
    this.findsKeys = findsKeys;
    this.#apiId = apiId;
    this.#line = line;
    this.#lanes = lanes;
    this.#events = events;
  }

  subscribe(onMessage: (message: string) => void, onRecall: (pool: string) => void): Promise<void> {
    this.#listener = onMessage;
    const { channel, recalls } = apiKeys(this.#apiId);
    if (this.#hearsRecalls) this.#line.subscribe(recalls, onRecall).catch(() => undefined);
    return this.#line.subscribe(channel, onMessage);
  }

  async register(as: string, nonce: string): Promise<RegisterReply> {
    const member = this.#nameOf(as);
    const { machine, network } = this.#lanes;
    const { replicas } = network.group;
    this.#events.registering(this.#apiId, member);
    const sentAtMs = machine.monotonicMs();
    const connection = replicas === 0 ? this.#line : await this.#lanes.get('register');
    const step: Step<RegisterReply | undefined> = (state) => state.register(this.#apiId, member, nonce);
    const { reply, confirmed } = await connection.call('register', this.#apiId, step, replicas);
    if (confirmed < replicas) throw unavailable('not all required replicas confirmed the registration');
    if (!reply) throw unavailable('this verifier is too old');
    this.#events.registered(this.#apiId, reply);
    this.#events.granted(this.#apiId, sentAtMs, reply.leaseMs);
    return reply;
  }

  async sync(request: SyncRequest): Promise<SyncReply> {
    const sentAtMs = this.#lanes.machine.monotonicMs();
    const { reply } = await this.#line.call('sync', this.#apiId, (state) =>
      state.sync(this.#apiId, { ...request, member: this.#nameOf(request.member) }),
    );
    if (reply.status === 'OK' && reply.nonce === request.nonce) {
      this.#events.granted(this.#apiId, sentAtMs, reply.leaseMs);
    }
    return reply;
  }

  async leave(as: string): Promise<void> {
    const member = this.#nameOf(as);
    await this.#line.call('leave', this.#apiId, (state) => state.leave(this.#apiId, member));
  }

  onEnd(ended: () => void): void {
    this.#ended = ended;
    if (this.#line.open) this.#line.ended.add(ended);
    else ended();
  }

  end(how: 'quietly' | 'cut'): void {
    const ended = this.#ended;
    if (ended) this.#line.ended.delete(ended);
    const { channel, recalls } = apiKeys(this.#apiId);
    if (this.#listener && this.#line.listeners.get(channel) === this.#listener) {
      this.#line.unsubscribe(channel);
      if (this.#hearsRecalls) this.#line.unsubscribe(recalls);
    }
    this.#ended = undefined;
    if (how === 'cut') this.#line.end();
    ended?.();
  }
}

type Fields = Readonly<Record<string, string>> | undefined;
/** Records of a key before it was rerolled and after it, and of the one that took its place. */
type Rerolled = (successor: string, before: Fields, after: Fields, made: Fields) => void;

/** The pool, the credits that came, the change, and the server after it. */
type Granted = (pool: string, credits: number, write: Write, state: RedisState) => void;

const WRITE_LANES = 8;

/** A write without the roles that this server does not have: a control plane looks them up before. */
function withKnown(write: Write, state: RedisState): Write {
  const { R } = write.fields;
  if (!R) return write;
  const { records } = state.api(SHARED_LOG);
  const known = R.split(' ').filter((id) => records.has(id));
  return { ...write, fields: { ...write.fields, R: known.join(' ') } };
}

/** The control plane's port to the simulated Redis; does as redis-change-log.ts. */
export class SimulatedChangeLog implements BatchedChangeLog {
  readonly #lanes: Lanes;
  readonly #durable: (apiId: string, hash: string) => void;
  readonly #granted: Granted;
  readonly #rerolled: Rerolled;
  #turn = 0;

  /**
   * @param durable is told of each change that all replicas hold
   * @param granted is told of each that changed the credits of a pool, anywhere, and how many it brought
   * @param rerolled is told of each key that took another's place, anywhere
   */
  constructor(
    lanes: Lanes,
    durable: (apiId: string, hash: string) => void,
    granted: Granted,
    rerolled: Rerolled,
  ) {
    this.#rerolled = rerolled;
    this.#lanes = lanes;
    this.#durable = durable;
    this.#granted = granted;
  }

  async write(asked: Write): Promise<LogEntry | WriteRefusal> {
    const nowMs = this.#lanes.machine.wallMs();
    const poolId = asked.credits ? this.#lanes.network.random.token() : '';
    const { reply, replicated } = await this.durably(asked.apiId, (state) => {
      const write = withKnown(asked, state);
      const { apiId, keyId, credits, successor } = write;
      const { records } = state.api(apiId);
      const before = records.get(keyId);
      // Sent again within an hour: the credits that it brought are counted already.
      const known = state.hash(`kf:{${apiId}}:ops:${keyId}`)?.get(credits?.operation ?? '');
      const isAgain = known !== undefined && nowMs - JSON.parse(known)[0] <= 3_600_000;
      const done = state.write(write, nowMs, poolId);
      if (done.status !== 'OK') return done;
      if (successor)
        this.#rerolled(successor.keyId, before, records.get(keyId), records.get(successor.keyId));
      if (credits && !isAgain) {
        const value = credits.op === 'set' || credits.op === 'increment' ? credits.value : 0;
        this.#granted(records.get(keyId)?.['q'] ?? '', value, asked, state);
      }
      return done;
    });
    if (reply.status !== 'OK') return reply;
    if (replicated) this.#durable(asked.apiId, reply.hash);
    return { ...reply, replicated };
  }

  async writeAll(writes: readonly Write[]): Promise<(LogEntry | WriteRefusal)[]> {
    const nowMs = this.#lanes.machine.wallMs();
    const { replicas } = this.#lanes.network.group;
    const connection = await this.#lanes.get('batch');
    const done = await Promise.all(
      writes.map((write, i) => {
        const step: Step<Written> = (state) => state.write(write, nowMs);
        return connection.call('write', write.apiId, step, i === writes.length - 1 ? replicas : 0);
      }),
    );
    const replicated = (done.at(-1)?.confirmed ?? 0) >= replicas;
    return done.map(({ reply }, i) => {
      if (reply.status !== 'OK') return reply;
      if (replicated) this.#durable(writes[i]?.apiId ?? '', reply.hash);
      return { ...reply, replicated };
    });
  }

  lag(apiId: string): Promise<number> {
    return this.run(apiId, (state) => state.lag(apiId));
  }

  check(change: Parameters<BatchedChangeLog['check']>[0]): Promise<LogStatus> {
    const replicated = change.replicated && this.#lanes.network.group.replicas > 0;
    return this.run(change.apiId, (state) => state.check({ ...change, replicated }));
  }

  close(apiId: string, change: Pick<LogEntry, 'sequence' | 'hash' | 'server'>): Promise<Closing> {
    const kill = -this.#lanes.network.random.whole(1, 2 ** 40);
    return this.run(apiId, (state) => state.close(apiId, change, kill));
  }

  reap(apiId: string, killed: readonly KilledFollower[]): Promise<number> {
    return this.run(apiId, (state) => state.reap(apiId, killed));
  }

  /** Runs a script and waits until all replicas hold what it wrote; whether they do. */
  async durably<T>(apiId: string, step: Step<T>): Promise<{ reply: T; replicated: boolean }> {
    const { replicas } = this.#lanes.network.group;
    const connection = await this.#lanes.get(replicas === 0 ? 'main' : `write-${this.#turn++ % WRITE_LANES}`);
    const { reply, confirmed } = await connection.call('write', apiId, step, replicas);
    return { reply, replicated: confirmed >= replicas };
  }

  async run<T>(apiId: string, step: Step<T>, kind = 'fence'): Promise<T> {
    const connection = await this.#lanes.get('main');
    return (await connection.call(kind, apiId, step)).reply;
  }
}

/** The sweep's port to the simulated Redis; does as sweep-store.ts. */
export class SimulatedSweepStore implements SweepStore {
  readonly #log: SimulatedChangeLog;
  readonly #apiIds: readonly string[];

  constructor(log: SimulatedChangeLog, apiIds: readonly string[]) {
    this.#log = log;
    this.#apiIds = apiIds;
  }

  ids(after: string): Promise<string[]> {
    return Promise.resolve(this.#apiIds.filter((apiId) => apiId > after));
  }

  head(apiId: string): Promise<Head> {
    return this.#log.run(apiId, (state) => state.head(apiId), 'read');
  }

  async createSharedLog(leaseMs: number): Promise<void> {
    await this.#log.durably(SHARED_LOG, (state) => state.createApi(SHARED_LOG, leaseMs));
  }

  async setLease(apiId: string, step: LeaseStep, leaseMs: number, token: string): Promise<boolean> {
    const set: Step<boolean> = (state) => state.setLease(apiId, step, leaseMs, token);
    const { reply, replicated } = await this.#log.durably(apiId, set);
    return reply && replicated;
  }

  async setLending(apiId: string, step: LendingStep, name: string, outlivesMs?: number): Promise<boolean> {
    const { reply, replicated } = await this.#log.durably(apiId, (state) =>
      state.setLending(apiId, step, name, outlivesMs),
    );
    return reply && replicated;
  }

  /** As apis.ts does. */
  async updateApi(
    apiId: string,
    fence: string,
    fields: Readonly<Record<string, string | number>>,
  ): Promise<boolean> {
    const { reply, replicated } = await this.#log.durably(apiId, (state) =>
      state.updateApi(apiId, fence, fields),
    );
    return reply && replicated;
  }

  async removeKeys(apiId: string): Promise<boolean> {
    return (await this.#log.durably(apiId, (state) => state.removeKeys(apiId))).reply;
  }

  async forget(apiId: string): Promise<boolean> {
    return (await this.#log.durably(apiId, (state) => state.forget(apiId))).reply;
  }
}
