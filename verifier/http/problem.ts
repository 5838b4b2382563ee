import { STATUS_CODES } from 'node:http';

/** The content type of RFC 9457. */
export const PROBLEM_TYPE = 'application/problem+json';

/**
 * A refusal in the form that a gateway may hand to its client as it is (RFC 9457). Says nothing of what is behind.
 * @param problem.detail for people
 */
export function problemBody(problem: {
  status: number;
  code: string;
  detail?: string;
  requestId: string;
}): string {
  return JSON.stringify({ title: STATUS_CODES[problem.status], ...problem });
}
