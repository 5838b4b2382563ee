import type { Cluster, Worker } from 'node:cluster';
import { backoffMs, type Clock, pause } from '#shared/lang/clock.ts';
import { createAdminServer, listenAdmin } from '#shared/process/admin.ts';
import { EXIT_CONFIG } from '#shared/process/listening.ts';
import type { Logger } from '#shared/process/log.ts';
import type { Config } from '../config.ts';
import type { FromWorker, ToWorker } from './messages.ts';
import { WorkerMetrics } from './worker-metrics.ts';

const RESTART_MS = { first: 100, max: 10_000 } as const;
/** Longest time for which a rolling restart waits until a new worker is ready. */
const READY_MS_MAX = 30_000;

/**
 * Runs WORKERS verifiers, each in a process of its own. This main process opens the ports, spreads connections over
 * the workers, serves the admin port for all of them, and replaces workers that end. Each worker is a verifier of
 * its own towards Redis and the fence.
 */
export class Workers {
  readonly #cluster: Cluster;
  readonly #config: Config;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #metrics: WorkerMetrics;
  readonly #states = new Map<Worker, 'starting' | 'listening' | 'ready' | 'stopping'>();
  readonly #admin;
  #adminAddress = '';
  /** Workers that ended in a row before they were ready. */
  #failures = 0;
  #isStopping = false;
  /** True once a worker was ready. */
  #wasReady = false;
  #rolling: Promise<void> | undefined;

  /** @param cluster Node's, which a verifier alone does not load */
  constructor(cluster: Cluster, config: Config, clock: Clock, log: Logger) {
    this.#cluster = cluster;
    this.#config = config;
    this.#clock = clock;
    this.#log = log;
    this.#metrics = new WorkerMetrics(
      () => [...this.#states].flatMap(([worker, state]) => (state === 'starting' ? [] : [reporting(worker)])),
      clock,
    );
    this.#admin = createAdminServer({ metrics: this.#metrics, notReady: () => this.missing });
  }

  /** Listens on the admin port and starts the workers. */
  async start(): Promise<void> {
    this.#adminAddress = await listenAdmin(this.#admin, this.#config.ADMIN_HOST, this.#config.ADMIN_PORT);
    for (let i = 0; i < this.#config.WORKERS; i++) this.#fork();
  }

  /** The reason why traffic must not come; undefined = at least one worker is ready. */
  get missing(): string | undefined {
    if (this.#isStopping) return 'stopping';
    return [...this.#states.values()].includes('ready') ? undefined : 'no worker is ready';
  }

  /** Replaces each worker, one after the other: the next one stops when its successor is ready. */
  restart(): Promise<void> {
    this.#rolling ??= this.#replaceAll().finally(() => {
      this.#rolling = undefined;
    });
    return this.#rolling;
  }

  /** Stops all workers, each as a process alone stops. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all([...this.#states.keys()].map((worker) => this.#stop(worker)));
    this.#admin.close();
    this.#admin.closeAllConnections();
  }

  async #replaceAll(): Promise<void> {
    const before = [...this.#states].filter(([, state]) => state !== 'stopping').map(([worker]) => worker);
    this.#log.info({ workers: before.length }, 'restarting the workers');
    for (const worker of before) {
      if (this.#isStopping) return;
      const successor = this.#fork();
      if (!(await this.#isReady(successor))) {
        this.#log.error('a new worker is not ready; the others stay as they are');
        return this.#stop(successor);
      }
      await this.#stop(worker);
    }
    this.#log.info('all workers are new');
  }

  async #isReady(worker: Worker): Promise<boolean> {
    const change = new AbortController();
    worker.on('message', ({ type }: FromWorker) => type === 'ready' && change.abort());
    worker.once('exit', () => change.abort());
    await pause(this.#clock, READY_MS_MAX, change.signal);
    return this.#states.get(worker) === 'ready';
  }

  /** Stops a worker; one that takes longer than a process alone may take is killed. */
  async #stop(worker: Worker): Promise<void> {
    if (!this.#states.has(worker) || this.#states.get(worker) === 'stopping') return;
    const hasStarted = this.#states.get(worker) !== 'starting';
    this.#states.set(worker, 'stopping');
    const ended = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
    if (!worker.isConnected()) return;
    // One that does not listen yet has nothing to finish, and would not hear the message.
    if (hasStarted) worker.send({ type: 'stop' } satisfies ToWorker);
    else worker.process.kill('SIGKILL');
    const { DRAIN_MS, SHUTDOWN_GRACE_MS } = this.#config;
    const timer = this.#clock.after(DRAIN_MS + SHUTDOWN_GRACE_MS, () => worker.process.kill('SIGKILL'));
    await ended;
    timer.cancel();
  }

  #fork(): Worker {
    const worker = this.#cluster.fork();
    this.#states.set(worker, 'starting');
    worker.on('message', (message: FromWorker) => this.#hear(worker, message));
    worker.once('exit', (code) => void this.#lose(worker, code));
    return worker;
  }

  #hear(worker: Worker, message: FromWorker): void {
    if (message.type === 'metrics') this.#metrics.take(worker.id, message);
    else if (message.type === 'listening') {
      if (this.#states.get(worker) === 'starting') this.#states.set(worker, 'listening');
      this.#log.info({ ...message.addresses, adminAddress: this.#adminAddress }, 'verifier listening');
    } else if (this.#states.get(worker) === 'listening') {
      this.#states.set(worker, 'ready');
      this.#wasReady = true;
      this.#failures = 0;
    }
  }

  /** Replaces a worker that ended although nobody stopped it. */
  async #lose(worker: Worker, code: number): Promise<void> {
    const state = this.#states.get(worker);
    this.#states.delete(worker);
    await this.#metrics.end(worker.id);
    if (this.#isStopping || state === 'stopping') return;
    // A process alone would end here, too, and the worker has said why.
    if (!this.#wasReady || code === EXIT_CONFIG) process.exit(code || 1);
    this.#log.error({ pid: worker.process.pid, code }, 'a worker ended; starting another');
    if (state !== 'ready') this.#failures++;
    await pause(this.#clock, backoffMs(this.#failures, RESTART_MS.first, RESTART_MS.max, Math.random));
    if (!this.#isStopping && this.#states.size < this.#config.WORKERS) this.#fork();
  }
}

const reporting = (worker: Worker) => ({
  id: worker.id,
  send: (message: ToWorker) => void (worker.isConnected() && worker.send(message)),
});
