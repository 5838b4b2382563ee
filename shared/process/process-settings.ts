import { choice, integer, port, text } from './load-config.ts';

/** The settings that every process has. */
export const processSettings = (adminPort: number) => ({
  LOG_LEVEL: choice(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], 'info').help(
    'Lowest level that is logged',
  ),
  ADMIN_HOST: text('127.0.0.1').help('Address of the admin listener: `/livez`, `/readyz`, `/metrics`'),
  ADMIN_PORT: port(adminPort).help('Port of the admin listener'),
  DRAIN_MS: integer(0, 300_000, 'ms', 1000).help(
    'Time after SIGTERM in which the process still answers requests, closes each connection after its answer, and answers 503 at `/readyz`. Set it longer than your load balancer needs to notice the 503',
  ),
  SHUTDOWN_GRACE_MS: integer(0, 300_000, 'ms', 10_000).deprecated(
    'Longest time that requests in flight may take to finish after DRAIN_MS',
  ),
});
