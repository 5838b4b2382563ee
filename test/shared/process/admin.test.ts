import { connect } from 'node:net';
import { Registry } from 'prom-client';
import { expect, test } from 'vitest';
import { createAdminServer, listenAdmin } from '../../../shared/process/admin.ts';

test('silent connections delay probes by seconds', async () => {
  const server = createAdminServer({ metrics: new Registry(), notReady: () => undefined });
  const { hostname, port } = new URL(await listenAdmin(server, '127.0.0.1', 0));
  let closed = 0;
  const silent = Array.from({ length: 100 }, () =>
    connect(Number(port), hostname)
      .on('error', () => undefined)
      .on('close', () => closed++)
      .resume(),
  );
  try {
    await expect.poll(() => closed).toBe(100);
    expect((await fetch(`http://${hostname}:${port}/livez`)).status).toBe(200);
  } finally {
    for (const socket of silent) socket.destroy();
    server.close();
    server.closeAllConnections();
  }
});
