import type { ServerResponse } from 'node:http';
import { BlockList, isIPv6, type Server, type Socket } from 'node:net';
import { sourceOf } from '#shared/rules/ip-ranges.ts';
import type { HttpLimits } from './limits.ts';

/** Time that the client of a refused connection has to close its side before the connection is cut, ms. */
export const LINGER_MS = 1000;

/** The limit for which a connection was closed: per address, for all strangers, or for all connections. */
export type ConnectionBound = 'address' | 'strangers' | 'all';

interface Connection {
  readonly socket: Socket;
  /**
   * The address that the connection counts for; for IPv6, its first 64 bits. undefined = a trusted proxy,
   * which does not count.
   */
  readonly source: string | undefined;
  /** True until a call with a valid root key arrives on it. */
  isStranger: boolean;
  /** Number of unanswered requests. */
  requests: number;
}

/**
 * Bounds the connections of a server so that strangers cannot keep admins out. A connection is a stranger's
 * until a call with a valid root key arrives on it, and again after a call without one. Connections of
 * trusted proxies are never strangers'. Strangers may have at most half of all connections. At a limit, a new
 * connection is accepted if another can be closed for it: the oldest connection of the stranger address that
 * has the most, or else an idle one. So an admin gets in, however many silent connections there are.
 */
export class Connections {
  readonly #limits: HttpLimits;
  readonly #strangersMax: number;
  readonly #closed: (bound: ConnectionBound) => void;
  readonly #proxies = new BlockList();
  readonly #bySocket = new WeakMap<object, Connection>();
  /** Strangers' connections by source, the oldest first. */
  readonly #strangers = new Map<string, Set<Connection>>();
  /** All other connections; the one whose last call is longest ago comes first. */
  readonly #admitted = new Set<Connection>();
  /** Number of connections of each source, strangers' or not. */
  readonly #perSource = new Map<string, number>();
  #strangersCount = 0;

  /** @param closed is called for each connection that was closed because of a limit */
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

  /** Number of connections on which no call with a valid root key has arrived. */
  get strangers(): number {
    return this.#strangersCount;
  }

  /** Number of all other connections. */
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

  /** Records whether a call on this connection came with a valid root key. */
  classify(socket: object, isAdmin: boolean): void {
    const connection = this.#bySocket.get(socket);
    if (!connection || !this.#leave(connection)) return;
    connection.isStranger = !isAdmin && connection.source !== undefined;
    this.#join(connection);
  }

  #add(socket: Socket): void {
    // Read the address now, because Node then remembers it; after a caller hangs up, it is not available.
    const address = socket.remoteAddress ?? '';
    const isProxy = address !== '' && this.#proxies.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
    const source = isProxy ? undefined : sourceOf(address);
    const connection = { socket, source, isStranger: source !== undefined, requests: 0 };
    this.#bySocket.set(socket, connection);
    this.#join(connection);
    if (source !== undefined) this.#perSource.set(source, (this.#perSource.get(source) ?? 0) + 1);
    // In front of Node's own listener. Behind it, ended requests survive scavenges, and a change takes up to 1.6 times the
    // CPU time (measured with Node 24.21; the reason is unknown).
    socket.prependOnceListener('close', () => this.#remove(connection));
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

  /**
   * Closes the oldest of these strangers' connections except the newcomer, or else an idle one, or else the
   * newcomer.
   */
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
    // Otherwise the kernel would keep a silent connection for another minute.
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

  /** @returns false if the connection has already left */
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
