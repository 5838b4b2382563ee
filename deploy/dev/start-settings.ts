import { type ConfigOf, integer } from '../../shared/process/load-config.ts';

/** Ports of `npm start`. Port 0 is refused, because the printed walk names the ports. */
export const startSettings = {
  CONTROL_PLANE_PORT: port(3000).help('Port of the control plane'),
  CONTROL_PLANE_ADMIN_PORT: port(9300).help('Port of its admin listener'),
  VERIFIER_PORT: port(3001).help('Port of the verifier'),
  VERIFIER_ADMIN_PORT: port(9301).help('Port of its admin listener'),
};

/** The values of `startSettings`. */
export type StartPorts = ConfigOf<typeof startSettings>;

/** Reports ports that two listeners would share. */
export function portFaults(ports: StartPorts): string[] {
  const names = Object.keys(ports) as (keyof StartPorts)[];
  return names.flatMap((name, i) => {
    const first = names.slice(0, i).find((other) => ports[other] === ports[name]);
    return first === undefined ? [] : [`${name}: ${ports[name]} is the port of ${first} too`];
  });
}

/**
 * Lists variables for a single process, which `npm start` ignores because it starts two; one line for each.
 */
export function unusedSettings(env: NodeJS.ProcessEnv): string[] {
  return Object.entries(INSTEAD)
    .filter(([name]) => env[name])
    .map(([name, instead]) => `${name} is not used by npm start, which starts two processes: ${instead}`);
}

const INSTEAD: Readonly<Record<string, string>> = {
  PORT: 'set CONTROL_PLANE_PORT and VERIFIER_PORT',
  ADMIN_PORT: 'set CONTROL_PLANE_ADMIN_PORT and VERIFIER_ADMIN_PORT',
  HOST: 'both listen on 127.0.0.1',
  ADMIN_HOST: 'both listen on 127.0.0.1',
};

function port(byDefault: number) {
  return integer(1, 65_535, '', byDefault);
}
