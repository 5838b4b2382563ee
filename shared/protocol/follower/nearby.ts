import slotOf from 'cluster-key-slot';
import type { Redis } from 'ioredis';
import { asset } from '../../assets.ts';
import type { Clock } from '../../process/clock.ts';
import type { Logger } from '../../process/log.ts';
import { Seldom } from '../../process/seldom.ts';
import { command, oneOf, row } from '../../redis/command.ts';
import { RedisNodes } from '../../redis/redis.ts';
import {
  apiKeys,
  formatPointer,
  metaKey,
  parsePointer,
  recordKey,
  secretPointer,
} from '../../redis/redis-keys.ts';
import type { RedisAddress, RedisConfig } from '../../redis/redis-settings.ts';
import type { Run } from '../../redis/script.ts';
import { LUA_FIELDS } from '../records/key-record.ts';
import type { Nearby, NearbyReply, NearbyRequest, Pointer } from './source.ts';

const readNearby = command(
  asset('shared/protocol/follower/read-nearby.lua'),
  ['head', 'log', 'creations', 'place', 'long?'],
  ['position', 'hash', 'mark', 'nonce', 'records', 'metas', 'own?'],
  oneOf('status', {
    SAME: ['nonce', 'record[]', 'pointer'],
    ELSEWHERE: ['nonce', 'pointer'],
    OTHER: ['nonce'],
  }),
  LUA_FIELDS,
);

export const findNearby = command(
  asset('shared/protocol/follower/find-nearby.lua'),
  ['pointer'],
  [],
  row('name', 'place'),
);

type NearbyConfig = Omit<RedisConfig, 'readSecretsAgain'> & {
  readonly REDIS_READ_URL: readonly RedisAddress[];
  readonly readSecretsAgain?: () => Partial<Omit<NearbyConfig, 'readSecretsAgain'>>;
};

export function nearbyRun(apiId: string, request: NearbyRequest): Run<NearbyReply> {
  const { head, log, creations } = apiKeys(apiId);
  const { keyId, secretHash, creations: mark, position, hash, nonce } = request;
  const { read, ...run } = readNearby({
    ...{ head, log, creations, position, hash, mark, nonce },
    ...{ records: recordKey(apiId, ''), metas: metaKey(apiId, '') },
    ...(secretHash === undefined
      ? { place: recordKey(apiId, keyId ?? ''), long: metaKey(apiId, keyId ?? '') }
      : { place: secretPointer(secretHash), own: formatPointer(apiId, '') }),
  });
  return {
    ...run,
    read: (reply) => {
      const answer = read(reply);
      const { nonce, status } = answer;
      const pointer = status !== 'OTHER' && answer.pointer ? { pointer: parsePointer(answer.pointer) } : {};
      return { nonce, status, record: status === 'SAME' ? answer.record : [], ...pointer };
    },
  };
}

/** Returns an address with its own user, or else with that of REDIS_URL. */
function withUser(address: RedisAddress, { REDIS_URL: [home] }: NearbyConfig): RedisAddress {
  const hasOwn = address.username !== '' || address.password !== '';
  const { username = '', password = '' } = hasOwn || !home ? address : home;
  return { ...address, username, password };
}

/** Longest wait for a replica, milliseconds; then its connection is cut, and the primary is asked. */
const NEARBY_WAIT_MS = 100;

/**
 * The replicas of REDIS_READ_URL. Only a ready connection is used, so nobody waits for a replica that is away. In a Cluster, each
 * server has a part of the keys and refuses the others.
 */
export class RedisNearby implements Nearby {
  readonly findsKeys: boolean;
  readonly #servers: readonly RedisNodes[];
  /** Servers that answered for a slot of a Cluster. */
  readonly #servedBy = new Map<number, RedisNodes>();
  readonly #log: Logger;
  readonly #failed: Seldom;

  constructor(config: NearbyConfig, clock: Clock, log: Logger) {
    this.findsKeys = config.REDIS_MODE !== 'cluster';
    this.#servers = config.REDIS_READ_URL.map((address, i) => {
      const redisUrl = [withUser(address, config)];
      const own = {
        ...config,
        ...{ REDIS_URL: redisUrl, REDIS_MODE: 'single' as const },
        REDIS_PASSWORD_COMMAND: redisUrl[0]?.password ? '' : config.REDIS_PASSWORD_COMMAND,
        REDIS_COMMAND_TIMEOUT_MS: NEARBY_WAIT_MS,
        // The file of REDIS_URL names the primary.
        readSecretsAgain: () => {
          const again = { ...config, ...config.readSecretsAgain?.() };
          const { REDIS_PASSWORD, REDIS_READ_URL } = again;
          return { REDIS_PASSWORD, REDIS_URL: [withUser(REDIS_READ_URL[i] ?? address, again)] };
        },
      };
      return new RedisNodes(own, clock, log, {
        commands: [],
        replica: address.path ?? `${address.host}:${address.port}`,
      });
    });
    this.#log = log;
    this.#failed = new Seldom(clock);
    for (const server of this.#servers) this.#readyAt(server);
  }

  read(apiId: string, request: NearbyRequest): Promise<NearbyReply | undefined> {
    const { script, keys, args, read } = nearbyRun(apiId, request);
    return this.#run(keys[0] ?? '', async (redis) => read(await script.runReadOnly(redis, keys, args)));
  }

  async lookUp(...secretHashes: readonly string[]): Promise<Pointer | undefined> {
    for (const secretHash of secretHashes) {
      const { script, keys, read } = findNearby({ pointer: secretPointer(secretHash) });
      const [pointer = ''] = keys;
      const reply = await this.#run(pointer, async (redis) =>
        read(await script.runReadOnly(redis, keys, [])),
      );
      if (reply?.name === pointer && reply.place) return parsePointer(reply.place);
    }
    return undefined;
  }

  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()));
  }

  /** Resolves with what the first server that can tell says; undefined = none can. */
  async #run<T>(key: string, work: (redis: Redis) => Promise<T>): Promise<T | undefined> {
    const slot = this.findsKeys ? 0 : slotOf(key);
    const first = this.#servedBy.get(slot);
    for (const server of new Set(first ? [first, ...this.#servers] : this.#servers)) {
      const redis = this.#readyAt(server);
      if (redis === undefined) continue;
      try {
        const result = await server.within(redis, work(redis));
        this.#servedBy.set(slot, server);
        return result;
      } catch (error) {
        if (String(error).includes('MOVED')) continue; // another server has it
        this.#failed.tell((unsaid) =>
          this.#log.warn({ err: error, unsaid }, 'a replica nearby did not answer; asking the primary'),
        );
      }
    }
    return undefined;
  }

  /** Returns a connection that is ready, or begins to open one. */
  #readyAt(server: RedisNodes): Redis | undefined {
    const redis = server.connection('');
    if (!(redis instanceof Promise)) return redis;
    redis.catch(() => undefined); // the nodes log it
    return undefined;
  }
}
