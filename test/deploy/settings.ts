import { processLimits } from '#shared/process/process-settings.ts';
import { settings as controlPlane } from '../../control-plane/config.ts';
import { settings as verifier } from '../../verifier/config.ts';

const OF = { 'control-plane/main.js': controlPlane, 'verifier/main.js': verifier } as const;
const settingsBy = (command: readonly string[]): typeof controlPlane | typeof verifier | undefined =>
  Object.hasOwn(OF, command.at(-1) ?? '') ? OF[command.at(-1) as keyof typeof OF] : undefined;

/** Time that a process takes to stop at most, after its preStop hook, in milliseconds; 0 for other programs. */
export function graceMs(
  command: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): number {
  const of = settingsBy(command);
  if (!of) return 0;
  const times = Object.entries(of).filter(([name]) => name === 'DRAIN_MS' || name === 'STOP_WAIT_MS');
  const sum = times.reduce((total, [name, setting]) => total + Number(env[name] ?? setting.default), 0);
  return sum + processLimits.SHUTDOWN_GRACE_MS;
}

/** The environment variables that a process started by `command` understands; undefined for other programs. */
export function settingsOf(command: readonly string[]): Set<string> | undefined {
  const of = settingsBy(command);
  if (!of) return undefined;
  const secrets = Object.entries(of).filter(([, setting]) => setting.secret);
  return new Set([...Object.keys(of), ...secrets.map(([name]) => `${name}_FILE`)]);
}
