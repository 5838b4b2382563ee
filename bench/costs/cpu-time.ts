import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import { text } from 'node:stream/consumers';

/** What a command took, with all processes that it started and waited for. */
export interface Cost {
  readonly status: number;
  readonly cpuS: number;
  readonly wallS: number;
}

/** Runs a command; what it prints is to be seen. */
export async function costOf(command: readonly string[]): Promise<Cost> {
  const startedAtMs = performance.now();
  const script = '"$@"; status=$?; times >&3; exit $status';
  const child = spawn('sh', ['-c', script, 'sh', ...command], {
    stdio: ['inherit', 'inherit', 'inherit', 'pipe'],
  });
  const ended = once(child, 'exit');
  const times = await text(child.stdio[3] as NodeJS.ReadableStream);
  const [status] = (await ended) as [number | null];
  return { status: status ?? 1, cpuS: secondsIn(times), wallS: (performance.now() - startedAtMs) / 1000 };
}

/** Adds up what `times` says of a shell's children, which is in its second line. */
function secondsIn(times: string): number {
  const [, ofChildren = ''] = times.split('\n');
  return [...ofChildren.matchAll(/(\d+)m([\d.]+)s/g)].reduce(
    (sum, [, minutes, seconds]) => sum + 60 * Number(minutes) + Number(seconds),
    0,
  );
}

/** About a second of what tests do: text, JSON, digests, short-lived objects. */
const WORK = `
const { createHash } = require('node:crypto');
let text = '{}';
for (let i = 0; i < 12_000; i++) {
  const digest = createHash('sha256').update(text).digest('hex');
  const all = Array.from({ length: 60 }, (_, at) => ({ at, digest: digest.replace(/[a-f]/g, String(at)) }));
  text = JSON.stringify(all.sort((a, b) => b.digest.localeCompare(a.digest)));
  JSON.parse(text);
}`;

/**
 * Processor seconds of a fixed computation, on every core at once, as tests run. Those of other work on the same machine are
 * compared with them: seconds of two machines are not.
 */
export async function yardstickS(): Promise<number> {
  const cores = availableParallelism();
  const runs = Array.from({ length: cores }, () => costOf([process.execPath, '-e', WORK]));
  return (await Promise.all(runs)).reduce((sum, { cpuS }) => sum + cpuS, 0) / cores;
}
