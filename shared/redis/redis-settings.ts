import { existsSync, readFileSync } from 'node:fs';
import type { RedisOptions } from 'ioredis';
import type { Clock } from '../process/clock.ts';
import { type ConfigOf, choice, integer, type LoadedConfig, secret, text } from '../process/load-config.ts';
import { PasswordCommand } from './password-command.ts';
import { ExplainingConnector, type OnSentinel } from './sentinel-connector.ts';

/** The settings for Redis, the same in both processes. */
export const redisSettings = {
  REDIS_URL: secret(
    'redis://127.0.0.1:6379',
    'redis://, rediss:// or unix:// URLs, comma-separated',
    parseAddresses,
  ).help(
    'Address of Redis 7 or newer. With REDIS_MODE `sentinel` or `cluster`, list several Sentinels or nodes',
  ),
  REDIS_MODE: choice(['single', 'sentinel', 'cluster'], 'single').help(
    'Kind of Redis installation at REDIS_URL',
  ),
  REDIS_SENTINEL_NAME: text('mymaster').help('Name that the Sentinels use for the primary'),
  REDIS_USERNAME: text('').help('Redis ACL user, if REDIS_URL does not name one'),
  REDIS_PASSWORD: secret('', 'text', firstLine).help(
    'Redis password, if REDIS_URL does not contain one. Prefer REDIS_PASSWORD_FILE, whose first line counts',
  ),
  REDIS_PASSWORD_COMMAND: text('').help(
    'Program, with its arguments, that prints the password of REDIS_USERNAME for new connections: a text, which is used for 60 s, or in one line `{"password":"…","expiresAt":<Unix ms>}`. No shell reads it; it has 5 s, and 64 KiB',
  ),
  REDIS_SENTINEL_PASSWORD: secret('', 'text', firstLine).help(
    'Password of the Sentinels. In REDIS_SENTINEL_PASSWORD_FILE, the first line counts',
  ),
  REDIS_TLS_CA_FILE: text('').help(
    'PEM file of the certificate authority for `rediss://`, if the system does not trust it',
  ),
  REDIS_REPLICAS: integer(0, 8, 'replicas', 0).help(
    'Number of replicas that must have a write before Keyfence acknowledges it. Set it to the number of all replicas; otherwise a failover can lose acknowledged writes',
  ),
};

/** During a rotation, the files of servers have two lines, and both sides may have the same file. */
function firstLine(text: string): string {
  return text.split(/\r?\n/, 1)[0] ?? '';
}

/** Limits that suit everybody. Only tests replace them. */
export const redisLimits = {
  /** Longest time for opening a connection. */
  REDIS_CONNECT_TIMEOUT_MS: 1000,
  /** Longest time that a command may take before its connection is cut; WAIT may take 1000 ms. */
  REDIS_COMMAND_TIMEOUT_MS: 2000,
};

/** The values of `redisSettings`, and the limits. */
export type RedisConfig = ConfigOf<typeof redisSettings> &
  typeof redisLimits &
  Partial<Pick<LoadedConfig<typeof redisSettings>, 'readSecretsAgain'>>;

/** Returns the faults of settings that do not fit together. */
export function redisFaults(config: ConfigOf<typeof redisSettings>): string[] {
  const { REDIS_URL: addresses, REDIS_MODE } = config;
  const faults: string[] = [];
  if (addresses.length > 1 && REDIS_MODE === 'single') {
    faults.push('REDIS_URL: several addresses need REDIS_MODE sentinel or cluster');
  }
  if (REDIS_MODE === 'cluster' && addresses.some(({ database }) => database !== 0)) {
    faults.push('REDIS_URL: a Cluster has only database 0; remove the number after the host');
  }
  if (config.REDIS_TLS_CA_FILE && !existsSync(config.REDIS_TLS_CA_FILE)) {
    faults.push('REDIS_TLS_CA_FILE: there is no such file');
  }
  if (config.REDIS_PASSWORD_COMMAND && (config.REDIS_PASSWORD || addresses.some(({ password }) => password)))
    faults.push(
      'REDIS_PASSWORD_COMMAND: there is another password; remove it from REDIS_URL and REDIS_PASSWORD',
    );
  return faults;
}

/** Options of a connection. */
export type Options = Omit<RedisOptions, 'replyMapping'>;

/** A server. */
export interface Node {
  readonly host: string;
  readonly port: number;
}

/** One address of REDIS_URL. */
export interface RedisAddress extends Node {
  /** A unix socket, in place of host and port. */
  readonly path?: string;
  readonly hasTls: boolean;
  readonly username: string;
  readonly password: string;
  readonly database: number;
}

/** Characters with a meaning of their own in a URL, and how to write them in a user or password. */
const ENCODED =
  'in user and password write % as %25, @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, comma as %2C';

/** Throws a sentence for each fault, which repeats nothing of the text, because any part may be the password's. */
export function parseAddresses(text: string): readonly RedisAddress[] {
  const addresses = text.split(',').map((part) => parseAddress(part.trim()));
  const [first] = addresses as [RedisAddress];
  for (const name of ['username', 'password', 'database', 'hasTls', 'path'] as const)
    if (addresses.some((address) => address[name] !== first[name]))
      throw new Error('must have the same scheme, user, password and database in all addresses');
  return addresses;
}

