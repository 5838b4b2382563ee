import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { inDirectory, pinned } from '../harness.ts';
import { type Contender, LOAD_CORE, wire } from './load.ts';

/**
 * A plan for `block-load.ts`: servers that are asked in turn, each with its requests as bytes on the wire.
 */
export interface Blocks {
  readonly targets: readonly {
    readonly port: number;
    /** The processes that serve it. */
    readonly pids: readonly number[];
    readonly requests: readonly string[];
  }[];
  readonly connections: number;
  /** Blocks of each server that are not counted, in which V8 compiles and caches fill. */
  readonly warmUp: number;
  readonly blocks: number;
  /** Number of requests per block. */
  readonly count: number;
}

/**
 * Measures the CPU time of a request, user and system, microseconds: a value per block for each contender.
 * All are asked over persistent connections, in blocks of some hundredths of a second and in random order, so
 * that other work of the machine affects all alike. Unlike throughput, CPU time excludes what the machine
 * does for others.
 */
export function cpuOfBlocks(
  contenders: readonly (Contender & { readonly pids: readonly number[] })[],
  size: Pick<Blocks, 'warmUp' | 'blocks' | 'count'>,
): Promise<number[][]> {
  return inDirectory(async (directory) => {
    const plan = join(directory, 'plan.json');
    const blocks: Blocks = {
      ...size,
      targets: contenders.map(({ port, pids, requests }) => ({
        ...{ port, pids },
        requests: requests.map((each) => wire(each, port)),
      })),
      connections: 32,
    };
    writeFileSync(plan, JSON.stringify(blocks));
    const [command = '', ...args] = pinned(LOAD_CORE, [
      process.execPath,
      join(import.meta.dirname, 'block-load.ts'),
      plan,
    ]);
    const { stdout } = await promisify(execFile)(command, args);
    return JSON.parse(stdout) as number[][];
  });
}

/** CPU time of all threads of a process so far, microseconds; Linux counts it in nanoseconds. */
export function cpuUs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const ran = threads.map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
  );
  return ran.reduce((sum, each) => sum + each, 0) / 1000;
}
