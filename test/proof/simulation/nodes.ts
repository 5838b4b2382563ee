import type { Timeline } from './clock.ts';
import type { Random } from './random.ts';
import type { RedisState, Step } from './redis.ts';

/** Error that a server answers instead of a reply. */
export class Refused extends Error {}

/** Somebody connected to a server. */
export interface Client {
  /** A message was published. */
  published(channel: string, message: string): void;
  /** The server ended the connection. */
  closed(): void;
}

interface Waiter {
  readonly offset: number;
  readonly done: (confirmed: number) => void;
}

/** One Redis server: primary, replica, deposed primary that does not know it yet, or down. */
export class RedisNode {
  readonly name: string;
  state: RedisState;
  role: 'primary' | 'replica' = 'replica';
  up = true;
  /** A primary that lost its replicas: it refuses every script from this moment on (min-replicas-to-write). */
  refusesFromMs = Number.POSITIVE_INFINITY;
  /** Number of entries of the present history that it has applied. */
  offset = 0;
  readonly clients = new Set<Client>();

  constructor(name: string, state: RedisState) {
    this.name = name;
    this.state = state;
  }

  closeClients(): void {
    for (const client of [...this.clients]) client.closed();
    this.clients.clear();
  }

  /** Tells its clients of the messages among what a script did. */
  publish(effects: Effects): void {
    for (const [name, channel = '', message = ''] of effects)
      if (name === 'PUBLISH') for (const client of this.clients) client.published(channel, message);
  }
}

/** Commands that changed something. */
type Effects = ReturnType<RedisState['takeEffects']>;

/** The servers of one Redis, who leads them, and what of the history has come where. */
export class RedisGroup {
  readonly nodes: readonly RedisNode[];
  /** Number of replicas that must hold a write. */
  readonly replicas: number;
  primary: RedisNode;
  /** Replicas that only verifiers read. Nobody waits for them, and none takes over. */
  readonly readers: readonly RedisNode[];
  /** Replicas whose link to the primary is interrupted. */
  readonly stalled = new Set<RedisNode>();
  /** A change of the data at a server that leads, or thinks so; `apiId` names what it was about. */
  onWrite: (node: RedisNode, apiId: string, kind: string) => void = () => undefined;
  onPromoted: (former: RedisNode) => void = () => undefined;
  /** Keeps out until a failover, then takes the place of the former primary, which keeps out from then on. */
  #spare: RedisNode | undefined;
  readonly #timeline: Timeline;
  readonly #random: Random;
  #history: Effects[] = [];
  #era = 0;
  #ids = 0;
  readonly #pumping = new Set<RedisNode>();
  readonly #acknowledged = new Map<RedisNode, number>();
  #waiters: Waiter[] = [];

  constructor(
    nodes: readonly RedisNode[],
    spare: RedisNode | undefined,
    timeline: Timeline,
    random: Random,
    readers: readonly RedisNode[] = [],
  ) {
    this.readers = readers;
    this.nodes = [...nodes, ...(spare ? [spare] : []), ...readers];
    this.#spare = spare;
    this.replicas = nodes.length - 1;
    this.primary = nodes[0] as RedisNode;
    this.primary.role = 'primary';
    this.#identify(this.primary);
    this.#timeline = timeline;
    this.#random = random;
    for (const node of [...nodes, ...readers]) if (node !== this.primary) this.#acknowledged.set(node, 0);
  }

