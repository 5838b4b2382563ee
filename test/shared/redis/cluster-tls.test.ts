import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { createLogger } from '../../../shared/process/log.ts';
import { RedisNodes } from '../../../shared/redis/redis.ts';
import { makeCertificate } from '../../harness/certificates.ts';
import { redisConfig } from '../../harness/config.ts';
import { freePort } from '../../harness/ports.ts';
import { RedisNode } from '../../harness/redis-nodes.ts';
import { scratch } from '../../harness/scratch.ts';

const directory = scratch('cluster-tls');

test('over TLS, nodes go by their host names', async () => {
  // The certificate is for the name alone, and the node tells its address.
  const { certFile, keyFile } = makeCertificate(directory, 'localhost', 'DNS:localhost');
  const tlsPort = await freePort();
  const tls = ['--tls-port', `${tlsPort}`, '--tls-cert-file', certFile, '--tls-key-file', keyFile];
  const node = await RedisNode.start(join(directory, 'tls'), [
    ...[
      '--cluster-enabled',
      'yes',
      '--cluster-announce-ip',
      '127.0.0.1',
      '--tls-auth-clients',
      'no',
      '--tls-cluster',
      'yes',
    ],
    ...['--tls-ca-cert-file', certFile, ...tls],
  ]);
  onTestFinished(() => node.stop());
  await node.command('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  const config = redisConfig({
    ...{ REDIS_URL: `rediss://localhost:${tlsPort}`, REDIS_MODE: 'cluster', REDIS_TLS_CA_FILE: certFile },
    REDIS_CONNECT_TIMEOUT_MS: '3000',
  });
  const exists = async () => {
    const nodes = new RedisNodes(config, systemClock, createLogger('verifier', 'silent'));
    const answer = await nodes.run('key', (redis) => redis.exists('key')).catch(() => nodes.trouble);
    await nodes.close();
    return answer;
  };
  await node.until(async () => String(await node.command('CLUSTER', 'INFO')).includes('cluster_state:ok'));
  expect(await exists()).toContain('does not match certificate');
  await node.command('CONFIG', 'SET', 'cluster-announce-hostname', 'localhost');
  expect(await exists()).toBe(0);
  await node.command('CONFIG', 'SET', 'cluster-preferred-endpoint-type', 'hostname');
  expect(await exists()).toBe(0);
  await node.command('CONFIG', 'SET', 'cluster-announce-hostname', '');
  expect(await exists()).toContain('set cluster-announce-hostname there');
});
