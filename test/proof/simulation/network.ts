import { unavailable } from '../../../shared/rules/errors.ts';
import type { Machine, Timeline } from './clock.ts';
import { type Client, type RedisGroup, type RedisNode, Refused } from './nodes.ts';
import type { Random } from './random.ts';
import type { Step } from './redis.ts';

/** One direction between a machine and a server. `held`: arrives when it mends. `lost`: never arrives. */
export type Passage = 'open' | 'held' | 'lost';

/** Manners of a network: losses, delays and doubles. */
export interface NetworkManners {
  /** Of published messages: the share that never arrives, arrives twice, or is overtaken by others. */
  readonly messageLoss: number;
  readonly messageDuplication: number;
  readonly messageDelay: number;
  /** The share of requests and replies that take long. */
  readonly slowness: number;
  readonly slowMsMax: number;
  /** The share of verifiers' connections that come to pair replies with the wrong requests. */
  readonly desynchronisation: number;
}

/** What the clock of Redis shows at first: the beginning of a day, and of every window. */
const EPOCH_MS = 20_000 * 86_400_000;
const CONNECT_TIMEOUT_MS = 1000;
const COMMAND_TIMEOUT_MS = 2000;

/** Both directions between one machine and one server. */
class Link {
  readonly passages = { out: 'open' as Passage, back: 'open' as Passage };
  readonly parked: (() => void)[] = [];
}

/** All links, and who believes whom to be the primary. */
export class Network {
  readonly timeline: Timeline;
  readonly random: Random;
  readonly group: RedisGroup;
  manners: NetworkManners;
  /** A server ran a script for somebody. */
  onExecuted: (connection: Connection, kind: string, apiId: string, reply: unknown) => void = () => undefined;
  onSubscribed: (machine: Machine, channel: string) => void = () => undefined;
  /** Machines that have not heard of the latest failover. */
  readonly uninformed = new Map<Machine, RedisNode>();
  /** How far the clock of Redis is ahead of true time. */
  redisAheadMs = 0;
  readonly #links = new Map<string, Link>();
  readonly #connections = new Set<Connection>();

  constructor(timeline: Timeline, random: Random, group: RedisGroup, manners: NetworkManners) {
    this.timeline = timeline;
    this.random = random;
    this.group = group;
    this.manners = manners;
  }

  /** The clock of Redis. */
  get redisMs(): number {
    return EPOCH_MS + this.timeline.nowMs + this.redisAheadMs;
  }

  link(machine: Machine, node: RedisNode): Link {
    const name = `${machine.name}>${node.name}`;
    const present = this.#links.get(name);
    if (present) return present;
    const link = new Link();
    this.#links.set(name, link);
    return link;
  }

  /** Interrupts or mends one direction of a link. What was held back goes on in its order. */
  set(link: Link, direction: 'out' | 'back', passage: Passage): void {
    link.passages[direction] = passage;
    for (const pass of link.parked.splice(0)) this.timeline.after(0, pass);
  }

  mend(): void {
    for (const link of this.#links.values()) {
      this.set(link, 'out', 'open');
      this.set(link, 'back', 'open');
    }
  }

  /** A machine's connections, to be broken. */
  of(machine: Machine): Connection[] {
    return [...this.#connections].filter((connection) => connection.machine === machine);
  }

  primaryFor(machine: Machine): RedisNode {
    return this.uninformed.get(machine) ?? this.group.primary;
  }

  /** Opens a connection, if no server is named to the primary, as this machine knows it. */
  connect(machine: Machine, node = this.primaryFor(machine)): Promise<Connection> {
    const { promise, resolve, reject } = Promise.withResolvers<Connection>();
    const connection = new Connection(this, machine, node);
    machine.after(CONNECT_TIMEOUT_MS, () => {
      if (!connection.accepted) connection.end();
      reject(unavailable('cannot connect'));
    });
    connection.send('out', () => {
      if (!node.up)
        return connection.send('back', () => machine.deliver(() => reject(unavailable('refused'))));
      node.clients.add(connection);
      connection.send('back', () =>
        machine.deliver(() => {
          if (!connection.open) return reject(unavailable('the connection to Redis was lost'));
          connection.accepted = true;
          resolve(connection);
        }),
      );
    });
    this.#connections.add(connection);
    return promise;
  }

  forget(connection: Connection): void {
    this.#connections.delete(connection);
    connection.node.clients.delete(connection);
  }

  /** Draws the time that one message is on its way. */
  latencyMs(): number {
    const { random, manners } = this;
    return random.chance(manners.slowness) ? random.between(1, manners.slowMsMax) : random.between(0.1, 1.5);
  }
}

/** One TCP connection: in order each way, without gaps until it breaks, and not always aware that it broke. */
export class Connection implements Client {
  readonly machine: Machine;
  readonly node: RedisNode;
  open = true;
  accepted = false;
  /** Called once when the machine knows that it ended. */
  readonly ended = new Set<() => void>();
  readonly listeners = new Map<string, (message: string) => void>();
  /** Channels that the server knows of. */
  readonly #subscribed = new Set<string>();
  readonly #network: Network;
  readonly #pending = new Set<(error: unknown) => void>();
  readonly #arrivesAtMs = { out: 0, back: 0 };
  readonly #broken = { out: false, back: false };
  /** The latest reply of each kind, which the next request gets, once the connection is out of step. */
  #lastReplies: Map<string, unknown> | undefined;

