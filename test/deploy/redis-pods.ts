import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { vi } from 'vitest';
import { freePort } from '../harness/ports.ts';
import { HOLDS_MS_MAX } from '../harness/waiting.ts';
import type { Container } from './kubernetes-rules.ts';
import { manifestsIn } from './kustomize.ts';
import { OwnFiles, OwnRedis } from './own-redis.ts';

const HOSTS = ['127.0.0.2', '127.0.0.3', '127.0.0.4'];
/** Sentinels may have to vote more than once, and demote a primary that came back after 8 s. */
export const PATIENT = { timeout: HOLDS_MS_MAX, interval: 100 };
/** As the kubelet: probes are asked again and again; this often, so that a test does not wait for them. */
const PROBE_MS = 250;

/** The container `redis` of the three. */
const HOOKS: Container = manifestsIn('overlays/production/keyfence.yaml')
  .find(({ kind }) => kind === 'StatefulSet')
  ?.['spec'].template.spec.containers.find(({ name }: Container) => name === 'redis');
const READY: string[] = HOOKS['readinessProbe'].exec.command;
const PRE_STOP: string[] = HOOKS['lifecycle'].preStop.exec.command;

/** Name of a pod of the StatefulSet in its own namespace. */
const nameOf = (i: number) => `keyfence-redis-${i}.keyfence-redis`;

/** One pod of overlays/production: a Redis and a Sentinel as their scripts start them, and its hooks as the manifest has them. */
export class RedisPod {
  readonly redis: OwnRedis;
  readonly sentinel: OwnRedis;
  readonly #files: OwnFiles;

  constructor(files: OwnFiles, redis: OwnRedis, sentinel: OwnRedis) {
    this.#files = files;
    this.redis = redis;
    this.sentinel = sentinel;
  }

  /**
   * As the kubelet ends a pod: a container with a preStop hook gets SIGTERM when that has ended, others at once.
   * Resolves to what Redis was when it got the signal.
   */
  async delete(): Promise<unknown> {
    const redis = async () => {
      await this.#exec(PRE_STOP);
      const [role] = await this.role();
      await this.redis.end();
      return role;
    };
    const [role] = await Promise.all([redis(), this.sentinel.end()]);
    return role;
  }

  /** The pod that follows it, over the same volume. Resolves when it serves, which is before it is ready. */
  async create(): Promise<void> {
    await Promise.all([this.redis.restart(), this.sentinel.restart()]);
  }

  async isReady(): Promise<boolean> {
    return this.#exec(READY).then(
      () => true,
      () => false,
    );
  }

  /** The reply to ROLE; `away` when it does not answer. */
  async role(): Promise<unknown[]> {
    const redis = this.redis.as('operator', {
      ...this.#files.tls,
      retryStrategy: () => null,
      maxRetriesPerRequest: 0,
    });
    const reply = await redis.role().catch(() => ['away']);
    redis.disconnect();
    return reply;
  }

  #exec(command: readonly string[]) {
    const [tool = '', ...args] = command.map((word) =>
      word.replace('/etc/keyfence', join(this.#files.folder, 'files')),
    );
    return promisify(execFile)(tool, args, { env: this.redis.env });
  }
}

/** The three pods of overlays/production, and what a StatefulSet's controller does with them. */
export class RedisPods {
  readonly files = new OwnFiles();
  readonly pods: RedisPod[] = [];
  /** The file of their names, where they have any. */
  readonly hostsFile = join(this.files.folder, 'hosts');
  #sentinelPort = 0;
  #named = false;
  #first: { redis: Promise<OwnRedis>; pod: () => Promise<RedisPod> } | undefined;

