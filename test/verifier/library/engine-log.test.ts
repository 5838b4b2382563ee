import { expect, test } from 'vitest';
import { engineLog } from '../../../verifier/library/options.ts';

test('logs an error without its Redis command', () => {
  const told: unknown[] = [];
  const say = (fields: object) => void told.push(fields);
  const refused = Object.assign(new Error('WRONGPASS'), { command: { name: 'auth', args: ['hidden-word'] } });
  const err = Object.assign(new Error('out of reach', { cause: refused }), { command: refused.command });
  engineLog({ debug: say, info: say, warn: say, error: say }).warn({ err, apiId: 'shop' }, 'no Redis');
  expect(told).toStrictEqual([
    {
      err: {
        ...{ name: 'Error', message: 'out of reach', stack: err.stack },
        cause: { name: 'Error', message: 'WRONGPASS', stack: refused.stack },
      },
      apiId: 'shop',
    },
  ]);
});