  constructor(network: Network, machine: Machine, node: RedisNode) {
    this.#network = network;
    this.machine = machine;
    this.node = node;
  }

  /** From now on every reply goes to the request after its own. */
  desynchronise(): void {
    this.#lastReplies ??= new Map();
  }

  /** Runs a script at the server. Rejects with SERVICE_UNAVAILABLE, and then it may have run or run later. */
  call<T>(
    kind: string,
    apiId: string,
    step: Step<T>,
    replicasWaited = 0,
  ): Promise<{ reply: T; confirmed: number }> {
    if (!this.open) return Promise.reject(unavailable('the connection to Redis was lost'));
    const { promise, resolve, reject } = Promise.withResolvers<{ reply: T; confirmed: number }>();
    const timer = this.machine.after(COMMAND_TIMEOUT_MS, () => this.end());
    const failed = (error: unknown) => {
      timer.cancel();
      this.#pending.delete(failed);
      reject(error);
    };
    this.#pending.add(failed);
    const answered = (reply: T, confirmed: number) =>
      this.send('back', () =>
        this.machine.deliver(() => {
          if (!this.#pending.delete(failed)) return;
          timer.cancel();
          resolve({ reply: this.#paired(kind, reply), confirmed });
        }),
      );
    this.send('out', () => {
      if (!this.node.clients.has(this)) return this.closed();
      try {
        const reply = this.#network.group.execute(this.node, apiId, kind, step);
        this.#network.onExecuted(this, kind, apiId, reply);
        if (replicasWaited === 0) answered(reply, 0);
        else this.#network.group.wait(this.node, 1000, (confirmed) => answered(reply, confirmed));
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        this.send('back', () =>
          this.machine.deliver(() => {
            failed(unavailable(`Redis refused: ${error.message}`));
            this.end();
          }),
        );
      }
    });
    return promise;
  }

  subscribe(channel: string, listener: (message: string) => void): Promise<void> {
    if (!this.open) return Promise.reject(unavailable('the connection to Redis was lost'));
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.listeners.set(channel, listener);
    this.#pending.add(reject);
    this.send('out', () => {
      if (!this.node.clients.has(this)) return this.closed();
      this.#subscribed.add(channel);
      this.#network.onSubscribed(this.machine, channel);
      this.send('back', () => this.machine.deliver(() => this.#pending.delete(reject) && resolve()));
    });
    return promise;
  }

  unsubscribe(channel: string): void {
    this.listeners.delete(channel);
    this.send('out', () => this.#subscribed.delete(channel));
  }

  /** Messages take their own way and time: more than one TCP connection does to them, less than a cluster's bus. */
  published(channel: string, message: string): void {
    if (!this.#subscribed.has(channel)) return;
    const { random, manners, timeline } = this.#network;
    if (random.chance(manners.messageLoss)) return;
    const copies = random.chance(manners.messageDuplication) ? 2 : 1;
    for (let i = 0; i < copies; i++) {
      const delayMs = random.chance(manners.messageDelay) ? random.between(1, 500) : random.between(0.1, 1.5);
      timeline.after(delayMs, () =>
        this.#pass('back', () =>
          this.machine.deliver(() => {
            if (this.open) this.listeners.get(channel)?.(message);
          }),
        ),
      );
    }
  }

  /** The server's end is gone; the machine hears of it unless nothing gets through. */
  closed(): void {
    this.send('back', () => this.machine.deliver(() => this.end()));
  }

  /** The machine's end is gone. What was sent may still arrive. */
  end(): void {
    if (!this.open) return;
    this.open = false;
    this.send('out', () => this.#network.forget(this));
    this.#network.timeline.after(0, () =>
      this.machine.deliver(() => {
        for (const reject of [...this.#pending]) reject(unavailable('the connection to Redis was lost'));
        this.#pending.clear();
        for (const ended of [...this.ended]) ended();
      }),
    );
  }

  send(direction: 'out' | 'back', arrive: () => void): void {
    const { timeline } = this.#network;
    const atMs = Math.max(this.#arrivesAtMs[direction], timeline.nowMs + this.#network.latencyMs());
    this.#arrivesAtMs[direction] = atMs;
    timeline.after(atMs - timeline.nowMs, () => this.#pass(direction, arrive), direction === 'back');
  }

  #pass(direction: 'out' | 'back', arrive: () => void): void {
    const link = this.#network.link(this.machine, this.node);
    const passage = link.passages[direction];
    if (passage === 'lost') this.#broken[direction] = true;
    if (this.#broken[direction]) return;
    if (passage === 'held') link.parked.push(() => this.#pass(direction, arrive));
    else arrive();
  }

  #paired<T>(kind: string, reply: T): T {
    if (!this.#lastReplies) return reply;
    const earlier = this.#lastReplies.get(kind);
    this.#lastReplies.set(kind, reply);
    return earlier === undefined ? reply : (earlier as T);
  }
}
