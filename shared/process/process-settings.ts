import { choice, host, integer, port } from './load-config.ts';

export const processSettings = (adminPort: number) => ({
  LOG_LEVEL: choice(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], 'info').help(
    'Lowest level of log lines that the process writes',
  ),
  ADMIN_HOST: host().help('Address of the admin port, which serves `/livez`, `/readyz` and `/metrics`'),
  ADMIN_PORT: port(adminPort).help('Number of the admin port'),
  DRAIN_MS: integer(0, 300_000, 'ms', 1000).help(
    'How long the process still answers after SIGTERM, with 503 at `/readyz`. Set it longer than your load balancer needs to notice that',
  ),
});

/** Limits that suit everybody. Only tests replace them. */
export const processLimits = {
  /** Longest time that requests in flight may take to finish after DRAIN_MS. */
  SHUTDOWN_GRACE_MS: 10_000,
};
