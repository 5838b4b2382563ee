import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { startOperator } from '../../../../control-plane/clients/operator/app.ts';
import { limits, settings } from '../../../../control-plane/clients/operator/config.ts';
import { systemClock } from '../../../../shared/process/clock.ts';
import { loadConfig } from '../../../../shared/process/load-config.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { makeCertificate } from '../../../harness/certificates.ts';
import { scratch } from '../../../harness/scratch.ts';

test('the operator has its metrics from the beginning', async () => {
  const folder = scratch('operator');
  writeFileSync(join(folder, 'token'), 'token');
  writeFileSync(join(folder, 'namespace'), 'keyfence');
  copyFileSync(makeCertificate(folder, 'kubernetes').certFile, join(folder, 'ca.crt'));
  const loaded = loadConfig(settings, {
    ...{
      ROOT_KEY: 'k'.repeat(40),
      KEYFENCE_URL: 'http://127.0.0.1:1',
      KUBERNETES_URL: 'https://127.0.0.1:1',
    },
    ...{ NAMESPACES: 'shop', SERVICE_ACCOUNT: folder, ADMIN_PORT: '0' },
  });
  const log = createLogger('operator', 'silent');
  const operator = await startOperator({ ...limits, ...loaded, readRootKey: () => '' }, systemClock, log);
  try {
    const text = await (await fetch(`${operator.adminAddress}/metrics`)).text();
    expect(text).toMatch(/^keyfence_operator_missing 0$/m);
    expect(text).toMatch(/^keyfence_operator_waiting 0$/m);
  } finally {
    await operator.stop();
  }
});
