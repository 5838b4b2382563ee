import { createHmac } from 'node:crypto';

/** The beginning of signing secrets. */
export const SECRET_PREFIX = 'whsec_';

/**
 * Returns the headers of a message as Standard Webhooks 1.0.0 defines them: its id, the time of sending, and an
 * HMAC-SHA-256 with each secret.
 * @param secrets the current signing secret, and the former one while it is valid
 * @param nowMs Unix milliseconds
 */
export function signedHeaders(
  secrets: readonly string[],
  id: string,
  nowMs: number,
  body: string,
): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1000));
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.slice(SECRET_PREFIX.length), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
  });
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
  };
}