  /**
   * Runs a script at a server, atomically; of kind `read`, plain reading commands; of kind `nearby`, what a replica may run, too.
   * Throws Refused.
   */
  execute<T>(node: RedisNode, apiId: string, kind: string, step: Step<T>): T {
    if (kind === 'read') return step(node.state);
    if (kind.endsWith('nearby')) {
      node.state.takeEffects();
      const reply = step(node.state);
      if (node.state.takeEffects().length > 0) throw new Error('a replica was written to');
      return reply;
    }
    if (node.role === 'replica') throw new Refused('READONLY');
    if (this.#timeline.nowMs >= node.refusesFromMs) throw new Refused('NOREPLICAS');
    node.state.takeEffects(); // of the beginning, which all servers have
    const reply = step(node.state);
    const effects = node.state.takeEffects();
    if (effects.length > 0) {
      node.offset++;
      if (node === this.primary) this.#history.push(effects);
      this.onWrite(node, apiId, kind);
      for (const replica of this.nodes) this.#pump(replica);
    }
    node.publish(effects);
    return reply;
  }

  /** WAIT: tells once how many replicas hold all that `node` wrote so far, at the latest after `limitMs`. */
  wait(node: RedisNode, limitMs: number, done: (confirmed: number) => void): void {
    const [era, { offset }] = [this.#era, node];
    const timer = this.#timeline.after(limitMs, () => {
      this.#waiters = this.#waiters.filter((waiter) => waiter !== mine);
      done(node === this.primary && era === this.#era ? this.#confirmed(offset) : 0);
    });
    const mine: Waiter = {
      offset,
      done: (confirmed) => {
        timer.cancel();
        done(confirmed);
      },
    };
    if (node === this.primary) this.#waiters.push(mine);
    this.#answerWaiters();
  }

  /** A server's process ends, with all its connections, or starts again over the same data. */
  power(node: RedisNode, up: boolean): void {
    node.up = up;
    if (!up) node.closeClients();
    else if (node !== this.primary) this.resync(node);
    else this.#identify(node);
    for (const replica of this.nodes) this.#pump(replica);
  }

  /** A replica's link to the primary breaks or mends. */
  stall(replica: RedisNode, isStalled: boolean): void {
    if (isStalled) this.stalled.add(replica);
    else this.stalled.delete(replica);
    this.#pump(replica);
  }

  /** Makes a replica the primary. What only the former had is lost; the other replicas copy the new one. */
  promote(node: RedisNode): void {
    const former = this.primary;
    if (this.#spare) this.#spare = former;
    this.primary = node;
    node.role = 'primary';
    this.#identify(node);
    node.refusesFromMs = Number.POSITIVE_INFINITY;
    this.#era++;
    this.#history = [];
    node.offset = 0;
    this.#acknowledged.clear();
    this.#pumping.clear();
    this.stalled.delete(node);
    this.#waiters = [];
    for (const other of this.nodes) if (other !== node && other !== former) this.resync(other);
    this.onPromoted(former);
  }

  /** Gives a server a replication id that no other has. */
  #identify(node: RedisNode): void {
    node.state.server = `${++this.#ids}`;
  }

  /** A server becomes a replica of the primary and, after some time, has a copy of its data. */
  resync(node: RedisNode): void {
    node.role = 'replica';
    this.#acknowledged.delete(node);
    if (node === this.#spare) return;
    const era = this.#era;
    this.#timeline.after(this.#random.between(5, 300), () => {
      if (era !== this.#era || !node.up) return;
      if (this.stalled.has(node)) return this.resync(node);
      node.state = this.primary.state.clone();
      node.offset = this.primary.offset;
      this.#acknowledge(node);
    });
  }

  /** A replica starts again over older data, as from a backup of its own, and has this until it has a copy of the primary's. */
  jumpBack(replica: RedisNode, before: RedisState): void {
    if (replica.role !== 'replica') return;
    replica.closeClients();
    replica.state = before;
    this.resync(replica);
  }

  /** Tells whether a server has, but for what is on its way, the data of the primary. */
  follows(node: RedisNode): boolean {
    return node.up && node.role === 'replica' && this.#acknowledged.has(node);
  }

  /** Sends a replica what it lacks, and takes its acknowledgement. */
  #pump(replica: RedisNode): void {
    if (replica === this.primary || !this.#ready(replica) || this.#pumping.has(replica)) return;
    if (replica.offset === this.primary.offset) return;
    this.#pumping.add(replica);
    const [era, until] = [this.#era, this.primary.offset];
    const delayMs = this.#random.chance(0.03) ? this.#random.between(5, 100) : this.#random.between(0.1, 1);
    this.#timeline.after(delayMs, () => {
      if (era !== this.#era) return;
      this.#pumping.delete(replica);
      if (!this.#ready(replica)) return;
      while (replica.offset < until) {
        const effects = this.#history[replica.offset];
        if (!effects) throw new Error('a replica is ahead of its primary');
        replica.offset++;
        for (const [name = '', ...args] of effects) replica.state.command(name, ...args);
        replica.publish(replica.state.takeEffects());
      }
      this.#timeline.after(this.#random.between(0.1, 1), () => {
        if (era === this.#era && this.#ready(replica)) this.#acknowledge(replica);
      });
      this.#pump(replica);
    });
  }

  #ready(replica: RedisNode): boolean {
    return this.primary.up && replica.up && this.#acknowledged.has(replica) && !this.stalled.has(replica);
  }

  #acknowledge(replica: RedisNode): void {
    this.#acknowledged.set(replica, replica.offset);
    this.#answerWaiters();
    this.#pump(replica);
  }

  #confirmed(offset: number): number {
    const counted = [...this.#acknowledged].filter(([node]) => !this.readers.includes(node));
    return counted.filter(([, acknowledged]) => acknowledged >= offset).length;
  }

  #answerWaiters(): void {
    this.#waiters = this.#waiters.filter(({ offset, done }) => {
      const confirmed = this.#confirmed(offset);
      if (confirmed >= this.replicas) done(confirmed);
      return confirmed < this.replicas;
    });
  }
}
