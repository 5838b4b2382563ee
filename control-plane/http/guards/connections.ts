import type { ServerResponse } from 'node:http';
import { BlockList, isIPv6, type Server, type Socket } from 'node:net';
import { normalizeIP } from '@fastify/rate-limit';
import type { HttpLimits } from '../limits.ts';

/** Longest time that the client of a refused connection has to close its side before it is cut, ms. */
export const LINGER_MS = 1000;

/** The bound for which a connection was closed: that of one address, of all strangers, or of everybody together. */
export type ConnectionBound = 'address' | 'strangers' | 'all';

interface Connection {
  readonly socket: Socket;
  /** The address that it counts for: of IPv6 the first 64 bits. undefined = a trusted proxy's, which counts for none. */
  readonly source: string | undefined;
  /** True until a call with a valid root key has come on it. */
  isStranger: boolean;
  /** Requests that are not answered. */
  requests: number;
}

/**
 * Bounds the connections of a server so that strangers cannot keep admins out. A connection is a stranger's until a call
 * with a valid root key comes on it, and again after one without; those of trusted proxies are nobody's. Strangers have
 * at most half of all. A new connection is let in as long as another can be closed for it: the oldest stranger's of the
 * address that has most of them, or else one that waits for nothing. So an admin gets in, however many stay silent.
 */
export class Connections {
  readonly #limits: HttpLimits;
  readonly #strangersMax: number;
  readonly #closed: (bound: ConnectionBound) => void;
  readonly #proxies = new BlockList();
  readonly #bySocket = new WeakMap<object, Connection>();
  /** Strangers' by their source, the oldest first. */
  readonly #strangers = new Map<string, Set<Connection>>();
  /** All others, the one whose last call is the longest ago first. */
  readonly #admitted = new Set<Connection>();
  /** Number of each source's, strangers' or not. */
  readonly #perSource = new Map<string, number>();
  #strangersCount = 0;

  /** @param closed told of each connection that was closed because there were too many */
  constructor(limits: HttpLimits, closed: (bound: ConnectionBound) => void) {
    this.#limits = limits;
    this.#strangersMax = Math.ceil(limits.CONNECTIONS_MAX / 2);
    this.#closed = closed;
    for (const proxy of limits.TRUSTED_PROXIES) {
      const [address = '', bits] = proxy.split('/');
      const family = isIPv6(address) ? 'ipv6' : 'ipv4';
      if (bits === undefined) this.#proxies.addAddress(address, family);
      else this.#proxies.addSubnet(address, Number(bits), family);
    }
  }

  /** Connections on which no call with a valid root key has come. */
  get strangers(): number {
    return this.#strangersCount;
  }

  /** All others. */
  get admitted(): number {
    return this.#admitted.size;
  }

  /** Bounds the connections of a server from now on. */
  watch(server: Server): void {
    server.on('connection', (socket: Socket) => this.#add(socket));
    server.on('request', ({ socket }: { socket: Socket }, response: ServerResponse) => {
      const connection = this.#bySocket.get(socket);
      if (!connection) return;
      connection.requests++;
      response.once('close', () => connection.requests--);
    });
  }

  /** Takes note of whether a call on this connection came with a valid root key. */
  classify(socket: object, isAdmin: boolean): void {
    const connection = this.#bySocket.get(socket);
    if (!connection || !this.#leave(connection)) return;
    connection.isStranger = !isAdmin && connection.source !== undefined;
    this.#join(connection);
  }

  #add(socket: Socket): void {
    // Node remembers an address that was asked for; of a caller who has hung up by then there is none to be had.
    const address = socket.remoteAddress ?? '';
    const isProxy = address !== '' && this.#proxies.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
    const source = isProxy ? undefined : normalizeIP(address);
    const connection = { socket, source, isStranger: source !== undefined, requests: 0 };
    this.#bySocket.set(socket, connection);
    this.#join(connection);
    if (source !== undefined) this.#perSource.set(source, (this.#perSource.get(source) ?? 0) + 1);
    socket.once('close', () => this.#remove(connection));
    this.#makeRoomFor(connection);
  }

  #makeRoomFor(newcomer: Connection): void {
    const { source } = newcomer;
    const { CONNECTIONS_PER_ADDRESS_MAX, CONNECTIONS_MAX } = this.#limits;
    if (source !== undefined && (this.#perSource.get(source) ?? 0) > CONNECTIONS_PER_ADDRESS_MAX)
      this.#closeOne('address', newcomer, this.#strangers.get(source), source);
    if (this.#strangersCount > this.#strangersMax)
      this.#closeOne('strangers', newcomer, this.#mostOfOneSource());
    if (this.#strangersCount + this.#admitted.size > CONNECTIONS_MAX)
      this.#closeOne('all', newcomer, this.#mostOfOneSource());
  }

  /** Closes the first of these strangers' but the newcomer, or else an idle one, or else the newcomer. */
  #closeOne(
    bound: ConnectionBound,
    newcomer: Connection,
    strangers?: Set<Connection>,
    source?: string,
  ): void {
    const [oldest = newcomer] = strangers ?? [];
    const victim = oldest === newcomer ? (this.#idle(source) ?? newcomer) : oldest;
    this.#closed(bound);
    this.#remove(victim);
    // The kernel would keep a silent stranger's for a minute more.
    if (victim.isStranger) victim.socket.resetAndDestroy();
    else victim.socket.destroy();
  }

  #mostOfOneSource(): Set<Connection> | undefined {
    let largest: Set<Connection> | undefined;
    for (const each of this.#strangers.values()) if (each.size > (largest?.size ?? 0)) largest = each;
    return largest;
  }

  #idle(source: string | undefined): Connection | undefined {
    for (const each of this.#admitted)
      if (each.requests === 0 && (source === undefined || each.source === source)) return each;
    return undefined;
  }

  #join(connection: Connection): void {
    const { source = '', isStranger } = connection;
    if (!isStranger) return void this.#admitted.add(connection);
    const others = this.#strangers.get(source) ?? new Set();
    this.#strangers.set(source, others.add(connection));
    this.#strangersCount++;
  }

  /** @returns false where it is gone already */
  #leave(connection: Connection): boolean {
    const { source = '', isStranger } = connection;
    if (!isStranger) return this.#admitted.delete(connection);
    const strangers = this.#strangers.get(source);
    if (!strangers?.delete(connection)) return false;
    this.#strangersCount--;
    if (strangers.size === 0) this.#strangers.delete(source);
    return true;
  }

  #remove(connection: Connection): void {
    const { source } = connection;
    if (!this.#leave(connection) || source === undefined) return;
    const remainder = (this.#perSource.get(source) ?? 0) - 1;
    if (remainder > 0) this.#perSource.set(source, remainder);
    else this.#perSource.delete(source);
  }
}
