import { parentPort, Worker, workerData } from 'node:worker_threads';
import { Agent } from 'undici';
import { complete, post } from '../servers.ts';

/** The address of a control plane, and a key for each caller. */
interface Plan {
  readonly address: string;
  readonly keyIds: readonly string[];
  readonly verifiers: number;
}

/**
 * Callers that each disable and enable a key repeatedly, in their own thread, so that the benchmark's other
 * work and its garbage collection delay them no more than any other client.
 */
export class SingleDisables {
  readonly #worker: Worker;
  readonly #failed: Promise<never>;

  constructor(plan: Plan) {
    this.#worker = new Worker(new URL(import.meta.url), { workerData: plan });
    this.#failed = new Promise((_, reject) => this.#worker.once('error', reject));
    this.#failed.catch(() => undefined);
  }

  /** @param count changes of each caller; without it, callers go on until `end` */
  begin(count = Number.POSITIVE_INFINITY): void {
    this.#worker.postMessage(count);
  }

  /** Waits until the callers are done; returns how long each change took, milliseconds, by caller. */
  taken(): Promise<number[][]> {
    const taken = new Promise<number[][]>((resolve) => this.#worker.once('message', resolve));
    return Promise.race([taken, this.#failed]);
  }

  /** Stops the callers, and returns the same as `taken`. */
  end(): Promise<number[][]> {
    const taken = this.taken();
    this.#worker.postMessage(0);
    return taken;
  }

  async stop(): Promise<void> {
    await this.#worker.terminate();
  }
}

if (parentPort && workerData) {
  const port = parentPort;
  const { address, keyIds, verifiers } = workerData as Plan;
  const agent = new Agent();
  let most = 0;
  const caller = async (keyId: string) => {
    const taken: number[] = [];
    while (taken.length < most) {
      const startedAt = performance.now();
      const enabled = taken.length % 2 === 0;
      complete(await post(agent, `${address}/v1/keys.updateKey`, { keyId, enabled }), verifiers);
      taken.push(performance.now() - startedAt);
    }
    return taken;
  };
  port.on('message', async (count: number) => {
    most = count;
    if (count > 0) port.postMessage(await Promise.all(keyIds.map(caller)));
  });
}
