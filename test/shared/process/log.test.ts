import { spawnSync } from 'node:child_process';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { systemClock } from '../../../shared/process/clock.ts';
import { createLogger, LogOutput } from '../../../shared/process/log.ts';
import { Fleet } from '../../harness/fleet.ts';

function logged(level: string, write: (log: ReturnType<typeof createLogger>) => void): string[] {
  const lines: string[] = [];
  write(createLogger('verifier', level, { write: (line) => void lines.push(line) }));
  return lines;
}

const SECRETS = ['key', 'secret', 'rootKey', 'password', 'authorization'];

test.each(SECRETS)('cuts out a field named %s, within others too', (name) => {
  const fields = { [name]: 'swordfish', kept: 'herring' };
  const lines = logged('info', (log) => {
    log.info(fields, 'told');
    log.info({ sent: fields }, 'told');
    log.child(fields).info('told');
    log.info({ err: Object.assign(new Error('it failed'), fields) }, 'told');
  });
  const [whole, part, child, failed] = lines.map((line) => JSON.parse(line));
  for (const told of [child, failed.err])
    expect(told).toMatchObject({ [name]: '[redacted]', kept: 'herring' });
  expect(whole).toMatchObject({ [name]: '[redacted]', kept: 'herring', msg: 'told' });
  expect(part.sent).toEqual({ [name]: '[redacted]', kept: 'herring' });
});

test.each(['others wait', 7, undefined, null])('%s in place of an error is told as it is', (err) => {
  const [line = ''] = logged('info', (log) => log.warn({ err }, 'told'));
  expect(JSON.parse(line).err).toEqual(err === undefined ? undefined : { message: String(err) });
});

test('tells no password of a failed AUTH', async () => {
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

test('a line tells process, time and level', () => {
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

test('a process logs to standard output by default', () => {
  const file = new URL('../../../shared/process/log.ts', import.meta.url).href;
  const program = `const { createLogger } = await import('${file}'); createLogger('verifier', 'info').info('told');`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
  });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toMatchObject({ process: 'verifier', msg: 'told' });
});

/** A disk of so many bytes more, which says so when they are used up. */
class SmallDisk {
  text = '';
  room: number;
  fault = 'ENOSPC';
  writes = 0;
  /** Ends of writes, and what was to happen later. */
  readonly done: (() => void)[] = [];
  readonly output = new LogOutput(
    -1,
    (_fd, bytes, done) => {
      this.writes++;
      this.done.push(() => {
        const length = Math.min(bytes.length, this.room);
        this.room -= length;
        this.text += bytes.toString('latin1', 0, length);
        done(length > 0 ? null : Object.assign(new Error(this.fault), { code: this.fault }), length);
      });
    },
    {
      after: (ms, run) => {
        if (ms < 100) this.done.push(run);
        else systemClock.after(ms, run);
        return { cancel: () => undefined };
      },
    },
  );

  constructor(room: number) {
    this.room = room;
  }

  /** Lets every write that was begun end. */
  turn(): void {
    for (let next = this.done.shift(); next !== undefined; next = this.done.shift()) next();
  }
}

test('writes in order what a full disk delayed', () => {
  const disk = new SmallDisk(8);
  disk.output.write('first\n');
  disk.output.write('second\n');
  disk.turn();
  disk.output.write('third\n');
  disk.turn();
  expect(disk.text).toBe('first\nse');
  disk.room = 100;
  disk.output.write('fourth\n');
  disk.turn();
  expect(disk.text).toBe('first\nsecond\nthird\nfourth\n');
});

test('lines of a short time are written together', () => {
  const disk = new SmallDisk(100);
  for (const line of ['first\n', 'second\n', 'third\n']) disk.output.write(line);
  disk.turn();
  expect([disk.text, disk.writes]).toEqual(['first\nsecond\nthird\n', 1]);
});

test('bounds what waits for a full disk', () => {
  const disk = new SmallDisk(0);
  const line = `${'x'.repeat(1023)}\n`;
  for (let i = 0; i < 5000; i++) {
    disk.output.write(line);
    disk.turn();
  }
  disk.room = 10_000_000;
  disk.output.write('');
  disk.turn();
  expect(disk.text.length).toBeGreaterThan(1_000_000);
  expect(disk.text.length).toBeLessThan(1_100_000);
});

test('writes again to a reader that paused', async () => {
  const disk = new SmallDisk(0);
  disk.fault = 'EAGAIN';
  disk.output.write('first\n');
  disk.turn();
  disk.room = 100;
  await expect.poll(() => disk.turn() ?? disk.text).toBe('first\n');
});
