import { settings as controlPlane } from '../../control-plane/config.ts';
import { settings as verifier } from '../../verifier/config.ts';

/** The environment variables that a process started by `command` understands; undefined for other programs. */
export function settingsOf(command: readonly string[]): Set<string> | undefined {
  const of = { 'control-plane/main.js': controlPlane, 'verifier/main.js': verifier }[command.at(-1) ?? ''];
  if (!of) return undefined;
  const secrets = Object.entries(of).filter(([, setting]) => setting.secret);
  return new Set([...Object.keys(of), ...secrets.map(([name]) => `${name}_FILE`)]);
}