function parseAddress(text: string): RedisAddress {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^(rediss?|unix):$/.test(url.protocol))
    throw new Error(`must be redis://user:password@host:port/database; ${ENCODED}`);
  if (url.search || url.hash || text.split('@').length > 2)
    throw new Error(`must have no raw ?, # or second @; ${ENCODED}`);
  const isSocket = url.protocol === 'unix:';
  if (!isSocket && !url.hostname) throw new Error('must name a host');
  if (isSocket && url.pathname.length < 2)
    throw new Error('must name a socket, as in unix:///run/redis.sock');
  if (isSocket && url.hostname) throw new Error('must have three slashes, as in unix:///run/redis.sock');
  if (url.port === '0') throw new Error('must have a port of 1 to 65535');
  if (!isSocket && !/^\/?$|^\/\d{1,6}$/.test(url.pathname))
    throw new Error(`must have nothing but the number of a database after the host; ${ENCODED}`);
  return {
    ...{ host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || 6379) },
    ...(isSocket ? { path: decoded(url.pathname) } : {}),
    hasTls: url.protocol === 'rediss:',
    ...{ username: decoded(url.username), password: decoded(url.password) },
    database: isSocket ? 0 : Number(url.pathname.slice(1)),
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error(`has a % that encodes nothing; ${ENCODED}`);
  }
}

/** Options of connections, with passwords and authorities as their files have them when a connection begins. */
export class FreshOptions {
  readonly #config: RedisConfig;
  readonly #onSentinel: OnSentinel;
  readonly #command: PasswordCommand | undefined;
  #ca: Buffer | undefined;

  /** @param onSentinel called with each connection to a Sentinel */
  constructor(config: RedisConfig, clock: Clock, onSentinel: OnSentinel = () => undefined) {
    this.#config = config;
    const { REDIS_PASSWORD_COMMAND: command } = config;
    this.#command = command ? new PasswordCommand(command, clock) : undefined;
    this.#onSentinel = onSentinel;
  }

  /**
   * Resolves with the options of a new connection. Rejects if the program that prints the password fails.
   * @param refused the options with which Redis has refused a connection
   */
  async forConnection(refused?: Options): Promise<Options> {
    const password = await this.#command?.password(refused?.password ?? undefined);
    const options = this.read();
    return password === undefined ? options : { ...options, password };
  }

  read(): Options {
    const config = { ...this.#config, ...this.#config.readSecretsAgain?.() };
    const { REDIS_TLS_CA_FILE: file } = config;
    try {
      if (file) this.#ca = readFileSync(file);
    } catch (error) {
      if (this.#ca === undefined) throw error; // otherwise somebody may be replacing it
    }
    return connectionOptions(config, this.#ca, this.#onSentinel);
  }
}

/** Tells whether connections with these options prove who they are in the same way. */
export const isSameProof = (a: Options, b: Options): boolean =>
  a.username === b.username && a.password === b.password && a.sentinelPassword === b.sentinelPassword;

/**
 * Returns the options for ioredis. Each connection is one session; commands are neither queued nor sent
 * twice. They lack the database: ioredis would go on in database 0 if Redis refused it.
 */
function connectionOptions(config: RedisConfig, ca: Buffer | undefined, onSentinel: OnSentinel): Options {
  const addresses = config.REDIS_URL;
  const [{ path, host, port, hasTls, ...user }] = addresses as readonly [RedisAddress];
  const username = user.username || config.REDIS_USERNAME;
  const password = user.password || config.REDIS_PASSWORD;
  const tls = hasTls ? (ca ? { ca } : {}) : undefined;
  return {
    ...(path === undefined ? { host, port } : { path }),
    ...(username ? { username } : {}),
    ...(password ? { password } : {}),
    ...(tls ? { tls } : {}),
    ...(config.REDIS_MODE === 'sentinel'
      ? {
          Connector: ExplainingConnector,
          onSentinel,
          sentinels: addresses.map(({ host, port }) => ({ host, port })),
          name: config.REDIS_SENTINEL_NAME,
          sentinelRetryStrategy: () => null,
          sentinelCommandTimeout: config.REDIS_CONNECT_TIMEOUT_MS,
          failoverDetector: true,
          ...(config.REDIS_SENTINEL_PASSWORD ? { sentinelPassword: config.REDIS_SENTINEL_PASSWORD } : {}),
          ...(tls ? { enableTLSForSentinelMode: true, sentinelTLS: tls } : {}),
        }
      : {}),
    lazyConnect: true,
    enableOfflineQueue: false,
    enableReadyCheck: false, // `refuseUnusable` checks more, and reports the reason
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
    connectTimeout: config.REDIS_CONNECT_TIMEOUT_MS,
    disconnectTimeout: 0, // cuts a connection immediately; waiting for its end would keep the process alive
    keepAlive: 5000,
    disableClientInfo: true,
  };
}
