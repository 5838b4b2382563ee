import { ApiError } from '#shared/errors.ts';

/**
 * NOT_FOUND to a caller to whom APIs are hidden, whether it stands in place of INSUFFICIENT_PERMISSIONS or nothing is
 * there. Only the audit log is told which. Each leaves an event, or the time that it costs would tell them apart.
 */
export class Hidden extends ApiError {
  /** Outcome in the audit log. */
  readonly outcome: 'INSUFFICIENT_PERMISSIONS' | 'NOT_FOUND';

  constructor(message: string, outcome: Hidden['outcome']) {
    super('NOT_FOUND', message);
    this.outcome = outcome;
  }
}
