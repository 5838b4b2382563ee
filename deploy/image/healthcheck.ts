/**
 * The image's HEALTHCHECK: exits 0 if the process of this container (either of the two) answers on `/livez`.
 * The process must be reachable on loopback, so ADMIN_HOST is 0.0.0.0 (the image's default) or 127.0.0.1.
 */
const ADMIN_PORTS_BY_DEFAULT = '9300,9301';
const TIMEOUT_MS = 2000;

const ports = (process.env['ADMIN_PORT'] || ADMIN_PORTS_BY_DEFAULT).split(',');
await Promise.any(
  ports.map(async (port) => {
    const answer = await fetch(`http://127.0.0.1:${port}/livez`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!answer.ok) throw new Error(`/livez answered ${answer.status}`);
  }),
);
