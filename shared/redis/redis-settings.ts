import { existsSync, readFileSync } from 'node:fs';
import type { RedisOptions } from 'ioredis';
import { type ConfigOf, choice, integer, secret, text } from '../process/load-config.ts';
import { ExplainingConnector } from './sentinel-connector.ts';

/** The settings for Redis, the same in both processes. */
export const redisSettings = {
  REDIS_URL: secret(
    'redis://127.0.0.1:6379',
    'redis://, rediss:// or unix:// URLs, comma-separated',
    parseUrls,
  ).help(
    'Address of Redis, which must be version 7 or newer. With REDIS_MODE `sentinel` or `cluster`, list several Sentinels or seed nodes',
  ),
  REDIS_MODE: choice(['single', 'sentinel', 'cluster'], 'single').help(
    'Kind of Redis installation at REDIS_URL',
  ),
  REDIS_SENTINEL_NAME: text('mymaster').help('Name that the Sentinels use for the primary'),
  REDIS_USERNAME: text('').help('Redis ACL user, if REDIS_URL does not name one'),
  REDIS_PASSWORD: secret('', 'text').help(
    'Redis password, if REDIS_URL does not contain one. Prefer REDIS_PASSWORD_FILE',
  ),
  REDIS_SENTINEL_PASSWORD: secret('', 'text').help('Password of the Sentinels'),
  REDIS_TLS_CA_FILE: text('').help(
    'PEM file of the certificate authority for `rediss://`, if it is not one that the system trusts',
  ),
  REDIS_REPLICAS: integer(0, 8, 'replicas', 0).help(
    'Number of replicas that must have a write before Keyfence acknowledges the write (with the Redis command WAIT). Set it to the number of all replicas; otherwise a failover can lose acknowledged writes',
  ),
};

/** Limits that suit everybody. Only tests replace them. */
export const redisLimits = {
  /** Longest time for opening a connection. */
  REDIS_CONNECT_TIMEOUT_MS: 1000,
  /**
   * Longest time that a command may take before its connection is cut. Set it above the 1000 ms that WAIT may
   * take.
   */
  REDIS_COMMAND_TIMEOUT_MS: 2000,
};

/** The values of `redisSettings`, and the limits. */
export type RedisConfig = ConfigOf<typeof redisSettings> & typeof redisLimits;

/** Returns the faults of settings that do not fit together. */
export function redisFaults(config: ConfigOf<typeof redisSettings>): string[] {
  const faults: string[] = [];
  if (config.REDIS_URL.length > 1 && config.REDIS_MODE === 'single') {
    faults.push('REDIS_URL: several addresses need REDIS_MODE sentinel or cluster');
  }
  if (config.REDIS_TLS_CA_FILE && !existsSync(config.REDIS_TLS_CA_FILE)) {
    faults.push('REDIS_TLS_CA_FILE: there is no such file');
  }
  return faults;
}

/** Options of a connection. */
export type Options = Omit<RedisOptions, 'replyMapping'>;

/** A server. */
export interface Node {
  readonly host: string;
  readonly port: number;
}

function parseUrls(text: string): readonly URL[] {
  return text.split(',').map((part) => {
    const url = URL.canParse(part.trim()) ? new URL(part.trim()) : undefined;
    if (!url || !['redis:', 'rediss:', 'unix:'].includes(url.protocol)) throw new Error('is not allowed');
    return url;
  });
}

/** Returns the server in a URL. */
export function nodeOf(url: URL): Node {
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || 6379) };
}

/**
 * Returns the options for ioredis. Each connection is one session; commands are neither queued nor sent
 * twice.
 */
export function connectionOptions(config: RedisConfig): Options {
  const urls = config.REDIS_URL;
  const [first] = urls as readonly [URL];
  const username = decodeURIComponent(first.username) || config.REDIS_USERNAME;
  const password = decodeURIComponent(first.password) || config.REDIS_PASSWORD;
  const ca = config.REDIS_TLS_CA_FILE;
  const tls = first.protocol === 'rediss:' ? (ca ? { ca: readFileSync(ca) } : {}) : undefined;
  return {
    ...(first.protocol === 'unix:' ? { path: decodeURIComponent(first.pathname) } : nodeOf(first)),
    ...(first.pathname.length > 1 && first.protocol !== 'unix:'
      ? { db: Number(first.pathname.slice(1)) }
      : {}),
    ...(username ? { username } : {}),
    ...(password ? { password } : {}),
    ...(tls ? { tls } : {}),
    ...(config.REDIS_MODE === 'sentinel'
      ? {
          Connector: ExplainingConnector,
          sentinels: urls.map(nodeOf),
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
