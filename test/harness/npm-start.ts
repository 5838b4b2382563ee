import { spawn } from 'node:child_process';
import { bareEnv } from './bare-machine.ts';
import { ROOT } from './built.ts';
import { freePort } from './ports.ts';
import { eventually } from './waiting.ts';

/** The environment of an `npm start` with a folder and ports of its own. */
export async function envOfStart(data: string): Promise<NodeJS.ProcessEnv> {
  const names = ['CONTROL_PLANE_PORT', 'CONTROL_PLANE_ADMIN_PORT', 'VERIFIER_PORT', 'VERIFIER_ADMIN_PORT'];
  const ports = await Promise.all(names.map(async (name) => [name, String(await freePort())]));
  return bareEnv({ KEYFENCE_DATA: data, ...Object.fromEntries(ports) });
}

/** `npm start`, as somebody types it, until it is ready or has ended. */
export async function npmStartOrEnd(env: NodeJS.ProcessEnv) {
  const child = spawn('npm', ['start'], {
    cwd: ROOT,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  const listen = (chunk: Buffer) => {
    output += chunk.toString();
  };
  child.stdout.on('data', listen);
  child.stderr.on('data', listen);
  await eventually(() => output.includes('Ctrl-C stops everything') || child.exitCode !== null);
  return { child, output };
}
