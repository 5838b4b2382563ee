import { expect, test } from 'vitest';
import { createServer } from '../../../../control-plane/core/serve/server.ts';
import { createLogger } from '../../../../shared/process/log.ts';
import { controlPlaneConfig } from '../../../harness/config.ts';

const ROOT_KEY = 'k'.repeat(32);
const server = () => createServer(controlPlaneConfig({ ROOT_KEY }), createLogger('control-plane', 'silent'));

test('a broken schema harms only its own route', async () => {
  const app = server();
  const body = {
    type: 'object',
    properties: { n: { type: 'integer', maximum: 5 }, by: { type: 'integer', default: 2 } },
    required: ['n'],
    additionalProperties: false,
  };
  app.post('/whole', { schema: { body } }, async ({ body: given }) => given);
  app.post('/broken', { schema: { body: { type: 'no such type' } } }, async () => 'never');
  app.post('/unwritable', { schema: { response: { 200: { type: 'no such type' } } } }, async () => ({}));
  await app.ready();
  const sent = async (url: string, payload: object) => {
    const { statusCode, body: answer } = await app.inject({ method: 'POST', url, payload });
    return [statusCode, JSON.parse(answer).error?.message ?? JSON.parse(answer)];
  };
  for (let i = 0; i < 2; i++) {
    expect(await sent('/whole', { n: 5 })).toEqual([200, { n: 5, by: 2 }]);
    expect(await sent('/whole', { n: 6 })).toEqual([400, 'n: must be <= 5']);
    expect(await sent('/whole', { n: '5' })).toEqual([400, 'n: must be integer; send it without quotes']);
    expect(await sent('/whole', { n: 5, m: 1 })).toEqual([400, 'm: unknown field']);
    for (const url of ['/broken', '/unwritable'])
      expect(await sent(url, {})).toEqual([500, 'something went wrong on our side']);
  }
  await app.close();
});
