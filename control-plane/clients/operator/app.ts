import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createAdminServer, listenAdmin } from '#shared/process/admin.ts';
import type { Clock } from '#shared/process/clock.ts';
import type { Logger } from '#shared/process/log.ts';
import { metricMakers, processMetrics } from '#shared/process/process-metrics.ts';
import { createAdmin } from '../client/admin.ts';
import type { OperatorConfig } from './config.ts';
import { KubeClient } from './kube.ts';
import { Operator } from './operator.ts';

/** Starts the operator and its admin port. */
export async function startOperator(
  config: OperatorConfig & { readonly readRootKey: () => string },
  clock: Clock,
  log: Logger,
): Promise<{ readonly adminAddress: string; stop(): Promise<void> }> {
  const { KEYFENCE_URL, NAMESPACES, KUBERNETES_URL, SERVICE_ACCOUNT, RELIST_MS } = config;
  const kube = new KubeClient({
    url: KUBERNETES_URL.replace(/\/+$/, ''),
    tokenFile: join(SERVICE_ACCOUNT, 'token'),
    caFile: join(SERVICE_ACCOUNT, 'ca.crt'),
  });
  const operator = new Operator({
    home: readFileSync(join(SERVICE_ACCOUNT, 'namespace'), 'utf8').trim(),
    ...{ kube, clock, log, chance: Math.random, namespaces: NAMESPACES, relistMs: RELIST_MS },
    admin: createAdmin({ url: KEYFENCE_URL ?? '', rootKey: config.readRootKey }),
  });
  const registry = processMetrics();
  metricMakers(registry)
    .gauge('keyfence_operator_waiting', () => operator.waiting)
    .help(
      'Objects that wait to be compared with Keyfence. Steadily above 0: Keyfence or Kubernetes is slow.',
    );
  metricMakers(registry)
    .gauge('keyfence_operator_missing', () => operator.missing)
    .help(
      'Keys, roles and identities that Keyfence has of objects which are gone without having been deleted. They are accepted still.',
    );
  const server = createAdminServer({
    metrics: registry,
    notReady: () => (operator.isReady ? undefined : 'not everything was listed yet'),
  });
  const adminAddress = await listenAdmin(server, config.ADMIN_HOST, config.ADMIN_PORT);
  const running = operator.run();
  log.info({ adminAddress, namespaces: NAMESPACES }, 'operator runs');
  return {
    adminAddress,
    async stop() {
      operator.stop();
      await kube.close();
      await running;
      server.close();
      server.closeAllConnections();
    },
  };
}
