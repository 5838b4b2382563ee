import type { Registry } from 'prom-client';
import type { RunningVerifier } from '../app.ts';
import type { FromWorker, ToWorker } from './messages.ts';

/**
 * Connects a verifier in a worker process with the main process: says when it listens and is ready, reports its metrics,
 * and stops when it is told to. Signals are for the main process alone, since terminals and supervisors send
 * them to all processes.
 */
export function obeyMainProcess(
  verifier: RunningVerifier,
  { drainMs, end }: { readonly drainMs: number; readonly end: () => void },
): void {
  const { registry, address, proxyAddress, grpcAddress } = verifier;
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
  process.on('message', (message: ToWorker) => {
    if (message.type === 'metrics') void reportMetrics(registry, message.request);
    else void stop();
  });
  const stop = async () => {
    await verifier.stop(drainMs);
    await reportMetrics(registry, LAST_REPORT);
    end();
  };
  void say({ type: 'listening', addresses: { address, proxyAddress, grpcAddress } });
  void verifier.ready.then((isReady) => (isReady ? say({ type: 'ready' }) : undefined));
}

/** Number of the report for which nobody asked. */
const LAST_REPORT = -1;

async function reportMetrics(registry: Registry, request: number): Promise<void> {
  await say({ type: 'metrics', request, values: await registry.getMetricsAsJSON() });
}

/** Resolves when the message is sent; if the main process has gone, too: this process then ends. */
const say = (message: FromWorker): Promise<void> =>
  new Promise((resolve) => {
    if (!process.connected || !process.send) return resolve();
    process.send(message, undefined, undefined, () => resolve());
  });
