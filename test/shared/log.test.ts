import { spawnSync } from 'node:child_process';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { createLogger } from '../../shared/log.ts';
import { Fleet } from '../fleet.ts';

function logged(level: string, write: (log: ReturnType<typeof createLogger>) => void): string[] {
  const lines: string[] = [];
  write(createLogger('verifier', level, { write: (line) => void lines.push(line) }));
  return lines;
}

const SECRETS = ['key', 'secret', 'rootKey', 'password', 'authorization'];

test.each(SECRETS)('a field named %s is cut out, also of what it is part of', (name) => {
  const fields = { [name]: 'swordfish', kept: 'herring' };
  const lines = logged('info', (log) => {
    log.info(fields, 'told');
    log.info({ sent: fields }, 'told');
  });
  const [whole, part] = lines.map((line) => JSON.parse(line));
  expect(whole).toMatchObject({ [name]: '[redacted]', kept: 'herring', msg: 'told' });
  expect(part.sent).toEqual({ [name]: '[redacted]', kept: 'herring' });
});

test('an error that Redis answers to AUTH is told without the password that was sent', async () => {
  const fleet = await Fleet.start({ verifiers: 0 });
  const redis = new Redis(fleet.redisUrl, { lazyConnect: true, retryStrategy: () => null });
  try {
    await redis.connect();
    const error = await redis.call('AUTH', 'somebody', 'swordfish').catch((error: unknown) => error);
    expect(JSON.stringify(error)).toContain('swordfish');
    const [line = ''] = logged('debug', (log) => log.debug({ err: error }, 'waiting for Redis'));
    expect(line).not.toContain('swordfish');
    const { err, msg } = JSON.parse(line);
    expect(msg).toBe('waiting for Redis');
    expect(err).toMatchObject({ message: expect.stringMatching(/^WRONGPASS/) });
    expect(err.stack).toContain('WRONGPASS');
  } finally {
    redis.disconnect();
    await fleet.stop();
  }
});

test('a line says which process, at which time and how serious, and lesser ones than the level are left out', () => {
  const lines = logged('warn', (log) => {
    log.info('not told');
    log.warn('told');
  });
  expect(lines).toHaveLength(1);
  expect(JSON.parse(lines[0] ?? '')).toEqual({
    level: 40,
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    process: 'verifier',
    msg: 'told',
  });
});

test('a process logs to its standard output where nothing else is said', () => {
  const file = new URL('../../shared/log.ts', import.meta.url).href;
  const program = `const { createLogger } = await import('${file}'); createLogger('verifier', 'info').info('told');`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
  });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toMatchObject({ process: 'verifier', msg: 'told' });
});
