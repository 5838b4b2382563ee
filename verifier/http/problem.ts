import { STATUS_CODES } from 'node:http';

/** The content type of RFC 9457. */
export const PROBLEM_TYPE = 'application/problem+json';

/**
 * Returns the body of a refusal in a form that a gateway may pass on to its client (RFC 9457). The body
 * reveals nothing about what is behind the gateway.
 * @param problem.detail text for humans
 */
export function problemBody(problem: {
  status: number;
  code: string;
  detail?: string;
  requestId: string;
}): string {
  return JSON.stringify({ title: STATUS_CODES[problem.status], ...problem });
}
