// Runs commands of the command line one after the other as it is told, each as if it had the process to itself: the
// start of a process takes ten times as long as most commands.
import { Readable } from 'node:stream';
import { run } from '../../../../control-plane/clients/cli/run.ts';
import { Session } from '../../../../control-plane/clients/cli/session.ts';
import type { Order, Run } from './keyfence.ts';

const own = { ...process.env };

process.on('message', async ({ args, env, input }: Order) => {
  const said = { stdout: '', stderr: '' };
  let exited: number | undefined;
  Object.defineProperty(process, 'stdin', { configurable: true, value: Readable.from([Buffer.from(input)]) });
  for (const name of ['stdout', 'stderr'] as const) {
    process[name].write = (text: string | Uint8Array) => {
      if (exited === undefined) said[name] += String(text);
      return true;
    };
  }
  process.exit = ((status?: number) => {
    exited = status ?? Number(process.exitCode ?? 0);
    throw new Error('the command has ended');
  }) as typeof process.exit;
  process.argv.splice(2, Number.POSITIVE_INFINITY, ...args);
  process.env = { ...env };
  process.exitCode = undefined;
  await run(new Session());
  const outcome: Run = { status: exited ?? Number(process.exitCode ?? 0), ...said };
  process.exitCode = undefined;
  process.removeAllListeners('SIGINT');
  process.env = own;
  process.send?.(outcome);
});
process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'));