  /**
   * @param options.args more of redis.conf, as command-line options
   * @param options.certificate the file of the Secret keyfence-redis-tls by its name
   * @param options.downAfterMs silence of a Redis after which Sentinels call it down, milliseconds
   * @param options.joining starts the Redis, not of a group, that the other two are to join
   * @param options.sharesDisk a Sentinel keeps its files beside those of its Redis, as on the volume of a pod
   * @param options.named the servers know each other by the names that they have in a cluster, not by their addresses
   */
  static async start(
    options: {
      tls?: boolean;
      args?: string[];
      named?: boolean;
      sharesDisk?: boolean;
      certificate?: (name: string) => Buffer;
      downAfterMs?: number;
      joining?: (files: OwnFiles, host: string, port: number) => Promise<OwnRedis>;
    } = {},
  ): Promise<RedisPods> {
    const group = new RedisPods();
    const { tls, named = false, sharesDisk = false, certificate, downAfterMs = 2000 } = options;
    if (tls) group.files.certify(...HOSTS);
    if (certificate) group.files.use(certificate);
    if (named) group.#name();
    const port = await freePort();
    group.#sentinelPort = await freePort();
    const names = named ? HOSTS.map((_, i) => `${nameOf(i)}.keyfence.svc`) : HOSTS;
    for (const [i, host] of HOSTS.entries()) {
      const env = {
        GROUP_SELF: names[i],
        GROUP_PRIMARY: names[0],
        GROUP_HOSTS: names.join(' '),
        ...(named ? { HOSTS_FILE: group.hostsFile } : {}),
        REDIS_PORT: String(port),
        SENTINEL_PORT: String(group.#sentinelPort),
        BIND: host,
        ...(sharesDisk ? { DATA: join(group.files.folder, `disk-${i}`) } : {}),
        DOWN_AFTER_MS: String(downAfterMs),
        FAILOVER_MS: '3000',
      };
      const pod = async () => {
        const redis = await OwnRedis.start(group.files, { port, env, args: options.args ?? [] });
        const script = 'start-sentinel.sh';
        const sentinel = await OwnRedis.start(group.files, { port: group.#sentinelPort, env, script });
        return new RedisPod(group.files, redis, sentinel);
      };
      if (options.joining && i === 0) {
        group.#first = { redis: options.joining(group.files, host, port), pod };
        await group.#first.redis;
      } else group.pods.push(await pod());
    }
    return group;
  }

  /** Takes the Redis that the others have joined into the group, over its own data. */
  async takeIn(): Promise<void> {
    const { redis, pod } = this.#first ?? {};
    await (await redis)?.stop();
    if (pod) this.pods.unshift(await pod());
  }

  /**
   * The settings of a process that reaches the group as one of its users.
   * @param suffix follows the names, where they have any
   */
  env(user: string, suffix = ''): Record<string, string> {
    const hosts = this.#named ? HOSTS.map((_, i) => nameOf(i) + suffix) : HOSTS;
    const { folder, isCertified, ca } = this.files;
    const secret = (name: string) => join(folder, 'secrets', `${name}-password`);
    return {
      REDIS_MODE: 'sentinel',
      REDIS_URL: hosts.map((host) => `redis${isCertified ? 's' : ''}://${host}:${this.#sentinelPort}`).join(),
      REDIS_REPLICAS: '2',
      REDIS_USERNAME: user,
      REDIS_PASSWORD_FILE: secret(user),
      REDIS_SENTINEL_PASSWORD_FILE: secret('sentinel-client'),
      ...(isCertified ? { REDIS_TLS_CA_FILE: ca } : {}),
    };
  }

  #name(): void {
    this.#named = true;
    const lines = HOSTS.map((host, i) =>
      [host, ...['', '.keyfence', '.keyfence.svc', '.other'].map((suffix) => nameOf(i) + suffix)].join(' '),
    );
    writeFileSync(this.hostsFile, lines.join('\n'));
  }

  async roles(): Promise<unknown[]> {
    const replies = await Promise.all(this.pods.map((pod) => pod.role()));
    return replies.map(([role]) => role);
  }

  async untilReady(): Promise<void> {
    await vi.waitFor(
      async () => {
        for (const pod of this.pods) if (!(await pod.isReady())) throw new Error('a pod is not ready');
      },
      { ...PATIENT, interval: PROBE_MS },
    );
  }

  /**
   * As the controller rolls a change out: from the last pod to the first, each when all are ready.
   * @param deleting what to do before each pod is deleted
   * @param stopped hears what each Redis was when it was stopped
   */
  async rollOut(deleting: (pod: RedisPod) => Promise<void>, stopped: (role: unknown) => void): Promise<void> {
    for (const pod of this.pods.toReversed()) {
      await this.untilReady();
      await deleting(pod);
      stopped(await pod.delete());
      await pod.create();
    }
    await this.untilReady();
  }

  async stop(): Promise<void> {
    const servers = this.pods.flatMap(({ redis, sentinel }) => [sentinel, redis]);
    await Promise.all(servers.map((server) => server.end('SIGKILL')));
    for (const server of servers) await server.stop();
    this.files.remove();
  }
}
